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

/* dx of every super-block four times: a scale for each 128-bit lane that holds lanes of two rows. */
AVX512_INLINE void scales_by_lanes(const struct superblock_activation *a, size_t n, float *dx)
{
    for (size_t b = 0; b < n; b++)
        _mm_store_ps(dx + 4 * b, _mm_set1_ps(a->d[b]));
}

/* Scratch of the lanes loop; n super-blocks a row, dx and d readable for 3 more. */
struct superblock_scratch {
    float *lanes;           /* [16 rows][8] */
    float *dx;              /* [n][4], scales_by_lanes */
    int32_t *sums;          /* [2 rows][n][16] */
    uint16_t *d[2];         /* [n]: D of either row, F16 */
    uint8_t *stage;
};

static inline struct superblock_scratch superblock_scratch_at(void *base, size_t n)
{
    uint8_t *at = base;
    size_t padded = round_up(n + 3, 4);
    struct superblock_scratch s = {.lanes = base};
    s.dx = (float *)(void *)(at += ROWS * 8 * sizeof(float));
    s.sums = (int32_t *)(void *)(at += padded * 4 * sizeof(float));
    s.d[0] = (uint16_t *)(void *)(at += 2 * padded * 16 * sizeof(int32_t));
    s.d[1] = s.d[0] + padded;
    s.stage = (uint8_t *)(s.d[1] + padded);
    return s;
}

static inline size_t superblock_scratch_bytes(size_t n, size_t block_bytes)
{
    size_t padded = round_up(n + 3, 4);
    return ROWS * 8 * sizeof(float) + padded * (4 * sizeof(float) + 2 * 16 * sizeof(int32_t) + 2 * sizeof(uint16_t)) +
           row_group_bytes(n * block_bytes, 0);
}

/* The integer sums of one super-block at x, dwords 2 l and 2 l + 1 of lane l; writes D. */
typedef __m512i superblock_lanes_function(const uint8_t *x, const struct superblock_activation *a, uint16_t *d);

/* Neighbours of a and of b added: lanes 2 j, 2 j + 1 of row a, then of row b, in 128-bit lane j. */
AVX512_INLINE __m512i fold_pairs(__m512i a, __m512i b)
{
    __m512 x = _mm512_castsi512_ps(a), y = _mm512_castsi512_ps(b);
    return _mm512_add_epi32(_mm512_castps_si512(_mm512_shuffle_ps(x, y, 0x88)),
                            _mm512_castps_si512(_mm512_shuffle_ps(x, y, 0xdd)));
}

