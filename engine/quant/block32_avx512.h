/* The formats with 32 weights per block on AVX-512: one decode loop and one tile kernel, into which a format's file
 * puts how it loads its integers and how it combines the block's sum with the scales. */
#ifndef GGUFD_QUANT_BLOCK32_AVX512_H
#define GGUFD_QUANT_BLOCK32_AVX512_H
#include "engine/quant/avx512.h"
#include "engine/quant/block32.h"
#if defined(__x86_64__)

/* Activations of one token, for decode. All arrays hold a multiple of 16 blocks, zeros behind the last. */
extern const struct activation_layout layout_avx512_decode_q8_0, layout_avx512_decode_q8_1;
/* Activations of many tokens in panels of 8, block by block. */
extern const struct activation_layout layout_avx512_panels_q8_0, layout_avx512_panels_q8_1;
extern const struct activation_layout layout_avx512_panels_q8_0_halves; /* for BLOCK32_HALVES */

/* ---- one token ---- */

struct block32_activation {
    const int8_t *pairs;    /* of 16 blocks 8 x 64 bytes: (0,4) (1,5) (2,6) (3,7) (8,12) (9,13) (10,14) (11,15) */
    const int8_t *quads;    /* of 16 blocks 4 x 128 bytes: first halves of blocks 4 k .. 4 k + 3, second halves */
    const int32_t *sums;    /* of the integers of a block */
    const int32_t *firsts;  /* of its first 16 */
    const float *d, *s;     /* scales; s of Q8_1 only, else zeros */
};

enum { BLOCK32_ACTIVATION_BYTES = 2 * 32 + 4 * 4 };

static inline size_t block32_padded(size_t n_cols)
{
    return round_up(n_cols / 32, 16);
}

static inline struct block32_activation block32_activation_at(const void *x, size_t n_cols)
{
    size_t n = block32_padded(n_cols);
    const char *at = x;
    return (struct block32_activation){
        .pairs = (const int8_t *)at,
        .quads = (const int8_t *)at + 32 * n,
        .sums = (const int32_t *)(const void *)(at + 64 * n),
        .firsts = (const int32_t *)(const void *)(at + 68 * n),
        .d = (const float *)(const void *)(at + 72 * n),
        .s = (const float *)(const void *)(at + 76 * n),
    };
}

/* The first 4 bytes of 16 blocks in a row: F16 scale, and what follows it. */
AVX512_INLINE __m512i block32_heads(const uint8_t *x, size_t block_bytes)
{
    const __m512i index = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return _mm512_i32gather_epi32(_mm512_mullo_epi32(index, _mm512_set1_epi32((int)block_bytes)), x, 1);
}

/* Nibble -> table entry + 128. */
AVX512_INLINE __m512i block32_table(const int8_t table[16])
{
    return _mm512_xor_si512(_mm512_broadcast_i32x4(_mm_loadu_si128((const void *)table)), _mm512_set1_epi8(-128));
}

/* The block that meets the first half of vector k of `pairs`; the second half meets the fourth behind it. */
AVX512_INLINE size_t block32_of_pair(size_t k)
{
    return k < 4 ? k : k + 4;
}

/* Dwords of the blocks in `pairs` order -> 16 sums in block order. */
AVX512_INLINE __m512i block32_add_pairs(const __m512i z[8])
{
    __m512i p = add_across(z[0], z[1], z[2], z[3]), q = add_across(z[4], z[5], z[6], z[7]);
    return _mm512_add_epi32(_mm512_shuffle_i32x4(p, q, 0x88), _mm512_shuffle_i32x4(p, q, 0xdd));
}

/* 16 sums of u8 x s8 products, of 16 blocks whose 32 bytes begin at x, `step` apart. */
AVX512_INLINE __m512i block32_sums_bytes(const uint8_t *x, size_t step, __m512i flip, const int8_t *pairs)
{
    __m512i z[8];
    UNROLL
    for (size_t k = 0; k < 8; k++) {
        const uint8_t *block = x + step * block32_of_pair(k);
        __m512i w = load_halves(block, block + 4 * step);
        z[k] = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_xor_si512(w, flip), load512(pairs + 64 * k));
    }
    return block32_add_pairs(z);
}

