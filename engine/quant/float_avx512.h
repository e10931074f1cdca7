/* F32, F16 and BF16 weights on AVX-512. The sum over a row is double and in index order, so lanes are rows: columns are
 * transposed through a small buffer, or into tiles.
 *
 * F16 products are exact in double as well, which allows fused multiply-add; F32 and BF16 products round to float. */
#ifndef GGUFD_QUANT_FLOAT_AVX512_H
#define GGUFD_QUANT_FLOAT_AVX512_H
#include "engine/quant/avx512.h"
#if defined(__x86_64__)

extern const struct activation_layout layout_avx512_decode_f16;     /* doubles, zeros to a multiple of 8 */
extern const struct activation_layout layout_avx512_decode_bf16;    /* floats, the same */
extern const struct activation_layout layout_avx512_decode_f32;
extern const struct activation_layout layout_avx512_panels_f16;     /* [column][8 tokens] doubles */
extern const struct activation_layout layout_avx512_panels_bf16;    /* [column][8 tokens] floats */
extern const struct activation_layout layout_avx512_panels_f32;

enum float_kind { FLOAT_F16, FLOAT_BF16, FLOAT_F32 };

AVX512_INLINE size_t float_bytes(enum float_kind kind)
{
    return kind == FLOAT_F32 ? 4 : 2;
}

/* 16 rows of 8 elements of 16 bits -> out: element k of 16 rows in 32 bytes. */
AVX512_INLINE void transpose_16x8_words(const uint8_t *p, size_t step, uint8_t *out)
{
    __m512i a = load_lanes(p, 4 * step), b = load_lanes(p + step, 4 * step);
    __m512i c = load_lanes(p + 2 * step, 4 * step), d = load_lanes(p + 3 * step, 4 * step);
    __m512i t0 = _mm512_unpacklo_epi16(a, b), t1 = _mm512_unpackhi_epi16(a, b);
    __m512i t2 = _mm512_unpacklo_epi16(c, d), t3 = _mm512_unpackhi_epi16(c, d);
    const __m512i order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
    _mm512_store_si512(out, _mm512_permutexvar_epi64(order, _mm512_unpacklo_epi32(t0, t2)));
    _mm512_store_si512(out + 64, _mm512_permutexvar_epi64(order, _mm512_unpackhi_epi32(t0, t2)));
    _mm512_store_si512(out + 128, _mm512_permutexvar_epi64(order, _mm512_unpacklo_epi32(t1, t3)));
    _mm512_store_si512(out + 192, _mm512_permutexvar_epi64(order, _mm512_unpackhi_epi32(t1, t3)));
}

/* The same for 32 bits, 64 bytes each. */
AVX512_INLINE void transpose_16x8_dwords(const uint8_t *p, size_t step, uint8_t *out)
{
    UNROLL
    for (size_t half = 0; half < 2; half++) {
        __m512i t[4];
        transpose_16x4(p + 16 * half, step, t);
        UNROLL
        for (size_t k = 0; k < 4; k++)
            _mm512_store_si512(out + 256 * half + 64 * k, t[k]);
    }
}

/* 8 columns of 16 rows from column k on; behind n_cols: zeros. */
AVX512_INLINE void float_transpose(enum float_kind kind, const uint8_t *rows, size_t row_bytes, size_t k, size_t n_cols,
                                   uint8_t *out)
{
    size_t size = float_bytes(kind);
    const uint8_t *from = rows + k * size;
    uint8_t tail[ROWS][32] ALIGNED;
    if (n_cols - k < 8) {
        memset(tail, 0, sizeof tail);
        for (size_t i = 0; i < ROWS; i++)
            memcpy(tail[i], from + i * row_bytes, (n_cols - k) * size);
        from = tail[0];
        row_bytes = sizeof tail[0];
    }
    if (kind == FLOAT_F32)
        transpose_16x8_dwords(from, row_bytes, out);
    else
        transpose_16x8_words(from, row_bytes, out);
}

/* Column of 16 rows as floats. */
AVX512_INLINE __m512 float_column(enum float_kind kind, const uint8_t *column)
{
    if (kind == FLOAT_F32)
        return _mm512_load_ps(column);
    __m256i words = _mm256_load_si256((const void *)column);
    if (kind == FLOAT_F16)
        return _mm512_cvtph_ps(words);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(words), 16));
}

