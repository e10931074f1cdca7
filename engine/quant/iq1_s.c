/* IQ1_S: per 8 weights an 11-bit grid index; per 32 a 3-bit scale and the direction of the shift; an F16 scale. */
#include "engine/quant/iq1.h"
#include "engine/quant/superblock_sum_avx512.h"

struct block_iq1_s {
    uint8_t d[2];
    uint8_t index[32];
    uint8_t high[8][2];
};
_Static_assert(sizeof(struct block_iq1_s) == 50, "IQ1_S block");

static void iq1_s_unpack(const void *block, struct iq1_block *out)
{
    const struct block_iq1_s *b = block;
    out->d = f16_to_float(load_u16(b->d));
    for (int g = 0; g < 32; g++) {
        int high = load_u16(b->high[g / 4]);
        out->scale[g] = (int8_t)(2 * (high >> 12 & 7) + 1);
        out->delta[g] = high >> 15 ? -1 : 1;
        memcpy(out->q + 8 * g, grid_iq1[b->index[g] + 256 * (high >> 3 * (g % 4) & 7)], 8);
    }
}

static void iq1_s_dequantize(const void *row, float *out, size_t n)
{
    iq1_dequantize(row, out, n, sizeof(struct block_iq1_s), iq1_s_unpack);
}

static float iq1_s_dot(const void *row, const void *act, size_t n)
{
    return iq1_dot(row, act, n, sizeof(struct block_iq1_s), iq1_s_unpack);
}

SCALAR_KERNEL(iq1_s, ACT_Q8_K)

#if defined(__x86_64__)
QUANT_INLINE void iq1_s_unpack_eighths(const void *block, struct superblock *out)
{
    iq1_unpack_eighths(block, out, iq1_s_unpack);
}

SUPERBLOCK_UNPACKED_AVX512(iq1_s, iq1_s_unpack_eighths, sizeof(struct block_iq1_s), 0.125f, 1)
#endif

const struct format format_iq1_s = {
    .id = 19,
    .name = "IQ1_S",
    .block_elements = 256,
    .block_bytes = sizeof(struct block_iq1_s),
    .activation = ACT_Q8_K,
    .dequantize = iq1_s_dequantize,
    .dot = iq1_s_dot,
    .decode = {[TIER_SCALAR] = SCALAR(iq1_s, ACT_Q8_K), SUPERBLOCK_DECODE_AVX512(iq1_s)},
    .prefill = {[TIER_SCALAR] = SCALAR(iq1_s, ACT_Q8_K), SUPERBLOCK_PREFILL_AVX512(iq1_s)},
};
