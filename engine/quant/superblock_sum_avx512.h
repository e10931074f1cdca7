/* Super-block formats on AVX-512 that add one float per super-block: decode loop, and kernels for formats that unpack a
 * super-block to bytes (the grid ones and TQ1_0), in decode and in tiles. */
#ifndef GGUFD_QUANT_SUPERBLOCK_SUM_AVX512_H
#define GGUFD_QUANT_SUPERBLOCK_SUM_AVX512_H
#include "engine/quant/superblock.h"
#include "engine/quant/superblock_avx512.h"
#if defined(__x86_64__)

/* 16 super-blocks before their floats: dwords that add up to the integer sum, and the scales. */
struct superblock_parts {
    int32_t sum[16][16];        /* A = sum of scale * q * a */
    int32_t min_sum[16][16];    /* Bm, formats with minima only */
    float d[16], dmin[16], dx[16];
} ALIGNED;

/* Fills entry k from the super-block at x. */
typedef void superblock_parts_function(const uint8_t *x, const struct superblock_activation *a,
                                       struct superblock_parts *out, size_t k);

/* Sums of the 16 dwords of 16 vectors. */
AVX512_INLINE __m512i add_dwords(int32_t v[16][16])
{
    __m512i t[4];
    UNROLL
    for (size_t i = 0; i < 4; i++)
        t[i] = add_across(_mm512_load_si512(v[4 * i]), _mm512_load_si512(v[4 * i + 1]), _mm512_load_si512(v[4 * i + 2]),
                          _mm512_load_si512(v[4 * i + 3]));
    /* lane j of t[i] holds a quarter of sums 4 i .. 4 i + 3 */
    __m512i p = _mm512_add_epi32(_mm512_shuffle_i32x4(t[0], t[1], 0x88), _mm512_shuffle_i32x4(t[0], t[1], 0xdd));
    __m512i q = _mm512_add_epi32(_mm512_shuffle_i32x4(t[2], t[3], 0x88), _mm512_shuffle_i32x4(t[2], t[3], 0xdd));
    return _mm512_add_epi32(_mm512_shuffle_i32x4(p, q, 0x88), _mm512_shuffle_i32x4(p, q, 0xdd));
}

/* (D * dx) * (inner * A) [- (dx * Dmin) * Bm] of 16 super-blocks. */
AVX512_INLINE __m512 superblock_terms(struct superblock_parts *parts, bool has_min, float inner)
{
    __m512 scale = _mm512_load_ps(parts->dx), sum = _mm512_cvtepi32_ps(add_dwords(parts->sum));
    if (inner != 1)
        sum = _mm512_mul_ps(_mm512_set1_ps(inner), sum);
    __m512 term = _mm512_mul_ps(_mm512_mul_ps(_mm512_load_ps(parts->d), scale), sum);
    if (!has_min)
        return term;
    __m512 min_sum = _mm512_cvtepi32_ps(add_dwords(parts->min_sum));
    return _mm512_sub_ps(term, _mm512_mul_ps(_mm512_mul_ps(scale, _mm512_load_ps(parts->dmin)), min_sum));
}

static inline size_t superblock_sum_scratch(size_t n_cols, size_t block_bytes)
{
    size_t n = n_cols / 256;
    return (n + 1) * ROWS * sizeof(float) + row_group_bytes(n * block_bytes, 64);
}

/* The terms of 16 rows lie without gaps, so that the 16 super-blocks of a step may belong to two rows. */
AVX512_INLINE void superblock_decode_sums(const struct product *p, size_t block_bytes, bool has_min, float inner,
                                          float factor, superblock_parts_function *parts_of)
{
    size_t n = p->n_cols / 256;
    float *terms = p->scratch;
    const struct superblock_activation a = superblock_activation_at(p->x, n);
    struct superblock_parts parts;
    for (size_t row = p->row_begin; row < p->row_end; row += ROWS) {
        const uint8_t *rows = row_group(p, row, 64, (uint8_t *)(terms + ROWS * (n + 1)));
        size_t k = 0;
        for (size_t i = 0; i < ROWS; i++) {
            const uint8_t *x = rows + i * p->row_bytes;
            for (size_t b = 0; b < n; b++, x += block_bytes) {
                struct superblock_activation at = superblock_activation_from(&a, b);
                prefetch_stream(x, block_bytes);
                parts_of(x, &at, &parts, k % 16);
                parts.dx[k % 16] = *at.d;
                if (++k % 16 == 0)
                    _mm512_store_ps(terms + k - 16, superblock_terms(&parts, has_min, inner));
            }
        }
        __m512 sums = add_columns(_mm512_setzero_ps(), terms, n, n);
        if (factor != 1)
            sums = _mm512_mul_ps(_mm512_set1_ps(factor), sums);
        _mm512_mask_storeu_ps(p->y + row, row_mask(p, row), sums);
    }
}

/* One F16 value. */
AVX512_INLINE float half_at(const uint8_t *p)
{
    return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(load_u16(p))));
}

/* ---- formats that unpack to bytes first ---- */

/* A super-block as s8 in element order, |q| <= 63, 64 elements a vector, and s16 scales of 16 elements. */
struct superblock_bytes {
    __m512i q[4];
    __m256i scale;
    float d;
};

