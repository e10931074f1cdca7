/* The formats with 256 weights per super-block on AVX-512: decode loops and one tile kernel with four rules for the
 * floats. A format's file puts in how it loads its integers and scales.
 *
 * The eight-lane rule forbids to add more than the elements of one lane before the float step. So 32 elements are
 * permuted to have l, l+8, l+16, l+24 in dword l: a pair of bytes shares a scale of 16 elements, a dword a lane. */
#ifndef GGUFD_QUANT_SUPERBLOCK_AVX512_H
#define GGUFD_QUANT_SUPERBLOCK_AVX512_H
#include "engine/quant/avx512.h"
#include "engine/quant/superblock.h"
#if defined(__x86_64__)

extern const struct activation_layout layout_avx512_decode_q8_k; /* one token */
extern const struct activation_layout layout_avx512_panels_q8_k; /* panels of 8 tokens */

/* Byte 4 l + k of 32 <- byte l + 8 k, in both halves; and the same with the lower half in both. */
extern const uint8_t lanes_order[64], lanes_order_twice[64];

AVX512_INLINE __m512i by_lanes(__m512i v)
{
    return _mm512_permutexvar_epi8(_mm512_load_si512(lanes_order), v);
}

/* 32 bytes at p, permuted, in both halves. */
AVX512_INLINE __m512i by_lanes_twice(const uint8_t *p)
{
    return _mm512_permutexvar_epi8(_mm512_load_si512(lanes_order_twice), load256(p));
}

/* For one token the two groups of a vector lie in turns: dword 2 l is lane l of the first, 2 l + 1 of the second. */
extern const uint8_t turns_order[64], turns_order_twice[64];

AVX512_INLINE __m512i in_turns(__m512i v)
{
    return _mm512_permutexvar_epi8(_mm512_load_si512(turns_order), v);
}

AVX512_INLINE __m512i in_turns_twice(const uint8_t *p)
{
    return _mm512_permutexvar_epi8(_mm512_load_si512(turns_order_twice), load256(p));
}

/* Dwords of the first group rotated left by `first` bits (negative: right), of the second by `second`. Bits that cross a
 * byte must be masked away by the caller. */
AVX512_INLINE __m512i rotate_left(__m512i v, int first, int second)
{
    return _mm512_rolv_epi32(v, _mm512_set1_epi64((long long)((uint64_t)(uint32_t)second << 32 | (uint32_t)first)));
}

/* Lower half from a, upper half from b. */
AVX512_INLINE __m512i halves16(int a, int b)
{
    return _mm512_inserti64x4(_mm512_set1_epi16((short)a), _mm256_set1_epi16((short)b), 1);
}

/* ---- one token ---- */

/* Per super-block, groups of 32 elements in turns, two in 64 bytes. */
struct superblock_activation {
    const int8_t *near;         /* groups (0,1) (2,3) (4,5) (6,7) */
    const int8_t *wide;         /* groups (0,2) (1,3) (4,6) (5,7) */
    const int8_t *plain;        /* element order */
    const int16_t *offsets;     /* -32 times the sums of byte pairs of `near` */
    const int16_t *sums8;       /* sums of 8 elements */
    const int16_t *sums16;      /* sums of 16 elements */
    const int16_t *sums32;      /* sums of 32 elements */
    const float *d;
};

enum { SUPERBLOCK_ACTIVATION_BYTES = 3 * 256 + 256 + 64 + 32 + 16 }; /* of all but d */

static inline struct superblock_activation superblock_activation_at(const void *x, size_t n)
{
    const char *at = x;
    return (struct superblock_activation){
        .near = (const int8_t *)at,
        .wide = (const int8_t *)at + 256 * n,
        .plain = (const int8_t *)at + 512 * n,
        .offsets = (const int16_t *)(const void *)(at + 768 * n),
        .sums8 = (const int16_t *)(const void *)(at + 1024 * n),
        .sums16 = (const int16_t *)(const void *)(at + 1088 * n),
        .sums32 = (const int16_t *)(const void *)(at + 1120 * n),
        .d = (const float *)(const void *)(at + round_up(SUPERBLOCK_ACTIVATION_BYTES * n, 64)),
    };
}

AVX512_INLINE struct superblock_activation superblock_activation_from(const struct superblock_activation *a, size_t b)
{
    return (struct superblock_activation){a->near + 256 * b,   a->wide + 256 * b,   a->plain + 256 * b,
                                          a->offsets + 128 * b, a->sums8 + 32 * b,   a->sums16 + 16 * b,
                                          a->sums32 + 8 * b,    a->d + b};
}

