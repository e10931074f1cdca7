/* IQ3_XXS: a grid index per 4 weights; per 32 weights four times seven signs and a 4-bit scale; an F16 scale. */
#include "engine/quant/grid.h"
#include "engine/quant/grid_avx512.h"
#include "engine/quant/neon.h"
#include "engine/quant/superblock_avx2.h"

struct block_iq3_xxs {
    uint8_t d[2];
    uint8_t index[64];
    uint8_t signs_scale[8][4];
};
_Static_assert(sizeof(struct block_iq3_xxs) == 98, "IQ3_XXS block");

static void iq3_xxs_unpack(const void *block, struct superblock *out)
{
    const struct block_iq3_xxs *b = block;
    out->d = f16_to_float(load_u16(b->d));
    for (int j = 0; j < 8; j++) {
        uint32_t word = load_u32(b->signs_scale[j]);
        out->scale[2 * j] = out->scale[2 * j + 1] = (int16_t)(2 * (word >> 28) + 1);
        for (int g = 0; g < 8; g++) {
            unsigned signs = signs_of_seven(word >> 7 * (g / 2) & 127);
            grid_unpack(grid_iq3_xxs[b->index[8 * j + g]], signs >> 4 * (g % 2), 4, out->q + 32 * j + 4 * g);
        }
    }
}

static void iq3_xxs_dequantize(const void *row, float *out, size_t n)
{
    superblock_dequantize(row, out, n, sizeof(struct block_iq3_xxs), iq3_xxs_unpack, 0.25f);
}

static float iq3_xxs_dot(const void *row, const void *act, size_t n)
{
    return superblock_dot(row, act, n, sizeof(struct block_iq3_xxs), iq3_xxs_unpack, 0.25f);
}

SCALAR_KERNEL(iq3_xxs, ACT_Q8_K)

#if defined(__x86_64__)
AVX2_INLINE void iq3_xxs_load_avx2(const uint8_t *block, struct superblock_avx2 *out)
{
    const struct block_iq3_xxs *b = (const void *)block;
    uint32_t scale[8];
    UNROLL
    for (size_t j = 0; j < 8; j++) {
        uint32_t word = load_u32(b->signs_scale[j]);
        __m256i entries = avx2_entries_4(grid_iq3_xxs, b->index + 8 * j, 0);
        out->q[j] = avx2_grid_signed(entries, avx2_signs_of_28(word));
        scale[j] = (2 * (word >> 28) + 1) * 0x10001;
    }
    out->scale = avx2_load(scale);
    avx2_scales(b->d, out);
}

SUPERBLOCK_AVX2(iq3_xxs, sizeof(struct block_iq3_xxs), SUPERBLOCK_SUM, AVX2_GRID_OFFSET, 1, 0.25f)
#endif

#if defined(__x86_64__)
AVX512_INLINE void iq3_xxs_load_avx512(const uint8_t *x, struct superblock_signed *out)
{
    const __m256i shift = _mm256_set1_epi64x(0x352e2720150e0700); /* seven bits each of two words */
    const struct block_iq3_xxs *b = (const void *)x;
    UNROLL
    for (size_t k = 0; k < 4; k++) {
        __m512i index = _mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)(b->index + 16 * k)));
        out->magnitude[k] = gather_entries_4(index, grid_iq3_xxs);
    }
    __m256i words = _mm256_loadu_si256((const void *)b->signs_scale);
    superblock_signs_of_sevens(_mm256_multishift_epi64_epi8(shift, words), out);
    out->scale = scales_of_top_nibbles(words);
    out->d = half_at(b->d);
}

SUPERBLOCK_SIGNED_AVX512(iq3_xxs, sizeof(struct block_iq3_xxs), 0.25f)
#endif

#if defined(__aarch64__)
SUPERBLOCK_KERNEL_NEON(iq3_xxs, sizeof(struct block_iq3_xxs), SUPERBLOCK_SUM, 1, 0.25f, iq3_xxs_unpack)
#endif

const struct format format_iq3_xxs = {
    .id = 18,
    .name = "IQ3_XXS",
    .block_elements = 256,
    .block_bytes = sizeof(struct block_iq3_xxs),
    .activation = ACT_Q8_K,
    .dequantize = iq3_xxs_dequantize,
    .dot = iq3_xxs_dot,
    .decode = {[TIER_SCALAR] = SCALAR(iq3_xxs, ACT_Q8_K),
               SUPERBLOCK_DECODE_AVX2(iq3_xxs)
               SUPERBLOCK_DECODE_AVX512(iq3_xxs)
               NEON_SLOT(iq3_xxs, ACT_Q8_K)},
    .prefill = {[TIER_SCALAR] = SCALAR(iq3_xxs, ACT_Q8_K),
                SUPERBLOCK_PREFILL_AVX2(iq3_xxs)
                SUPERBLOCK_PREFILL_AVX512(iq3_xxs)
                NEON_SLOT(iq3_xxs, ACT_Q8_K)},
};
