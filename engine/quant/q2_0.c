/* Q2_0: 64 values of 2 bits minus 1 and an F16 scale. */
#include "engine/quant/block32.h"

struct block_q2_0 {
    uint8_t d[2];
    uint8_t packed[16];
};
_Static_assert(sizeof(struct block_q2_0) == 18, "Q2_0 block");

static int q2_0_value(const struct block_q2_0 *b, size_t i)
{
    return (b->packed[i / 4] >> 2 * (i % 4) & 3) - 1;
}

static void q2_0_dequantize(const void *row, float *out, size_t n)
{
    const struct block_q2_0 *b = row;
    for (size_t i = 0; i < n; i++)
        out[i] = (float)q2_0_value(&b[i / 64], i % 64) * f16_to_float(load_u16(b[i / 64].d));
}

/* The 2 activation blocks of a weight block are summed with their scales first, then multiplied by its scale. */
static float q2_0_dot(const void *row, const void *act, size_t n)
{
    const struct block_q2_0 *b = row;
    const struct act_q8_0 *a = act;
    float r = 0;
    for (size_t k = 0; k < n / 64; k++) {
        float v = 0;
        for (size_t part = 0; part < 2; part++, a++) {
            int sum = 0;
            for (size_t i = 0; i < 32; i++)
                sum += q2_0_value(&b[k], 32 * part + i) * a->q[i];
            v += f16_to_float(a->d) * (float)sum;
        }
        r += f16_to_float(load_u16(b[k].d)) * v;
    }
    return r;
}

SCALAR_KERNEL(q2_0, ACT_Q8_0)

const struct format format_q2_0 = {
    .id = 42,
    .name = "Q2_0",
    .block_elements = 64,
    .block_bytes = sizeof(struct block_q2_0),
    .activation = ACT_Q8_0,
    .dequantize = q2_0_dequantize,
    .dot = q2_0_dot,
    .decode = {[TIER_SCALAR] = SCALAR(q2_0, ACT_Q8_0)},
    .prefill = {[TIER_SCALAR] = SCALAR(q2_0, ACT_Q8_0)},
};
