/* IQ4_XS: 256 nibbles that index 16 uneven values; eight 6-bit scales minus 32; an F16 scale of these. */
#include "engine/quant/superblock.h"
#include "engine/quant/tables.h"

struct block_iq4_xs {
    uint8_t d[2];
    uint8_t scales_high[2];
    uint8_t scales_low[4];
    uint8_t nibbles[128];
};
_Static_assert(sizeof(struct block_iq4_xs) == 136, "IQ4_XS block");

static void iq4_xs_unpack(const void *block, struct superblock *out)
{
    const struct block_iq4_xs *b = block;
    out->d = f16_to_float(load_u16(b->d));
    for (int j = 0; j < 8; j++) {
        int low = b->scales_low[j / 2] >> 4 * (j % 2) & 15, high = load_u16(b->scales_high) >> 2 * j & 3;
        out->scale[2 * j] = out->scale[2 * j + 1] = (int16_t)(low + 16 * high - 32);
        nibbles_unpack(b->nibbles + 16 * j, out->q + 32 * j);
    }
    for (int i = 0; i < 256; i++)
        out->q[i] = table_iq4_nl[out->q[i]];
}

static void iq4_xs_dequantize(const void *row, float *out, size_t n)
{
    superblock_dequantize(row, out, n, sizeof(struct block_iq4_xs), iq4_xs_unpack, 1);
}

/* One addition per 32 weights, unlike the other super-block formats. */
static float iq4_xs_dot(const void *row, const void *act, size_t n)
{
    const struct block_iq4_xs *b = row;
    const struct act_q8_k *a = act;
    struct superblock w;
    float r = 0;
    for (size_t i = 0; i < n / 256; i++) {
        iq4_xs_unpack(&b[i], &w);
        float d = w.d * a[i].d;
        for (int j = 0; j < 8; j++)
            r += (d * (float)w.scale[2 * j]) * (float)block32_sum(w.q + 32 * j, a[i].q + 32 * j);
    }
    return r;
}

SCALAR_KERNEL(iq4_xs, ACT_Q8_K)

const struct format format_iq4_xs = {
    .id = 23,
    .name = "IQ4_XS",
    .block_elements = 256,
    .block_bytes = sizeof(struct block_iq4_xs),
    .activation = ACT_Q8_K,
    .dequantize = iq4_xs_dequantize,
    .dot = iq4_xs_dot,
    .decode = {[TIER_SCALAR] = SCALAR(iq4_xs, ACT_Q8_K)},
    .prefill = {[TIER_SCALAR] = SCALAR(iq4_xs, ACT_Q8_K)},
};
