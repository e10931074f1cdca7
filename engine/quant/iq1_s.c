/* IQ1_S: per 8 weights an 11-bit grid index; per 32 a 3-bit scale and the direction of the shift; an F16 scale. */
#include "engine/quant/iq1.h"
#include "engine/quant/neon.h"
#include "engine/quant/superblock_avx2.h"

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
AVX2_INLINE void iq1_s_load_avx2(const uint8_t *block, struct superblock_avx2 *out)
{
    const struct block_iq1_s *b = (const void *)block;
    uint32_t scale[8];
    UNROLL
    for (size_t j = 0; j < 8; j++) {
        const uint8_t *i = b->index + 4 * j;
        unsigned high = load_u16(b->high[j]);
        __m256i entries = avx2_entries_8(grid_iq1[i[0] | (high << 8 & 0x700)], grid_iq1[i[1] | (high << 5 & 0x700)],
                                         grid_iq1[i[2] | (high << 2 & 0x700)], grid_iq1[i[3] | (high >> 1 & 0x700)]);
        out->q[j] = avx2_eighths(entries, _mm256_set1_epi8((char)-(int)(high >> 15)));
        scale[j] = (2 * (high >> 12 & 7) + 1) * 0x10001;
    }
    out->scale = avx2_load(scale);
    avx2_scales(b->d, out);
}

SUPERBLOCK_AVX2(iq1_s, sizeof(struct block_iq1_s), SUPERBLOCK_SUM, AVX2_GRID_OFFSET, 0.125f, 1)
#endif

#if defined(__x86_64__)
AVX512_INLINE void iq1_s_load_avx512(const uint8_t *x, struct iq1_avx512 *out)
{
    const __m256i shift = _mm256_setr_epi32(0, 3, 6, 9, 16, 19, 22, 25);
    const __m256i twice = _mm256_setr_epi32(0, 0x10001, 0x20002, 0x30003, 0x40004, 0x50005, 0x60006, 0x70007);
    const struct block_iq1_s *b = (const void *)x;
    UNROLL
    for (size_t k = 0; k < 4; k++) {
        __m256i high = index_high(load_u32(b->high[2 * k]), shift, 7);
        iq1_entries_avx512(_mm256_or_si256(index_of_8(b->index + 8 * k), high), k, out);
    }
    __m128i words = _mm_loadu_si128((const void *)b->high);
    __m256i pairs = _mm256_permutexvar_epi16(twice, _mm256_castsi128_si256(words));
    out->scale = odd_scales(_mm256_and_si256(_mm256_srli_epi16(pairs, 12), _mm256_set1_epi16(7)));
    out->minus = _mm256_movepi8_mask(_mm256_cvtepi16_epi32(_mm_srai_epi16(words, 15))); /* four groups each */
    out->d = half_at(b->d);
}

IQ1_AVX512(iq1_s, sizeof(struct block_iq1_s))
#endif

#if defined(__aarch64__)
NEON_INLINE void iq1_s_unpack_neon(const void *block, struct superblock *out)
{
    iq1_unpack_eighths(block, out, iq1_s_unpack);
}

SUPERBLOCK_KERNEL_NEON(iq1_s, sizeof(struct block_iq1_s), SUPERBLOCK_SUM, 0.125f, 1, iq1_s_unpack_neon)
#endif

const struct format format_iq1_s = {
    .id = 19,
    .name = "IQ1_S",
    .block_elements = 256,
    .block_bytes = sizeof(struct block_iq1_s),
    .activation = ACT_Q8_K,
    .dequantize = iq1_s_dequantize,
    .dot = iq1_s_dot,
    .decode = {[TIER_SCALAR] = SCALAR(iq1_s, ACT_Q8_K),
               SUPERBLOCK_DECODE_AVX2(iq1_s)
               SUPERBLOCK_DECODE_AVX512(iq1_s)
               NEON_SLOT(iq1_s, ACT_Q8_K)},
    .prefill = {[TIER_SCALAR] = SCALAR(iq1_s, ACT_Q8_K),
                SUPERBLOCK_PREFILL_AVX2(iq1_s)
                SUPERBLOCK_PREFILL_AVX512(iq1_s)
                NEON_SLOT(iq1_s, ACT_Q8_K)},
};
