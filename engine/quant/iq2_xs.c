/* IQ2_XS: per 8 weights a 9-bit grid index and seven signs; 4-bit scales of 16 weights; an F16 scale. */
#include "engine/quant/grid.h"
#include "engine/quant/grid_avx512.h"
#include "engine/quant/neon.h"
#include "engine/quant/superblock_avx2.h"

struct block_iq2_xs {
    uint8_t d[2];
    uint8_t index_signs[32][2];
    uint8_t scales[8];
};
_Static_assert(sizeof(struct block_iq2_xs) == 74, "IQ2_XS block");

static void iq2_xs_unpack(const void *block, struct superblock *out)
{
    const struct block_iq2_xs *b = block;
    out->d = f16_to_float(load_u16(b->d));
    for (int j = 0; j < 16; j++)
        out->scale[j] = (int16_t)(2 * (b->scales[j / 2] >> 4 * (j % 2) & 15) + 1);
    for (int g = 0; g < 32; g++) {
        unsigned word = load_u16(b->index_signs[g]);
        grid_unpack(grid_iq2_xs[word & 511], signs_of_seven(word >> 9), 8, out->q + 8 * g);
    }
}

static void iq2_xs_dequantize(const void *row, float *out, size_t n)
{
    superblock_dequantize(row, out, n, sizeof(struct block_iq2_xs), iq2_xs_unpack, 0.125f);
}

static float iq2_xs_dot(const void *row, const void *act, size_t n)
{
    return superblock_dot(row, act, n, sizeof(struct block_iq2_xs), iq2_xs_unpack, 0.125f);
}

SCALAR_KERNEL(iq2_xs, ACT_Q8_K)

#if defined(__x86_64__)
AVX2_INLINE void iq2_xs_load_avx2(const uint8_t *block, struct superblock_avx2 *out)
{
    const struct block_iq2_xs *b = (const void *)block;
    UNROLL
    for (size_t j = 0; j < 8; j++) {
        uint64_t words = load_u64(b->index_signs[4 * j]);
        __m256i entries = avx2_entries_8(grid_iq2_xs[words & 511], grid_iq2_xs[words >> 16 & 511],
                                         grid_iq2_xs[words >> 32 & 511], grid_iq2_xs[words >> 48 & 511]);
        uint64_t signs = words >> 9 & 0x007f007f007f007f; /* a byte of every word: close the gaps */
        signs = (signs | signs >> 8) & 0x0000ffff0000ffff;
        out->q[j] = avx2_grid_signed(entries, avx2_add_parity((uint32_t)(signs | signs >> 16)));
    }
    out->scale = avx2_odd_scales(b->scales);
    avx2_scales(b->d, out);
}

SUPERBLOCK_AVX2(iq2_xs, sizeof(struct block_iq2_xs), SUPERBLOCK_SUM, AVX2_GRID_OFFSET, 1, 0.125f)
#endif

#if defined(__x86_64__)
AVX512_INLINE void iq2_xs_load_avx512(const uint8_t *x, struct superblock_signed *out)
{
    const struct block_iq2_xs *b = (const void *)x;
    UNROLL
    for (size_t k = 0; k < 4; k++) {
        __m256i words = _mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)b->index_signs[8 * k]));
        __m256i index = _mm256_and_si256(words, _mm256_set1_epi32(511));
        out->magnitude[k] = gather_entries_8(index, grid_iq2_xs);
    }
    __m512i sevens = _mm512_srli_epi16(load512(b->index_signs), 9);
    superblock_signs_of_sevens(_mm512_cvtepi16_epi8(sevens), out);
    out->scale = scales_of_nibbles(load_u64(b->scales), nibble_shifts());
    out->d = half_at(b->d);
}

SUPERBLOCK_SIGNED_AVX512(iq2_xs, sizeof(struct block_iq2_xs), 0.125f)
#endif

#if defined(__aarch64__)
SUPERBLOCK_KERNEL_NEON(iq2_xs, sizeof(struct block_iq2_xs), SUPERBLOCK_SUM, 1, 0.125f, iq2_xs_unpack)
#endif

const struct format format_iq2_xs = {
    .id = 17,
    .name = "IQ2_XS",
    .block_elements = 256,
    .block_bytes = sizeof(struct block_iq2_xs),
    .activation = ACT_Q8_K,
    .dequantize = iq2_xs_dequantize,
    .dot = iq2_xs_dot,
    .decode = {[TIER_SCALAR] = SCALAR(iq2_xs, ACT_Q8_K),
               SUPERBLOCK_DECODE_AVX2(iq2_xs)
               SUPERBLOCK_DECODE_AVX512(iq2_xs)
               NEON_SLOT(iq2_xs, ACT_Q8_K)},
    .prefill = {[TIER_SCALAR] = SCALAR(iq2_xs, ACT_Q8_K),
                SUPERBLOCK_PREFILL_AVX2(iq2_xs)
                SUPERBLOCK_PREFILL_AVX512(iq2_xs)
                NEON_SLOT(iq2_xs, ACT_Q8_K)},
};