/* Float lanes as fold_pairs has them -> [row][lane]. */
AVX512_INLINE __m512 lanes_by_rows(__m512 lanes)
{
    const __m512i by_rows = _mm512_setr_epi32(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
    return _mm512_permutexvar_ps(by_rows, lanes);
}

/* The integers of `count` super-blocks. */
AVX512_INLINE void superblock_sums(const uint8_t *x, size_t count, size_t block_bytes,
                                   const struct superblock_activation *a, int32_t *sums, uint16_t *d,
                                   superblock_lanes_function *lanes_of)
{
    UNROLL
    for (size_t i = 0; i < count; i++) {
        struct superblock_activation at = superblock_activation_from(a, i);
        prefetch_step(x, i, block_bytes);
        _mm512_store_si512(sums + 16 * i, lanes_of(x + i * block_bytes, &at, d + i));
        __asm__ volatile("" ::: "memory"); /* or all requests would come first */
    }
}

/* The integers of one row. The fewer instructions stand between two requests to memory, the more of them are on their
 * way: four super-blocks a step. */
AVX512_INLINE void superblock_row_sums(const uint8_t *x, size_t n, size_t block_bytes,
                                       const struct superblock_activation *act, int32_t *sums, uint16_t *d,
                                       superblock_lanes_function *lanes_of)
{
    enum { STEP = 4 };
    struct superblock_activation a = *act;
    for (; n >= STEP; n -= STEP) {
        superblock_sums(x, STEP, block_bytes, &a, sums, d, lanes_of);
        x += STEP * block_bytes;
        a = superblock_activation_from(&a, STEP);
        sums += STEP * 16;
        d += STEP;
    }
    for (; n; n--) {
        superblock_sums(x, 1, block_bytes, &a, sums, d, lanes_of);
        x += block_bytes;
        a = superblock_activation_from(&a, 1);
        sums += 16;
        d++;
    }
}

/* D * dx of the super-blocks [b, b + 4) of rows a, a, b, b in 128-bit lane b. */
AVX512_INLINE __m512 two_rows_scales(const struct superblock_scratch *s, size_t b)
{
    const __m512i rows = _mm512_setr_epi32(0, 0, 16, 16, 1, 1, 17, 17, 2, 2, 18, 18, 3, 3, 19, 19);
    __m128 first = _mm_cvtph_ps(_mm_loadl_epi64((const void *)(s->d[0] + b)));
    __m128 second = _mm_cvtph_ps(_mm_loadl_epi64((const void *)(s->d[1] + b)));
    __m512 d = _mm512_permutex2var_ps(_mm512_castps128_ps512(first), rows, _mm512_castps128_ps512(second));
    return _mm512_mul_ps(d, _mm512_loadu_ps(s->dx + 4 * b));
}

/* Adds `count` (1 or 4) super-blocks from b on to the float lanes of two rows. */
AVX512_INLINE __m512 two_rows_add(__m512 lanes, const struct superblock_scratch *s, size_t n, size_t b, size_t count)
{
    float scales[4][4] ALIGNED;
    const int32_t *sums = s->sums + 16 * b;
    _mm512_store_ps(scales[0], two_rows_scales(s, b));
    UNROLL
    for (size_t i = 0; i < count; i++, sums += 16) {
        __m512i both = fold_pairs(_mm512_load_si512(sums), _mm512_load_si512(sums + 16 * n));
        __m512 scale = _mm512_castsi512_ps(broadcast128(scales[i]));
        lanes = _mm512_add_ps(lanes, _mm512_mul_ps(scale, _mm512_cvtepi32_ps(both)));
    }
    return lanes;
}

/* The float lanes of two rows. */
AVX512_INLINE void superblock_two_rows(const struct superblock_scratch *s, size_t n, float *out)
{
    __m512 lanes = _mm512_setzero_ps();
    size_t b = 0;
    for (; b + 4 <= n; b += 4)
        lanes = two_rows_add(lanes, s, n, b, 4);
    for (; b < n; b++)
        lanes = two_rows_add(lanes, s, n, b, 1);
    _mm512_store_ps(out, lanes_by_rows(lanes));
}

AVX512_INLINE void superblock_decode_lanes(const struct product *p, size_t block_bytes,
                                           superblock_lanes_function *lanes_of)
{
    size_t n = p->n_cols / 256;
    const struct superblock_scratch s = superblock_scratch_at(p->scratch, n);
    const struct superblock_activation a = superblock_activation_at(p->x, n);
    scales_by_lanes(&a, n, s.dx);
    for (size_t row = p->row_begin; row < p->row_end; row += ROWS) {
        const uint8_t *rows = row_group(p, row, 0, s.stage);
        for (size_t i = 0; i < ROWS; i++) {
            superblock_row_sums(rows + i * p->row_bytes, n, block_bytes, &a, s.sums + i % 2 * 16 * n, s.d[i % 2], lanes_of);
            if (i % 2)
                superblock_two_rows(&s, n, s.lanes + 8 * (i - 1));
        }
        _mm512_mask_storeu_ps(p->y + row, row_mask(p, row), add_columns(_mm512_setzero_ps(), s.lanes, 8, 8));
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
#define SUPERBLOCK_LANES_AVX512(name, block_bytes)                                                      \
    DECODE_RUN_AVX512(name, superblock_decode_lanes(p, block_bytes, name##_lanes_avx512),               \
                      superblock_scratch_bytes(n_cols / 256, block_bytes))

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