/* 16 bytes each at p, p + step, p + 2 step and p + 3 step; 16 <= step <= 24. */
AVX512_INLINE __m512i load_quad(const uint8_t *p, size_t step)
{
    const __m128i byte = _mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const int s = (int)step * 0x01010101;
    const __m512i lane = _mm512_setr_epi32(0, 0, 0, 0, s, s, s, s, 2 * s, 2 * s, 2 * s, 2 * s, 0, 0, 0, 0);
    const __m512i index = _mm512_add_epi8(_mm512_broadcast_i32x4(byte), lane);
    __m512i v = _mm512_permutexvar_epi8(index, load512(p));
    return _mm512_mask_loadu_epi8(v, 0xffff000000000000, p + 3 * step - 48);
}

/* The same for 16 blocks of 16 bytes of nibbles; `table` maps a nibble to u8 when `map` is set. */
AVX512_INLINE __m512i block32_sums_nibbles(const uint8_t *x, size_t step, bool map, __m512i table, const int8_t *quads)
{
    __m512i z[4];
    UNROLL
    for (size_t k = 0; k < 4; k++) {
        __m512i w = load_quad(x + 4 * step * k, step);
        __m512i w0 = _mm512_and_si512(w, _mm512_set1_epi8(15)), w1 = high_nibbles(w);
        if (map) {
            w0 = _mm512_shuffle_epi8(table, w0);
            w1 = _mm512_shuffle_epi8(table, w1);
        }
        z[k] = _mm512_dpbusd_epi32(_mm512_setzero_si512(), w0, load512(quads + 128 * k));
        z[k] = _mm512_dpbusd_epi32(z[k], w1, load512(quads + 128 * k + 64));
    }
    return add_lanes(z);
}

/* Bit i of the bytes `first` (and `first` + 1) of every 128-bit lane -> bit 4 of byte i (and 8 + i) of the lane: a product
 * of bit matrices, of which the bytes are a row each and the rest 0. */
AVX512_INLINE __m512i fifth_bits(__m512i bits, int first)
{
    const char a = (char)first, b = (char)(first + 1);
    const __m128i row = _mm_setr_epi8(-1, -1, -1, a, -1, -1, -1, -1, -1, -1, -1, b, -1, -1, -1, -1);
    const __m512i column = _mm512_set1_epi64((long long)0x8040201008040201);
    __m512i matrix = _mm512_shuffle_epi8(bits, _mm512_broadcast_i32x4(row));
    return _mm512_gf2p8affine_epi64_epi8(column, matrix, 0);
}

/* The same with a fifth bit: 32 bits per block at `high`, the lower 16 for the low nibbles. */
AVX512_INLINE __m512i block32_sums_5_bits(const uint8_t *x, const uint8_t *high, size_t step, const int8_t *quads)
{
    __m512i z[4];
    UNROLL
    for (size_t k = 0; k < 4; k++) {
        __m512i w = load_quad(x + 4 * step * k, step), h = load_quad(high + 4 * step * k, step);
        __m512i w0 = _mm512_ternarylogic_epi64(fifth_bits(h, 0), w, _mm512_set1_epi8(15), TERNARY_OR_AND);
        __m512i w1 = _mm512_or_si512(high_nibbles(w), fifth_bits(h, 2));
        z[k] = _mm512_dpbusd_epi32(_mm512_setzero_si512(), w0, load512(quads + 128 * k));
        z[k] = _mm512_dpbusd_epi32(z[k], w1, load512(quads + 128 * k + 64));
    }
    return add_lanes(z);
}

/* Stores the addends of 16 activation blocks, whose weights begin at x: 16 floats, or 32 by BLOCK32_HALVES. */
typedef void block32_step_function(const uint8_t *x, const struct block32_activation *a, float *terms);

AVX512_INLINE struct block32_activation block32_activation_from(const struct block32_activation *a, size_t b)
{
    return (struct block32_activation){a->pairs + 32 * b, a->quads + 32 * b, a->sums + b,
                                       a->firsts + b,     a->d + b,          a->s + b};
}

/* A weight block has `parts` times 32 weights. */
static inline size_t block32_decode_scratch(size_t n_cols, size_t block_bytes, size_t parts, enum block32_rule rule)
{
    size_t overread = 16 / parts * block_bytes + 64, terms = rule == BLOCK32_HALVES ? 32 : 16;
    return terms * block32_padded(n_cols) * sizeof(float) +
           row_group_bytes(n_cols / (32 * parts) * block_bytes, overread);
}