/* What of a super-block is needed when its row or group of rows is complete: D in the first two bytes; for formats with
 * minima the block's first 16 bytes, D, Dmin and the packed scales and minima. */
enum { HEAD_BYTES = 16 };

/* Scratch of the lanes loop; n super-blocks a row. */
struct superblock_scratch {
    float *lanes;           /* [16 rows][8] */
    int32_t *sums;          /* [2 rows][n][16] */
    uint8_t *heads;         /* [n][16 rows][HEAD_BYTES] */
    uint8_t *stage;
};

static inline struct superblock_scratch superblock_scratch_at(void *base, size_t n)
{
    uint8_t *at = base;
    struct superblock_scratch s = {.lanes = base};
    s.sums = (int32_t *)(void *)(at += ROWS * 8 * sizeof(float));
    s.heads = at += 2 * n * 16 * sizeof(int32_t);
    s.stage = at + n * ROWS * HEAD_BYTES;
    return s;
}

static inline size_t superblock_scratch_bytes(size_t n, size_t block_bytes)
{
    return ROWS * 8 * sizeof(float) + 2 * n * 16 * sizeof(int32_t) + n * ROWS * HEAD_BYTES +
           row_group_bytes(n * block_bytes, 0);
}

/* The integer sums of one super-block at x, two dwords a lane; writes the head. */
typedef __m512i superblock_lanes_function(const uint8_t *x, const struct superblock_activation *a, uint8_t *head);

/* Of the sums of two rows, the two dwords of every lane added: lanes 2 j, 2 j + 1 of row a, then of row b, in 128-bit
 * lane j. In fold_quads the dwords are 2 apart, in fold_pairs neighbours. */
typedef __m512i superblock_fold_function(__m512i a, __m512i b);

AVX512_INLINE __m512i fold_quads(__m512i a, __m512i b)
{
    return _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
}

