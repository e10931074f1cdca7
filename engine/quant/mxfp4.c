/* MXFP4: 32 E2M1 values and a power-of-two scale (E8M0). */
#include "engine/quant/block32.h"
#include "engine/quant/tables.h"

struct block_mxfp4 {
    uint8_t exponent;
    uint8_t nibbles[16];
};
_Static_assert(sizeof(struct block_mxfp4) == 17, "MXFP4 block");

/* 2^(e - 128): half the E8M0 value, because the table holds twice the E2M1 values. Subnormal for 0 and 1. */
static float half_scale(uint8_t e)
{
    return bits_float(e < 2 ? 0x00200000u << e : (uint32_t)(e - 1) << 23);
}

static void mxfp4_unpack(const void *block, struct block32 *out)
{
    const struct block_mxfp4 *b = block;
    out->d = half_scale(b->exponent);
    nibbles_unpack(b->nibbles, out->q);
    for (int i = 0; i < 32; i++)
        out->q[i] = table_fp4[out->q[i]];
}

static void mxfp4_dequantize(const void *row, float *out, size_t n)
{
    block32_dequantize(row, out, n, sizeof(struct block_mxfp4), mxfp4_unpack);
}

static float mxfp4_dot(const void *row, const void *act, size_t n)
{
    return block32_dot(row, act, n, sizeof(struct block_mxfp4), mxfp4_unpack);
}

SCALAR_KERNEL(mxfp4, ACT_Q8_0)

const struct format format_mxfp4 = {
    .id = 39,
    .name = "MXFP4",
    .block_elements = 32,
    .block_bytes = sizeof(struct block_mxfp4),
    .activation = ACT_Q8_0,
    .dequantize = mxfp4_dequantize,
    .dot = mxfp4_dot,
    .decode = {[TIER_SCALAR] = SCALAR(mxfp4, ACT_Q8_0)},
    .prefill = {[TIER_SCALAR] = SCALAR(mxfp4, ACT_Q8_0)},
};
