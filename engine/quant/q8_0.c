/* Q8_0: 32 signed bytes and an F16 scale. */
#include "engine/quant/block32.h"

struct block_q8_0 {
    uint8_t d[2];
    int8_t q[32];
};
_Static_assert(sizeof(struct block_q8_0) == 34, "Q8_0 block");

static void q8_0_unpack(const void *block, struct block32 *out)
{
    const struct block_q8_0 *b = block;
    out->d = f16_to_float(load_u16(b->d));
    memcpy(out->q, b->q, sizeof b->q);
}

static void q8_0_dequantize(const void *row, float *out, size_t n)
{
    block32_dequantize(row, out, n, sizeof(struct block_q8_0), q8_0_unpack);
}

static float q8_0_dot(const void *row, const void *act, size_t n)
{
    return block32_dot(row, act, n, sizeof(struct block_q8_0), q8_0_unpack);
}

SCALAR_KERNEL(q8_0, ACT_Q8_0)

const struct format format_q8_0 = {
    .id = 8,
    .name = "Q8_0",
    .block_elements = 32,
    .block_bytes = sizeof(struct block_q8_0),
    .activation = ACT_Q8_0,
    .dequantize = q8_0_dequantize,
    .dot = q8_0_dot,
    .decode = {[TIER_SCALAR] = SCALAR(q8_0, ACT_Q8_0)},
    .prefill = {[TIER_SCALAR] = SCALAR(q8_0, ACT_Q8_0)},
};