AVX512_INLINE void add_products(__m512 products, __m512d sums[2])
{
    sums[0] = _mm512_add_pd(sums[0], _mm512_cvtps_pd(_mm512_castps512_ps256(products)));
    sums[1] = _mm512_add_pd(sums[1], _mm512_cvtps_pd(_mm512_extractf32x8_ps(products, 1)));
}

AVX512_INLINE __m512 sums_to_float(const __m512d sums[2])
{
    return _mm512_insertf32x8(_mm512_castps256_ps512(_mm512_cvtpd_ps(sums[0])), _mm512_cvtpd_ps(sums[1]), 1);
}

/* One transposed column into the sums. */
AVX512_INLINE void float_column_add(enum float_kind kind, const uint8_t *column, const void *x, size_t k,
                                    __m512d sums[2])
{
    if (kind == FLOAT_F16) {
        __m512d y = _mm512_set1_pd(((const double *)x)[k]);
        __m256 w0 = _mm256_cvtph_ps(_mm_load_si128((const void *)column));
        __m256 w1 = _mm256_cvtph_ps(_mm_load_si128((const void *)(column + 16)));
        sums[0] = _mm512_fmadd_pd(_mm512_cvtps_pd(w0), y, sums[0]);
        sums[1] = _mm512_fmadd_pd(_mm512_cvtps_pd(w1), y, sums[1]);
    } else {
        __m512 y = _mm512_set1_ps(((const float *)x)[k]);
        add_products(_mm512_mul_ps(float_column(kind, column), y), sums);
    }
}

/* ---- one token ---- */

enum { FLOAT_STRIP = 64, FLOAT_AHEAD = 512 }; /* columns transposed together; bytes of a row to prefetch ahead */

/* Lines of the 16 rows a little ahead; at the end of the rows, of the next group of rows. */
AVX512_INLINE void float_prefetch(const uint8_t *rows, size_t row_bytes, size_t at, size_t bytes)
{
    size_t ahead = at + FLOAT_AHEAD;
    const uint8_t *p = rows + (ahead < row_bytes ? ahead : ahead - row_bytes + ROWS * row_bytes);
    for (size_t i = 0; i < ROWS; i++)
        for (size_t line = 0; line < bytes; line += 64)
            _mm_prefetch((const char *)p + i * row_bytes + line, _MM_HINT_T0);
}

AVX512_INLINE void float_decode(const struct product *p, enum float_kind kind)
{
    size_t size = float_bytes(kind);
    for (size_t row = p->row_begin; row < p->row_end; row += ROWS) {
        const uint8_t *rows = row_group(p, row, 0, p->scratch);
        uint8_t strips[2][FLOAT_STRIP * ROWS * 4] ALIGNED; /* in turn, so that stores do not wait for loads */
        __m512d sums[2] = {_mm512_setzero_pd(), _mm512_setzero_pd()};
        for (size_t k = 0; k < p->n_cols; k += FLOAT_STRIP) {
            size_t n = p->n_cols - k < FLOAT_STRIP ? p->n_cols - k : FLOAT_STRIP;
            uint8_t *strip = strips[k / FLOAT_STRIP % 2];
            for (size_t c = 0; c < n; c += 8)
                float_transpose(kind, rows, p->row_bytes, k + c, p->n_cols, strip + c * ROWS * size);
            float_prefetch(rows, p->row_bytes, k * size, FLOAT_STRIP * size);
            for (size_t c = 0; c < n; c++)
                float_column_add(kind, strip + c * ROWS * size, p->x, k + c, sums);
        }
        _mm512_mask_storeu_ps(p->y + row, row_mask(p, row), sums_to_float(sums));
    }
}

/* ---- many tokens ---- */

/* Tile: per column 16 floats. Doubles would save a conversion, but their traffic from the second-level cache costs more. */
AVX512_INLINE void float_pack(enum float_kind kind, const uint8_t *rows, size_t row_bytes, size_t n_cols, uint8_t *tile)
{
    size_t size = float_bytes(kind);
    for (size_t k = 0; k < n_cols; k += 8) {
        uint8_t columns[8 * ROWS * 4] ALIGNED;
        float_transpose(kind, rows, row_bytes, k, n_cols, columns);
        for (size_t c = 0; c < 8 && k + c < n_cols; c++) {
            float *out = (float *)(void *)tile + (k + c) * ROWS;
            _mm512_store_ps(out, float_column(kind, columns + c * ROWS * size));
        }
    }
}

