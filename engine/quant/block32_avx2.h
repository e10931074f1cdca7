/* The formats with 32 weights per block on AVX2: one decode loop and one tile kernel. A format's file adds how it loads
 * 32 integers and eight scales, and names the rule that combines them.
 *
 * NAME_load_avx2 gives q + offset as u8. Offset 128 means that q fills a signed byte, and that it gives q itself: such
 * integers are multiplied by sign and magnitude in decode, and as two planes of nibbles of q + 128 in tiles, because a sum
 * of two u8 x s8 products must fit 16 bits. */
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
typedef __m256 avx2_scales_function(__m256i heads);

/* The first dwords of eight blocks, wherever they are. */
AVX2_INLINE __m256i avx2_heads(const uint8_t *const at[8])
{
    return _mm256_setr_epi32((int)load_u32(at[0]), (int)load_u32(at[1]), (int)load_u32(at[2]), (int)load_u32(at[3]),
                             (int)load_u32(at[4]), (int)load_u32(at[5]), (int)load_u32(at[6]), (int)load_u32(at[7]));
}

/* The same for consecutive blocks of 5 bytes or more, without shuffles: each is loaded so that it lies in its place. */
AVX2_INLINE __m256i avx2_heads_in_line(const uint8_t *x, size_t block_bytes)
{
    const size_t step = block_bytes - 4;
    __m256i a = _mm256_blend_epi32(avx2_load(x), avx2_load(x + step), 0x02);
    __m256i b = _mm256_blend_epi32(avx2_load(x + 2 * step), avx2_load(x + 3 * step), 0x08);
    __m256i c = _mm256_blend_epi32(avx2_load(x + 4 * step), avx2_load(x + 5 * step), 0x20);
    __m256i d = _mm256_blend_epi32(avx2_load(x + 6 * step), avx2_load(x + 7 * step), 0x80);
    return _mm256_blend_epi32(_mm256_blend_epi32(a, b, 0x0c), _mm256_blend_epi32(c, d, 0xc0), 0xf0);
}

/* F16 values in the lower or upper halves of eight dwords. */
AVX2_INLINE __m256 avx2_halves_first(__m256i heads)
{
    __m256i words = _mm256_packus_epi32(_mm256_and_si256(heads, _mm256_set1_epi32(0xffff)), _mm256_setzero_si256());
    return _mm256_cvtph_ps(_mm256_castsi256_si128(_mm256_permute4x64_epi64(words, 0x08)));
}

AVX2_INLINE __m256 avx2_halves_second(__m256i heads)
{
    return avx2_halves_first(_mm256_srli_epi32(heads, 16));
}

