/* Q6_K: 256 values of 6 bits (nibbles and two high bits) minus 32; 16 signed byte scales; an F16 scale of these. */
#include "engine/quant/superblock.h"

struct block_q6_k {
    uint8_t low[128];
    uint8_t high[64];
    int8_t scales[16];
    uint8_t d[2];
};
_Static_assert(sizeof(struct block_q6_k) == 210, "Q6_K block");

static void q6_k_unpack(const void *block, struct superblock *out)
{
    const struct block_q6_k *b = block;
    out->d = f16_to_float(load_u16(b->d));
    for (int j = 0; j < 16; j++)
        out->scale[j] = b->scales[j];
    for (int i = 0; i < 256; i++) {
        int half = i / 128, quarter = i / 32 % 4, l = i % 32;
        int low = b->low[64 * half + 32 * (quarter % 2) + l] >> 4 * (quarter / 2) & 15;
        int high = b->high[32 * half + l] >> 2 * quarter & 3;
        out->q[i] = (int8_t)(low + 16 * high - 32);
    }
}

static void q6_k_dequantize(const void *row, float *out, size_t n)
{
    superblock_dequantize(row, out, n, sizeof(struct block_q6_k), q6_k_unpack, 1);
}

static float q6_k_dot(const void *row, const void *act, size_t n)
{
    return superblock_dot_lanes(row, act, n, sizeof(struct block_q6_k), q6_k_unpack, false);
}

SCALAR_KERNEL(q6_k, ACT_Q8_K)

const struct format format_q6_k = {
    .id = 14,
    .name = "Q6_K",
    .block_elements = 256,
    .block_bytes = sizeof(struct block_q6_k),
    .activation = ACT_Q8_K,
    .dequantize = q6_k_dequantize,
    .dot = q6_k_dot,
    .decode = {[TIER_SCALAR] = SCALAR(q6_k, ACT_Q8_K)},
    .prefill = {[TIER_SCALAR] = SCALAR(q6_k, ACT_Q8_K)},
};