/* 16 scales -> those of the 32 byte pairs of vector k. */
AVX512_INLINE __m512i scales_of_pairs(__m256i scale, int k)
{
    const long long first = 4 * k, words = 0x0001000100010001;
    const __m512i index =
        _mm512_setr_epi64(first * words, first * words, (first + 1) * words, (first + 1) * words, (first + 2) * words,
                          (first + 2) * words, (first + 3) * words, (first + 3) * words);
    return _mm512_permutexvar_epi16(index, _mm512_castsi256_si512(scale));
}

typedef void superblock_bytes_function(const uint8_t *x, struct superblock_bytes *out);

AVX512_INLINE void superblock_pack_bytes(const uint8_t *x, size_t row_bytes, struct superblock_tile *t,
                                         superblock_bytes_function *bytes_of)
{
    struct lane_rows rows[8];
    int16_t scales[ROWS][16] ALIGNED;
    for (size_t i = 0; i < ROWS; i++) {
        struct superblock_bytes w;
        bytes_of(x + i * row_bytes, &w);
        t->d[i] = w.d;
        UNROLL
        for (size_t k = 0; k < 4; k++)
            lane_rows_store(rows + 2 * k, i, by_lanes(w.q[k]));
        _mm256_store_si256((void *)scales[i], w.scale);
    }
    UNROLL
    for (size_t half = 0; half < 2; half++) {
        __m512i s[4];
        transpose_16x4(scales[0] + 8 * half, sizeof scales[0], s);
        UNROLL
        for (size_t k = 0; k < 4; k++)
            _mm512_store_si512(t->s[4 * half + k], s[k]);
    }
    tile_weights(rows, t);
    tile_start(t, false);
}

/* ---- formats of magnitudes and signs: decode gives the signs to the activations ---- */

struct superblock_signed {
    __m512i magnitude[4]; /* 64 elements each, 0..63 */
    __mmask64 minus[4];
    __m256i scale; /* s16, of 16 elements */
    float d;
};

/* Bit i of `signs`: element i is negative. */
AVX512_INLINE void superblock_signs(const void *signs, struct superblock_signed *out)
{
    UNROLL
    for (size_t k = 0; k < 4; k++)
        out->minus[k] = load_u64((const uint8_t *)signs + 8 * k);
}

AVX512_INLINE __m512i negate_where(__mmask64 minus, __m512i v)
{
    return _mm512_mask_sub_epi8(v, minus, _mm512_setzero_si512(), v);
}

/* Dwords that add up to the sum of scale * q * a. */
AVX512_INLINE __m512i superblock_signed_dot(const struct superblock_signed *w, const int8_t *plain)
{
    __m512i sum = _mm512_setzero_si512();
    UNROLL
    for (int k = 0; k < 4; k++) {
        __m512i y = negate_where(w->minus[k], load512(plain + 64 * k));
        sum = _mm512_dpwssd_epi32(sum, _mm512_maddubs_epi16(w->magnitude[k], y), scales_of_pairs(w->scale, k));
    }
    return sum;
}

AVX512_INLINE void superblock_signed_bytes(const struct superblock_signed *w, struct superblock_bytes *out)
{
    UNROLL
    for (size_t k = 0; k < 4; k++)
        out->q[k] = negate_where(w->minus[k], w->magnitude[k]);
    out->scale = w->scale;
    out->d = w->d;
}

/* In a format's file, behind NAME_parts_avx512: its decode kernel. */
#define SUPERBLOCK_SUMS_AVX512(name, block_bytes, has_min, inner, factor)                                           \
    DECODE_RUN_AVX512(name, superblock_decode_sums(p, block_bytes, has_min, inner, factor, name##_parts_avx512),    \
                      superblock_sum_scratch(n_cols, block_bytes))

/* Behind NAME_bytes_avx512: its kernel for many tokens. */
#define SUPERBLOCK_BYTES_AVX512(name, bytes, inner, factor)                                                         \
    AVX512_INLINE void name##_pack_block_avx512(const uint8_t *x, size_t row_bytes, struct superblock_tile *t)      \
    {                                                                                                               \
        superblock_pack_bytes(x, row_bytes, t, name##_bytes_avx512);                                                \
    }                                                                                                               \
    SUPERBLOCK_TILES_AVX512(name, bytes, SUPERBLOCK_SUM, inner, factor)

/* Behind NAME_load_avx512, which fills a superblock_signed: both kernels. */
#define SUPERBLOCK_SIGNED_AVX512(name, bytes, factor)                                                               \
    AVX512_INLINE void name##_parts_avx512(const uint8_t *x, const struct superblock_activation *a,                 \
                                           struct superblock_parts *out, size_t k)                                  \
    {                                                                                                               \
        struct superblock_signed w;                                                                                 \
        name##_load_avx512(x, &w);                                                                                  \
        out->d[k] = w.d;                                                                                            \
        _mm512_store_si512(out->sum[k], superblock_signed_dot(&w, a->plain));                                       \
    }                                                                                                               \
    AVX512_INLINE void name##_bytes_avx512(const uint8_t *x, struct superblock_bytes *out)                          \
    {                                                                                                               \
        struct superblock_signed w;                                                                                 \
        name##_load_avx512(x, &w);                                                                                  \
        superblock_signed_bytes(&w, out);                                                                           \
    }                                                                                                               \
    SUPERBLOCK_SUMS_AVX512(name, bytes, false, 1, factor)                                                           \
    SUPERBLOCK_BYTES_AVX512(name, bytes, 1, factor)

#endif
#endif
