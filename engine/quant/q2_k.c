/* Q2_K: 256 values of 2 bits; 16 nibble pairs of scale and minimum; F16 scales of both. */
#include "engine/quant/neon.h"
#include "engine/quant/superblock.h"
#include "engine/quant/superblock_avx2.h"
#include "engine/quant/superblock_sum_avx512.h"

struct block_q2_k {
    uint8_t scale_min[16];
    uint8_t packed[64];
    uint8_t d[2], dmin[2];
};
_Static_assert(sizeof(struct block_q2_k) == 84, "Q2_K block");

static void q2_k_unpack(const void *block, struct superblock *out)
{
    const struct block_q2_k *b = block;
    out->d = f16_to_float(load_u16(b->d));
    out->dmin = f16_to_float(load_u16(b->dmin));
    for (int j = 0; j < 16; j++) {
        out->scale[j] = b->scale_min[j] & 15;
        out->min[j] = b->scale_min[j] >> 4;
    }
    two_bits_unpack(b->packed, out->q);
}

static void q2_k_dequantize(const void *row, float *out, size_t n)
{
    superblock_dequantize_min(row, out, n, sizeof(struct block_q2_k), q2_k_unpack);
}

static float q2_k_dot(const void *row, const void *act, size_t n)
{
    const struct block_q2_k *b = row;
    const struct act_q8_k *a = act;
    struct superblock w;
    float r = 0;
    for (size_t i = 0; i < n / 256; i++) {
        q2_k_unpack(&b[i], &w);
        float scaled = (a[i].d * w.d) * (float)superblock_sum(&w, a[i].q);
        r += scaled - (a[i].d * w.dmin) * (float)superblock_min_sum(&w, a[i].sums);
    }
    return r;
}

SCALAR_KERNEL(q2_k, ACT_Q8_K)

#if defined(__x86_64__)
AVX2_INLINE void q2_k_load_avx2(const uint8_t *block, struct superblock_avx2 *out)
{
    const struct block_q2_k *b = (const void *)block;
    const __m128i low = _mm_set1_epi8(15);
    __m128i scales = avx2_load128(b->scale_min);
    avx2_two_bits(b->packed, out->q);
    out->scale = _mm256_cvtepu8_epi16(_mm_and_si128(scales, low));
    out->min = _mm256_cvtepu8_epi16(_mm_and_si128(_mm_srli_epi16(scales, 4), low));
    avx2_scales_two(b->d, out);
}

SUPERBLOCK_AVX2(q2_k, sizeof(struct block_q2_k), SUPERBLOCK_SUM_MIN, 0, 1, 1)
#endif

#if defined(__x86_64__)
AVX512_INLINE void q2_k_parts_avx512(const uint8_t *x, const struct superblock_activation *a,
                                     struct superblock_parts *out, size_t k)
{
    const __m128i low = _mm_set1_epi8(15);
    __m128i scale_min = _mm_loadu_si128((const void *)x);
    int16_t scales[16] ALIGNED;
    scales_widen(_mm_and_si128(scale_min, low), scales);
    __m512i dots[4];
    __m256i mins = _mm256_cvtepu8_epi16(_mm_and_si128(_mm_srli_epi16(scale_min, 4), low));
    UNROLL
    for (int pair = 0; pair < 4; pair++) {
        __m512i w = two_bits_in_turns(in_turns_twice(x + 16 + 32 * (pair / 2)), pair % 2);
        dots[pair] = _mm512_maddubs_epi16(w, load512(a->near + 64 * pair));
    }
    _mm512_store_si512(out->sum[k], dot_scales(dots, scales));
    __m256i min_sum = _mm256_madd_epi16(mins, _mm256_loadu_si256((const void *)a->sums16));
    _mm512_store_si512(out->min_sum[k], _mm512_zextsi256_si512(min_sum));
    out->d[k] = half_at(x + 80);
    out->dmin[k] = half_at(x + 82);
}

AVX512_INLINE void q2_k_pack_block_avx512(const uint8_t *x, size_t row_bytes, struct superblock_tile *t)
{
    const __m128i low = _mm_set1_epi8(15);
    struct lane_rows rows[8];
    for (size_t i = 0; i < ROWS; i++) {
        const uint8_t *b = x + i * row_bytes;
        UNROLL
        for (int pair = 0; pair < 4; pair++)
            lane_rows_store(rows + 2 * pair, i, two_bits_avx512(by_lanes_twice(b + 16 + 32 * (pair / 2)), pair % 2));
        __m128i scale_min = _mm_loadu_si128((const void *)b);
        int16_t scales[16], mins[16];
        _mm256_storeu_si256((void *)scales, _mm256_cvtepu8_epi16(_mm_and_si128(scale_min, low)));
        _mm256_storeu_si256((void *)mins, _mm256_cvtepu8_epi16(_mm_and_si128(_mm_srli_epi16(scale_min, 4), low)));
        for (size_t j = 0; j < 8; j++) {
            memcpy(t->s[j] + 2 * i, scales + 2 * j, 4);
            memcpy(t->m[j] + 2 * i, mins + 2 * j, 4);
        }
    }
    tile_weights(rows, t);
    _mm512_store_ps(t->d, halves_strided(x + 80, row_bytes));
    _mm512_store_ps(t->dmin, halves_strided(x + 82, row_bytes));
}

SUPERBLOCK_SUMS_AVX512(q2_k, sizeof(struct block_q2_k), true, 1, 1)
SUPERBLOCK_TILES_AVX512(q2_k, sizeof(struct block_q2_k), SUPERBLOCK_SUM_MIN, 1, 1)
#endif

#if defined(__aarch64__)
SUPERBLOCK_KERNEL_NEON(q2_k, sizeof(struct block_q2_k), SUPERBLOCK_SUM_MIN, 1, 1, q2_k_unpack)
#endif

const struct format format_q2_k = {
    .id = 10,
    .name = "Q2_K",
    .block_elements = 256,
    .block_bytes = sizeof(struct block_q2_k),
    .activation = ACT_Q8_K,
    .dequantize = q2_k_dequantize,
    .dot = q2_k_dot,
    .decode = {[TIER_SCALAR] = SCALAR(q2_k, ACT_Q8_K),
               SUPERBLOCK_DECODE_AVX2(q2_k)
               SUPERBLOCK_DECODE_AVX512(q2_k)
               NEON_SLOT(q2_k, ACT_Q8_K)},
    .prefill = {[TIER_SCALAR] = SCALAR(q2_k, ACT_Q8_K),
                SUPERBLOCK_PREFILL_AVX2(q2_k)
                SUPERBLOCK_PREFILL_AVX512(q2_k)
                NEON_SLOT(q2_k, ACT_Q8_K)},
};
