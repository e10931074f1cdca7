/* IQ1_M: per 8 weights an 11-bit grid index and the direction of the shift; per 16 a 3-bit scale; an F16 scale that is
 * spread over the upper nibbles of the scale words. */
#include "engine/quant/iq1.h"
#include "engine/quant/neon.h"
#include "engine/quant/superblock_avx2.h"

struct block_iq1_m {
    uint8_t index[32];
    uint8_t high[16];
    uint8_t scales[4][2];
};
_Static_assert(sizeof(struct block_iq1_m) == 56, "IQ1_M block");

/* The F16 scale. */
static uint16_t iq1_m_scale(const struct block_iq1_m *b)
{
    unsigned d = 0;
    for (int k = 0; k < 4; k++)
        d |= (unsigned)(load_u16(b->scales[k]) >> 12) << 4 * k;
    return (uint16_t)d;
}

static void iq1_m_unpack(const void *block, struct iq1_block *out)
{
    const struct block_iq1_m *b = block;
    out->d = f16_to_float(iq1_m_scale(b));
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
AVX2_INLINE void iq1_m_load_avx2(const uint8_t *block, struct superblock_avx2 *out)
{
    const struct block_iq1_m *b = (const void *)block;
    uint16_t scale[16], d = iq1_m_scale(b);
    UNROLL
    for (size_t j = 0; j < 8; j++) {
        const uint8_t *i = b->index + 4 * j;
        unsigned high = load_u16(b->high + 2 * j), scales = (unsigned)load_u16(b->scales[j / 2]) >> 6 * (j % 2);
        __m256i entries = avx2_entries_8(grid_iq1[i[0] | (high << 8 & 0x700)], grid_iq1[i[1] | (high << 4 & 0x700)],
                                         grid_iq1[i[2] | (high & 0x700)], grid_iq1[i[3] | (high >> 4 & 0x700)]);
        /* bits 3, 7, 11, 15 over bytes 0..7, 8..15, .. */
        __m256i bit = _mm256_setr_epi64x(0x0008000800080008, 0x0080008000800080, 0x0800080008000800,
                                         (long long)0x8000800080008000);
        __m256i is_down = _mm256_cmpeq_epi16(_mm256_and_si256(_mm256_set1_epi16((short)high), bit), bit);
        out->q[j] = avx2_eighths(entries, is_down);
        scale[2 * j] = (uint16_t)(2 * (scales & 7) + 1);
        scale[2 * j + 1] = (uint16_t)(2 * (scales >> 3 & 7) + 1);
    }
    out->scale = avx2_load(scale);
    avx2_scales((const uint8_t *)&d, out);
}

SUPERBLOCK_AVX2(iq1_m, sizeof(struct block_iq1_m), SUPERBLOCK_SUM, AVX2_GRID_OFFSET, 0.125f, 1)
#endif

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

#if defined(__aarch64__)
NEON_INLINE void iq1_m_unpack_neon(const void *block, struct superblock *out)
{
    iq1_unpack_eighths(block, out, iq1_m_unpack);
}

SUPERBLOCK_KERNEL_NEON(iq1_m, sizeof(struct block_iq1_m), SUPERBLOCK_SUM, 0.125f, 1, iq1_m_unpack_neon)
#endif

const struct format format_iq1_m = {
    .id = 29,
    .name = "IQ1_M",
    .block_elements = 256,
    .block_bytes = sizeof(struct block_iq1_m),
    .activation = ACT_Q8_K,
    .dequantize = iq1_m_dequantize,
    .dot = iq1_m_dot,
    .decode = {[TIER_SCALAR] = SCALAR(iq1_m, ACT_Q8_K),
               SUPERBLOCK_DECODE_AVX2(iq1_m)
               SUPERBLOCK_DECODE_AVX512(iq1_m)
               NEON_SLOT(iq1_m, ACT_Q8_K)},
    .prefill = {[TIER_SCALAR] = SCALAR(iq1_m, ACT_Q8_K),
                SUPERBLOCK_PREFILL_AVX2(iq1_m)
                SUPERBLOCK_PREFILL_AVX512(iq1_m)
                NEON_SLOT(iq1_m, ACT_Q8_K)},
};
