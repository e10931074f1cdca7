/* TQ2_0: 256 values of 2 bits minus 1 (encoders write -1, 0, 1) and an F16 scale. */
#include "engine/quant/neon.h"
#include "engine/quant/superblock.h"
#include "engine/quant/superblock_avx2.h"
#include "engine/quant/superblock_sum_avx512.h"

struct block_tq2_0 {
    uint8_t packed[64];
    uint8_t d[2];
};
_Static_assert(sizeof(struct block_tq2_0) == 66, "TQ2_0 block");

static void tq2_0_unpack(const void *block, struct superblock *out)
{
    const struct block_tq2_0 *b = block;
    out->d = f16_to_float(load_u16(b->d));
    two_bits_unpack(b->packed, out->q);
    for (int i = 0; i < 256; i++)
        out->q[i] = (int8_t)(out->q[i] - 1);
    for (int j = 0; j < 16; j++)
        out->scale[j] = 1;
}

static void tq2_0_dequantize(const void *row, float *out, size_t n)
{
    superblock_dequantize(row, out, n, sizeof(struct block_tq2_0), tq2_0_unpack, 1);
}

static float tq2_0_dot(const void *row, const void *act, size_t n)
{
    return superblock_dot(row, act, n, sizeof(struct block_tq2_0), tq2_0_unpack, 1);
}

SCALAR_KERNEL(tq2_0, ACT_Q8_K)

#if defined(__x86_64__)
AVX2_INLINE void tq2_0_load_avx2(const uint8_t *block, struct superblock_avx2 *out)
{
    const struct block_tq2_0 *b = (const void *)block;
    avx2_two_bits(b->packed, out->q);
    out->scale = _mm256_set1_epi16(1);
    avx2_scales(b->d, out);
}

SUPERBLOCK_AVX2(tq2_0, sizeof(struct block_tq2_0), SUPERBLOCK_SUM, 1, 1, 1)
#endif

#if defined(__x86_64__)
/* Values are stored 1 too large; the offsets in the activation are made for 32. */
AVX512_INLINE void tq2_0_parts_avx512(const uint8_t *x, const struct superblock_activation *a,
                                      struct superblock_parts *out, size_t k)
{
    const __m512i one = _mm512_set1_epi16(1);
    __m512i acc = _mm512_setzero_si512();
    UNROLL
    for (int pair = 0; pair < 4; pair++) {
        __m512i w = two_bits_in_turns(in_turns_twice(x + 32 * (pair / 2)), pair % 2);
        __m512i offset = _mm512_srai_epi16(load512(a->offsets + 32 * pair), 5);
        __m512i dots = _mm512_add_epi16(_mm512_maddubs_epi16(w, load512(a->near + 64 * pair)), offset);
        acc = _mm512_dpwssd_epi32(acc, dots, one);
    }
    _mm512_store_si512(out->sum[k], acc);
    out->d[k] = half_at(x + 64);
}

AVX512_INLINE void tq2_0_pack_block_avx512(const uint8_t *x, size_t row_bytes, struct superblock_tile *t)
{
    const __m512i one = _mm512_set1_epi8(1);
    struct lane_rows rows[8];
    for (size_t i = 0; i < ROWS; i++) {
        UNROLL
        for (int pair = 0; pair < 4; pair++) {
            __m512i w = two_bits_avx512(by_lanes_twice(x + i * row_bytes + 32 * (pair / 2)), pair % 2);
            lane_rows_store(rows + 2 * pair, i, _mm512_sub_epi8(w, one));
        }
    }
    tile_weights(rows, t);
    for (size_t j = 0; j < 8; j++)
        _mm512_store_si512(t->s[j], _mm512_set1_epi16(1));
    tile_start(t, false);
    _mm512_store_ps(t->d, halves_strided(x + 64, row_bytes));
}

SUPERBLOCK_SUMS_AVX512(tq2_0, sizeof(struct block_tq2_0), false, 1, 1)
SUPERBLOCK_TILES_AVX512(tq2_0, sizeof(struct block_tq2_0), SUPERBLOCK_SUM, 1, 1)
#endif

#if defined(__aarch64__)
SUPERBLOCK_KERNEL_NEON(tq2_0, sizeof(struct block_tq2_0), SUPERBLOCK_SUM, 1, 1, tq2_0_unpack)
#endif

const struct format format_tq2_0 = {
    .id = 35,
    .name = "TQ2_0",
    .block_elements = 256,
    .block_bytes = sizeof(struct block_tq2_0),
    .activation = ACT_Q8_K,
    .dequantize = tq2_0_dequantize,
    .dot = tq2_0_dot,
    .decode = {[TIER_SCALAR] = SCALAR(tq2_0, ACT_Q8_K),
               SUPERBLOCK_DECODE_AVX2(tq2_0)
               SUPERBLOCK_DECODE_AVX512(tq2_0)
               NEON_SLOT(tq2_0, ACT_Q8_K)},
    .prefill = {[TIER_SCALAR] = SCALAR(tq2_0, ACT_Q8_K),
                SUPERBLOCK_PREFILL_AVX2(tq2_0)
                SUPERBLOCK_PREFILL_AVX512(tq2_0)
                NEON_SLOT(tq2_0, ACT_Q8_K)},
};
