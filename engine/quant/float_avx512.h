/* F32, F16 and BF16 weights on AVX-512. The sum over a row is double and in index order, so lanes are rows: columns are
 * transposed through a small buffer, or into chunks.
 *
 * F16 products are exact in float and double, which allows fused multiply-add; F32 and BF16 products round to float.
 * Those of BF16 are exact unless they leave float's range, which the exponents of both sides tell beforehand. */
#ifndef GGUFD_QUANT_FLOAT_AVX512_H
#define GGUFD_QUANT_FLOAT_AVX512_H
#include "engine/quant/avx512.h"
#if defined(__x86_64__)

extern const struct activation_layout layout_avx512_decode_f16;     /* doubles, zeros to a multiple of 8 */
extern const struct activation_layout layout_avx512_decode_bf16;    /* floats, the same */
extern const struct activation_layout layout_avx512_decode_f32;
extern const struct activation_layout layout_avx512_panels_f16;     /* [column][8 tokens] doubles */
extern const struct activation_layout layout_avx512_panels_bf16;    /* the same, then a float_range per panel */
extern const struct activation_layout layout_avx512_panels_f32;     /* [column][8 tokens] floats */

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

/* Columns are handled in chunks: a chunk of 16 rows stays in the first-level cache, in the kernel's own type, while the
 * panels' chunks pass by from the second-level cache, where they stay for several tiles of rows. Sums of all of these
 * wait in scratch. */
enum { FLOAT_CHUNK = 128, FLOAT_TILES = 8, FLOAT_PANELS = 16 };

struct float_scratch {
    double chunk[FLOAT_CHUNK * ROWS];                       /* of F32: floats */
    double sums[FLOAT_TILES][FLOAT_PANELS][TOKENS][ROWS];
};

/* Binary exponents of values: no nonzero one is below `low`, none above `high`. */
struct float_range {
    int32_t low, high;
};

/* Whether products of BF16 values are floats: of 16 bits, the lowest at 2^-149 or above, below 2^128. */
static inline bool float_products_exact(const struct float_range *w, const struct float_range *x)
{
    return w->low + x->low >= -149 + 14 && w->high + x->high <= 126;
}

/* Columns [k, k_end) of 16 rows -> chunk; of BF16 their range too. */
AVX512_INLINE void float_pack(enum float_kind kind, const uint8_t *rows, size_t row_bytes, size_t k, size_t k_end,
                              size_t n_cols, double *chunk, struct float_range *range)
{
    size_t size = float_bytes(kind);
    __m512i low = _mm512_set1_epi32(-1), high = _mm512_setzero_si512(); /* magnitudes as bits, unsigned */
    for (size_t at = 0; k + at < k_end; at += 8) {
        uint8_t columns[8 * ROWS * 4] ALIGNED;
        float_transpose(kind, rows, row_bytes, k + at, n_cols, columns);
        UNROLL
        for (size_t c = 0; c < 8; c++) {
            __m512 column = float_column(kind, columns + c * ROWS * size);
            if (kind == FLOAT_BF16) {
                __m512i magnitude = _mm512_and_si512(_mm512_castps_si512(column), _mm512_set1_epi32(0x7fffffff));
                high = _mm512_max_epu32(high, magnitude);
                low = _mm512_min_epu32(low, _mm512_sub_epi32(magnitude, _mm512_set1_epi32(1))); /* 0 is the largest */
            }
            if (kind != FLOAT_F32) {
                double *out = chunk + (at + c) * ROWS;
                _mm512_store_pd(out, _mm512_cvtps_pd(_mm512_castps512_ps256(column)));
                _mm512_store_pd(out + 8, _mm512_cvtps_pd(_mm512_extractf32x8_ps(column, 1)));
            } else {
                _mm512_store_ps((float *)(void *)chunk + (at + c) * ROWS, column);
            }
        }
    }
    if (kind == FLOAT_BF16) {
        range->low = (int32_t)(_mm512_reduce_min_epu32(low) >> 23) - 127;
        range->high = (int32_t)(_mm512_reduce_max_epu32(high) >> 23) - 127;
    }
}

/* sums += n columns of a chunk times those of a panel. `exact`: products need no rounding. */
AVX512_INLINE void float_chunk_run(enum float_kind kind, bool exact, const double *chunk, const void *panel, size_t n,
                                   size_t n_tokens, double (*sums)[ROWS])
{
    __m512d s[TOKENS][2];
    UNROLL
    for (size_t i = 0; i < n_tokens; i++) {
        s[i][0] = _mm512_load_pd(sums[i]);
        s[i][1] = _mm512_load_pd(sums[i] + 8);
    }
    for (size_t k = 0; k < n; k++) {
        if (kind != FLOAT_F32) {
            const double *x = (const double *)panel + k * TOKENS;
            __m512d w0 = _mm512_load_pd(chunk + k * ROWS), w1 = _mm512_load_pd(chunk + k * ROWS + 8);
            UNROLL
            for (size_t i = 0; i < n_tokens; i++) {
                __m512d y = _mm512_set1_pd(x[i]);
                if (exact) {
                    s[i][0] = _mm512_fmadd_pd(w0, y, s[i][0]);
                    s[i][1] = _mm512_fmadd_pd(w1, y, s[i][1]);
                } else {
                    s[i][0] = _mm512_add_pd(s[i][0], _mm512_cvtps_pd(_mm512_cvtpd_ps(_mm512_mul_pd(w0, y))));
                    s[i][1] = _mm512_add_pd(s[i][1], _mm512_cvtps_pd(_mm512_cvtpd_ps(_mm512_mul_pd(w1, y))));
                }
            }
        } else {
            const float *x = (const float *)panel + k * TOKENS;
            __m512 w = _mm512_load_ps((const float *)(const void *)chunk + k * ROWS);
            UNROLL
            for (size_t i = 0; i < n_tokens; i++)
                add_products(_mm512_mul_ps(w, _mm512_set1_ps(x[i])), s[i]);
        }
    }
    UNROLL
    for (size_t i = 0; i < n_tokens; i++) {
        _mm512_store_pd(sums[i], s[i][0]);
        _mm512_store_pd(sums[i] + 8, s[i][1]);
    }
}

