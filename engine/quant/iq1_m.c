/* IQ1_M: per 8 weights an 11-bit grid index and the direction of the shift; per 16 a 3-bit scale; an F16 scale that is
 * spread over the upper nibbles of the scale words. */
#include "engine/quant/iq1.h"

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
AVX512_INLINE void iq1_m_load_avx512(const uint8_t *x, struct iq1_avx512 *out)
{
    const __m256i shift = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
    const struct block_iq1_m *b = (const void *)x;
    UNROLL
    for (size_t k = 0; k < 4; k++) {
        __m256i high = index_high(load_u32(b->high + 4 * k), shift, 7);
        iq1_entries_avx512(_mm256_or_si256(index_of_8(b->index + 8 * k), high), k, out);
    }
    /* the fourth bit of every nibble to the top of a byte */
    __m128i high = _mm_loadu_si128((const void *)b->high), low = _mm_slli_epi16(high, 4);
    out->minus = _mm256_movepi8_mask(_mm256_set_m128i(_mm_unpackhi_epi8(low, high), _mm_unpacklo_epi8(low, high)));
    uint64_t words = load_u64(b->scales[0]);
    const __m256i spread = _mm256_setr_epi64x(0x0100010001000100, 0x0302030203020302, 0x0504050405040504,
                                              0x0706070607060706);
    __m256i copies = _mm256_shuffle_epi8(_mm256_set1_epi64x((long long)words), spread);
    copies = _mm256_srlv_epi16(copies, _mm256_set1_epi64x(0x0009000600030000));
    out->scale = odd_scales(_mm256_and_si256(copies, _mm256_set1_epi16(7)));
    uint64_t d = (words >> 12 & 0xf) | (words >> 24 & 0xf0) | (words >> 36 & 0xf00) | (words >> 48 & 0xf000);
    out->d = _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128((int)d)));
}

IQ1_AVX512(iq1_m, sizeof(struct block_iq1_m))
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
