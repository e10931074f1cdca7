/* The formats with 256 weights per super-block on AVX2: one decode loop and one tile kernel. A format's file adds how it
 * loads a super-block, and names the rule for the floats.
 *
 * The eight-lane rule forbids to add more than the elements of one lane before the float step. So 32 elements are
 * permuted to have l, l+8, l+16, l+24 in dword l: a pair of bytes shares a scale of 16 elements, a dword a lane. */
#ifndef GGUFD_QUANT_SUPERBLOCK_AVX2_H
#define GGUFD_QUANT_SUPERBLOCK_AVX2_H
#include "engine/quant/avx2.h"
#include "engine/quant/superblock.h"
#include "engine/quant/tables.h"
#if defined(__x86_64__)

extern const struct activation_layout layout_avx2_decode_q8_k; /* one token */
extern const struct activation_layout layout_avx2_panels_q8_k; /* panels of 4 tokens */

/* One super-block: groups of 32 as u8, q + offset, permuted; scales and minima of 16 weights as words, eight minima of 32
 * weights in the lower half. */
struct superblock_avx2 {
    __m256i q[8], scale, min;
    float d, dmin;
};
typedef void superblock_avx2_load(const uint8_t *block, struct superblock_avx2 *out);

/* Byte 4 l + k <- byte l + 8 k. */
AVX2_INLINE __m256i avx2_by_lanes(__m256i v)
{
    const __m256i bytes = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
    v = _mm256_permutevar8x32_epi32(v, _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7));
    return _mm256_shuffle_epi8(v, bytes);
}

AVX2_INLINE float avx2_half(const uint8_t *p)
{
    return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(load_u16(p))));
}

/* ---- what formats load with ---- */

/* 64 bytes of two-bit values. */
AVX2_INLINE void avx2_two_bits(const uint8_t *packed, __m256i q[8])
{
    const __m256i three = _mm256_set1_epi8(3);
    UNROLL
    for (size_t half = 0; half < 2; half++) {
        __m256i v = avx2_by_lanes(avx2_load(packed + 32 * half));
        q[4 * half] = _mm256_and_si256(v, three);
        q[4 * half + 1] = _mm256_and_si256(_mm256_srli_epi16(v, 2), three);
        q[4 * half + 2] = _mm256_and_si256(_mm256_srli_epi16(v, 4), three);
        q[4 * half + 3] = _mm256_and_si256(_mm256_srli_epi16(v, 6), three);
    }
}

/* 128 bytes of nibbles. */
AVX2_INLINE void avx2_nibbles_256(const uint8_t *packed, __m256i q[8])
{
    const __m256i low = _mm256_set1_epi8(15);
    UNROLL
    for (size_t k = 0; k < 4; k++) {
        __m256i v = avx2_by_lanes(avx2_load(packed + 32 * k));
        q[2 * k] = _mm256_and_si256(v, low);
        q[2 * k + 1] = _mm256_and_si256(_mm256_srli_epi16(v, 4), low);
    }
}

/* One bit per element, bit g of 32 bytes for group g: added to q as bit `to`. */
AVX2_INLINE void avx2_add_bits(const uint8_t *bits, int to, __m256i q[8])
{
    const __m256i mask = _mm256_set1_epi8((char)(1 << to));
    __m256i v = avx2_by_lanes(avx2_load(bits));
    UNROLL
    for (int g = 0; g < 8; g++) {
        __m256i moved = g < to ? _mm256_slli_epi16(v, g < to ? to - g : 0) : _mm256_srli_epi16(v, g < to ? 0 : g - to);
        q[g] = _mm256_or_si256(q[g], _mm256_and_si256(moved, mask));
    }
}

/* Scales and minima of Q4_K and Q5_K. */
AVX2_INLINE void avx2_scale_min(const uint8_t *packed, struct superblock_avx2 *out)
{
    uint64_t low, high;
    scale_min_words(packed, &low, &high);
    __m128i both = _mm_unpacklo_epi32(_mm_cvtsi64_si128((long long)low), _mm_cvtsi64_si128((long long)high));
    out->scale = _mm256_cvtepu8_epi16(_mm_unpacklo_epi8(both, both));
    out->min = _mm256_zextsi128_si256(_mm_unpackhi_epi8(both, _mm_setzero_si128()));
}