AVX512_INLINE void float_tile_run(const struct tile_job *job, enum float_kind kind, size_t n_tokens)
{
    const uint8_t *ahead = job->prefetch;
    __m512d sums[TOKENS][2];
    UNROLL
    for (size_t i = 0; i < n_tokens; i++)
        sums[i][0] = sums[i][1] = _mm512_setzero_pd();
    for (size_t k = 0; k < job->n_blocks; k++, ahead += job->prefetch_step) {
        const float *tile = (const float *)(const void *)job->tile + k * ROWS;
        prefetch_tile(ahead, job->prefetch_step);
        if (kind == FLOAT_F16) {
            const double *x = (const double *)(const void *)job->panel + k * TOKENS;
            __m512d w0 = _mm512_cvtps_pd(_mm256_load_ps(tile)), w1 = _mm512_cvtps_pd(_mm256_load_ps(tile + 8));
            UNROLL
            for (size_t i = 0; i < n_tokens; i++) {
                __m512d y = _mm512_set1_pd(x[i]);
                sums[i][0] = _mm512_fmadd_pd(w0, y, sums[i][0]);
                sums[i][1] = _mm512_fmadd_pd(w1, y, sums[i][1]);
            }
        } else {
            const float *x = (const float *)(const void *)job->panel + k * TOKENS;
            __m512 w = _mm512_load_ps(tile);
            UNROLL
            for (size_t i = 0; i < n_tokens; i++)
                add_products(_mm512_mul_ps(w, _mm512_set1_ps(x[i])), sums[i]);
        }
    }
    __m512 out[TOKENS];
    UNROLL
    for (size_t i = 0; i < n_tokens; i++)
        out[i] = sums_to_float(sums[i]);
    store_tokens(job, out, n_tokens);
}

/* In a format's file: its kernels on this tier. */
#define FLOAT_AVX512(name, kind)                                                                                    \
    AVX512 static void name##_decode_avx512(const struct product *p)                                               \
    {                                                                                                               \
        float_decode(p, kind);                                                                                      \
    }                                                                                                               \
    static size_t name##_decode_scratch_avx512(size_t n_cols, size_t n_tokens)                                      \
    {                                                                                                               \
        (void)n_tokens;                                                                                             \
        return row_group_bytes(n_cols * (kind == FLOAT_F32 ? 4 : 2), 0);                                            \
    }                                                                                                               \
    AVX512 static void name##_pack_avx512(const uint8_t *rows, size_t row_bytes, size_t n_blocks, uint8_t *tile)    \
    {                                                                                                               \
        float_pack(kind, rows, row_bytes, n_blocks, tile);                                                          \
    }                                                                                                               \
    AVX512 static void name##_tile_avx512(const struct tile_job *job)                                               \
    {                                                                                                               \
        float_tile_run(job, kind, TOKENS);                                                                          \
    }                                                                                                               \
    AVX512 static void name##_tile_few_avx512(const struct tile_job *job)                                           \
    {                                                                                                               \
        float_tile_run(job, kind, TOKENS / 2);                                                                      \
    }                                                                                                               \
    static const struct tile_family name##_family_avx512 = {                                                        \
        .block_elements = 1,                                                                                        \
        .block_bytes = kind == FLOAT_F32 ? 4 : 2,                                                                   \
        .tile_block_bytes = ROWS * sizeof(float),                                                                   \
        .panel_block_bytes = TOKENS * (kind == FLOAT_F16 ? sizeof(double) : sizeof(float)),                         \
        .pack = name##_pack_avx512,                                                                                 \
        .run = name##_tile_avx512,                                                                                  \
        .run_few = name##_tile_few_avx512,                                                                          \
    };                                                                                                              \
    TILES_PREFILL_AVX512(name)

#define FLOAT_DECODE_AVX512(name)                      \
    [TIER_AVX512] = {                                  \
        .layout = &layout_avx512_decode_##name,        \
        .run = name##_decode_avx512,                   \
        .row_tile = ROWS,                              \
        .scratch_bytes = name##_decode_scratch_avx512, \
    },
#define FLOAT_PREFILL_AVX512(name) TILES_KERNEL_AVX512(name, layout_avx512_panels_##name)

#else
#define FLOAT_DECODE_AVX512(name)
#define FLOAT_PREFILL_AVX512(name)
#endif
#endif