/* n_tokens of 8. */
AVX512_INLINE void float_panel_run(enum float_kind kind, bool exact, const double *chunk, const void *panel, size_t n,
                                   size_t n_tokens, double (*sums)[ROWS])
{
    if (exact && n_tokens > TOKENS / 2)
        float_chunk_run(kind, true, chunk, panel, n, TOKENS, sums);
    else if (exact)
        float_chunk_run(kind, true, chunk, panel, n, TOKENS / 2, sums);
    else
        float_chunk_run(kind, false, chunk, panel, n, TOKENS, sums);
}

/* Row tiles [row, row + n_tiles * 16) against tokens [token, token_end). */
AVX512_INLINE void float_tiles_run(const struct product *p, enum float_kind kind, size_t row, size_t n_tiles,
                                   size_t token, size_t token_end, struct float_scratch *s, uint8_t *stage)
{
    const size_t size = float_bytes(kind), x_bytes = kind == FLOAT_F32 ? sizeof(float) : sizeof(double);
    const uint8_t *rows[FLOAT_TILES];
    const struct float_range *x_ranges =
        (const void *)((const char *)p->x + round_up(p->n_tokens, TOKENS) * p->n_cols * x_bytes);
    struct float_range range = {0, 0};
    for (size_t i = 0; i < n_tiles; i++)
        rows[i] = row_group(p, row + i * ROWS, 0, stage); /* only the last one can need the stage */
    memset(s->sums, 0, n_tiles * sizeof s->sums[0]);
    for (size_t k = 0; k < p->n_cols; k += FLOAT_CHUNK) {
        size_t n = p->n_cols - k < FLOAT_CHUNK ? p->n_cols - k : FLOAT_CHUNK;
        for (size_t i = 0; i < n_tiles; i++) {
            const uint8_t *ahead = i + 1 < n_tiles ? rows[i + 1] + k * size : rows[0] + (k + FLOAT_CHUNK) * size;
            for (size_t r = 0; r < ROWS; r++)
                prefetch_tile(ahead + r * p->row_bytes, FLOAT_CHUNK * size);
            float_pack(kind, rows[i], p->row_bytes, k, k + n, p->n_cols, s->chunk, &range);
            for (size_t t = token; t < token_end; t += TOKENS) {
                const char *x = (const char *)p->x + (t * p->n_cols + k * TOKENS) * x_bytes;
                double(*sums)[ROWS] = s->sums[i][(t - token) / TOKENS];
                bool exact = kind != FLOAT_BF16 || float_products_exact(&range, &x_ranges[t / TOKENS]);
                float_panel_run(kind, exact, s->chunk, x, n, token_end - t, sums);
            }
        }
    }
    for (size_t i = 0; i < n_tiles; i++)
        for (size_t t = token; t < token_end; t++) {
            const double *sums = s->sums[i][(t - token) / TOKENS][t % TOKENS];
            const __m512d halves[2] = {_mm512_load_pd(sums), _mm512_load_pd(sums + 8)};
            _mm512_mask_storeu_ps(p->y + t * p->y_stride + row + i * ROWS, row_mask(p, row + i * ROWS),
                                  sums_to_float(halves));
        }
}

AVX512_INLINE void float_prefill(const struct product *p, enum float_kind kind)
{
    struct float_scratch *s = p->scratch;
    const size_t tokens = FLOAT_PANELS * TOKENS, rows = FLOAT_TILES * ROWS;
    for (size_t t = 0; t < p->n_tokens; t += tokens)
        for (size_t row = p->row_begin; row < p->row_end; row += rows) {
            size_t n_rows = p->row_end - row < rows ? p->row_end - row : rows;
            float_tiles_run(p, kind, row, (n_rows + ROWS - 1) / ROWS, t,
                            p->n_tokens - t < tokens ? p->n_tokens : t + tokens, s, (uint8_t *)(s + 1));
        }
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
    AVX512 static void name##_prefill_avx512(const struct product *p)                                              \
    {                                                                                                               \
        float_prefill(p, kind);                                                                                     \
    }                                                                                                               \
    static size_t name##_prefill_scratch_avx512(size_t n_cols, size_t n_tokens)                                     \
    {                                                                                                               \
        (void)n_tokens;                                                                                             \
        return sizeof(struct float_scratch) + row_group_bytes(n_cols * (kind == FLOAT_F32 ? 4 : 2), 0);             \
    }

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
