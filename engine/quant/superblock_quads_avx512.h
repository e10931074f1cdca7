/* Q4_K and Q5_K for one token on AVX-512: 4 or 5 bits with a scale and a minimum of 32 elements.
 *
 * Four products share lane and scale and fit a word, so the words of two rows fill a vector, and the rows are taken in
 * pairs: what is decoded of their heads, and every float step, serves both. */
#ifndef GGUFD_QUANT_SUPERBLOCK_QUADS_AVX512_H
#define GGUFD_QUANT_SUPERBLOCK_QUADS_AVX512_H
#include "engine/quant/superblock_avx512.h"
#if defined(__x86_64__)

/* A block's first 16 bytes: D, Dmin, the packed scales and minima. Kept for the minima of a finished group of rows. */
enum { HEAD_BYTES = 16 };

/* n super-blocks a row. */
struct quads_scratch {
    float *lanes;       /* [16 rows][8] */
    float *dx;          /* [n][4], scales_by_lanes; readable for 3 more */
    uint8_t *heads;     /* [n][16 rows][HEAD_BYTES] */
    uint8_t *stage;
};

static inline struct quads_scratch quads_scratch_at(void *base, size_t n)
{
    uint8_t *at = base;
    struct quads_scratch s = {.lanes = base};
    s.dx = (float *)(void *)(at += ROWS * 8 * sizeof(float));
    s.heads = at += round_up(n + 3, 4) * 4 * sizeof(float);
    s.stage = at + n * ROWS * HEAD_BYTES;
    return s;
}

static inline size_t quads_scratch_bytes(size_t n, size_t block_bytes)
{
    return ROWS * 8 * sizeof(float) + round_up(n + 3, 4) * 4 * sizeof(float) + n * ROWS * HEAD_BYTES +
           row_group_bytes(n * block_bytes, 0);
}

/* Sums of four products of one super-block at x, by lanes in turns: groups (0, 2), (1, 3), (4, 6), (5, 7). */
typedef void quads_function(const uint8_t *x, const struct superblock_activation *a, __m512i out[4]);

/* What the heads of up to four super-blocks of rows a and b say, as the pair's vectors need it in every 128-bit lane. */
struct quads_scales {
    int16_t scale[4][4][8]; /* [groups as above][super-block]: a, b */
    float d[4][4];          /* [super-block]: D * dx of a, a, b, b */
} ALIGNED;

/* Heads of `count` super-blocks at x, in 128-bit lanes; stores them too. */
AVX512_INLINE __m512i quads_heads(const uint8_t *x, size_t count, size_t block_bytes, uint8_t *heads)
{
    UNROLL
    for (size_t b = 0; b < count; b++)
        _mm_store_si128((void *)(heads + ROWS * HEAD_BYTES * b), _mm_loadu_si128((const void *)(x + b * block_bytes)));
    return count == 4 ? load_lanes(x, block_bytes) : _mm512_castsi128_si512(_mm_loadu_si128((const void *)x));
}

