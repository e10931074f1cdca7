/* IQ4_NL: 32 nibbles that index 16 uneven values, and an F16 scale. */
#include "engine/quant/block32.h"
#include "engine/quant/tables.h"

struct block_iq4_nl {
    uint8_t d[2];
    uint8_t nibbles[16];
};
_Static_assert(sizeof(struct block_iq4_nl) == 18, "IQ4_NL block");

static void iq4_nl_unpack(const void *block, struct block32 *out)
{
    const struct block_iq4_nl *b = block;
    out->d = f16_to_float(load_u16(b->d));
    nibbles_unpack(b->nibbles, out->q);
    for (int i = 0; i < 32; i++)
        out->q[i] = table_iq4_nl[out->q[i]];
}

static void iq4_nl_dequantize(const void *row, float *out, size_t n)
{
    block32_dequantize(row, out, n, sizeof(struct block_iq4_nl), iq4_nl_unpack);
}

static float iq4_nl_dot(const void *row, const void *act, size_t n)
{
    return block32_dot(row, act, n, sizeof(struct block_iq4_nl), iq4_nl_unpack);
}

SCALAR_KERNEL(iq4_nl, ACT_Q8_0)

const struct format format_iq4_nl = {
    .id = 20,
    .name = "IQ4_NL",
    .block_elements = 32,
    .block_bytes = sizeof(struct block_iq4_nl),
    .activation = ACT_Q8_0,
    .dequantize = iq4_nl_dequantize,
    .dot = iq4_nl_dot,
    .decode = {[TIER_SCALAR] = SCALAR(iq4_nl, ACT_Q8_0)},
    .prefill = {[TIER_SCALAR] = SCALAR(iq4_nl, ACT_Q8_0)},
};