AVX512_INLINE __m512i fold_pairs(__m512i a, __m512i b)
{
    __m512 x = _mm512_castsi512_ps(a), y = _mm512_castsi512_ps(b);
    return _mm512_add_epi32(_mm512_castps_si512(_mm512_shuffle_ps(x, y, 0x88)),
                            _mm512_castps_si512(_mm512_shuffle_ps(x, y, 0xdd)));
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
AVX512_INLINE __m512 superblock_minima(const struct superblock_scratch *s, const struct superblock_activation *a,
                                       size_t n)
{
    __m512 total = _mm512_setzero_ps();
    for (size_t b = 0; b < n; b++) {
        __m512i sums = broadcast128(a->sums32 + 8 * b), heads[4], q[4];
        UNROLL
        for (size_t k = 0; k < 4; k++) {
            heads[k] = _mm512_load_si512(s->heads + ROWS * HEAD_BYTES * b + 64 * k);
            q[k] = _mm512_madd_epi16(head_minima(heads[k]), sums);
        }
        __m512i min_sum = add_lanes(q);
        __m512 dmin = high_halves(head_scales(heads));
        __m512 scale = _mm512_mul_ps(dmin, _mm512_set1_ps(a->d[b]));
        total = _mm512_sub_ps(total, _mm512_mul_ps(scale, _mm512_cvtepi32_ps(min_sum)));
    }
    return total;
}

/* The integers of `count` super-blocks. */
AVX512_INLINE void superblock_sums(const uint8_t *x, size_t count, size_t block_bytes,
                                   const struct superblock_activation *a, int32_t *sums, uint8_t *heads,
                                   superblock_lanes_function *lanes_of)
{
    UNROLL
    for (size_t i = 0; i < count; i++) {
        struct superblock_activation at = superblock_activation_from(a, i);
        prefetch_step(x, i, block_bytes);
        _mm512_store_si512(sums + 16 * i, lanes_of(x + i * block_bytes, &at, heads + ROWS * HEAD_BYTES * i));
        __asm__ volatile("" ::: "memory"); /* or all requests would come first */
    }
}

/* The integers of one row. The fewer instructions stand between two requests to memory, the more of them are on their
 * way: four super-blocks a step. */
AVX512_INLINE void superblock_row_sums(const uint8_t *x, size_t n, size_t block_bytes,
                                       const struct superblock_activation *act, int32_t *sums, uint8_t *heads,
                                       superblock_lanes_function *lanes_of)
{
    enum { STEP = 4 };
    struct superblock_activation a = *act;
    for (; n >= STEP; n -= STEP) {
        superblock_sums(x, STEP, block_bytes, &a, sums, heads, lanes_of);
        x += STEP * block_bytes;
        a = superblock_activation_from(&a, STEP);
        sums += STEP * 16;
        heads += STEP * ROWS * HEAD_BYTES;
    }
    for (; n; n--) {
        superblock_sums(x, 1, block_bytes, &a, sums, heads, lanes_of);
        x += block_bytes;
        a = superblock_activation_from(&a, 1);
        sums += 16;
        heads += ROWS * HEAD_BYTES;
    }
}

/* The float lanes of rows i and i + 1 of a group. */
AVX512_INLINE void superblock_two_rows(const struct superblock_scratch *s, size_t i, size_t n, const float *dx,
                                       superblock_fold_function *fold)
{
    const __m256i two_heads = _mm256_setr_epi16(0, 0, 8, 8, 0, 0, 8, 8, 0, 0, 8, 8, 0, 0, 8, 8);
    const __m512i by_rows = _mm512_setr_epi32(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
    const uint8_t *heads = s->heads + HEAD_BYTES * i;
    __m512 lanes = _mm512_setzero_ps();
    UNROLL_4
    for (size_t b = 0; b < n; b++, heads += ROWS * HEAD_BYTES) {
        __m512i sums = fold(_mm512_load_si512(s->sums + 16 * b), _mm512_load_si512(s->sums + 16 * (n + b)));
        __m256i d = _mm256_permutexvar_epi16(two_heads, _mm256_load_si256((const void *)heads));
        __m512 scale = _mm512_mul_ps(_mm512_cvtph_ps(d), _mm512_set1_ps(dx[b]));
        lanes = _mm512_add_ps(lanes, _mm512_mul_ps(scale, _mm512_cvtepi32_ps(sums)));
    }
    _mm512_store_ps(s->lanes + 8 * i, _mm512_permutexvar_ps(by_rows, lanes));
}

AVX512_INLINE void superblock_decode_lanes(const struct product *p, size_t block_bytes, bool has_min,
                                           superblock_fold_function *fold, superblock_lanes_function *lanes_of)
{
    size_t n = p->n_cols / 256;
    const struct superblock_scratch s = superblock_scratch_at(p->scratch, n);
    const struct superblock_activation a = superblock_activation_at(p->x, n);
    for (size_t row = p->row_begin; row < p->row_end; row += ROWS) {
        const uint8_t *rows = row_group(p, row, 0, s.stage);
        for (size_t i = 0; i < ROWS; i++) {
            superblock_row_sums(rows + i * p->row_bytes, n, block_bytes, &a, s.sums + i % 2 * 16 * n,
                                s.heads + HEAD_BYTES * i, lanes_of);
            if (i % 2)
                superblock_two_rows(&s, i - 1, n, a.d, fold);
        }
        __m512 start = has_min ? superblock_minima(&s, &a, n) : _mm512_setzero_ps();
        _mm512_mask_storeu_ps(p->y + row, row_mask(p, row), add_columns(start, s.lanes, 8, 8));
    }
}

/* Sums of two products u8 x s8 a word, the u8 stored 32 above their value. */
AVX512_INLINE __m512i dots_offset(__m512i u8, const int8_t *y, const int16_t *offsets)
{
    return _mm512_add_epi16(_mm512_maddubs_epi16(u8, load512(y)), load512(offsets));
}

/* Four s16 scales at p for every four words: of the two groups of a vector, 16 elements each. */
AVX512_INLINE __m512i scales_in_turns(const int16_t *p)
{
    return _mm512_set1_epi64((long long)load_u64((const uint8_t *)p));
}

/* 16 s8 scales -> s16. */
AVX512_INLINE void scales_widen(__m128i s8, int16_t out[16])
{
    _mm256_store_si256((void *)out, _mm256_cvtepi8_epi16(s8));
    __asm__("" : "+m"(*(int16_t(*)[16])out)); /* loads broadcast for free, shuffles of the register do not */
}

/* Words of groups 2 k and 2 k + 1, in turns, times the scales of their 16 elements. */
AVX512_INLINE __m512i dot_scales(const __m512i words[4], const int16_t scales[16])
{
    __m512i sum = _mm512_madd_epi16(words[0], scales_in_turns(scales));
    UNROLL
    for (size_t k = 1; k < 4; k++)
        sum = _mm512_dpwssd_epi32(sum, words[k], scales_in_turns(scales + 4 * k));
    return sum;
}

/* Two-bit values of groups (0,1) or (2,3) of a half of a super-block; `packed` its 32 bytes by lanes, twice. */
AVX512_INLINE __m512i two_bits_avx512(__m512i packed, int c)
{
    return _mm512_and_si512(_mm512_srlv_epi16(packed, halves16(4 * c, 4 * c + 2)), _mm512_set1_epi8(3));
}

/* The same for bytes in turns. */
AVX512_INLINE __m512i two_bits_in_turns(__m512i packed, int c)
{
    return _mm512_and_si512(rotate_left(packed, -4 * c, -4 * c - 2), _mm512_set1_epi8(3));
}

/* ---- one token, nibbles with a scale of 32 (Q4_K and Q5_K) ---- */

/* Four products a dword, which share lane and scale, fit a word: those of `low`, whose groups are in turns, in the lower
 * qword of every 128-bit lane, those of `high` in the upper. */
AVX512_INLINE __m512i dot_quads(__m512i low, __m512i high, const int8_t *y)
{
    const __m512i zero = _mm512_setzero_si512();
    return _mm512_packs_epi32(_mm512_dpbusd_epi32(zero, low, load512(y)),
                              _mm512_dpbusd_epi32(zero, high, load512(y + 64)));
}

/* The scales for dot_quads from a head in every 128-bit lane: of groups (0, 2) and (1, 3), of groups (4, 6) and (5, 7). */
AVX512_INLINE __m512i head_scales_low(__m512i head)
{
    const __m128i words = _mm_setr_epi8(4, -1, 6, -1, 4, -1, 6, -1, 5, -1, 7, -1, 5, -1, 7, -1);
    return _mm512_and_si512(_mm512_shuffle_epi8(head, _mm512_broadcast_i32x4(words)), _mm512_set1_epi16(63));
}

AVX512_INLINE __m512i head_scales_high(__m512i head)
{
    /* 4 bits of bytes 12..15, above them 2 of bytes 4..7 */
    const __m128i words = _mm_setr_epi8(12, 4, 14, 6, 12, 4, 14, 6, 13, 5, 15, 7, 13, 5, 15, 7);
    __m512i w = _mm512_shuffle_epi8(head, _mm512_broadcast_i32x4(words));
    return _mm512_ternarylogic_epi64(w, _mm512_srli_epi16(w, 10), _mm512_set1_epi16(15), TERNARY_CHOOSE);
}

/* The head at x, stored and in every 128-bit lane. */
AVX512_INLINE __m512i head_load(const uint8_t *x, uint8_t *head)
{
    __m512i v = broadcast128(x);
    _mm_store_si128((void *)head, _mm512_castsi512_si128(v));
    return v;
}

/* Words of dot_quads of groups 0..3 and 4..7, times their scales. */
AVX512_INLINE __m512i dot_head_scales(__m512i first, __m512i second, __m512i head)
{
    return _mm512_dpwssd_epi32(_mm512_madd_epi16(first, head_scales_low(head)), second, head_scales_high(head));
}

/* ---- many tokens ---- */

/* Tile of one super-block: [lane][group][row][4 elements], scales of a group's two halves as s16 pairs. */
struct superblock_tile {
    uint8_t w[8][8][64];    /* u8, or s8 in formats whose panel is u8 */
    union {
        int16_t s[8][2 * ROWS];
        float c[8][ROWS]; /* SUPERBLOCK_GROUPS */
    };
    float d[ROWS];
    union {
        int32_t start[8][ROWS]; /* s8 formats: -128 times the sums of s * q per lane; [0] only for the one-sum rules */
        int16_t m[8][2 * ROWS];     /* minima as s16 pairs: of two groups (4 used), or of the halves of a group (8) */
    };
    float dmin[ROWS];
};

/* Panel of one super-block, first section: s8. */
struct superblock_panel {
    int8_t q[8][8][TOKENS][4]; /* lane, group, token */
    float d[TOKENS];
    int16_t sums32[4][TOKENS][2]; /* of groups 2 j, 2 j + 1 */
    int16_t sums16[8][TOKENS][2]; /* of the halves of group j */
};

/* Second section: the same integers as u8, 128 added. */
struct superblock_panel_u8 {
    uint8_t q[8][8][TOKENS][4];
    float d[TOKENS];
};

AVX512_INLINE bool rule_is_signed(enum superblock_rule rule)
{
    return rule == SUPERBLOCK_LANES || rule == SUPERBLOCK_SUM;
}

/* acc + w . activations of one lane and group, times the scales. */
AVX512_INLINE __m512i tile_step(enum superblock_rule rule, __m512i acc, __m512i w, const void *y, __m512i scales)
{
    __m512i quad = broadcast32(y);
    return _mm512_dpwssd_epi32(
        acc, rule_is_signed(rule) ? _mm512_maddubs_epi16(quad, w) : _mm512_maddubs_epi16(w, quad), scales);
}

/* Sum of minima times activation sums, n pairs. */
AVX512_INLINE __m512i tile_minima(const struct superblock_tile *t, const void *sums, size_t token, size_t n)
{
    const int16_t *pair = (const int16_t *)sums + 2 * token;
    __m512i total = _mm512_setzero_si512();
    UNROLL
    for (size_t j = 0; j < n; j++)
        total = dot_s16_broadcast(total, _mm512_load_si512(t->m[j]), pair + j * 2 * TOKENS);
    return total;
}

/* Sums of one super-block for the tokens: all lanes' float accumulators of a tile against a panel. */
struct superblock_sums {
    float lanes[8][TOKENS][ROWS];
    float r[TOKENS][ROWS];
} ALIGNED;

AVX512_INLINE void tile_block_lanes(enum superblock_rule rule, const struct superblock_tile *t, const uint8_t *panel,
                                    size_t n_tokens, struct superblock_sums *f)
{
    const struct superblock_panel *a = (const void *)panel; /* q and d lie alike in both sections */
    float scale[TOKENS][ROWS] ALIGNED;
    if (rule == SUPERBLOCK_LANES_MIN) {
        __m512 dmin = _mm512_load_ps(t->dmin);
        UNROLL
        for (size_t i = 0; i < n_tokens; i++) {
            __m512 sum = _mm512_cvtepi32_ps(tile_minima(t, a->sums32, i, 4));
            __m512 term = _mm512_mul_ps(_mm512_mul_ps(dmin, _mm512_set1_ps(a->d[i])), sum);
            _mm512_store_ps(f->r[i], _mm512_sub_ps(_mm512_load_ps(f->r[i]), term));
        }
    }
    __m512i s[8];
    UNROLL
    for (size_t j = 0; j < 8; j++)
        s[j] = _mm512_load_si512(t->s[j]);
    __m512 d = _mm512_load_ps(t->d);
    UNROLL
    for (size_t i = 0; i < n_tokens; i++)
        _mm512_store_ps(scale[i], _mm512_mul_ps(d, _mm512_set1_ps(a->d[i])));
    for (size_t l = 0; l < 8; l++) {
        __m512i acc[TOKENS];
        UNROLL
        for (size_t i = 0; i < n_tokens && rule == SUPERBLOCK_LANES; i++)
            acc[i] = _mm512_load_si512(t->start[l]);
        UNROLL
        for (size_t j = 0; j < 8; j++) {
            __m512i w = _mm512_load_si512(t->w[l][j]);
            UNROLL
            for (size_t i = 0; i < n_tokens; i++)
                acc[i] = j == 0 && rule == SUPERBLOCK_LANES_MIN
                             ? _mm512_madd_epi16(_mm512_maddubs_epi16(w, broadcast32(a->q[l][j][i])), s[j])
                             : tile_step(rule, acc[i], w, a->q[l][j][i], s[j]);
        }
        UNROLL
        for (size_t i = 0; i < n_tokens; i++) {
            __m512 term = _mm512_mul_ps(_mm512_load_ps(scale[i]), _mm512_cvtepi32_ps(acc[i]));
            _mm512_store_ps(f->lanes[l][i], _mm512_add_ps(_mm512_load_ps(f->lanes[l][i]), term));
        }
    }
}

AVX512_INLINE void tile_block_sum(enum superblock_rule rule, const struct superblock_tile *t, const uint8_t *panel,
                                  float inner, size_t n_tokens, struct superblock_sums *f)
{
    const struct superblock_panel *a = (const void *)panel;
    __m512i acc[TOKENS], s[8];
    UNROLL
    for (size_t j = 0; j < 8; j++)
        s[j] = _mm512_load_si512(t->s[j]);
    UNROLL
    for (size_t i = 0; i < n_tokens; i++)
        acc[i] = rule == SUPERBLOCK_SUM ? _mm512_load_si512(t->start[0]) : _mm512_setzero_si512();
    for (size_t l = 0; l < 8; l++) {
        UNROLL
        for (size_t j = 0; j < 8; j++) {
            __m512i w = _mm512_load_si512(t->w[l][j]);
            UNROLL
            for (size_t i = 0; i < n_tokens; i++)
                acc[i] = tile_step(rule, acc[i], w, a->q[l][j][i], s[j]);
        }
    }
    UNROLL
    for (size_t i = 0; i < n_tokens; i++) {
        __m512 dx = _mm512_set1_ps(a->d[i]), total = _mm512_cvtepi32_ps(acc[i]);
        if (inner != 1)
            total = _mm512_mul_ps(_mm512_set1_ps(inner), total);
        __m512 term = _mm512_mul_ps(_mm512_mul_ps(_mm512_load_ps(t->d), dx), total);
        if (rule == SUPERBLOCK_SUM_MIN) {
            __m512 sum = _mm512_cvtepi32_ps(tile_minima(t, a->sums16, i, 8));
            term = _mm512_sub_ps(term, _mm512_mul_ps(_mm512_mul_ps(dx, _mm512_load_ps(t->dmin)), sum));
        }
        _mm512_store_ps(f->r[i], _mm512_add_ps(_mm512_load_ps(f->r[i]), term));
    }
}

AVX512_INLINE void tile_block_groups(const struct superblock_tile *t, const uint8_t *panel, size_t n_tokens,
                                     struct superblock_sums *f)
{
    const struct superblock_panel *a = (const void *)panel;
    __m512 scale[TOKENS], r[TOKENS];
    UNROLL
    for (size_t i = 0; i < n_tokens; i++) {
        scale[i] = _mm512_mul_ps(_mm512_load_ps(t->d), _mm512_set1_ps(a->d[i]));
        r[i] = _mm512_load_ps(f->r[i]);
    }
    for (size_t j = 0; j < 8; j++) {
        /* -128 in the word that meets the group's sum */
        const __m512i offset = _mm512_set1_epi32(j % 2 ? (int)0xff800000u : 0xff80);
        __m512i acc[TOKENS];
        UNROLL
        for (size_t i = 0; i < n_tokens; i++)
            acc[i] = _mm512_madd_epi16(offset, broadcast32(a->sums32[j / 2][i]));
        UNROLL
        for (size_t l = 0; l < 8; l++) {
            __m512i w = _mm512_load_si512(t->w[l][j]);
            UNROLL
            for (size_t i = 0; i < n_tokens; i++)
                acc[i] = dot_u8_broadcast(acc[i], w, a->q[l][j][i]);
        }
        UNROLL
        for (size_t i = 0; i < n_tokens; i++) {
            __m512 c = _mm512_mul_ps(scale[i], _mm512_load_ps(t->c[j]));
            r[i] = _mm512_add_ps(r[i], _mm512_mul_ps(c, _mm512_cvtepi32_ps(acc[i])));
        }
    }
    UNROLL
    for (size_t i = 0; i < n_tokens; i++)
        _mm512_store_ps(f->r[i], r[i]);
}

/* inner and factor: powers of two by which integer sums (one-sum rules) and finished rows are multiplied. */
AVX512_INLINE void superblock_tile_run(const struct tile_job *job, enum superblock_rule rule, float inner,
                                       float factor, size_t n_tokens)
{
    bool lanes = rule == SUPERBLOCK_LANES || rule == SUPERBLOCK_LANES_MIN;
    size_t panel_bytes = rule_is_signed(rule) ? sizeof(struct superblock_panel_u8) : sizeof(struct superblock_panel);
    const uint8_t *panel = job->panel, *ahead = job->prefetch;
    const struct superblock_tile *t = (const void *)job->tile;
    struct superblock_sums f;
    memset(f.r, 0, sizeof f.r);
    if (lanes)
        memset(f.lanes, 0, sizeof f.lanes);
    for (size_t b = 0; b < job->n_blocks; b++, t++, panel += panel_bytes, ahead += job->prefetch_step) {
        prefetch_tile(ahead, job->prefetch_step);
        if (lanes)
            tile_block_lanes(rule, t, panel, n_tokens, &f);
        else if (rule == SUPERBLOCK_GROUPS)
            tile_block_groups(t, panel, n_tokens, &f);
        else
            tile_block_sum(rule, t, panel, inner, n_tokens, &f);
    }
    __m512 sums[TOKENS];
    UNROLL
    for (size_t i = 0; i < n_tokens; i++) {
        sums[i] = _mm512_load_ps(f.r[i]);
        if (lanes) {
            UNROLL
            for (size_t l = 0; l < 8; l++)
                sums[i] = _mm512_add_ps(sums[i], _mm512_load_ps(f.lanes[l][i]));
        }
        if (factor != 1)
            sums[i] = _mm512_mul_ps(_mm512_set1_ps(factor), sums[i]);
    }
    store_tokens(job, sums, n_tokens);
}

/* s8 tiles: cancels the 128 that the panel's u8 have in excess. */
AVX512_INLINE void tile_start(struct superblock_tile *t, bool lanes)
{
    const __m512i one = _mm512_set1_epi8(1);
    __m512i sum = _mm512_setzero_si512();
    for (size_t l = 0; l < 8; l++) {
        UNROLL
        for (size_t j = 0; j < 8; j++)
            sum = _mm512_dpwssd_epi32(sum, _mm512_maddubs_epi16(one, _mm512_load_si512(t->w[l][j])),
                                      _mm512_load_si512(t->s[j]));
        __m512i start = _mm512_sub_epi32(_mm512_setzero_si512(), _mm512_slli_epi32(sum, 7));
        _mm512_store_si512(t->start[lanes ? l : 0], start);
        if (lanes)
            sum = _mm512_setzero_si512();
    }
}

/* Rows of permuted 32-byte groups; 16 rows -> their dwords l = 4 * half .. 4 * half + 3. */
struct lane_rows {
    uint8_t bytes[ROWS][32];
} ALIGNED;

AVX512_INLINE void lane_rows_store(struct lane_rows *pair, size_t row, __m512i permuted)
{
    _mm256_store_si256((void *)pair[0].bytes[row], _mm512_castsi512_si256(permuted));
    _mm256_store_si256((void *)pair[1].bytes[row], _mm512_extracti64x4_epi64(permuted, 1));
}

AVX512_INLINE void lane_rows_load(const struct lane_rows *g, size_t half, __m512i out[4])
{
    transpose_16x4(g->bytes[0] + 16 * half, sizeof g->bytes[0], out);
}

/* Groups of 32 bytes of 16 rows, by lanes -> the tile's weights. */
AVX512_INLINE void tile_weights(const struct lane_rows rows[8], struct superblock_tile *t)
{
    for (size_t j = 0; j < 8; j++) {
        UNROLL
        for (size_t half = 0; half < 2; half++) {
            __m512i q[4];
            lane_rows_load(rows + j, half, q);
            UNROLL
            for (size_t k = 0; k < 4; k++)
                _mm512_store_si512(t->w[4 * half + k][j], q[k]);
        }
    }
}

/* Scales of 16 rows, 8 bytes each: scale j of every row as an s16 pair. */
AVX512_INLINE __m512i scales_of_rows(uint8_t bytes[ROWS][8], size_t first, size_t second)
{
    const __m512i row = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    __m512i index = _mm512_slli_epi32(_mm512_or_si512(row, _mm512_slli_epi32(row, 16)), 3);
    index = _mm512_add_epi32(index, _mm512_set1_epi32((int)(first | second << 16)));
    return _mm512_maskz_permutex2var_epi8(0x5555555555555555ull, load512(bytes[0]), index, load512(bytes[8]));
}

/* s8 scales: 16 of every row, 16 rows. */
AVX512_INLINE void tile_scales_s8(const uint8_t *first, size_t step, struct superblock_tile *t)
{
    uint8_t pairs[8][2 * ROWS] ALIGNED;
    UNROLL
    for (size_t i = 0; i < ROWS; i++) {
        UNROLL
        for (size_t j = 0; j < 8; j++)
            memcpy(pairs[j] + 2 * i, first + i * step + 2 * j, 2);
    }
    __asm__ volatile("" ::: "memory");
    UNROLL
    for (size_t j = 0; j < 8; j++)
        _mm512_store_si512(t->s[j], _mm512_cvtepi8_epi16(_mm256_load_si256((const void *)pairs[j])));
}

/* Q4_K and Q5_K: D and Dmin at x, the 12 bytes of scales and minima behind them. */
AVX512_INLINE void tile_scales_min(const uint8_t *x, size_t row_bytes, struct superblock_tile *t)
{
    uint8_t scales[ROWS][8] ALIGNED, mins[ROWS][8] ALIGNED;
    for (size_t i = 0; i < ROWS; i++) {
        uint64_t low, high;
        scale_min_words(x + i * row_bytes + 4, &low, &high);
        uint64_t s = (low & 0xffffffff) | high << 32, m = low >> 32 | (high & 0xffffffff00000000ull);
        memcpy(scales[i], &s, sizeof s);
        memcpy(mins[i], &m, sizeof m);
    }
    UNROLL
    for (size_t j = 0; j < 8; j++)
        _mm512_store_si512(t->s[j], scales_of_rows(scales, j, j));
    UNROLL
    for (size_t j = 0; j < 4; j++)
        _mm512_store_si512(t->m[j], scales_of_rows(mins, 2 * j, 2 * j + 1));
    _mm512_store_ps(t->d, halves_strided(x, row_bytes));
    _mm512_store_ps(t->dmin, halves_strided(x + 2, row_bytes));
}

typedef void superblock_pack_function(const uint8_t *x, size_t row_bytes, struct superblock_tile *t);

AVX512_INLINE void superblock_pack(const uint8_t *rows, size_t row_bytes, size_t n_blocks, uint8_t *tile,
                                   size_t block_bytes, superblock_pack_function *pack)
{
    for (size_t b = 0; b < n_blocks; b++)
        pack(rows + b * block_bytes, row_bytes, (struct superblock_tile *)(void *)tile + b);
}

/* In a format's file, behind NAME_pack_block_avx512: its kernels for many tokens. */
#define SUPERBLOCK_TILES_AVX512(name, bytes, rule, inner, factor)                                                      \
    AVX512 static void name##_pack_avx512(const uint8_t *rows, size_t row_bytes, size_t n_blocks, uint8_t *tile)    \
    {                                                                                                               \
        superblock_pack(rows, row_bytes, n_blocks, tile, bytes, name##_pack_block_avx512);                          \
    }                                                                                                               \
    AVX512 static void name##_tile_avx512(const struct tile_job *job)                                               \
    {                                                                                                               \
        superblock_tile_run(job, rule, inner, factor, TOKENS);                                                         \
    }                                                                                                               \
    AVX512 static void name##_tile_few_avx512(const struct tile_job *job)                                           \
    {                                                                                                               \
        superblock_tile_run(job, rule, inner, factor, TOKENS / 2);                                                     \
    }                                                                                                               \
    static const struct tile_family name##_family_avx512 = {                                                        \
        .block_elements = 256,                                                                                      \
        .block_bytes = bytes,                                                                                       \
        .tile_block_bytes = sizeof(struct superblock_tile),                                                         \
        .panel_block_bytes = (rule) == SUPERBLOCK_LANES || (rule) == SUPERBLOCK_SUM                                 \
                                 ? sizeof(struct superblock_panel_u8)                                               \
                                 : sizeof(struct superblock_panel),                                                 \
        .panel_offset =                                                                                             \
            (rule) == SUPERBLOCK_LANES || (rule) == SUPERBLOCK_SUM ? sizeof(struct superblock_panel) : 0,           \
        .overread = 64,                                                                                             \
        .pack = name##_pack_avx512,                                                                                 \
        .run = name##_tile_avx512,                                                                                  \
        .run_few = name##_tile_few_avx512,                                                                          \
    };                                                                                                              \
    TILES_PREFILL_AVX512(name)

/* Behind NAME_lanes_avx512: its decode kernel by the eight-lane rule. */
#define SUPERBLOCK_LANES_AVX512(name, bytes, has_min, fold)                         \
    AVX512 static void name##_decode_avx512(const struct product *p)                \
    {                                                                               \
        superblock_decode_lanes(p, bytes, has_min, fold, name##_lanes_avx512);      \
    }                                                                               \
    static size_t name##_decode_scratch_avx512(size_t n_cols, size_t n_tokens)      \
    {                                                                               \
        (void)n_tokens;                                                             \
        return superblock_scratch_bytes(n_cols / 256, bytes);                       \
    }

#define SUPERBLOCK_DECODE_AVX512(name)                 \
    [TIER_AVX512] = {                                  \
        .layout = &layout_avx512_decode_q8_k,          \
        .run = name##_decode_avx512,                   \
        .row_tile = ROWS,                              \
        .scratch_bytes = name##_decode_scratch_avx512, \
    },
#define SUPERBLOCK_PREFILL_AVX512(name) TILES_KERNEL_AVX512(name, layout_avx512_panels_q8_k)

#else
#define SUPERBLOCK_DECODE_AVX512(name)
#define SUPERBLOCK_PREFILL_AVX512(name)
#endif
#endif
