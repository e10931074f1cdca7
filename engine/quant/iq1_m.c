/* IQ1_M: per 8 weights an 11-bit grid index and the direction of the shift; per 16 a 3-bit scale; an F16 scale that is
 * spread over the upper nibbles of the scale words. */
#include "engine/quant/iq1.h"
#include "engine/quant/superblock_sum_avx512.h"

struct block_iq1_m {
    uint8_t index[32];
    uint8_t high[16];
    uint8_t scales[4][2];
};
_Static_assert(sizeof(struct block_iq1_m) == 56, "IQ1_M block");

static void iq1_m_unpack(const void *block, struct iq1_block *out)
{
    const struct block_iq1_m *b = block;
    unsigned d = 0;
    for (int k = 0; k < 4; k++)
        d |= (unsigned)(load_u16(b->scales[k]) >> 12) << 4 * k;
    out->d = f16_to_float((uint16_t)d);
    for (int g = 0; g < 32; g++) {
        int high = b->high[g / 2] >> 4 * (g % 2) & 15, pair = g / 2;
        out->scale[g] = (int8_t)(2 * (load_u16(b->scales[pair / 4]) >> 3 * (pair % 4) & 7) + 1);
        out->delta[g] = high & 8 ? -1 : 1;
        memcpy(out->q + 8 * g, grid_iq1[b->index[g] + 256 * (high & 7)], 8);
    }
}

static void iq1_m_dequantize(const void *row, float *out, size_t n)
{
    iq1_dequantize(row, out, n, sizeof(struct block_iq1_m), iq1_m_unpack);
}

static float iq1_m_dot(const void *row, const void *act, size_t n)
{
    return iq1_dot(row, act, n, sizeof(struct block_iq1_m), iq1_m_unpack);
}

SCALAR_KERNEL(iq1_m, ACT_Q8_K)

#if defined(__x86_64__)
QUANT_INLINE void iq1_m_unpack_eighths(const void *block, struct superblock *out)
{
    iq1_unpack_eighths(block, out, iq1_m_unpack);
}

SUPERBLOCK_UNPACKED_AVX512(iq1_m, iq1_m_unpack_eighths, sizeof(struct block_iq1_m), 0.125f, 1)
#endif

const struct format format_iq1_m = {
    .id = 29,
    .name = "IQ1_M",
    .block_elements = 256,
    .block_bytes = sizeof(struct block_iq1_m),
    .activation = ACT_Q8_K,
    .dequantize = iq1_m_dequantize,
    .dot = iq1_m_dot,
    .decode = {[TIER_SCALAR] = SCALAR(iq1_m, ACT_Q8_K), SUPERBLOCK_DECODE_AVX512(iq1_m)},
    .prefill = {[TIER_SCALAR] = SCALAR(iq1_m, ACT_Q8_K), SUPERBLOCK_PREFILL_AVX512(iq1_m)},
};
