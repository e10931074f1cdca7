/* Q3_K: 256 values of 3 bits (two and a high one) minus 4; 16 scales of 6 bits minus 32; an F16 scale of these. */
#include "engine/quant/superblock.h"

struct block_q3_k {
    uint8_t high[32];
    uint8_t packed[64];
    uint8_t scales[12];
    uint8_t d[2];
};
_Static_assert(sizeof(struct block_q3_k) == 110, "Q3_K block");

static void q3_k_unpack(const void *block, struct superblock *out)
{
    const struct block_q3_k *b = block;
    const uint8_t *p = b->scales;
    out->d = f16_to_float(load_u16(b->d));
    for (int j = 0; j < 16; j++) {
        int low = j < 8 ? p[j] & 15 : p[j - 8] >> 4;
        out->scale[j] = (int16_t)(low + 16 * (p[8 + j % 4] >> 2 * (j / 4) & 3) - 32);
    }
    two_bits_unpack(b->packed, out->q);
    for (int i = 0; i < 256; i++)
        out->q[i] = (int8_t)(out->q[i] - (b->high[i % 32] >> i / 32 & 1 ? 0 : 4));
}

static void q3_k_dequantize(const void *row, float *out, size_t n)
{
    superblock_dequantize(row, out, n, sizeof(struct block_q3_k), q3_k_unpack, 1);
}

static float q3_k_dot(const void *row, const void *act, size_t n)
{
    return superblock_dot_lanes(row, act, n, sizeof(struct block_q3_k), q3_k_unpack, false);
}

SCALAR_KERNEL(q3_k, ACT_Q8_K)

const struct format format_q3_k = {
    .id = 11,
    .name = "Q3_K",
    .block_elements = 256,
    .block_bytes = sizeof(struct block_q3_k),
    .activation = ACT_Q8_K,
    .dequantize = q3_k_dequantize,
    .dot = q3_k_dot,
    .decode = {[TIER_SCALAR] = SCALAR(q3_k, ACT_Q8_K)},
    .prefill = {[TIER_SCALAR] = SCALAR(q3_k, ACT_Q8_K)},
};
