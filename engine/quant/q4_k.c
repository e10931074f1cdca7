/* Q4_K: 256 nibbles; eight 6-bit pairs of scale and minimum; F16 scales of both. */
#include "engine/quant/superblock.h"

struct block_q4_k {
    uint8_t d[2], dmin[2];
    uint8_t scale_min[12];
    uint8_t nibbles[128];
};
_Static_assert(sizeof(struct block_q4_k) == 144, "Q4_K block");

static void q4_k_unpack(const void *block, struct superblock *out)
{
    const struct block_q4_k *b = block;
    out->d = f16_to_float(load_u16(b->d));
    out->dmin = f16_to_float(load_u16(b->dmin));
    scale_min_unpack(b->scale_min, out->scale, out->min);
    nibbles_256_unpack(b->nibbles, out->q);
}

static void q4_k_dequantize(const void *row, float *out, size_t n)
{
    superblock_dequantize_min(row, out, n, sizeof(struct block_q4_k), q4_k_unpack);
}

static float q4_k_dot(const void *row, const void *act, size_t n)
{
    return superblock_dot_lanes(row, act, n, sizeof(struct block_q4_k), q4_k_unpack, true);
}

SCALAR_KERNEL(q4_k, ACT_Q8_K)

const struct format format_q4_k = {
    .id = 12,
    .name = "Q4_K",
    .block_elements = 256,
    .block_bytes = sizeof(struct block_q4_k),
    .activation = ACT_Q8_K,
    .dequantize = q4_k_dequantize,
    .dot = q4_k_dot,
    .decode = {[TIER_SCALAR] = SCALAR(q4_k, ACT_Q8_K)},
    .prefill = {[TIER_SCALAR] = SCALAR(q4_k, ACT_Q8_K)},
};