/* The parts of each block in order, then its scale, which stands first in a block. */
AVX512_INLINE __m512 block32_add_nested(const float *terms, size_t stride, size_t n, const uint8_t *rows,
                                        size_t row_bytes, size_t block_bytes, size_t parts)
{
    __m512 sums = _mm512_setzero_ps(), nested = sums;
    for (size_t c = 0; c < n; c += 4) {
        __m512i t[4];
        transpose_16x4(terms + c, stride * sizeof *terms, t);
        UNROLL
        for (size_t k = 0; k < 4; k++) {
            nested = _mm512_add_ps(nested, _mm512_castsi512_ps(t[k]));
            if ((k + 1) % parts == 0 && c + k < n) {
                __m512 d = halves_strided(rows + (c + k) / parts * block_bytes, row_bytes);
                sums = _mm512_add_ps(sums, _mm512_mul_ps(d, nested));
                nested = _mm512_setzero_ps();
            }
        }
    }
    return sums;
}

/* One token: per row 16 blocks at a time, one linear stream; the blocks' terms of 16 rows are then added in order. */
AVX512_INLINE void block32_decode(const struct product *p, size_t block_bytes, size_t parts, enum block32_rule rule,
                                  block32_step_function *step_of)
{
    const size_t n = p->n_cols / 32, padded = block32_padded(p->n_cols), per_block = rule == BLOCK32_HALVES ? 2 : 1;
    const size_t stride = per_block * padded, step_bytes = 16 / parts * block_bytes;
    float *terms = p->scratch;
    uint8_t *stage = (uint8_t *)(terms + ROWS * stride);
    const struct block32_activation a = block32_activation_at(p->x, p->n_cols);
    for (size_t row = p->row_begin; row < p->row_end; row += ROWS) {
        const uint8_t *rows = row_group(p, row, step_bytes + 64, stage);
        for (size_t i = 0; i < ROWS; i++) {
            const uint8_t *x = rows + i * p->row_bytes;
            for (size_t b = 0; b < padded; b += 16, x += step_bytes) {
                prefetch_stream(x, step_bytes);
                struct block32_activation at = block32_activation_from(&a, b);
                step_of(x, &at, terms + i * stride + per_block * b);
            }
        }
        __m512 sums = rule == BLOCK32_NESTED
                          ? block32_add_nested(terms, stride, n, rows, p->row_bytes, block_bytes, parts)
                          : add_columns(_mm512_setzero_ps(), terms, stride, per_block * n);
        _mm512_mask_storeu_ps(p->y + row, row_mask(p, row), sums);
    }
}

/* (D * dx) * I, the integers stored with `1 << shift` added. */
AVX512_INLINE __m512 block32_term(__m512i sums, int shift, __m512 d, const struct block32_activation *a)
{
    sums = _mm512_sub_epi32(sums, _mm512_sllv_epi32(load512(a->sums), _mm512_set1_epi32(shift)));
    return _mm512_mul_ps(_mm512_cvtepi32_ps(sums), _mm512_mul_ps(d, _mm512_loadu_ps(a->d)));
}

/* (D * dx) * I + M * s; heads hold D and M. */
AVX512_INLINE __m512 block32_term_min(__m512i sums, __m512i heads, const struct block32_activation *a)
{
    __m512 scaled = _mm512_mul_ps(_mm512_cvtepi32_ps(sums), _mm512_mul_ps(low_halves(heads), _mm512_loadu_ps(a->d)));
    return _mm512_add_ps(scaled, _mm512_mul_ps(high_halves(heads), _mm512_loadu_ps(a->s)));
}

/* ---- many tokens ---- */

/* Tile: per block 8 x 64 bytes, [k][row][4 elements of k], stored as q + 128; then D (and M) of the 16 rows. */
struct block32_tile {
    uint8_t w[8][64];
    float d[ROWS];
    float m[ROWS]; /* only formats with a minimum; the others' tiles end before it */
};