/* D, and D and Dmin, of the formats that store them as F16. */
AVX2_INLINE void avx2_scales(const uint8_t *d, struct superblock_avx2 *out)
{
    out->d = avx2_half(d);
    out->dmin = 0;
    out->min = _mm256_setzero_si256();
}

AVX2_INLINE void avx2_scales_two(const uint8_t *d, struct superblock_avx2 *out)
{
    __m128 both = _mm_cvtph_ps(_mm_cvtsi32_si128((int)load_u32(d)));
    out->d = _mm_cvtss_f32(both);
    out->dmin = _mm_cvtss_f32(_mm_movehdup_ps(both));
}

/* Grid formats and others with |q| < 64: 32 values in order, made 64 larger and permuted. */
enum { AVX2_GRID_OFFSET = 64 };

AVX2_INLINE __m256i avx2_grid_values(__m256i q)
{
    return avx2_by_lanes(_mm256_add_epi8(q, _mm256_set1_epi8(AVX2_GRID_OFFSET)));
}

/* The same, negative where `signs` has a bit. */
AVX2_INLINE __m256i avx2_grid_signed(__m256i q, uint32_t signs)
{
    __m256i mask = avx2_bit_mask(signs);
    return avx2_grid_values(_mm256_sub_epi8(_mm256_xor_si256(q, mask), mask));
}

/* Four bytes of seven signs -> 32 signs: the eighth of a byte is their parity, as signs_of_seven gives it. */
AVX2_INLINE uint32_t avx2_add_parity(uint32_t z)
{
    uint32_t parity = z ^ (z >> 4 & 0x0f0f0f0f);
    parity ^= parity >> 2 & 0x03030303;
    parity ^= parity >> 1 & 0x01010101;
    return z | (parity & 0x01010101) << 7;
}

/* 28 bits, seven for eight weights -> 32 signs. */
AVX2_INLINE uint32_t avx2_signs_of_28(uint32_t word)
{
    return avx2_add_parity((word & 0x7f) | (word << 1 & 0x7f00) | (word << 2 & 0x7f0000) | (word << 3 & 0x7f000000));
}

/* Four entries of eight bytes. */
AVX2_INLINE __m256i avx2_entries_8(const void *a, const void *b, const void *c, const void *d)
{
    return _mm256_setr_epi64x((long long)load_u64(a), (long long)load_u64(b), (long long)load_u64(c),
                              (long long)load_u64(d));
}

/* IQ1: four entries in eighths, the shift of every byte's entry down where `is_down` is set, else up. */
AVX2_INLINE __m256i avx2_eighths(__m256i entries, __m256i is_down)
{
    __m256i eightfold = _mm256_and_si256(_mm256_slli_epi16(entries, 3), _mm256_set1_epi8(-8));
    return avx2_grid_values(_mm256_add_epi8(eightfold, _mm256_or_si256(is_down, _mm256_set1_epi8(1))));
}

/* Entries of eight 8-bit indices, a ninth bit of each in `high`. */
AVX2_INLINE __m256i avx2_entries_4(const uint8_t grid[][4], const uint8_t *index, unsigned high)
{
    int v[8];
    UNROLL
    for (size_t k = 0; k < 8; k++)
        v[k] = (int)load_u32(grid[index[k] | (high << (8 - k) & 256)]);
    return _mm256_setr_epi32(v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7]);
}

/* 16 nibbles n -> words 2 n + 1. */
AVX2_INLINE __m256i avx2_odd_scales(const void *nibbles)
{
    __m128i both = _mm_cvtsi64_si128((long long)load_u64(nibbles));
    both = _mm_and_si128(_mm_unpacklo_epi8(both, _mm_srli_epi16(both, 4)), _mm_set1_epi8(15));
    return _mm256_cvtepu8_epi16(_mm_add_epi8(_mm_add_epi8(both, both), _mm_set1_epi8(1)));
}

