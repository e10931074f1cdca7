/* Super-block formats on AVX-512 that add one float per super-block: decode loop, and kernels for formats that unpack a
 * super-block to bytes first (the grid and ternary ones), in decode and in tiles. */
#ifndef GGUFD_QUANT_SUPERBLOCK_SUM_AVX512_H
#define GGUFD_QUANT_SUPERBLOCK_SUM_AVX512_H
#include "engine/quant/superblock.h"
#include "engine/quant/superblock_avx512.h"
#if defined(__x86_64__)

/* 16 super-blocks of a row before their floats: dwords that add up to the integer sum, and the scales. */
struct superblock_parts {
    int32_t sum[16][16];        /* A = sum of scale * q * a */
    int32_t min_sum[16][16];    /* Bm, formats with minima only */
    float d[16], dmin[16];
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
AVX512_INLINE __m512 superblock_terms(struct superblock_parts *parts, const float *dx, bool has_min, float inner)
{
    __m512 scale = _mm512_loadu_ps(dx), sum = _mm512_cvtepi32_ps(add_dwords(parts->sum));
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
    return ROWS * round_up(n, 16) * sizeof(float) + row_group_bytes(n * block_bytes, 64);
}

AVX512_INLINE void superblock_decode_sums(const struct product *p, size_t block_bytes, bool has_min, float inner,
                                          float factor, superblock_parts_function *parts_of)
{
    size_t n = p->n_cols / 256, stride = round_up(n, 16);
    float *terms = p->scratch;
    const struct superblock_activation a = superblock_activation_at(p->x, n);
    struct superblock_parts parts;
    memset(&parts, 0, sizeof parts);
    for (size_t row = p->row_begin; row < p->row_end; row += ROWS) {
        const uint8_t *rows = row_group(p, row, 64, (uint8_t *)(terms + ROWS * stride));
        for (size_t i = 0; i < ROWS; i++) {
            const uint8_t *x = rows + i * p->row_bytes;
            for (size_t b = 0; b < n; b++, x += block_bytes) {
                struct superblock_activation at = superblock_activation_from(&a, b);
                prefetch_stream(x, block_bytes);
                parts_of(x, &at, &parts, b % 16);
                if (b % 16 == 15 || b + 1 == n) {
                    size_t first = b & ~(size_t)15;
                    __m512 t = superblock_terms(&parts, a.d + first, has_min, inner);
                    _mm512_store_ps(terms + i * stride + first, _mm512_maskz_mov_ps(mask_of_first(n - first), t));
                }
            }
        }
        __m512 sums = add_columns(_mm512_setzero_ps(), terms, stride, n);
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

/* Two-bit values of groups (0,1) or (2,3) of a half of a super-block; `packed` twice its 32 bytes. */
AVX512_INLINE __m512i two_bits_avx512(__m512i packed, int c)
{
    return _mm512_and_si512(_mm512_srlv_epi16(packed, halves16(4 * c, 4 * c + 2)), _mm512_set1_epi8(3));
}

/* ---- formats that unpack first: |q| <= 63, scales s16 of 16 weights ---- */

/* A super-block as bytes in element order. */
typedef void superblock_unpack_function(const void *block, struct superblock *out);

/* Dwords that add up to sum of scale * q * a: the activations as u8, 128 too large, and the excess subtracted. */
AVX512_INLINE __m512i superblock_dot_unpacked(const struct superblock *w, const struct superblock_activation *a)
{
    const __m512i one = _mm512_set1_epi8(1), flip = _mm512_set1_epi8(-128);
    __m512i sum = _mm512_setzero_si512(), excess = sum;
    __m512i scales = _mm512_castsi256_si512(_mm256_loadu_si256((const void *)w->scale));
    UNROLL
    for (size_t pair = 0; pair < 4; pair++) {
        __m512i q = by_lanes(load512(w->q + 64 * pair)), s = scales_near(scales, 2 * (int)pair);
        __m512i y = _mm512_xor_si512(load512(a->near + 64 * pair), flip);
        sum = _mm512_dpwssd_epi32(sum, _mm512_maddubs_epi16(y, q), s);
        excess = _mm512_dpwssd_epi32(excess, _mm512_maddubs_epi16(one, q), s);
    }
    return _mm512_sub_epi32(sum, _mm512_slli_epi32(excess, 7));
}

AVX512_INLINE void superblock_parts_unpacked(const uint8_t *x, const struct superblock_activation *a,
                                             struct superblock_parts *out, size_t k, superblock_unpack_function *unpack)
{
    struct superblock w;
    unpack(x, &w);
    out->d[k] = w.d;
    _mm512_store_si512(out->sum[k], superblock_dot_unpacked(&w, a));
}

AVX512_INLINE void superblock_pack_unpacked(const uint8_t *x, size_t row_bytes, struct superblock_tile *t,
                                            superblock_unpack_function *unpack)
{
    struct lane_rows rows[8];
    for (size_t i = 0; i < ROWS; i++) {
        struct superblock w;
        unpack(x + i * row_bytes, &w);
        t->d[i] = w.d;
        for (size_t pair = 0; pair < 4; pair++)
            lane_rows_store(rows + 2 * pair, i, by_lanes(load512(w.q + 64 * pair)));
        for (size_t j = 0; j < 8; j++)
            memcpy(t->s[j] + 2 * i, w.scale + 2 * j, 4);
    }
    tile_weights(rows, t);
    tile_start(t, false);
}

/* In a format's file, behind NAME_parts_avx512: its decode kernel. */
#define SUPERBLOCK_SUMS_AVX512(name, bytes, has_min, inner, factor)                                     \
    AVX512 static void name##_decode_avx512(const struct product *p)                                   \
    {                                                                                                   \
        superblock_decode_sums(p, bytes, has_min, inner, factor, name##_parts_avx512);                  \
    }                                                                                                   \
    static size_t name##_decode_scratch_avx512(size_t n_cols, size_t n_tokens)                          \
    {                                                                                                   \
        (void)n_tokens;                                                                                 \
        return superblock_sum_scratch(n_cols, bytes);                                                   \
    }

/* Behind NAME_unpack alone: both kernels. */
#define SUPERBLOCK_UNPACKED_AVX512(name, unpack, bytes, inner, factor)                                              \
    AVX512_INLINE void name##_parts_avx512(const uint8_t *x, const struct superblock_activation *a,                 \
                                           struct superblock_parts *out, size_t k)                                  \
    {                                                                                                               \
        superblock_parts_unpacked(x, a, out, k, unpack);                                                            \
    }                                                                                                               \
    AVX512_INLINE void name##_pack_block_avx512(const uint8_t *x, size_t row_bytes, struct superblock_tile *t)      \
    {                                                                                                               \
        superblock_pack_unpacked(x, row_bytes, t, unpack);                                                          \
    }                                                                                                               \
    SUPERBLOCK_SUMS_AVX512(name, bytes, false, inner, factor)                                                       \
    SUPERBLOCK_TILES_AVX512(name, bytes, SUPERBLOCK_SUM, inner, factor)

#endif
#endif