/* Panel: per block of 8 tokens. */
struct block32_panel {
    int8_t q[TOKENS][32];
    int32_t start[TOKENS]; /* -128 times the sum of q: cancels the tile's offset */
    float d[TOKENS];
    union { /* the Q8_0 panels end before it */
        float s[TOKENS]; /* Q8_1 */
        int32_t start_second[TOKENS]; /* Q8_0 in halves: of the last 16; `start` is of the first 16 then */
    };
};

enum {
    BLOCK32_TILE = offsetof(struct block32_tile, m),
    BLOCK32_TILE_MIN = sizeof(struct block32_tile),
    BLOCK32_PANEL = offsetof(struct block32_panel, s),
    BLOCK32_PANEL_MIN = sizeof(struct block32_panel),
};

AVX512_INLINE __m512 block32_rule_apply(enum block32_rule rule, __m512 sum, const struct block32_tile *t,
                                        const struct block32_panel *a, size_t token)
{
    __m512 d = _mm512_load_ps(t->d), dx = _mm512_set1_ps(a->d[token]);
    if (rule == BLOCK32_CHAIN)
        return _mm512_mul_ps(_mm512_mul_ps(sum, d), dx);
    __m512 product = _mm512_mul_ps(sum, _mm512_mul_ps(d, dx));
    if (rule == BLOCK32_PRODUCT)
        return product;
    return _mm512_add_ps(product, _mm512_mul_ps(_mm512_load_ps(t->m), _mm512_set1_ps(a->s[token])));
}

/* dots[i] = start[i] + weights k .. k_end - 1 of the tile times those of token i. */
AVX512_INLINE void block32_dots(const struct block32_tile *t, const struct block32_panel *a, const int32_t *start,
                                size_t k, size_t k_end, __m512i *dots, size_t n_tokens)
{
    UNROLL
    for (size_t i = 0; i < n_tokens; i++)
        dots[i] = _mm512_set1_epi32(start[i]);
    UNROLL
    for (; k < k_end; k++) {
        __m512i w = _mm512_load_si512(t->w[k]);
        UNROLL
        for (size_t i = 0; i < n_tokens; i++)
            dots[i] = dot_u8_broadcast(dots[i], w, a->q[i] + 4 * k);
    }
}

/* sums[i] += (d * dx) * dots */
AVX512_INLINE void block32_add_half(const float *d, const struct block32_panel *a, const __m512i *dots, __m512 *sums,
                                    size_t n_tokens)
{
    UNROLL
    for (size_t i = 0; i < n_tokens; i++) {
        __m512 scale = _mm512_mul_ps(_mm512_load_ps(d), _mm512_set1_ps(a->d[i]));
        sums[i] = _mm512_add_ps(sums[i], _mm512_mul_ps(scale, _mm512_cvtepi32_ps(dots[i])));
    }
}

AVX512_INLINE void block32_tile_run(const struct tile_job *job, enum block32_rule rule, size_t parts, size_t n_tokens)
{
    size_t tile_bytes = rule == BLOCK32_MINIMUM || rule == BLOCK32_HALVES ? BLOCK32_TILE_MIN : BLOCK32_TILE;
    size_t panel_bytes = rule == BLOCK32_MINIMUM || rule == BLOCK32_HALVES ? BLOCK32_PANEL_MIN : BLOCK32_PANEL;
    const uint8_t *tile = job->tile, *panel = job->panel, *ahead = job->prefetch;
    size_t step = job->prefetch_step;
    __m512 sums[TOKENS], nested[TOKENS];
    UNROLL
    for (size_t i = 0; i < n_tokens; i++)
        sums[i] = nested[i] = _mm512_setzero_ps();
    for (size_t b = 0; b < job->n_blocks * parts; b++, tile += tile_bytes, panel += panel_bytes) {
        const struct block32_tile *t = (const void *)tile;
        const struct block32_panel *a = (const void *)panel;
        bool last = (b + 1) % parts == 0;
        __m512i dots[TOKENS];
        if (last) {
            prefetch_tile(ahead, step);
            ahead += step;
        }
        if (rule == BLOCK32_HALVES) {
            block32_dots(t, a, a->start, 0, 4, dots, n_tokens);
            block32_add_half(t->d, a, dots, sums, n_tokens);
            block32_dots(t, a, a->start_second, 4, 8, dots, n_tokens);
            block32_add_half(t->m, a, dots, sums, n_tokens);
            continue;
        }
        block32_dots(t, a, a->start, 0, 8, dots, n_tokens);
        UNROLL
        for (size_t i = 0; i < n_tokens; i++) {
            __m512 sum = _mm512_cvtepi32_ps(dots[i]);
            if (rule == BLOCK32_NESTED)
                nested[i] = _mm512_add_ps(nested[i], _mm512_mul_ps(_mm512_set1_ps(a->d[i]), sum));
            else
                sums[i] = _mm512_add_ps(sums[i], block32_rule_apply(rule, sum, t, a, i));
        }
        if (rule == BLOCK32_NESTED && last) {
            UNROLL
            for (size_t i = 0; i < n_tokens; i++) {
                sums[i] = _mm512_add_ps(sums[i], _mm512_mul_ps(_mm512_load_ps(t->d), nested[i]));
                nested[i] = _mm512_setzero_ps();
            }
        }
    }
    store_tokens(job, sums, n_tokens);
}

