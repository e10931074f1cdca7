/* The formats with 32 weights per block on AVX2: one decode loop and one tile kernel. A format's file adds how it loads
 * 32 integers and eight scales, and names the rule that combines them.
 *
 * NAME_load_avx2 gives q + offset as u8. Offset 128 means that q fills a signed byte: such integers are multiplied by
 * sign and magnitude in decode, and as two planes of nibbles in tiles, because a sum of two u8 x s8 products must fit
 * 16 bits. */
#ifndef GGUFD_QUANT_BLOCK32_AVX2_H
#define GGUFD_QUANT_BLOCK32_AVX2_H
#include "engine/quant/avx2.h"
#include "engine/quant/block32.h"
#if defined(__x86_64__)

/* One token, arrays padded to 8 blocks (decode); panels of 4 tokens (prefill). The last ones encode as Q8_K and repeat
 * the scale of a super-block for its 8 blocks. */
extern const struct activation_layout layout_avx2_decode_q8_0, layout_avx2_decode_q8_1, layout_avx2_decode_q8_k32;
extern const struct activation_layout layout_avx2_panels_q8_0, layout_avx2_panels_q8_1, layout_avx2_panels_q8_k32;

typedef __m256i avx2_load_function(const uint8_t *block);
typedef __m256 avx2_scales_function(const uint8_t *const at[8]);

AVX2_INLINE __m256 avx2_halves_first(const uint8_t *const at[8])
{
    return avx2_halves(at, 0);
}

AVX2_INLINE __m256 avx2_halves_second(const uint8_t *const at[8])
{
    return avx2_halves(at, 2);
}

/* 16 bytes of nibbles -> 32 in order. */
AVX2_INLINE __m256i avx2_nibbles(const uint8_t *p)
{
    __m128i x = avx2_load128(p);
    __m256i both = _mm256_inserti128_si256(_mm256_castsi128_si256(x), _mm_srli_epi16(x, 4), 1);
    return _mm256_and_si256(both, _mm256_set1_epi8(15));
}

/* 32 bits -> 16 in every byte whose bit is set. */
AVX2_INLINE __m256i avx2_high_bits(const uint8_t *p)
{
    const __m256i spread = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3,
                                            3, 3, 3, 3, 3, 3);
    const __m256i bit = _mm256_set1_epi64x((long long)0x8040201008040201);
    __m256i bytes = _mm256_and_si256(_mm256_shuffle_epi8(avx2_broadcast32(p), spread), bit);
    return _mm256_and_si256(_mm256_cmpeq_epi8(bytes, bit), _mm256_set1_epi8(16));
}

/* Nibble -> table entry + 128. */
AVX2_INLINE __m256i avx2_lookup(__m256i nibbles, const int8_t *table)
{
    __m256i both = _mm256_broadcastsi128_si256(avx2_load128(table));
    return _mm256_shuffle_epi8(_mm256_xor_si256(both, _mm256_set1_epi8(-128)), nibbles);
}

AVX2_INLINE __m256 block32_rule_avx2(enum block32_rule rule, __m256 sum, __m256 d, __m256 m, __m256 dx, __m256 s)
{
    if (rule == BLOCK32_CHAIN)
        return _mm256_mul_ps(_mm256_mul_ps(sum, d), dx);
    __m256 scale = _mm256_mul_ps(d, dx);
    if (rule == BLOCK32_SCALED)
        scale = _mm256_mul_ps(scale, m);
    __m256 product = _mm256_mul_ps(scale, sum);
    return rule == BLOCK32_MINIMUM ? _mm256_add_ps(product, _mm256_mul_ps(m, s)) : product;
}

/* ---- one token ---- */

struct block32_avx2_act {
    const int8_t *q;
    const int32_t *sums; /* of the integers of a block */
    const float *d, *s;  /* s of Q8_1 only */
};

