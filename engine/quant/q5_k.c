/* Q5_K: 256 values of 5 bits (nibbles and high bits); eight 6-bit pairs of scale and minimum; F16 scales of both. */
#include "engine/quant/superblock.h"

struct block_q5_k {
    uint8_t d[2], dmin[2];
    uint8_t scale_min[12];
    uint8_t high[32];
    uint8_t nibbles[128];
};
_Static_assert(sizeof(struct block_q5_k) == 176, "Q5_K block");

static void q5_k_unpack(const void *block, struct superblock *out)
{
    const struct block_q5_k *b = block;
    out->d = f16_to_float(load_u16(b->d));
    out->dmin = f16_to_float(load_u16(b->dmin));
    scale_min_unpack(b->scale_min, out->scale, out->min);
    nibbles_256_unpack(b->nibbles, out->q);
    for (int i = 0; i < 256; i++)
        out->q[i] = (int8_t)(out->q[i] + 16 * (b->high[i % 32] >> i / 32 & 1));
}

static void q5_k_dequantize(const void *row, float *out, size_t n)
{
    superblock_dequantize_min(row, out, n, sizeof(struct block_q5_k), q5_k_unpack);
}

static float q5_k_dot(const void *row, const void *act, size_t n)
{
    return superblock_dot_lanes(row, act, n, sizeof(struct block_q5_k), q5_k_unpack, true);
}

SCALAR_KERNEL(q5_k, ACT_Q8_K)

const struct format format_q5_k = {
    .id = 13,
    .name = "Q5_K",
    .block_elements = 256,
    .block_bytes = sizeof(struct block_q5_k),
    .activation = ACT_Q8_K,
    .dequantize = q5_k_dequantize,
    .dot = q5_k_dot,
    .decode = {[TIER_SCALAR] = SCALAR(q5_k, ACT_Q8_K)},
    .prefill = {[TIER_SCALAR] = SCALAR(q5_k, ACT_Q8_K)},
};
