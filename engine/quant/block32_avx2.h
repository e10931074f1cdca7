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
    return _mm256_and_si256(avx2_bit_mask(load_u32(p)), _mm256_set1_epi8(16));
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
    size_t n = round_up(n_cols / 32, 8);
    const char *at = x;
    return (struct block32_avx2_act){
        .q = (const int8_t *)at,
        .sums = (const int32_t *)(const void *)(at + 32 * n),
        .d = (const float *)(const void *)(at + 36 * n),
        .s = (const float *)(const void *)(at + 40 * n),
    };
}

/* Blocks that give eight addends. */
#define BLOCK32_STEP_AVX2(rule) ((rule) == BLOCK32_HALVES ? (size_t)4 : (size_t)8)

/* Addends of the m blocks at x, at most a step, the first of which is block b of the row. Where several blocks give one,
 * zeros stand for the others: their addition leaves no trace. */
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

static inline size_t block32_decode_scratch_avx2(size_t n_cols, size_t step)
{
    return AVX2_ROWS * (round_up(n_cols / 32, step) * 8 / step) * sizeof(float);
}

/* One row at a time, so that memory is one stream. The addends, eight for `step` blocks, are stored and summed up with
 * eight rows as lanes. */
AVX2_INLINE void block32_decode_avx2(const struct product *p, size_t step_bytes, size_t step,
                                     block32_avx2_terms *terms_of)
{
    const struct block32_avx2_act a = block32_avx2_act_at(p->x, p->n_cols);
    size_t n = p->n_cols / 32, whole = n / step * step, stride = round_up(n, step) * 8 / step;
    for (size_t row = p->row_begin; row < p->row_end; row += AVX2_ROWS) {
        const uint8_t *rows[AVX2_ROWS];
        size_t n_rows = avx2_rows(p, row, AVX2_ROWS, rows);
        float *terms = p->scratch;
        for (size_t i = 0; i < AVX2_ROWS; i++, terms += stride) {
            for (size_t b = 0; b < whole; b += step) {
                const uint8_t *x = rows[i] + b / step * step_bytes;
                prefetch_stream(x, step_bytes);
                _mm256_storeu_ps(terms + b * 8 / step, terms_of(x, b, step, &a));
            }
            if (whole < n) {
                __m256 last = terms_of(rows[i] + whole / step * step_bytes, whole, n - whole, &a);
                _mm256_storeu_ps(terms + whole * 8 / step, avx2_first(last, (n - whole) * 8 / step));
            }
        }
        __m256 sums = avx2_add_columns(_mm256_setzero_ps(), p->scratch, stride, stride);
        avx2_store_rows(p->y + row, sums, n_rows);
    }
}

/* ---- many tokens ---- */

/* One block of 8 rows: bytes 4k .. 4k + 3 of every row together, as q + offset; with offset 128 in two planes of nibbles,
 * low ones first. m: minima, integer scales, or scales of the second 16. */
struct block32_avx2_tile {
    uint8_t w[2][8][32];
    float d[8], m[8];
} ALIGNED;

