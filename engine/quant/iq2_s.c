/* IQ2_S: per 8 weights a 10-bit grid index and eight signs; 4-bit scales of 16 weights; an F16 scale. */
#include "engine/quant/grid.h"
#include "engine/quant/grid_avx512.h"
#include "engine/quant/neon.h"
#include "engine/quant/superblock_avx2.h"

struct block_iq2_s {
    uint8_t d[2];
    uint8_t index[32];
    uint8_t signs[32];
    uint8_t index_high[8];
    uint8_t scales[8];
};
_Static_assert(sizeof(struct block_iq2_s) == 82, "IQ2_S block");

static void iq2_s_unpack(const void *block, struct superblock *out)
{
    const struct block_iq2_s *b = block;
    out->d = f16_to_float(load_u16(b->d));
    for (int j = 0; j < 16; j++)
        out->scale[j] = (int16_t)(2 * (b->scales[j / 2] >> 4 * (j % 2) & 15) + 1);
    for (int g = 0; g < 32; g++) {
        int index = b->index[g] + 256 * (b->index_high[g / 4] >> 2 * (g % 4) & 3);
        grid_unpack(grid_iq2_s[index], b->signs[g], 8, out->q + 8 * g);
    }
}

static void iq2_s_dequantize(const void *row, float *out, size_t n)
{
    superblock_dequantize(row, out, n, sizeof(struct block_iq2_s), iq2_s_unpack, 0.125f);
}

static float iq2_s_dot(const void *row, const void *act, size_t n)
{
    return superblock_dot(row, act, n, sizeof(struct block_iq2_s), iq2_s_unpack, 0.125f);
}

SCALAR_KERNEL(iq2_s, ACT_Q8_K)

#if defined(__x86_64__)
AVX2_INLINE void iq2_s_load_avx2(const uint8_t *block, struct superblock_avx2 *out)
{
    const struct block_iq2_s *b = (const void *)block;
    UNROLL
    for (size_t j = 0; j < 8; j++) {
        const uint8_t *i = b->index + 4 * j;
        unsigned high = (unsigned)b->index_high[j] << 8;
        __m256i entries = avx2_entries_8(grid_iq2_s[i[0] | (high & 0x300)], grid_iq2_s[i[1] | (high >> 2 & 0x300)],
                                         grid_iq2_s[i[2] | (high >> 4 & 0x300)], grid_iq2_s[i[3] | (high >> 6 & 0x300)]);
        out->q[j] = avx2_grid_signed(entries, load_u32(b->signs + 4 * j));
    }
    out->scale = avx2_odd_scales(b->scales);
    avx2_scales(b->d, out);
}

SUPERBLOCK_AVX2(iq2_s, sizeof(struct block_iq2_s), SUPERBLOCK_SUM, AVX2_GRID_OFFSET, 1, 0.125f)
#endif

#if defined(__x86_64__)
AVX512_INLINE void iq2_s_load_avx512(const uint8_t *x, struct superblock_signed *out)
{
    const __m256i shift = _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14);
    const struct block_iq2_s *b = (const void *)x;
    UNROLL
    for (size_t k = 0; k < 4; k++) {
        __m256i high = index_high(load_u16(b->index_high + 2 * k), shift, 3);
        __m256i index = _mm256_or_si256(index_of_8(b->index + 8 * k), high);
        out->magnitude[k] = gather_entries_8(index, grid_iq2_s);
    }
    superblock_signs(b->signs, out);
    out->scale = scales_of_nibbles(load_u64(b->scales), nibble_shifts());
    out->d = half_at(b->d);
}

SUPERBLOCK_SIGNED_AVX512(iq2_s, sizeof(struct block_iq2_s), 0.125f)
#endif

#if defined(__aarch64__)
SUPERBLOCK_KERNEL_NEON(iq2_s, sizeof(struct block_iq2_s), SUPERBLOCK_SUM, 1, 0.125f, iq2_s_unpack)
#endif

const struct format format_iq2_s = {
    .id = 22,
    .name = "IQ2_S",
    .block_elements = 256,
    .block_bytes = sizeof(struct block_iq2_s),
    .activation = ACT_Q8_K,
    .dequantize = iq2_s_dequantize,
    .dot = iq2_s_dot,
    .decode = {[TIER_SCALAR] = SCALAR(iq2_s, ACT_Q8_K),
               SUPERBLOCK_DECODE_AVX2(iq2_s)
               SUPERBLOCK_DECODE_AVX512(iq2_s)
               NEON_SLOT(iq2_s, ACT_Q8_K)},
    .prefill = {[TIER_SCALAR] = SCALAR(iq2_s, ACT_Q8_K),
                SUPERBLOCK_PREFILL_AVX2(iq2_s)
                SUPERBLOCK_PREFILL_AVX512(iq2_s)
                NEON_SLOT(iq2_s, ACT_Q8_K)},
};
