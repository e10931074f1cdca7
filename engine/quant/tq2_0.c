/* TQ2_0: 256 values of 2 bits minus 1 (encoders write -1, 0, 1) and an F16 scale. */
#include "engine/quant/superblock.h"

struct block_tq2_0 {
    uint8_t packed[64];
    uint8_t d[2];
};
_Static_assert(sizeof(struct block_tq2_0) == 66, "TQ2_0 block");

static void tq2_0_unpack(const void *block, struct superblock *out)
{
    const struct block_tq2_0 *b = block;
    out->d = f16_to_float(load_u16(b->d));
    two_bits_unpack(b->packed, out->q);
    for (int i = 0; i < 256; i++)
        out->q[i] = (int8_t)(out->q[i] - 1);
    for (int j = 0; j < 16; j++)
        out->scale[j] = 1;
}

static void tq2_0_dequantize(const void *row, float *out, size_t n)
{
    superblock_dequantize(row, out, n, sizeof(struct block_tq2_0), tq2_0_unpack, 1);
}

static float tq2_0_dot(const void *row, const void *act, size_t n)
{
    return superblock_dot(row, act, n, sizeof(struct block_tq2_0), tq2_0_unpack, 1);
}

SCALAR_KERNEL(tq2_0, ACT_Q8_K)

const struct format format_tq2_0 = {
    .id = 35,
    .name = "TQ2_0",
    .block_elements = 256,
    .block_bytes = sizeof(struct block_tq2_0),
    .activation = ACT_Q8_K,
    .dequantize = tq2_0_dequantize,
    .dot = tq2_0_dot,
    .decode = {[TIER_SCALAR] = SCALAR(tq2_0, ACT_Q8_K)},
    .prefill = {[TIER_SCALAR] = SCALAR(tq2_0, ACT_Q8_K)},
};