/* 16 rows of 32 signed bytes -> tile. */
AVX512_INLINE void block32_pack_bytes(const uint8_t *x, size_t row_bytes, struct block32_tile *t)
{
    const __m512i flip = _mm512_set1_epi8(-128);
    UNROLL
    for (size_t half = 0; half < 2; half++) {
        __m512i q[4];
        transpose_16x4(x + 16 * half, row_bytes, q);
        UNROLL
        for (size_t k = 0; k < 4; k++)
            _mm512_store_si512(t->w[4 * half + k], _mm512_xor_si512(q[k], flip));
    }
}

/* 16 rows of 16 bytes of nibbles -> tile; `table` maps a nibble to q + 128. The high nibbles of `span` dwords follow
 * on their low ones: 4, or 2 where 8 bytes hold 16 weights. */
AVX512_INLINE void block32_pack_nibbles_of(const uint8_t *x, size_t row_bytes, __m512i table, size_t span,
                                           struct block32_tile *t)
{
    const __m512i low = _mm512_set1_epi8(15);
    __m512i q[4];
    transpose_16x4(x, row_bytes, q);
    UNROLL
    for (size_t k = 0; k < 4; k++) {
        size_t to = k / span * 2 * span + k % span;
        _mm512_store_si512(t->w[to], _mm512_shuffle_epi8(table, _mm512_and_si512(q[k], low)));
        __m512i high = high_nibbles(q[k]);
        _mm512_store_si512(t->w[to + span], _mm512_shuffle_epi8(table, high));
    }
}

AVX512_INLINE void block32_pack_nibbles(const uint8_t *x, size_t row_bytes, __m512i table, struct block32_tile *t)
{
    block32_pack_nibbles_of(x, row_bytes, table, 4, t);
}

/* A dword of each of 16 rows. */
AVX512_INLINE __m512i dwords_strided(const uint8_t *p, size_t step)
{
    uint32_t v[ROWS] ALIGNED;
    UNROLL
    for (size_t i = 0; i < ROWS; i++)
        v[i] = load_u32(p + i * step);
    __asm__ volatile("" ::: "memory");
    return _mm512_load_si512(v);
}

/* Nibble N -> N + first, in every lane. */
AVX512_INLINE __m512i nibble_table(int first)
{
    const __m512i steps = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
    return _mm512_add_epi8(steps, _mm512_set1_epi8((char)first));
}

/* 16 rows of 16 bytes of nibbles and 32 fifth bits -> tile of value + first. */
AVX512_INLINE void block32_pack_5_bits(const uint8_t *x, const uint8_t *high, size_t row_bytes, int first,
                                       struct block32_tile *t)
{
    /* Bit 4k + i of a row's dword -> byte i of that row's dword, as 16. */
    const __m512i bit = _mm512_set1_epi32((int)0x08040201u), offset = _mm512_set1_epi8((char)first);
    const __m512i spread = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12));
    block32_pack_nibbles(x, row_bytes, nibble_table(0), t);
    __m512i h = dwords_strided(high, row_bytes);
    UNROLL
    for (size_t k = 0; k < 8; k++) {
        __m512i copies = _mm512_shuffle_epi8(_mm512_srlv_epi32(h, _mm512_set1_epi32((int)(4 * k))), spread);
        __m512i q = _mm512_add_epi8(_mm512_load_si512(t->w[k]), offset);
        q = _mm512_mask_add_epi8(q, _mm512_test_epi8_mask(copies, bit), q, _mm512_set1_epi8(16));
        _mm512_store_si512(t->w[k], q);
    }
}

