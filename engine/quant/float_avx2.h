/* F32, F16 and BF16 weights on AVX2. The sum over a row is double and in index order, so lanes are rows: eight columns of
 * eight rows are transposed in registers.
 *
 * F16 products are exact in float and in double, which allows fused multiply-add; the others round to float. */
#ifndef GGUFD_QUANT_FLOAT_AVX2_H
#define GGUFD_QUANT_FLOAT_AVX2_H
#include "engine/quant/avx2.h"
#if defined(__x86_64__)

/* The rounded values, as floats; panels [column][4 tokens], doubles for F16. F32 decodes from the canonical layout. */
extern const struct activation_layout layout_avx2_decode_f16, layout_avx2_decode_bf16;
extern const struct activation_layout layout_avx2_panels_f16, layout_avx2_panels_bf16, layout_avx2_panels_f32;

/* Eight elements. */
typedef __m256 float_avx2_load(const uint8_t *p);

/* Columns [k, k + m) of eight rows; col[j] = column k + j, zeros from m on. */
AVX2_INLINE void float_columns_avx2(const uint8_t *const rows[8], size_t k, size_t m, size_t size, float_avx2_load *load,
                                    __m256i col[8])
{
    UNROLL
    for (size_t i = 0; i < 8; i++) {
        uint8_t tail[32] = {0};
        const uint8_t *from = rows[i] + k * size;
        if (m < 8)
            from = memcpy(tail, from, m * size);
        col[i] = _mm256_castps_si256(load(from));
    }
    avx2_transpose(col);
}

/* sum[0], sum[1] (rows 0..3, 4..7) + eight products. */
AVX2_INLINE void float_add_avx2(__m256 products, __m256d sum[2])
{
    sum[0] = _mm256_add_pd(sum[0], _mm256_cvtps_pd(_mm256_castps256_ps128(products)));
    sum[1] = _mm256_add_pd(sum[1], _mm256_cvtps_pd(_mm256_extractf128_ps(products, 1)));
}

AVX2_INLINE __m256 float_round_avx2(const __m256d sum[2])
{
    return _mm256_set_m128(_mm256_cvtpd_ps(sum[1]), _mm256_cvtpd_ps(sum[0]));
}

AVX2_INLINE void float_decode_avx2(const struct product *p, size_t size, float_avx2_load *load)
{
    const float *x = p->x;
    for (size_t row = p->row_begin; row < p->row_end; row += AVX2_ROWS) {
        const uint8_t *rows[AVX2_ROWS];
        size_t n_rows = avx2_rows(p, row, AVX2_ROWS, rows), k = 0;
        __m256d sum[2] = {_mm256_setzero_pd(), _mm256_setzero_pd()};
        __m256i col[8];
        for (; p->n_cols - k >= 8; k += 8) {
            float_columns_avx2(rows, k, 8, size, load, col);
            UNROLL
            for (size_t j = 0; j < 8; j++)
                float_add_avx2(_mm256_mul_ps(_mm256_castsi256_ps(col[j]), _mm256_set1_ps(x[k + j])), sum);
        }
        if (k < p->n_cols)
            float_columns_avx2(rows, k, p->n_cols - k, size, load, col);
        for (size_t j = 0; k + j < p->n_cols; j++)
            float_add_avx2(_mm256_mul_ps(_mm256_castsi256_ps(col[j]), _mm256_set1_ps(x[k + j])), sum);
        avx2_store_rows(p->y + row, float_round_avx2(sum), n_rows);
    }
}

/* Tile: [column][8 rows] floats. */
AVX2_INLINE void float_pack_avx2(const uint8_t *const rows[8], size_t n_cols, uint8_t *tile, size_t size,
                                 float_avx2_load *load)
{
    for (size_t k = 0; k < n_cols; k += 8) {
        size_t m = n_cols - k < 8 ? n_cols - k : 8;
        __m256i col[8];
        if (m == 8)
            float_columns_avx2(rows, k, 8, size, load, col);
        else
            float_columns_avx2(rows, k, m, size, load, col);
        for (size_t j = 0; j < m; j++)
            _mm256_store_si256((void *)(tile + 32 * (k + j)), col[j]);
    }
}