static inline struct block32_avx2_act block32_avx2_act_at(const void *x, size_t n_cols)
{
    size_t n = avx2_round_up(n_cols / 32, 8);
    const char *at = x;
    return (struct block32_avx2_act){
        .q = (const int8_t *)at,
        .sums = (const int32_t *)(const void *)(at + 32 * n),
        .d = (const float *)(const void *)(at + 36 * n),
        .s = (const float *)(const void *)(at + 40 * n),
    };
}

/* Addends of eight blocks, of which `m` exist, beginning with block b of a row. */
typedef __m256 block32_avx2_terms(const uint8_t *row, size_t b, size_t m, const struct block32_avx2_act *a);

AVX2_INLINE __m256 block32_terms_avx2(const uint8_t *row, size_t b, size_t m, const struct block32_avx2_act *a,
                                      size_t block_bytes, enum block32_rule rule, int offset,
                                      avx2_load_function *load, avx2_scales_function *d_of)
{
    const uint8_t *at[8];
    __m256i sums[8];
    UNROLL
    for (size_t k = 0; k < 8; k++) {
        at[k] = row + (b + (k < m ? k : m - 1)) * block_bytes;
        __m256i w = load(at[k]), x = avx2_load(a->q + (b + k) * 32);
        sums[k] = offset == 128 ? avx2_dot_s8(_mm256_xor_si256(w, _mm256_set1_epi8(-128)), x) : avx2_dot_u8(w, x);
    }
    __m256i sum = avx2_add_across(sums);
    if (offset != 128)
        sum = _mm256_sub_epi32(sum, _mm256_mullo_epi32(avx2_load(a->sums + b), _mm256_set1_epi32(offset)));
    __m256 m8 = rule == BLOCK32_MINIMUM ? avx2_halves_second(at) : _mm256_setzero_ps();
    return block32_rule_avx2(rule, _mm256_cvtepi32_ps(sum), d_of(at), m8, _mm256_loadu_ps(a->d + b),
                             _mm256_loadu_ps(a->s + b));
}

/* r + the first m terms of four rows, in order. */
AVX2_INLINE __m128 block32_add_terms_avx2(__m128 r, const __m256 terms[4], size_t m)
{
    __m256 a = _mm256_unpacklo_ps(terms[0], terms[1]), b = _mm256_unpackhi_ps(terms[0], terms[1]);
    __m256 c = _mm256_unpacklo_ps(terms[2], terms[3]), d = _mm256_unpackhi_ps(terms[2], terms[3]);
    __m256 t[4];
    t[0] = _mm256_shuffle_ps(a, c, 0x44);
    t[1] = _mm256_shuffle_ps(a, c, 0xee);
    t[2] = _mm256_shuffle_ps(b, d, 0x44);
    t[3] = _mm256_shuffle_ps(b, d, 0xee);
    UNROLL
    for (size_t k = 0; k < 8; k++)
        if (k < m)
            r = _mm_add_ps(r, k < 4 ? _mm256_castps256_ps128(t[k & 3]) : _mm256_extractf128_ps(t[k & 3], 1));
    return r;
}

AVX2_INLINE __m128 block32_step_avx2(__m128 r, const uint8_t *const rows[4], size_t b, size_t m,
                                     const struct block32_avx2_act *a, block32_avx2_terms *terms_of)
{
    __m256 terms[4];
    UNROLL
    for (size_t i = 0; i < 4; i++)
        terms[i] = terms_of(rows[i], b, m, a);
    return block32_add_terms_avx2(r, terms, m);
}

/* Four rows at a time, lanes of the running sums. */
AVX2_INLINE void block32_decode_avx2(const struct product *p, block32_avx2_terms *terms_of)
{
    const struct block32_avx2_act a = block32_avx2_act_at(p->x, p->n_cols);
    size_t n = p->n_cols / 32, whole = n / 8 * 8;
    for (size_t row = p->row_begin; row < p->row_end; row += 4) {
        const uint8_t *rows[4];
        float y[4];
        size_t n_rows = avx2_rows(p, row, 4, rows);
        __m128 r = _mm_setzero_ps();
        for (size_t b = 0; b < whole; b += 8)
            r = block32_step_avx2(r, rows, b, 8, &a, terms_of);
        if (whole < n)
            r = block32_step_avx2(r, rows, whole, n - whole, &a, terms_of);
        _mm_storeu_ps(y, r);
        memcpy(p->y + row, y, n_rows * sizeof *y);
    }
}