/* A scale or minimum covers a whole group, and 4 * 255 times a weight fits a word. */
AVX2_INLINE bool superblock_scales_groups(enum superblock_rule rule)
{
    return rule == SUPERBLOCK_LANES_MIN;
}

/* ---- one token ---- */

struct superblock_avx2_act {
    int8_t q[8][32];        /* permuted */
    int16_t pairs[8][16];   /* sums of byte pairs of q */
    int16_t sums[16], sums32[8];
    float d;
} ALIGNED;

/* The eight lane sums of scale * q * a. */
AVX2_INLINE __m256i superblock_lanes_avx2(const struct superblock_avx2 *w, const struct superblock_avx2_act *a, int offset)
{
    int32_t scale[8] ALIGNED; /* pairs of words */
    __m256i acc = _mm256_setzero_si256();
    _mm256_store_si256((void *)scale, w->scale);
    __asm__("" : "+m"(scale)); /* loads broadcast for free, shuffles of the register do not */
    UNROLL
    for (size_t g = 0; g < 8; g++) {
        __m256i products = _mm256_maddubs_epi16(w->q[g], avx2_load(a->q[g]));
        if (offset)
            products = _mm256_sub_epi16(products, _mm256_slli_epi16(avx2_load(a->pairs[g]), __builtin_ctz((unsigned)offset)));
        acc = _mm256_add_epi32(acc, _mm256_madd_epi16(products, avx2_broadcast32(scale + g)));
    }
    return acc;
}

/* Minima times sums of one super-block. */
AVX2_INLINE float superblock_minimum_avx2(const struct superblock_avx2 *w, const struct superblock_avx2_act *a,
                                          enum superblock_rule rule)
{
    if (!superblock_scales_groups(rule))
        return (float)avx2_total(_mm256_madd_epi16(w->min, avx2_load(a->sums)));
    __m128i s = _mm_madd_epi16(_mm256_castsi256_si128(w->min), avx2_load128(a->sums32));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    return _mm_cvtss_f32(_mm_cvtepi32_ps(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1))));
}

/* `lanes` and `*r` after one more super-block. */
AVX2_INLINE __m256 superblock_step_avx2(const uint8_t *x, const struct superblock_avx2_act *a, __m256 lanes, float *r,
                                        enum superblock_rule rule, int offset, float inner, superblock_avx2_load *load)
{
    struct superblock_avx2 w;
    load(x, &w);
    __m256i acc = superblock_lanes_avx2(&w, a, offset);
    float d = w.d * a->d;
    if (rule == SUPERBLOCK_LANES || rule == SUPERBLOCK_LANES_MIN)
        lanes = _mm256_add_ps(lanes, _mm256_mul_ps(_mm256_set1_ps(d), _mm256_cvtepi32_ps(acc)));
    if (rule == SUPERBLOCK_SUM)
        *r += d * (inner * (float)avx2_total(acc));
    if (rule == SUPERBLOCK_LANES_MIN)
        *r -= (w.dmin * a->d) * superblock_minimum_avx2(&w, a, rule);
    if (rule == SUPERBLOCK_SUM_MIN)
        *r += d * (float)avx2_total(acc) - (w.dmin * a->d) * superblock_minimum_avx2(&w, a, rule);
    return lanes;
}

AVX2_INLINE void superblock_decode_avx2(const struct product *p, size_t block_bytes, enum superblock_rule rule,
                                        int offset, float inner, float factor, superblock_avx2_load *load)
{
    const struct superblock_avx2_act *a = p->x;
    for (size_t row = p->row_begin; row < p->row_end; row++) {
        const uint8_t *x = (const uint8_t *)p->weights + row * p->row_bytes;
        float r = 0, lane[8];
        __m256 lanes = _mm256_setzero_ps();
        for (size_t b = 0; b < p->n_cols / 256; b++, x += block_bytes) {
            prefetch_stream(x, block_bytes);
            lanes = superblock_step_avx2(x, a + b, lanes, &r, rule, offset, inner, load);
        }
        _mm256_storeu_ps(lane, lanes);
        if (rule == SUPERBLOCK_LANES || rule == SUPERBLOCK_LANES_MIN)
            for (size_t l = 0; l < 8; l++)
                r += lane[l];
        p->y[row] = rule == SUPERBLOCK_SUM ? factor * r : r;
    }
}