/* 16 bytes of nibbles -> 32 in order. */
AVX2_INLINE __m256i avx2_nibbles(const uint8_t *p)
{
    __m256i both = _mm256_broadcastsi128_si256(avx2_load128(p));
    both = _mm256_srlv_epi32(both, _mm256_setr_epi32(0, 0, 0, 0, 4, 4, 4, 4));
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

/* Nibble -> table entry. */
AVX2_INLINE __m256i avx2_lookup(__m256i nibbles, const int8_t *table)
{
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(avx2_load128(table)), nibbles);
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

/* Addends of the m <= 8 blocks at x, the first of which is block b of the row. */
typedef __m256 block32_avx2_terms(const uint8_t *x, size_t b, size_t m, const struct block32_avx2_act *a);

AVX2_INLINE __m256 block32_terms_avx2(const uint8_t *x, size_t b, size_t m, const struct block32_avx2_act *a,
                                      size_t block_bytes, enum block32_rule rule, int offset,
                                      avx2_load_function *load, avx2_scales_function *d_of)
{
    const uint8_t *at[8];
    __m256i sums[8];
    UNROLL
    for (size_t k = 0; k < 8; k++) {
        at[k] = x + (k < m ? k : m - 1) * block_bytes;
        __m256i w = load(at[k]), q = avx2_load(a->q + (b + k) * 32);
        sums[k] = offset == 128 ? avx2_dot_s8(w, q) : avx2_dot_u8(w, q);
    }
    __m256i sum = avx2_add_across(sums), heads = m == 8 ? avx2_heads_in_line(x, block_bytes) : avx2_heads(at);
    if (offset != 0 && offset != 128)
        sum = _mm256_sub_epi32(sum, _mm256_mullo_epi32(avx2_load(a->sums + b), _mm256_set1_epi32(offset)));
    __m256 m8 = rule == BLOCK32_MINIMUM ? avx2_halves_second(heads) : _mm256_setzero_ps();
    return block32_rule_avx2(rule, _mm256_cvtepi32_ps(sum), d_of(heads), m8, _mm256_loadu_ps(a->d + b),
                             _mm256_loadu_ps(a->s + b));
}

static inline size_t block32_decode_scratch_avx2(size_t n_cols)
{
    return AVX2_ROWS * avx2_round_up(n_cols / 32, 8) * sizeof(float);
}

/* One row at a time, so that memory is one stream. The addends are stored and summed up with eight rows as lanes. */
AVX2_INLINE void block32_decode_avx2(const struct product *p, size_t block_bytes, block32_avx2_terms *terms_of)
{
    const struct block32_avx2_act a = block32_avx2_act_at(p->x, p->n_cols);
    size_t n = p->n_cols / 32, whole = n / 8 * 8, stride = avx2_round_up(n, 8);
    for (size_t row = p->row_begin; row < p->row_end; row += AVX2_ROWS) {
        const uint8_t *rows[AVX2_ROWS];
        size_t n_rows = avx2_rows(p, row, AVX2_ROWS, rows);
        float *terms = p->scratch;
        for (size_t i = 0; i < AVX2_ROWS; i++, terms += stride) {
            for (size_t b = 0; b < whole; b += 8) {
                avx2_prefetch(rows[i] + b * block_bytes, 8 * block_bytes);
                _mm256_storeu_ps(terms + b, terms_of(rows[i] + b * block_bytes, b, 8, &a));
            }
            if (whole < n) {
                __m256 last = terms_of(rows[i] + whole * block_bytes, whole, n - whole, &a);
                _mm256_storeu_ps(terms + whole, avx2_first(last, n - whole));
            }
        }
        __m256 sums = avx2_add_columns(_mm256_setzero_ps(), p->scratch, stride, stride);
        avx2_store_rows(p->y + row, sums, n_rows);
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
        __m256i u8 = offset == 128 ? _mm256_xor_si256(w[k], _mm256_set1_epi8(-128)) : w[k];
        _mm256_store_si256((void *)t->w[0][k], offset == 128 ? _mm256_and_si256(u8, low) : u8);
        if (offset == 128)
            _mm256_store_si256((void *)t->w[1][k], _mm256_and_si256(_mm256_srli_epi16(u8, 4), low));
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
        __m256i heads = avx2_heads(at);
        _mm256_store_ps(t->d, d_of(heads));
        if (rule == BLOCK32_MINIMUM)
            _mm256_store_ps(t->m, avx2_halves_second(heads));
    }
}

/* q + offset times activations: the block's integer sums of 8 rows and 4 tokens, offset included. 16-bit sums hold eight
 * products pairs of 4-bit integers, four of 5-bit ones (is_wide). Two planes: both in one pass, so that an activation is
 * broadcast once. */
AVX2_INLINE void block32_sums_avx2(const struct block32_avx2_tile *tile, const struct block32_avx2_panel *a, bool is_wide,
                                   int offset, __m256i sums[AVX2_TOKENS])
{
    const __m256i one = _mm256_set1_epi16(1), sixteen = _mm256_set1_epi16(16);
    __m256i low[AVX2_TOKENS], high[AVX2_TOKENS];
    UNROLL
    for (size_t k = 0; k < 8; k++) {
        __m256i v = _mm256_load_si256((const void *)tile->w[0][k]), u = _mm256_load_si256((const void *)tile->w[1][k]);
        UNROLL
        for (size_t t = 0; t < AVX2_TOKENS; t++) {
            __m256i x = avx2_broadcast32(a->q[t] + 4 * k), p = _mm256_maddubs_epi16(v, x);
            low[t] = k == 0 || (is_wide && k == 4) ? p : avx2_running(_mm256_add_epi16(low[t], p));
            if (offset == 128) {
                p = _mm256_maddubs_epi16(u, x);
                high[t] = k == 0 ? p : avx2_running(_mm256_add_epi16(high[t], p));
            }
            if (is_wide && k == 3)
                sums[t] = _mm256_madd_epi16(low[t], one);
        }
    }
    UNROLL
    for (size_t t = 0; t < AVX2_TOKENS; t++) {
        __m256i last = _mm256_madd_epi16(low[t], one);
        sums[t] = is_wide ? _mm256_add_epi32(sums[t], last) : last;
        if (offset == 128)
            sums[t] = _mm256_add_epi32(sums[t], _mm256_madd_epi16(high[t], sixteen));
    }
}

/* Without the offset, a power of two or 0. */
AVX2_INLINE __m256i block32_center_avx2(__m256i sums, int offset, const int32_t *sum)
{
    int shift = __builtin_ctz((unsigned)offset | 256);
    return offset ? _mm256_sub_epi32(sums, _mm256_slli_epi32(avx2_broadcast32(sum), shift)) : sums;
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
        __m256i sums[AVX2_TOKENS];
        block32_sums_avx2(tile, a, is_wide, offset, sums);
        UNROLL
        for (size_t t = 0; t < AVX2_TOKENS; t++) {
            __m256i sum = block32_center_avx2(sums[t], offset, &a->sum[t]);
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
#define BLOCK32_KERNELS_AVX2(name, bytes, rule, offset, is_wide)                                \
    AVX2 static void name##_decode_avx2(const struct product *p)                                \
    {                                                                                           \
        block32_decode_avx2(p, bytes, name##_terms_avx2);                                       \
    }                                                                                           \
    static size_t name##_decode_scratch_avx2(size_t n_cols, size_t n_tokens)                    \
    {                                                                                           \
        (void)n_tokens;                                                                         \
        return block32_decode_scratch_avx2(n_cols);                                             \
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
    AVX2_INLINE __m256 name##_terms_avx2(const uint8_t *x, size_t b, size_t m, const struct block32_avx2_act *a)    \
    {                                                                                                               \
        return block32_terms_avx2(x, b, m, a, bytes, rule, offset, name##_load_avx2, scales);                       \
    }                                                                                                               \
    AVX2 static void name##_pack_avx2(const uint8_t *const rows[8], size_t n_blocks, uint8_t *tile)                 \
    {                                                                                                               \
        block32_pack_avx2(rows, n_blocks, tile, bytes, rule, offset, name##_load_avx2, scales);                     \
    }                                                                                                               \
    BLOCK32_KERNELS_AVX2(name, bytes, rule, offset, is_wide)

#define BLOCK32_DECODE_AVX2(name, act)                  \
    [TIER_AVX2] = {                                     \
        .layout = &layout_avx2_decode_##act,            \
        .run = name##_decode_avx2,                      \
        .row_tile = AVX2_ROWS,                          \
        .scratch_bytes = name##_decode_scratch_avx2,    \
    },
#define BLOCK32_PREFILL_AVX2(name, act) AVX2_TILES_KERNEL(name, layout_avx2_panels_##act)

#else
#define BLOCK32_DECODE_AVX2(name, act)
#define BLOCK32_PREFILL_AVX2(name, act)
#endif
#endif