/* ---- many tokens ---- */

/* One block of 8 rows: bytes 4k .. 4k + 3 of every row together, as q + offset; with offset 128 in two planes of nibbles,
 * low ones first. m: minima, or integer scales. */
struct block32_avx2_tile {
    uint8_t w[2][8][32];
    float d[8], m[8];
} ALIGNED;

struct block32_avx2_panel {
    int8_t q[AVX2_TOKENS][32];
    int32_t sum[AVX2_TOKENS];
    float d[AVX2_TOKENS], s[AVX2_TOKENS];
} ALIGNED;

AVX2_INLINE void block32_store_tile_avx2(__m256i w[8], int offset, struct block32_avx2_tile *t)
{
    const __m256i low = _mm256_set1_epi8(15);
    avx2_transpose(w);
    UNROLL
    for (size_t k = 0; k < 8; k++) {
        __m256i first = offset == 128 ? _mm256_and_si256(w[k], low) : w[k];
        _mm256_store_si256((void *)t->w[0][k], first);
        if (offset == 128)
            _mm256_store_si256((void *)t->w[1][k], _mm256_and_si256(_mm256_srli_epi16(w[k], 4), low));
    }
}

AVX2_INLINE void block32_pack_avx2(const uint8_t *const rows[8], size_t n_blocks, uint8_t *tile, size_t block_bytes,
                                   enum block32_rule rule, int offset, avx2_load_function *load,
                                   avx2_scales_function *d_of)
{
    struct block32_avx2_tile *t = (void *)tile;
    for (size_t b = 0; b < n_blocks; b++, t++) {
        const uint8_t *at[8];
        __m256i w[8];
        UNROLL
        for (size_t i = 0; i < 8; i++) {
            at[i] = rows[i] + b * block_bytes;
            w[i] = load(at[i]);
        }
        block32_store_tile_avx2(w, offset, t);
        _mm256_store_ps(t->d, d_of(at));
        if (rule == BLOCK32_MINIMUM)
            _mm256_store_ps(t->m, avx2_halves_second(at));
    }
}

/* The block's sums of one plane for 4 tokens. 16-bit sums hold 8 products pairs of 4-bit integers, 4 of 5-bit ones. */
AVX2_INLINE void block32_plane_avx2(const uint8_t w[8][32], const struct block32_avx2_panel *a, bool is_wide,
                                    __m256i sums[AVX2_TOKENS])
{
    const __m256i one = _mm256_set1_epi16(1);
    __m256i words[AVX2_TOKENS];
    UNROLL
    for (size_t t = 0; t < AVX2_TOKENS; t++)
        sums[t] = words[t] = _mm256_setzero_si256();
    UNROLL
    for (size_t k = 0; k < 8; k++) {
        __m256i v = _mm256_load_si256((const void *)w[k]);
        UNROLL
        for (size_t t = 0; t < AVX2_TOKENS; t++) {
            words[t] = _mm256_add_epi16(words[t], _mm256_maddubs_epi16(v, avx2_broadcast32(a->q[t] + 4 * k)));
            if (k == 7 || (is_wide && k == 3)) {
                sums[t] = _mm256_add_epi32(sums[t], _mm256_madd_epi16(words[t], one));
                words[t] = _mm256_setzero_si256();
            }
        }
    }
}

AVX2_INLINE __m256i block32_sum_avx2(__m256i low, __m256i high, int offset, int32_t sum)
{
    __m256i all = offset == 128 ? _mm256_add_epi32(low, _mm256_slli_epi32(high, 4)) : low;
    return offset ? _mm256_sub_epi32(all, _mm256_mullo_epi32(_mm256_set1_epi32(sum), _mm256_set1_epi32(offset))) : all;
}

