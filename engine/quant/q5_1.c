/* Q5_1: 32 values of 5 bits (nibbles and 32 high bits), an F16 scale and an F16 minimum. */
#include "engine/quant/block32.h"

struct block_q5_1 {
    uint8_t d[2], m[2];
    uint8_t high[4];
    uint8_t nibbles[16];
};
_Static_assert(sizeof(struct block_q5_1) == 24, "Q5_1 block");

static void q5_1_unpack(const void *block, struct block32 *out)
{
    const struct block_q5_1 *b = block;
    uint32_t high = load_u32(b->high);
    out->d = f16_to_float(load_u16(b->d));
    out->m = f16_to_float(load_u16(b->m));
    nibbles_unpack(b->nibbles, out->q);
    for (int i = 0; i < 32; i++)
        out->q[i] = (int8_t)(out->q[i] + (high >> i & 1 ? 16 : 0));
}

static void q5_1_dequantize(const void *row, float *out, size_t n)
{
    block32_dequantize_min(row, out, n, sizeof(struct block_q5_1), q5_1_unpack);
}

static float q5_1_dot(const void *row, const void *act, size_t n)
{
    return block32_dot_min(row, act, n, sizeof(struct block_q5_1), q5_1_unpack);
}

SCALAR_KERNEL(q5_1, ACT_Q8_1)

const struct format format_q5_1 = {
    .id = 7,
    .name = "Q5_1",
    .block_elements = 32,
    .block_bytes = sizeof(struct block_q5_1),
    .activation = ACT_Q8_1,
    .dequantize = q5_1_dequantize,
    .dot = q5_1_dot,
    .decode = {[TIER_SCALAR] = SCALAR(q5_1, ACT_Q8_1)},
    .prefill = {[TIER_SCALAR] = SCALAR(q5_1, ACT_Q8_1)},
};