/* ---- many tokens ---- */

/* Groups of 32 lie in pairs, halved: half h of pair j has elements 16 h .. 16 h + 15 of groups 2 j and 2 j + 1, by lanes in
 * turns. A word of products then belongs to one group, and where a scale covers a whole group the halves are added before
 * the scales are applied: three multiplications for 64 weights instead of four. */

/* One super-block of 8 rows. Activations are u8 here, a + 128, so that weights may be signed; `start` takes 128 times
 * the weights back. */
struct superblock_avx2_tile {
    int8_t w[8][8][32];         /* [row][half of a pair] */
    int32_t scale[8][8];        /* [row][half of a pair] pairs of words */
    int32_t start[8][8];        /* [row][lane] */
    int16_t min[8][8][2];       /* [pair][row], of 16 weights or in [0 .. 3] of 32 */
    float d[8], dmin[8];
} ALIGNED;

struct superblock_avx2_panel {
    uint8_t q[8][AVX2_TOKENS][32];  /* [half of a pair] */
    int16_t sums[AVX2_TOKENS][16], sums32[AVX2_TOKENS][8];
    float d[AVX2_TOKENS];
} ALIGNED;

/* Groups 2 j, 2 j + 1 by lanes -> the halves of the pair. */
AVX2_INLINE void avx2_pair_groups(__m256i v[2])
{
    __m256i first = v[0], second = v[1];
    v[0] = _mm256_blend_epi16(first, _mm256_slli_epi32(second, 16), 0xaa);
    v[1] = _mm256_blend_epi16(_mm256_srli_epi32(first, 16), second, 0xaa);
}

AVX2_INLINE void superblock_pack_row_avx2(const struct superblock_avx2 *w, size_t row, int offset,
                                          struct superblock_avx2_tile *t)
{
    const __m256i by_halves = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15));
    __m256i sum = _mm256_setzero_si256(), q[8];
    _mm256_store_si256((void *)t->scale[row], _mm256_shuffle_epi8(w->scale, by_halves));
    UNROLL
    for (size_t g = 0; g < 8; g++)
        q[g] = _mm256_sub_epi8(w->q[g], _mm256_set1_epi8((char)offset));
    UNROLL
    for (size_t g = 0; g < 8; g += 2)
        avx2_pair_groups(q + g);
    UNROLL
    for (size_t g = 0; g < 8; g++) {
        _mm256_store_si256((void *)t->w[row][g], q[g]);
        __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(-128), q[g]);
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, avx2_broadcast32(&t->scale[row][g])));
    }
    _mm256_store_si256((void *)t->start[row], _mm256_sub_epi32(_mm256_setzero_si256(), sum));
}

AVX2_INLINE void superblock_pack_avx2(const uint8_t *const rows[8], size_t n_blocks, uint8_t *tile, size_t block_bytes,
                                      int offset, superblock_avx2_load *load)
{
    struct superblock_avx2_tile *t = (void *)tile;
    for (size_t b = 0; b < n_blocks; b++, t++) {
        __m256i min[8];
        for (size_t i = 0; i < 8; i++) {
            struct superblock_avx2 w;
            load(rows[i] + b * block_bytes, &w);
            superblock_pack_row_avx2(&w, i, offset, t);
            min[i] = w.min;
            t->d[i] = w.d;
            t->dmin[i] = w.dmin;
        }
        avx2_transpose(min);
        UNROLL
        for (size_t k = 0; k < 8; k++)
            _mm256_store_si256((void *)t->min[k], min[k]);
    }
}

AVX2_INLINE __m256i avx2_aligned(const void *p)
{
    return _mm256_load_si256(p);
}