AVX2_INLINE void block32_run_avx2(const struct avx2_job *job, enum block32_rule rule, int offset, bool is_wide)
{
    const struct block32_avx2_tile *tile = (const void *)job->tile;
    const struct block32_avx2_panel *a = (const void *)job->panel;
    __m256 r[AVX2_TOKENS];
    UNROLL
    for (size_t t = 0; t < AVX2_TOKENS; t++)
        r[t] = _mm256_setzero_ps();
    for (size_t b = 0; b < job->n_blocks; b++, tile++, a++) {
        __m256i low[AVX2_TOKENS], high[AVX2_TOKENS];
        block32_plane_avx2(tile->w[0], a, is_wide, low);
        if (offset == 128)
            block32_plane_avx2(tile->w[1], a, is_wide, high);
        UNROLL
        for (size_t t = 0; t < AVX2_TOKENS; t++) {
            __m256i sum = block32_sum_avx2(low[t], offset == 128 ? high[t] : low[t], offset, a->sum[t]);
            __m256 term = block32_rule_avx2(rule, _mm256_cvtepi32_ps(sum), _mm256_load_ps(tile->d),
                                            _mm256_load_ps(tile->m), _mm256_set1_ps(a->d[t]), _mm256_set1_ps(a->s[t]));
            r[t] = _mm256_add_ps(r[t], term);
        }
    }
    UNROLL
    for (size_t t = 0; t < AVX2_TOKENS; t++)
        if (t < job->n_tokens)
            avx2_store_rows(job->y + t * job->y_stride, r[t], job->n_rows);
}

/* Both kernels of a format, behind NAME_terms_avx2 and NAME_pack_avx2. */
#define BLOCK32_KERNELS_AVX2(name, rule, offset, is_wide)                                       \
    AVX2 static void name##_decode_avx2(const struct product *p)                                \
    {                                                                                           \
        block32_decode_avx2(p, name##_terms_avx2);                                              \
    }                                                                                           \
    AVX2 static void name##_run_avx2(const struct avx2_job *job)                                \
    {                                                                                           \
        block32_run_avx2(job, rule, offset, is_wide);                                           \
    }                                                                                           \
    static const struct avx2_family name##_family_avx2 = {                                      \
        .block_elements = 32,                                                                   \
        .tile_block_bytes = sizeof(struct block32_avx2_tile),                                   \
        .panel_block_bytes = sizeof(struct block32_avx2_panel),                                 \
        .pack = name##_pack_avx2,                                                               \
        .run = name##_run_avx2,                                                                 \
    };                                                                                          \
    AVX2_TILES(name)

/* The same for a format of plain blocks, behind NAME_load_avx2. */
#define BLOCK32_AVX2(name, bytes, rule, offset, is_wide, scales)                                                    \
    AVX2_INLINE __m256 name##_terms_avx2(const uint8_t *row, size_t b, size_t m, const struct block32_avx2_act *a)  \
    {                                                                                                               \
        return block32_terms_avx2(row, b, m, a, bytes, rule, offset, name##_load_avx2, scales);                     \
    }                                                                                                               \
    AVX2 static void name##_pack_avx2(const uint8_t *const rows[8], size_t n_blocks, uint8_t *tile)                 \
    {                                                                                                               \
        block32_pack_avx2(rows, n_blocks, tile, bytes, rule, offset, name##_load_avx2, scales);                     \
    }                                                                                                               \
    BLOCK32_KERNELS_AVX2(name, rule, offset, is_wide)

#define BLOCK32_DECODE_AVX2(name, act) \
    [TIER_AVX2] = {.layout = &layout_avx2_decode_##act, .run = name##_decode_avx2, .row_tile = 4},
#define BLOCK32_PREFILL_AVX2(name, act) AVX2_TILES_KERNEL(name, layout_avx2_panels_##act)

#else
#define BLOCK32_DECODE_AVX2(name, act)
#define BLOCK32_PREFILL_AVX2(name, act)
#endif
#endif
