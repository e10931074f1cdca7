/* X2_0, the worked example of docs/adding-a-format.md: 32 values of 2 bits minus 2 and an F16 scale. */
#include "engine/quant/block32.h"

struct block_x2_0 {
    uint8_t d[2];
    uint8_t packed[8]; /* element i in bits 2 * (i mod 4) of byte i / 4 */
};
_Static_assert(sizeof(struct block_x2_0) == 10, "X2_0 block");

static void x2_0_unpack(const void *block, struct block32 *out)
{
    const struct block_x2_0 *b = block;
    out->d = f16_to_float(load_u16(b->d));
    for (int i = 0; i < 32; i++)
        out->q[i] = (int8_t)((b->packed[i / 4] >> 2 * (i % 4) & 3) - 2);
}

static void x2_0_dequantize(const void *row, float *out, size_t n)
{
    block32_dequantize(row, out, n, sizeof(struct block_x2_0), x2_0_unpack);
}

static float x2_0_dot(const void *row, const void *act, size_t n)
{
    return block32_dot(row, act, n, sizeof(struct block_x2_0), x2_0_unpack);
}

SCALAR_KERNEL(x2_0, ACT_Q8_0)

extern const struct format format_x2_0;
const struct format format_x2_0 = {
    .id = 1000,
    .name = "X2_0",
    .block_elements = 32,
    .block_bytes = sizeof(struct block_x2_0),
    .activation = ACT_Q8_0,
    .dequantize = x2_0_dequantize,
    .dot = x2_0_dot,
    .decode = {[TIER_SCALAR] = SCALAR(x2_0, ACT_Q8_0)},
    .prefill = {[TIER_SCALAR] = SCALAR(x2_0, ACT_Q8_0)},
};