/* acc[i][t]: lane sums of rows row, row + 1 with 4 tokens. */
AVX2_INLINE void superblock_two_rows_avx2(const struct superblock_avx2_tile *tile, const struct superblock_avx2_panel *a,
                                          enum superblock_rule rule, size_t row, __m256i acc[2][AVX2_TOKENS])
{
    const size_t step = superblock_scales_groups(rule) ? 2 : 1; /* halves with one scale */
    UNROLL
    for (size_t t = 0; t < AVX2_TOKENS; t++) {
        acc[0][t] = avx2_aligned(tile->start[row]);
        acc[1][t] = avx2_aligned(tile->start[row + 1]);
    }
    for (size_t g = 0; g < 8; g += step)
        UNROLL
        for (size_t i = 0; i < 2; i++) {
            __m256i w = avx2_aligned(tile->w[row + i][g]), next = avx2_aligned(tile->w[row + i][g + step - 1]);
            __m256i s = avx2_broadcast32(&tile->scale[row + i][g]);
            UNROLL
            for (size_t t = 0; t < AVX2_TOKENS; t++) {
                __m256i words = _mm256_maddubs_epi16(avx2_aligned(a->q[g][t]), w);
                if (step == 2)
                    words = _mm256_add_epi16(words, _mm256_maddubs_epi16(avx2_aligned(a->q[g + 1][t]), next));
                acc[i][t] = _mm256_add_epi32(acc[i][t], _mm256_madd_epi16(words, s));
            }
        }
}

/* Minima times sums for 8 rows and one token. */
AVX2_INLINE __m256 superblock_minima_avx2(const struct superblock_avx2_tile *tile, const struct superblock_avx2_panel *a,
                                          enum superblock_rule rule, size_t token)
{
    bool groups = superblock_scales_groups(rule);
    const int16_t *sums = groups ? a->sums32[token] : a->sums[token];
    __m256i acc = _mm256_setzero_si256();
    UNROLL
    for (size_t k = 0; k < 8; k++)
        if (k < 4 || !groups)
            acc = _mm256_add_epi32(acc, _mm256_madd_epi16(avx2_aligned(tile->min[k]), avx2_broadcast32(sums + 2 * k)));
    return _mm256_mul_ps(_mm256_mul_ps(_mm256_load_ps(tile->dmin), _mm256_set1_ps(a->d[token])), _mm256_cvtepi32_ps(acc));
}

/* State of one tile against one panel: r has rows as lanes, `lanes` the eight lanes of each row. */
struct superblock_avx2_state {
    __m256 r[AVX2_TOKENS], lanes[AVX2_TOKENS][8];
};

AVX2_INLINE void superblock_tile_step_avx2(const struct superblock_avx2_tile *tile, const struct superblock_avx2_panel *a,
                                           enum superblock_rule rule, float inner, struct superblock_avx2_state *s)
{
    bool has_lanes = rule == SUPERBLOCK_LANES || rule == SUPERBLOCK_LANES_MIN;
    bool has_min = rule == SUPERBLOCK_LANES_MIN || rule == SUPERBLOCK_SUM_MIN;
    __m256i sums[AVX2_TOKENS][8];
    __m256 d[AVX2_TOKENS];
    float scale[AVX2_TOKENS][8] ALIGNED;
    UNROLL
    for (size_t t = 0; t < AVX2_TOKENS; t++) {
        d[t] = _mm256_mul_ps(_mm256_load_ps(tile->d), _mm256_set1_ps(a->d[t]));
        _mm256_store_ps(scale[t], d[t]);
    }
    for (size_t row = 0; row < 8; row += 2) {
        __m256i acc[2][AVX2_TOKENS];
        superblock_two_rows_avx2(tile, a, rule, row, acc);
        UNROLL
        for (size_t t = 0; t < AVX2_TOKENS; t++)
            UNROLL
            for (size_t i = 0; i < 2; i++) {
                if (has_lanes) {
                    __m256 product = _mm256_mul_ps(_mm256_set1_ps(scale[t][row + i]), _mm256_cvtepi32_ps(acc[i][t]));
                    s->lanes[t][row + i] = _mm256_add_ps(s->lanes[t][row + i], product);
                } else {
                    sums[t][row + i] = acc[i][t];
                }
            }
    }
    UNROLL
    for (size_t t = 0; t < AVX2_TOKENS; t++) {
        __m256 minima = has_min ? superblock_minima_avx2(tile, a, rule, t) : d[t];
        if (rule == SUPERBLOCK_LANES_MIN)
            s->r[t] = _mm256_sub_ps(s->r[t], minima);
        if (has_lanes)
            continue;
        __m256 sum = _mm256_cvtepi32_ps(avx2_add_across(sums[t]));
        __m256 product = _mm256_mul_ps(d[t], inner == 1 ? sum : _mm256_mul_ps(_mm256_set1_ps(inner), sum));
        s->r[t] = _mm256_add_ps(s->r[t], has_min ? _mm256_sub_ps(product, minima) : product);
    }
}