AVX2_INLINE void float_store_avx2(const struct avx2_job *job, __m256d sums[AVX2_TOKENS][2])
{
    UNROLL
    for (size_t t = 0; t < AVX2_TOKENS; t++)
        if (t < job->n_tokens)
            avx2_store_rows(job->y + t * job->y_stride, float_round_avx2(sums[t]), job->n_rows);
}

/* Products rounded to float. */
AVX2_INLINE void float_run_avx2(const struct avx2_job *job)
{
    const float *w = (const void *)job->tile, *x = (const void *)job->panel;
    __m256d sums[AVX2_TOKENS][2];
    UNROLL
    for (size_t t = 0; t < AVX2_TOKENS; t++)
        sums[t][0] = sums[t][1] = _mm256_setzero_pd();
    for (size_t k = 0; k < job->n_blocks; k++, w += 8, x += AVX2_TOKENS) {
        __m256 column = _mm256_load_ps(w);
        UNROLL
        for (size_t t = 0; t < AVX2_TOKENS; t++)
            float_add_avx2(_mm256_mul_ps(column, _mm256_set1_ps(x[t])), sums[t]);
    }
    float_store_avx2(job, sums);
}

/* Exact products, panel of doubles. */
AVX2_INLINE void float_run_exact_avx2(const struct avx2_job *job)
{
    const float *w = (const void *)job->tile;
    const double *x = (const void *)job->panel;
    __m256d sums[AVX2_TOKENS][2];
    UNROLL
    for (size_t t = 0; t < AVX2_TOKENS; t++)
        sums[t][0] = sums[t][1] = _mm256_setzero_pd();
    for (size_t k = 0; k < job->n_blocks; k++, w += 8, x += AVX2_TOKENS) {
        __m256d low = _mm256_cvtps_pd(_mm_load_ps(w)), high = _mm256_cvtps_pd(_mm_load_ps(w + 4));
        UNROLL
        for (size_t t = 0; t < AVX2_TOKENS; t++) {
            __m256d v = _mm256_set1_pd(x[t]);
            sums[t][0] = _mm256_fmadd_pd(low, v, sums[t][0]);
            sums[t][1] = _mm256_fmadd_pd(high, v, sums[t][1]);
        }
    }
    float_store_avx2(job, sums);
}

/* Both kernels of a format, behind NAME_load_avx2; `scalar` is the type of its panels' values, run_function one of the
 * two above. */
#define FLOAT_AVX2(name, bytes, scalar, run_function)                                                   \
    AVX2 static void name##_decode_avx2(const struct product *p)                                        \
    {                                                                                                   \
        float_decode_avx2(p, bytes, name##_load_avx2);                                                  \
    }                                                                                                   \
    AVX2 static void name##_pack_avx2(const uint8_t *const rows[8], size_t n_blocks, uint8_t *tile)     \
    {                                                                                                   \
        float_pack_avx2(rows, n_blocks, tile, bytes, name##_load_avx2);                                 \
    }                                                                                                   \
    AVX2 static void name##_run_avx2(const struct avx2_job *job)                                        \
    {                                                                                                   \
        run_function(job);                                                                              \
    }                                                                                                   \
    static const struct avx2_family name##_family_avx2 = {                                              \
        .block_elements = 1,                                                                            \
        .tile_block_bytes = AVX2_ROWS * sizeof(float),                                                  \
        .panel_block_bytes = AVX2_TOKENS * sizeof(scalar),                                              \
        .pack = name##_pack_avx2,                                                                       \
        .run = name##_run_avx2,                                                                         \
    };                                                                                                  \
    AVX2_TILES(name)

#define FLOAT_DECODE_AVX2(name, activations) \
    [TIER_AVX2] = {.layout = &activations, .run = name##_decode_avx2, .row_tile = AVX2_ROWS},
#define FLOAT_PREFILL_AVX2(name) AVX2_TILES_KERNEL(name, layout_avx2_panels_##name)

#else
#define FLOAT_DECODE_AVX2(name, activations)
#define FLOAT_PREFILL_AVX2(name)
#endif
#endif