/* Part `part` of a block of 16 rows -> tile. */
typedef void block32_pack_function(const uint8_t *x, size_t row_bytes, size_t part, struct block32_tile *t);

AVX512_INLINE void block32_pack(const uint8_t *rows, size_t row_bytes, size_t n_blocks, uint8_t *tile,
                                size_t block_bytes, size_t parts, size_t tile_bytes, block32_pack_function *pack)
{
    for (size_t b = 0; b < n_blocks; b++) {
        UNROLL
        for (size_t part = 0; part < parts; part++, tile += tile_bytes)
            pack(rows + b * block_bytes, row_bytes, part, (struct block32_tile *)(void *)tile);
    }
}

/* In a format's file, behind NAME_step_avx512 and NAME_pack_part_avx512: its kernels on this tier. */
#define BLOCK32_PARTS_AVX512(name, bytes, parts, rule, tile_size, panel_size)                                       \
    DECODE_RUN_AVX512(name, block32_decode(p, bytes, parts, rule, name##_step_avx512),                              \
                      block32_decode_scratch(n_cols, bytes, parts, rule))                                           \
    AVX512 static void name##_pack_avx512(const uint8_t *rows, size_t row_bytes, size_t n_blocks, uint8_t *tile)    \
    {                                                                                                               \
        block32_pack(rows, row_bytes, n_blocks, tile, bytes, parts, tile_size, name##_pack_part_avx512);            \
    }                                                                                                               \
    AVX512 static void name##_tile_avx512(const struct tile_job *job)                                               \
    {                                                                                                               \
        block32_tile_run(job, rule, parts, TOKENS);                                                                 \
    }                                                                                                               \
    AVX512 static void name##_tile_few_avx512(const struct tile_job *job)                                           \
    {                                                                                                               \
        block32_tile_run(job, rule, parts, TOKENS / 2);                                                             \
    }                                                                                                               \
    static const struct tile_family name##_family_avx512 = {                                                        \
        .block_elements = 32 * parts,                                                                               \
        .block_bytes = bytes,                                                                                       \
        .tile_block_bytes = parts * tile_size,                                                                      \
        .panel_block_bytes = parts * panel_size,                                                                    \
        .pack = name##_pack_avx512,                                                                                 \
        .run = name##_tile_avx512,                                                                                  \
        .run_few = name##_tile_few_avx512,                                                                          \
    };                                                                                                              \
    TILES_PREFILL_AVX512(name)

/* The same for blocks of 32 weights, behind NAME_terms_avx512, which returns 16 addends, and NAME_pack_block_avx512. */
#define BLOCK32_AVX512(name, bytes, rule, tile_size, panel_size)                                                    \
    AVX512_INLINE void name##_step_avx512(const uint8_t *x, const struct block32_activation *a, float *terms)       \
    {                                                                                                               \
        _mm512_store_ps(terms, name##_terms_avx512(x, a));                                                          \
    }                                                                                                               \
    AVX512_INLINE void name##_pack_part_avx512(const uint8_t *x, size_t row_bytes, size_t part,                     \
                                               struct block32_tile *t)                                              \
    {                                                                                                               \
        (void)part;                                                                                                 \
        name##_pack_block_avx512(x, row_bytes, t);                                                                  \
    }                                                                                                               \
    BLOCK32_PARTS_AVX512(name, bytes, 1, rule, tile_size, panel_size)

#define BLOCK32_DECODE_AVX512(name, act)               \
    [TIER_AVX512] = {                                  \
        .layout = &layout_avx512_decode_##act,         \
        .run = name##_decode_avx512,                   \
        .row_tile = ROWS,                              \
        .scratch_bytes = name##_decode_scratch_avx512, \
    },
#define BLOCK32_PREFILL_AVX512(name, act) TILES_KERNEL_AVX512(name, layout_avx512_panels_##act)

#else
#define BLOCK32_DECODE_AVX512(name, act)
#define BLOCK32_PREFILL_AVX512(name, act)
#endif
#endif