AVX2_INLINE void superblock_run_avx2(const struct avx2_job *job, enum superblock_rule rule, float inner, float factor)
{
    const struct superblock_avx2_tile *tile = (const void *)job->tile;
    const struct superblock_avx2_panel *a = (const void *)job->panel;
    struct superblock_avx2_state s;
    memset(&s, 0, sizeof s);
    for (size_t b = 0; b < job->n_blocks; b++)
        superblock_tile_step_avx2(tile + b, a + b, rule, inner, &s);
    for (size_t t = 0; t < job->n_tokens; t++) {
        if (rule == SUPERBLOCK_LANES || rule == SUPERBLOCK_LANES_MIN) {
            __m256i lanes[8];
            memcpy(lanes, s.lanes[t], sizeof lanes);
            avx2_transpose(lanes);
            for (size_t l = 0; l < 8; l++)
                s.r[t] = _mm256_add_ps(s.r[t], _mm256_castsi256_ps(lanes[l]));
        } else if (rule == SUPERBLOCK_SUM) {
            s.r[t] = _mm256_mul_ps(_mm256_set1_ps(factor), s.r[t]);
        }
        avx2_store_rows(job->y + t * job->y_stride, s.r[t], job->n_rows);
    }
}

/* Both kernels of a format, behind NAME_load_avx2. Rule SUPERBLOCK_SUM: every sum times inner, all of a row times factor. */
#define SUPERBLOCK_AVX2(name, bytes, rule, offset, inner, factor)                                               \
    AVX2 static void name##_decode_avx2(const struct product *p)                                                \
    {                                                                                                           \
        superblock_decode_avx2(p, bytes, rule, offset, inner, factor, name##_load_avx2);                        \
    }                                                                                                           \
    AVX2 static void name##_pack_avx2(const uint8_t *const rows[8], size_t n_blocks, uint8_t *tile)             \
    {                                                                                                           \
        superblock_pack_avx2(rows, n_blocks, tile, bytes, offset, name##_load_avx2);                            \
    }                                                                                                           \
    AVX2 static void name##_run_avx2(const struct avx2_job *job)                                                \
    {                                                                                                           \
        superblock_run_avx2(job, rule, inner, factor);                                                          \
    }                                                                                                           \
    static const struct avx2_family name##_family_avx2 = {                                                      \
        .block_elements = 256,                                                                                  \
        .tile_block_bytes = sizeof(struct superblock_avx2_tile),                                                \
        .panel_block_bytes = sizeof(struct superblock_avx2_panel),                                              \
        .pack = name##_pack_avx2,                                                                               \
        .run = name##_run_avx2,                                                                                 \
    };                                                                                                          \
    AVX2_TILES(name)

#define SUPERBLOCK_DECODE_AVX2(name) \
    [TIER_AVX2] = {.layout = &layout_avx2_decode_q8_k, .run = name##_decode_avx2, .row_tile = 1},
#define SUPERBLOCK_PREFILL_AVX2(name) AVX2_TILES_KERNEL(name, layout_avx2_panels_q8_k)

#else
#define SUPERBLOCK_DECODE_AVX2(name)
#define SUPERBLOCK_PREFILL_AVX2(name)
#endif
#endif
