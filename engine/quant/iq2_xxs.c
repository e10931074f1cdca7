/* IQ2_XXS: per 32 weights four grid indices, four times seven signs and a 4-bit scale; an F16 scale per super-block. */
#include "engine/quant/grid.h"
#include "engine/quant/grid_avx512.h"
#include "engine/quant/neon.h"
#include "engine/quant/superblock_avx2.h"

struct block_iq2_xxs {
    uint8_t d[2];
    struct {
        uint8_t index[4];
        uint8_t signs_scale[4];
    } group[8];
};
_Static_assert(sizeof(struct block_iq2_xxs) == 66, "IQ2_XXS block");

static void iq2_xxs_unpack(const void *block, struct superblock *out)
{
    const struct block_iq2_xxs *b = block;
    out->d = f16_to_float(load_u16(b->d));
    for (int j = 0; j < 8; j++) {
        uint32_t word = load_u32(b->group[j].signs_scale);
        out->scale[2 * j] = out->scale[2 * j + 1] = (int16_t)(2 * (word >> 28) + 1);
        for (int g = 0; g < 4; g++)
            grid_unpack(grid_iq2_xxs[b->group[j].index[g]], signs_of_seven(word >> 7 * g & 127), 8,
                        out->q + 32 * j + 8 * g);
    }
}

static void iq2_xxs_dequantize(const void *row, float *out, size_t n)
{
    superblock_dequantize(row, out, n, sizeof(struct block_iq2_xxs), iq2_xxs_unpack, 0.125f);
}

static float iq2_xxs_dot(const void *row, const void *act, size_t n)
{
    return superblock_dot(row, act, n, sizeof(struct block_iq2_xxs), iq2_xxs_unpack, 0.125f);
}

SCALAR_KERNEL(iq2_xxs, ACT_Q8_K)

#if defined(__x86_64__)
AVX2_INLINE void iq2_xxs_load_avx2(const uint8_t *block, struct superblock_avx2 *out)
{
    const struct block_iq2_xxs *b = (const void *)block;
    uint32_t scale[8];
    UNROLL
    for (size_t j = 0; j < 8; j++) {
        const uint8_t *i = b->group[j].index;
        uint32_t word = load_u32(b->group[j].signs_scale);
        __m256i entries = avx2_entries_8(grid_iq2_xxs[i[0]], grid_iq2_xxs[i[1]], grid_iq2_xxs[i[2]], grid_iq2_xxs[i[3]]);
        out->q[j] = avx2_grid_signed(entries, avx2_signs_of_28(word));
        scale[j] = (2 * (word >> 28) + 1) * 0x10001;
    }
    out->scale = avx2_load(scale);
    avx2_scales(b->d, out);
}

SUPERBLOCK_AVX2(iq2_xxs, sizeof(struct block_iq2_xxs), SUPERBLOCK_SUM, AVX2_GRID_OFFSET, 1, 0.125f)
#endif

#if defined(__x86_64__)
AVX512_INLINE void iq2_xxs_load_avx512(const uint8_t *x, struct superblock_signed *out)
{
    const __m512i shift = _mm512_set1_epi64(0x352e2720); /* bits 32, 39, 46, 53 of a group */
    const struct block_iq2_xxs *b = (const void *)x;
    __m512i groups = load512(b->group);
    uint8_t index[32] ALIGNED;
    _mm256_store_si256((void *)index, _mm512_cvtepi64_epi32(groups));
    UNROLL
    for (size_t k = 0; k < 4; k++)
        out->magnitude[k] = gather_entries_8(index_of_8(index + 8 * k), grid_iq2_xxs);
    superblock_signs_of_sevens(_mm512_cvtepi64_epi32(_mm512_multishift_epi64_epi8(shift, groups)), out);
    out->scale = scales_of_top_nibbles(_mm512_cvtepi64_epi32(_mm512_srli_epi64(groups, 32)));
    out->d = half_at(b->d);
}

SUPERBLOCK_SIGNED_AVX512(iq2_xxs, sizeof(struct block_iq2_xxs), 0.125f)
#endif

#if defined(__aarch64__)
SUPERBLOCK_KERNEL_NEON(iq2_xxs, sizeof(struct block_iq2_xxs), SUPERBLOCK_SUM, 1, 0.125f, iq2_xxs_unpack)
#endif

const struct format format_iq2_xxs = {
    .id = 16,
    .name = "IQ2_XXS",
    .block_elements = 256,
    .block_bytes = sizeof(struct block_iq2_xxs),
    .activation = ACT_Q8_K,
    .dequantize = iq2_xxs_dequantize,
    .dot = iq2_xxs_dot,
    .decode = {[TIER_SCALAR] = SCALAR(iq2_xxs, ACT_Q8_K),
               SUPERBLOCK_DECODE_AVX2(iq2_xxs)
               SUPERBLOCK_DECODE_AVX512(iq2_xxs)
               NEON_SLOT(iq2_xxs, ACT_Q8_K)},
    .prefill = {[TIER_SCALAR] = SCALAR(iq2_xxs, ACT_Q8_K),
                SUPERBLOCK_PREFILL_AVX2(iq2_xxs)
                SUPERBLOCK_PREFILL_AVX512(iq2_xxs)
                NEON_SLOT(iq2_xxs, ACT_Q8_K)},
};
