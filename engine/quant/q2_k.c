/* Q2_K: 256 values of 2 bits; 16 nibble pairs of scale and minimum; F16 scales of both. */
#include "engine/quant/superblock.h"

struct block_q2_k {
    uint8_t scale_min[16];
    uint8_t packed[64];
    uint8_t d[2], dmin[2];
};
_Static_assert(sizeof(struct block_q2_k) == 84, "Q2_K block");

static void q2_k_unpack(const void *block, struct superblock *out)
{
    const struct block_q2_k *b = block;
    out->d = f16_to_float(load_u16(b->d));
    out->dmin = f16_to_float(load_u16(b->dmin));
    for (int j = 0; j < 16; j++) {
        out->scale[j] = b->scale_min[j] & 15;
        out->min[j] = b->scale_min[j] >> 4;
    }
    two_bits_unpack(b->packed, out->q);
}

static void q2_k_dequantize(const void *row, float *out, size_t n)
{
    superblock_dequantize_min(row, out, n, sizeof(struct block_q2_k), q2_k_unpack);
}

static float q2_k_dot(const void *row, const void *act, size_t n)
{
    const struct block_q2_k *b = row;
    const struct act_q8_k *a = act;
    struct superblock w;
    float r = 0;
    for (size_t i = 0; i < n / 256; i++) {
        q2_k_unpack(&b[i], &w);
        float scaled = (a[i].d * w.d) * (float)superblock_sum(&w, a[i].q);
        r += scaled - (a[i].d * w.dmin) * (float)superblock_min_sum(&w, a[i].sums);
    }
    return r;
}

SCALAR_KERNEL(q2_k, ACT_Q8_K)

const struct format format_q2_k = {
    .id = 10,
    .name = "Q2_K",
    .block_elements = 256,
    .block_bytes = sizeof(struct block_q2_k),
    .activation = ACT_Q8_K,
    .dequantize = q2_k_dequantize,
    .dot = q2_k_dot,
    .decode = {[TIER_SCALAR] = SCALAR(q2_k, ACT_Q8_K)},
    .prefill = {[TIER_SCALAR] = SCALAR(q2_k, ACT_Q8_K)},
};
