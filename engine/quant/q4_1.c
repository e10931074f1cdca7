/* Q4_1: 32 nibbles, an F16 scale and an F16 minimum. */
#include "engine/quant/block32.h"

struct block_q4_1 {
    uint8_t d[2], m[2];
    uint8_t nibbles[16];
};
_Static_assert(sizeof(struct block_q4_1) == 20, "Q4_1 block");

static void q4_1_unpack(const void *block, struct block32 *out)
{
    const struct block_q4_1 *b = block;
    out->d = f16_to_float(load_u16(b->d));
    out->m = f16_to_float(load_u16(b->m));
    nibbles_unpack(b->nibbles, out->q);
}

static void q4_1_dequantize(const void *row, float *out, size_t n)
{
    block32_dequantize_min(row, out, n, sizeof(struct block_q4_1), q4_1_unpack);
}

static float q4_1_dot(const void *row, const void *act, size_t n)
{
    return block32_dot_min(row, act, n, sizeof(struct block_q4_1), q4_1_unpack);
}

SCALAR_KERNEL(q4_1, ACT_Q8_1)

const struct format format_q4_1 = {
    .id = 3,
    .name = "Q4_1",
    .block_elements = 32,
    .block_bytes = sizeof(struct block_q4_1),
    .activation = ACT_Q8_1,
    .dequantize = q4_1_dequantize,
    .dot = q4_1_dot,
    .decode = {[TIER_SCALAR] = SCALAR(q4_1, ACT_Q8_1)},
    .prefill = {[TIER_SCALAR] = SCALAR(q4_1, ACT_Q8_1)},
};
