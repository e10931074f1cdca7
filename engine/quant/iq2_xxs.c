/* IQ2_XXS: per 32 weights four grid indices, four times seven signs and a 4-bit scale; an F16 scale per super-block. */
#include "engine/quant/grid.h"
#include "engine/quant/neon.h"
#include "engine/quant/superblock_avx2.h"
#include "engine/quant/superblock_sum_avx512.h"

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
SUPERBLOCK_SCALAR_AVX2(iq2_xxs, sizeof(struct block_iq2_xxs), 0, 0.125f)
#endif

#if defined(__x86_64__)
SUPERBLOCK_UNPACKED_AVX512(iq2_xxs, iq2_xxs_unpack, sizeof(struct block_iq2_xxs), 1, 0.125f)
#endif

#if defined(__aarch64__)
SUPERBLOCK_KERNEL_NEON(iq2_xxs, sizeof(struct block_iq2_xxs), SUPERBLOCK_SUM, 0.125f, iq2_xxs_unpack)
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
