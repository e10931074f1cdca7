/* IQ3_S: per 4 weights a 9-bit grid index and four signs; 4-bit scales of 32 weights; an F16 scale. */
#include "engine/quant/grid.h"
#include "engine/quant/grid_avx512.h"
#include "engine/quant/neon.h"
#include "engine/quant/superblock_avx2.h"

struct block_iq3_s {
    uint8_t d[2];
    uint8_t index[64];
    uint8_t index_high[8];
    uint8_t signs[32];
    uint8_t scales[4];
};
_Static_assert(sizeof(struct block_iq3_s) == 110, "IQ3_S block");

static void iq3_s_unpack(const void *block, struct superblock *out)
{
    const struct block_iq3_s *b = block;
    out->d = f16_to_float(load_u16(b->d));
    for (int j = 0; j < 16; j++)
        out->scale[j] = (int16_t)(2 * (b->scales[j / 4] >> 4 * (j / 2 % 2) & 15) + 1);
    for (int g = 0; g < 64; g++) {
        int index = b->index[g] + 256 * (b->index_high[g / 8] >> g % 8 & 1);
        grid_unpack(grid_iq3_s[index], (unsigned)b->signs[g / 2] >> 4 * (g % 2), 4, out->q + 4 * g);
    }
}

static void iq3_s_dequantize(const void *row, float *out, size_t n)
{
    superblock_dequantize(row, out, n, sizeof(struct block_iq3_s), iq3_s_unpack, 1);
}

static float iq3_s_dot(const void *row, const void *act, size_t n)
{
    return superblock_dot(row, act, n, sizeof(struct block_iq3_s), iq3_s_unpack, 1);
}

SCALAR_KERNEL(iq3_s, ACT_Q8_K)

#if defined(__x86_64__)
AVX2_INLINE void iq3_s_load_avx2(const uint8_t *block, struct superblock_avx2 *out)
{
    const struct block_iq3_s *b = (const void *)block;
    UNROLL
    for (size_t j = 0; j < 8; j++)
        out->q[j] = avx2_grid_signed(avx2_entries_4(grid_iq3_s, b->index + 8 * j, b->index_high[j]),
                                     load_u32(b->signs + 4 * j));
    uint64_t scales = load_u32(b->scales), nibbles = 0;
    UNROLL
    for (int j = 0; j < 8; j++)
        nibbles |= (scales >> 4 * j & 15) * 0x11 << 8 * j;
    out->scale = avx2_odd_scales(&nibbles);
    avx2_scales(b->d, out);
}

SUPERBLOCK_AVX2(iq3_s, sizeof(struct block_iq3_s), SUPERBLOCK_SUM, AVX2_GRID_OFFSET, 1, 1)
#endif

#if defined(__x86_64__)
AVX512_INLINE void iq3_s_load_avx512(const uint8_t *x, struct superblock_signed *out)
{
    const __m128i shift = _mm_setr_epi8(0, 0, 4, 4, 8, 8, 12, 12, 16, 16, 20, 20, 24, 24, 28, 28);
    const struct block_iq3_s *b = (const void *)x;
    UNROLL
    for (size_t k = 0; k < 4; k++) {
        __m512i index = _mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)(b->index + 16 * k)));
        index = _mm512_mask_add_epi32(index, load_u16(b->index_high + 2 * k), index, _mm512_set1_epi32(256));
        out->magnitude[k] = gather_entries_4(index, grid_iq3_s);
    }
    superblock_signs(b->signs, out);
    out->scale = scales_of_nibbles(load_u32(b->scales), shift);
    out->d = half_at(b->d);
}

SUPERBLOCK_SIGNED_AVX512(iq3_s, sizeof(struct block_iq3_s), 1)
#endif

#if defined(__aarch64__)
SUPERBLOCK_KERNEL_NEON(iq3_s, sizeof(struct block_iq3_s), SUPERBLOCK_SUM, 1, 1, iq3_s_unpack)
#endif

const struct format format_iq3_s = {
    .id = 21,
    .name = "IQ3_S",
    .block_elements = 256,
    .block_bytes = sizeof(struct block_iq3_s),
    .activation = ACT_Q8_K,
    .dequantize = iq3_s_dequantize,
    .dot = iq3_s_dot,
    .decode = {[TIER_SCALAR] = SCALAR(iq3_s, ACT_Q8_K),
               SUPERBLOCK_DECODE_AVX2(iq3_s)
               SUPERBLOCK_DECODE_AVX512(iq3_s)
               NEON_SLOT(iq3_s, ACT_Q8_K)},
    .prefill = {[TIER_SCALAR] = SCALAR(iq3_s, ACT_Q8_K),
                SUPERBLOCK_PREFILL_AVX2(iq3_s)
                SUPERBLOCK_PREFILL_AVX512(iq3_s)
                NEON_SLOT(iq3_s, ACT_Q8_K)},
};