AVX512_INLINE void quads_scales(__m512i a, __m512i b, const float *dx, struct quads_scales *out)
{
    /* bytes 4..7 and 12..15 of a, of b */
    const __m512i parts = _mm512_setr_epi32(1, 3, 17, 19, 5, 7, 21, 23, 9, 11, 25, 27, 13, 15, 29, 31);
    const __m512i first = _mm512_setr_epi32(0, 0, 16, 16, 4, 4, 20, 20, 8, 8, 24, 24, 12, 12, 28, 28);
    const __m512i low[2] = {
        _mm512_broadcast_i32x4(_mm_setr_epi8(0, -1, 2, -1, 0, -1, 2, -1, 8, -1, 10, -1, 8, -1, 10, -1)),
        _mm512_broadcast_i32x4(_mm_setr_epi8(1, -1, 3, -1, 1, -1, 3, -1, 9, -1, 11, -1, 9, -1, 11, -1)),
    };
    /* 4 bits of bytes 12..15, above them 2 of bytes 4..7 */
    const __m512i high[2] = {
        _mm512_broadcast_i32x4(_mm_setr_epi8(4, 0, 6, 2, 4, 0, 6, 2, 12, 8, 14, 10, 12, 8, 14, 10)),
        _mm512_broadcast_i32x4(_mm_setr_epi8(5, 1, 7, 3, 5, 1, 7, 3, 13, 9, 15, 11, 13, 9, 15, 11)),
    };
    __m512i packed = _mm512_permutex2var_epi32(a, parts, b);
    UNROLL
    for (size_t k = 0; k < 2; k++) {
        __m512i w = _mm512_shuffle_epi8(packed, high[k]);
        __m512i s = _mm512_ternarylogic_epi64(w, _mm512_srli_epi16(w, 10), _mm512_set1_epi16(15), TERNARY_CHOOSE);
        _mm512_store_si512(out->scale[k], _mm512_and_si512(_mm512_shuffle_epi8(packed, low[k]), _mm512_set1_epi16(63)));
        _mm512_store_si512(out->scale[2 + k], s);
    }
    __m512 d = low_halves(_mm512_permutex2var_epi32(a, first, b));
    _mm512_store_ps(out->d, _mm512_mul_ps(d, _mm512_loadu_ps(dx)));
}

/* Two rows, the second row_bytes behind the first, and where they are. */
struct quads_rows {
    const uint8_t *x;
    size_t row_bytes, block_bytes;
    struct superblock_activation a;
    const float *dx;
    uint8_t *heads;
};

/* Adds `count` (1 or 4) super-blocks to the float lanes of both rows: 2 j, 2 j + 1 of the first, then of the second, in
 * 128-bit lane j. */
AVX512_INLINE __m512 quads_add(__m512 lanes, const struct quads_rows *r, size_t count, quads_function *dots)
{
    struct quads_scales scales;
    __m512i heads = quads_heads(r->x, count, r->block_bytes, r->heads);
    quads_scales(heads, quads_heads(r->x + r->row_bytes, count, r->block_bytes, r->heads + HEAD_BYTES), r->dx, &scales);
    UNROLL
    for (size_t i = 0; i < count; i++) {
        struct superblock_activation at = superblock_activation_from(&r->a, i);
        const uint8_t *x = r->x + i * r->block_bytes;
        __m512i q[4], p[4], sum = _mm512_setzero_si512();
        prefetch_step(r->x, i, r->block_bytes);
        dots(x, &at, q);
        prefetch_step(r->x + r->row_bytes, i, r->block_bytes);
        dots(x + r->row_bytes, &at, p);
        UNROLL
        for (size_t k = 0; k < 4; k++) {
            __m512i words = _mm512_packs_epi32(q[k], p[k]), s = broadcast128(scales.scale[k][i]);
            sum = k ? _mm512_dpwssd_epi32(sum, words, s) : _mm512_madd_epi16(words, s);
        }
        __m512 d = _mm512_castsi512_ps(broadcast128(scales.d[i]));
        lanes = _mm512_add_ps(lanes, _mm512_mul_ps(d, _mm512_cvtepi32_ps(sum)));
        __asm__ volatile("" ::: "memory"); /* or all requests would come first */
    }
    return lanes;
}

AVX512_INLINE void quads_advance(struct quads_rows *r, size_t count)
{
    r->x += count * r->block_bytes;
    r->a = superblock_activation_from(&r->a, count);
    r->dx += 4 * count;
    r->heads += count * ROWS * HEAD_BYTES;
}

/* The eight float lanes of two rows of n super-blocks. The fewer instructions stand between two requests to memory, the
 * more of them are on their way: four super-blocks a step. */
AVX512_INLINE void quads_two_rows(struct quads_rows r, size_t n, float *out, quads_function *dots)
{
    __m512 lanes = _mm512_setzero_ps();
    for (; n >= 4; n -= 4, quads_advance(&r, 4))
        lanes = quads_add(lanes, &r, 4, dots);
    for (; n; n--, quads_advance(&r, 1))
        lanes = quads_add(lanes, &r, 1, dots);
    _mm512_store_ps(out, lanes_by_rows(lanes));
}