struct block32_avx2_panel {
    int8_t q[AVX2_TOKENS][32];
    int32_t sum[AVX2_TOKENS], first[AVX2_TOKENS]; /* of the integers: all, the first 16 */
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
 * products pairs of 4-bit integers, four of 5-bit ones (is_wide); then `first` receives the sums of the first 16. Two
 * planes: both in one pass, so that an activation is broadcast once. */
AVX2_INLINE void block32_sums_avx2(const struct block32_avx2_tile *tile, const struct block32_avx2_panel *a, bool is_wide,
                                   int offset, __m256i first[AVX2_TOKENS], __m256i sums[AVX2_TOKENS])
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
                first[t] = _mm256_madd_epi16(low[t], one);
        }
    }
    UNROLL
    for (size_t t = 0; t < AVX2_TOKENS; t++) {
        sums[t] = _mm256_madd_epi16(low[t], one);
        if (is_wide)
            sums[t] = _mm256_add_epi32(sums[t], first[t]);
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

/* r, or what is multiplied by D later, after block b. */
AVX2_INLINE __m256 block32_tile_step_avx2(__m256 r, const struct block32_avx2_tile *tile, const struct block32_avx2_panel *a,
                                          size_t t, enum block32_rule rule, __m256i first, __m256i sum)
{
    __m256 d = _mm256_load_ps(tile->d), m = _mm256_load_ps(tile->m), dx = _mm256_set1_ps(a->d[t]);
    if (rule == BLOCK32_NESTED)
        return _mm256_add_ps(r, _mm256_mul_ps(dx, _mm256_cvtepi32_ps(sum)));
    if (rule == BLOCK32_HALVES) {
        r = _mm256_add_ps(r, _mm256_mul_ps(_mm256_mul_ps(d, dx), _mm256_cvtepi32_ps(first)));
        sum = _mm256_sub_epi32(sum, first);
        return _mm256_add_ps(r, _mm256_mul_ps(_mm256_mul_ps(m, dx), _mm256_cvtepi32_ps(sum)));
    }
    return _mm256_add_ps(r, block32_rule_avx2(rule, _mm256_cvtepi32_ps(sum), d, m, dx, _mm256_set1_ps(a->s[t])));
}

AVX2_INLINE void block32_run_avx2(const struct avx2_job *job, enum block32_rule rule, size_t together, int offset,
                                  bool is_wide)
{
    const struct block32_avx2_tile *tile = (const void *)job->tile;
    const struct block32_avx2_panel *a = (const void *)job->panel;
    __m256 r[AVX2_TOKENS], part[AVX2_TOKENS];
    UNROLL
    for (size_t t = 0; t < AVX2_TOKENS; t++)
        r[t] = part[t] = _mm256_setzero_ps();
    for (size_t b = 0; b < job->n_blocks; b++, tile++, a++) {
        __m256i first[AVX2_TOKENS], sums[AVX2_TOKENS];
        block32_sums_avx2(tile, a, is_wide, offset, first, sums);
        UNROLL
        for (size_t t = 0; t < AVX2_TOKENS; t++) {
            __m256i sum = block32_center_avx2(sums[t], offset, &a->sum[t]);
            __m256i half = rule == BLOCK32_HALVES ? block32_center_avx2(first[t], offset, &a->first[t]) : sum;
            if (together == 1) {
                r[t] = block32_tile_step_avx2(r[t], tile, a, t, rule, half, sum);
                continue;
            }
            part[t] = block32_tile_step_avx2(part[t], tile, a, t, rule, half, sum);
            if (b % together == together - 1) {
                r[t] = _mm256_add_ps(r[t], _mm256_mul_ps(_mm256_load_ps(tile->d), part[t]));
                part[t] = _mm256_setzero_ps();
            }
        }
    }
    UNROLL
    for (size_t t = 0; t < AVX2_TOKENS; t++)
        if (t < job->n_tokens)
            avx2_store_rows(job->y + t * job->y_stride, r[t], job->n_rows);
}

/* One D for `together` blocks of 32: their terms as above, of the first of them. Lanes are blocks. */
AVX2_INLINE __m256 block32_join_avx2(__m256 terms, __m256 d, size_t together)
{
    __m256 sum = _mm256_add_ps(_mm256_setzero_ps(), terms);
    sum = _mm256_add_ps(sum, _mm256_permute_ps(terms, 0xb1));
    if (together == 4) {
        sum = _mm256_add_ps(sum, _mm256_permute_ps(terms, 0x02));
        sum = _mm256_add_ps(sum, _mm256_permute_ps(terms, 0x03));
    }
    const __m256 zero = _mm256_setzero_ps(), scaled = _mm256_mul_ps(d, sum);
    return together == 4 ? _mm256_blend_ps(zero, scaled, 0x11) : _mm256_blend_ps(zero, scaled, 0x55);
}

/* Two-bit or one-bit formats of such blocks, q + 1 as u8: 32 weights of block `part`, of the D in front of them. */
typedef __m256i avx2_load_part(const uint8_t *block, size_t part);

AVX2_INLINE __m256 block32_terms_nested_avx2(const uint8_t *x, size_t b, size_t m, const struct block32_avx2_act *a,
                                             size_t block_bytes, size_t together, avx2_load_part *load)
{
    __m256i sums[8];
    float d[8];
    UNROLL
    for (size_t k = 0; k < 8; k++) {
        const uint8_t *block = x + (k < m ? k : m - 1) / together * block_bytes;
        sums[k] = avx2_dot_u8(load(block, k % together), avx2_load(a->q + (b + k) * 32));
        d[k] = f16_to_float(load_u16(block));
    }
    __m256i sum = _mm256_sub_epi32(avx2_add_across(sums), avx2_load(a->sums + b));
    return block32_join_avx2(_mm256_mul_ps(_mm256_loadu_ps(a->d + b), _mm256_cvtepi32_ps(sum)), _mm256_loadu_ps(d),
                             together);
}

AVX2_INLINE void block32_pack_nested_avx2(const uint8_t *const rows[8], size_t n_blocks, uint8_t *tile,
                                          size_t block_bytes, size_t together, avx2_load_part *load)
{
    struct block32_avx2_tile *t = (void *)tile;
    for (size_t b = 0; b < n_blocks; b++, t++) {
        __m256i w[8];
        UNROLL
        for (size_t i = 0; i < 8; i++) {
            const uint8_t *block = rows[i] + b / together * block_bytes;
            w[i] = load(block, b % together);
            t->d[i] = f16_to_float(load_u16(block));
        }
        block32_store_tile_avx2(w, 1, t);
    }
}

/* Both kernels of a format of such blocks, behind NAME_load_avx2. */
#define BLOCK32_NESTED_AVX2(name, bytes, together)                                                                  \
    AVX2_INLINE __m256 name##_terms_avx2(const uint8_t *x, size_t b, size_t m, const struct block32_avx2_act *a)    \
    {                                                                                                               \
        return block32_terms_nested_avx2(x, b, m, a, bytes, together, name##_load_avx2);                            \
    }                                                                                                               \
    AVX2 static void name##_pack_avx2(const uint8_t *const rows[8], size_t n_blocks, uint8_t *tile)                 \
    {                                                                                                               \
        block32_pack_nested_avx2(rows, n_blocks, tile, bytes, together, name##_load_avx2);                          \
    }                                                                                                               \
    BLOCK32_KERNELS_AVX2(name, 8 / (together) * (bytes), BLOCK32_NESTED, together, 1, false)

/* Both kernels of a format, behind NAME_terms_avx2 and NAME_pack_avx2; step_bytes: of BLOCK32_STEP_AVX2 blocks;
 * together: blocks of 32 under one D. */
#define BLOCK32_KERNELS_AVX2(name, step_bytes, rule, together, offset, is_wide)                 \
    AVX2 static void name##_decode_avx2(const struct product *p)                                \
    {                                                                                           \
        block32_decode_avx2(p, step_bytes, BLOCK32_STEP_AVX2(rule), name##_terms_avx2);         \
    }                                                                                           \
    static size_t name##_decode_scratch_avx2(size_t n_cols, size_t n_tokens)                    \
    {                                                                                           \
        (void)n_tokens;                                                                         \
        return block32_decode_scratch_avx2(n_cols, BLOCK32_STEP_AVX2(rule));                    \
    }                                                                                           \
    AVX2 static void name##_run_avx2(const struct avx2_job *job)                                \
    {                                                                                           \
        block32_run_avx2(job, rule, together, offset, is_wide);                                 \
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
    BLOCK32_KERNELS_AVX2(name, 8 * (bytes), rule, 1, offset, is_wide)

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