/* Eight minima of four rows' heads, as words. */
AVX512_INLINE __m512i head_minima(__m512i heads)
{
    /* 0..3: 6 bits of bytes 8..11; 4..7: 4 bits of bytes 12..15, above them 2 of bytes 8..11 */
    const __m512i words = _mm512_broadcast_i32x4(_mm_setr_epi8(8, -1, 9, -1, 10, -1, 11, -1, 12, 8, 13, 9, 14, 10, 15, 11));
    const __m512i shift = _mm512_broadcast_i32x4(_mm_setr_epi16(0, 0, 0, 0, 4, 4, 4, 4));
    const __m512i low = _mm512_broadcast_i32x4(_mm_setr_epi16(63, 63, 63, 63, 15, 15, 15, 15));
    __m512i w = _mm512_shuffle_epi8(heads, words);
    return _mm512_ternarylogic_epi64(_mm512_srlv_epi16(w, shift), _mm512_srli_epi16(w, 10), low, TERNARY_CHOOSE);
}

/* Dword 0 of all heads of 16 rows: D and Dmin. */
AVX512_INLINE __m512i head_scales(const __m512i heads[4])
{
    const __m512i first = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 0, 0, 0, 0, 0, 0, 0);
    __m512i low = _mm512_permutex2var_epi32(heads[0], first, heads[1]);
    __m512i high = _mm512_permutex2var_epi32(heads[2], first, heads[3]);
    return _mm512_inserti64x4(low, _mm512_castsi512_si256(high), 1);
}

/* 0 - (Dmin * dx) * Bm - ... over the super-blocks, for 16 rows. */
AVX512_INLINE __m512 quads_minima(const uint8_t *heads_of_rows, const struct superblock_activation *a, size_t n)
{
    __m512 total = _mm512_setzero_ps();
    for (size_t b = 0; b < n; b++) {
        __m512i sums = broadcast128(a->sums32 + 8 * b), heads[4], q[4];
        UNROLL
        for (size_t k = 0; k < 4; k++) {
            heads[k] = _mm512_load_si512(heads_of_rows + ROWS * HEAD_BYTES * b + 64 * k);
            q[k] = _mm512_madd_epi16(head_minima(heads[k]), sums);
        }
        __m512i min_sum = add_lanes(q);
        __m512 dmin = high_halves(head_scales(heads));
        __m512 scale = _mm512_mul_ps(dmin, _mm512_set1_ps(a->d[b]));
        total = _mm512_sub_ps(total, _mm512_mul_ps(scale, _mm512_cvtepi32_ps(min_sum)));
    }
    return total;
}

AVX512_INLINE void quads_decode(const struct product *p, size_t block_bytes, quads_function *dots)
{
    size_t n = p->n_cols / 256;
    const struct quads_scratch s = quads_scratch_at(p->scratch, n);
    const struct superblock_activation a = superblock_activation_at(p->x, n);
    scales_by_lanes(&a, n, s.dx);
    for (size_t row = p->row_begin; row < p->row_end; row += ROWS) {
        const uint8_t *rows = row_group(p, row, 0, s.stage);
        for (size_t i = 0; i < ROWS; i += 2) {
            struct quads_rows r = {rows + i * p->row_bytes, p->row_bytes, block_bytes, a, s.dx, s.heads + HEAD_BYTES * i};
            quads_two_rows(r, n, s.lanes + 8 * i, dots);
        }
        _mm512_mask_storeu_ps(p->y + row, row_mask(p, row), add_columns(quads_minima(s.heads, &a, n), s.lanes, 8, 8));
    }
}

/* Behind NAME_quads_avx512: its decode kernel. */
#define QUADS_AVX512(name, block_bytes)                                         \
    DECODE_RUN_AVX512(name, quads_decode(p, block_bytes, name##_quads_avx512),  \
                      quads_scratch_bytes(n_cols / 256, block_bytes))

#endif
#endif
