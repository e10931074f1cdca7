/* The NEON tier: one kernel a family for one token and for many, on the canonical activations. Weights of a row are
 * unpacked once for every four tokens. A format's file adds how it unpacks, or leaves that to its scalar code. */
#ifndef GGUFD_QUANT_NEON_H
#define GGUFD_QUANT_NEON_H

#if defined(__aarch64__)
#include <arm_neon.h>

#include "engine/quant/activation.h"
#include "engine/quant/block32.h"
#include "engine/quant/superblock.h"

#if defined(__clang__)
#define NEON_TARGET "dotprod"
#else
#define NEON_TARGET "arch=armv8.2-a+dotprod"
#endif
#define NEON __attribute__((target(NEON_TARGET)))
#define NEON_INLINE static inline __attribute__((always_inline, target(NEON_TARGET)))

enum { NEON_ROWS = 4, NEON_TOKENS = 4 };

NEON_INLINE float neon_half(const uint8_t *p)
{
    return vgetq_lane_f32(vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(load_u16(p)))), 0);
}

/* Four rows from `row` on; rows at or behind row_end are the last one again. Returns how many are real. */
static inline size_t neon_rows(const struct product *p, size_t row, const uint8_t *rows[NEON_ROWS])
{
    size_t left = p->row_end - row;
    for (size_t i = 0; i < NEON_ROWS; i++)
        rows[i] = (const uint8_t *)p->weights + (row + (i < left ? i : left - 1)) * p->row_bytes;
    return left < NEON_ROWS ? left : NEON_ROWS;
}

/* Results of n rows for the n_tokens tokens from t on. */
NEON_INLINE void neon_store(const struct product *p, size_t row, size_t n, size_t t, size_t n_tokens, const float32x4_t *r)
{
    for (size_t i = 0; i < n_tokens; i++) {
        float all[4];
        vst1q_f32(all, r[i]);
        memcpy(p->y + (t + i) * p->y_stride + row, all, n * sizeof *all);
    }
}

static inline size_t neon_tokens_left(const struct product *p, size_t t)
{
    return p->n_tokens - t < NEON_TOKENS ? p->n_tokens - t : NEON_TOKENS;
}

/* ---- 32 weights per block: lanes are rows ---- */

/* 16 bytes of nibbles -> 32 in order. */
NEON_INLINE int8x16x2_t neon_nibbles(const uint8_t *p)
{
    uint8x16_t v = vld1q_u8(p);
    return (int8x16x2_t){{vreinterpretq_s8_u8(vandq_u8(v, vdupq_n_u8(15))), vreinterpretq_s8_u8(vshrq_n_u8(v, 4))}};
}

/* Nibbles -> table entries. */
NEON_INLINE int8x16x2_t neon_lookup(int8x16x2_t nibbles, const int8_t *table)
{
    const int8x16_t entries = vld1q_s8(table);
    return (int8x16x2_t){{vqtbl1q_s8(entries, vreinterpretq_u8_s8(nibbles.val[0])),
                          vqtbl1q_s8(entries, vreinterpretq_u8_s8(nibbles.val[1]))}};
}

NEON_INLINE int8x16x2_t neon_subtract(int8x16x2_t q, int offset)
{
    int8x16_t v = vdupq_n_s8((int8_t)offset);
    return (int8x16x2_t){{vsubq_s8(q.val[0], v), vsubq_s8(q.val[1], v)}};
}

/* 16 where one of 32 bits is set, added to the nibbles. */
NEON_INLINE int8x16x2_t neon_add_high_bits(int8x16x2_t q, const uint8_t *bits)
{
    static const uint8_t bit[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    const uint8x16_t mask = vld1q_u8(bit), value = vdupq_n_u8(16);
    for (size_t half = 0; half < 2; half++) {
        uint8x16_t bytes = vcombine_u8(vdup_n_u8(bits[2 * half]), vdup_n_u8(bits[2 * half + 1]));
        uint8x16_t high = vandq_u8(vtstq_u8(bytes, mask), value);
        q.val[half] = vorrq_s8(q.val[half], vreinterpretq_s8_u8(high));
    }
    return q;
}

/* Four rows' sums of one block with the activation q. */
NEON_INLINE float32x4_t block32_sums_neon(const int8x16x2_t w[NEON_ROWS], const int8_t *q)
{
    int8x16_t a0 = vld1q_s8(q), a1 = vld1q_s8(q + 16);
    int32x4_t s[NEON_ROWS];
    for (size_t i = 0; i < NEON_ROWS; i++)
        s[i] = vdotq_s32(vdotq_s32(vdupq_n_s32(0), w[i].val[0], a0), w[i].val[1], a1);
    return vcvtq_f32_s32(vpaddq_s32(vpaddq_s32(s[0], s[1]), vpaddq_s32(s[2], s[3])));
}

/* r after one block of four rows and one token. */
NEON_INLINE float32x4_t block32_step_neon(float32x4_t r, const int8x16x2_t w[NEON_ROWS], float32x4_t d, float32x4_t m,
                                          const void *act, size_t b, enum block32_rule rule)
{
    if (rule == BLOCK32_MINIMUM) {
        const struct act_q8_1 *a = (const struct act_q8_1 *)act + b;
        float32x4_t dx = vdupq_n_f32(f16_to_float(a->d)), s = vdupq_n_f32(f16_to_float(a->s));
        float32x4_t product = vmulq_f32(vmulq_f32(d, dx), block32_sums_neon(w, a->q));
        return vaddq_f32(r, vaddq_f32(product, vmulq_f32(m, s)));
    }
    const struct act_q8_0 *a = (const struct act_q8_0 *)act + b;
    float32x4_t dx = vdupq_n_f32(f16_to_float(a->d)), sums = block32_sums_neon(w, a->q);
    if (rule == BLOCK32_CHAIN)
        return vaddq_f32(r, vmulq_f32(vmulq_f32(sums, d), dx));
    return vaddq_f32(r, vmulq_f32(vmulq_f32(d, dx), sums));
}

/* D at offset 0 of a block, M at 2. */
NEON_INLINE float32x4_t neon_halves(const uint8_t *const rows[NEON_ROWS], size_t at)
{
    uint16_t h[4] = {load_u16(rows[0] + at), load_u16(rows[1] + at), load_u16(rows[2] + at), load_u16(rows[3] + at)};
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(h)));
}

NEON_INLINE void block32_run_neon(const struct product *p, size_t block_bytes, enum block32_rule rule,
                                  int8x16x2_t (*load)(const uint8_t *),
                                  float32x4_t (*scales)(const uint8_t *const rows[NEON_ROWS], size_t at))
{
    size_t n = p->n_cols / 32, x_bytes = n * (rule == BLOCK32_MINIMUM ? sizeof(struct act_q8_1) : sizeof(struct act_q8_0));
    for (size_t row = p->row_begin; row < p->row_end; row += NEON_ROWS) {
        const uint8_t *rows[NEON_ROWS];
        size_t n_rows = neon_rows(p, row, rows);
        for (size_t t = 0; t < p->n_tokens; t += NEON_TOKENS) {
            size_t n_tokens = neon_tokens_left(p, t);
            float32x4_t r[NEON_TOKENS] = {vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0)};
            for (size_t b = 0; b < n; b++) {
                int8x16x2_t w[NEON_ROWS];
                for (size_t i = 0; i < NEON_ROWS; i++)
                    w[i] = load(rows[i] + b * block_bytes);
                float32x4_t d = scales(rows, b * block_bytes);
                float32x4_t m = rule == BLOCK32_MINIMUM ? neon_halves(rows, b * block_bytes + 2) : d;
                for (size_t i = 0; i < n_tokens; i++)
                    r[i] = block32_step_neon(r[i], w, d, m, (const char *)p->x + (t + i) * x_bytes, b, rule);
            }
            neon_store(p, row, n_rows, t, n_tokens, r);
        }
    }
}

/* Formats whose block is n_parts times 32 weights. load() gives the 32 of a part; scale() the
 * scale of each half of a part (BLOCK32_HALVES), or of a block. */
NEON_INLINE void block32_parts_run_neon(const struct product *p, size_t block_bytes, size_t n_parts, enum block32_rule rule,
                                        int8x16x2_t (*load)(const uint8_t *block, size_t part),
                                        float (*scale)(const uint8_t *block, size_t half))
{
    const size_t n = p->n_cols / 32;
    const struct act_q8_0 *x = p->x;
    for (size_t row = p->row_begin; row < p->row_end; row++)
        for (size_t t = 0; t < p->n_tokens; t += NEON_TOKENS) {
            const uint8_t *block = (const uint8_t *)p->weights + row * p->row_bytes;
            size_t n_tokens = neon_tokens_left(p, t);
            float r[NEON_TOKENS] = {0}, joined[NEON_TOKENS];
            for (size_t b = 0; b < n; b++) {
                size_t part = b % n_parts;
                int8x16x2_t w = load(block, part);
                for (size_t i = 0; i < n_tokens; i++) {
                    const struct act_q8_0 *a = x + (t + i) * n + b;
                    float dx = f16_to_float(a->d);
                    int32_t first = vaddvq_s32(vdotq_s32(vdupq_n_s32(0), w.val[0], vld1q_s8(a->q)));
                    int32_t second = vaddvq_s32(vdotq_s32(vdupq_n_s32(0), w.val[1], vld1q_s8(a->q + 16)));
                    if (rule == BLOCK32_HALVES) {
                        r[i] += (dx * scale(block, 2 * part)) * (float)first;
                        r[i] += (dx * scale(block, 2 * part + 1)) * (float)second;
                    } else {
                        joined[i] = (part ? joined[i] : 0) + dx * (float)(first + second);
                        r[i] = part + 1 == n_parts ? r[i] + scale(block, 0) * joined[i] : r[i];
                    }
                }
                block += part + 1 == n_parts ? block_bytes : 0;
            }
            for (size_t i = 0; i < n_tokens; i++)
                p->y[(t + i) * p->y_stride + row] = r[i];
        }
}

/* One F16 scale in front of a block. */
NEON_INLINE float neon_first_half(const uint8_t *block, size_t half)
{
    (void)half;
    return neon_half(block);
}

/* ---- 256 weights per super-block: lanes are the format's eight lanes ---- */

/* 8 lanes: products of 16 elements in words, times the scale of the 16. */
NEON_INLINE void superblock_lanes_neon(const struct superblock *w, const int8_t *q, int32x4_t lanes[2])
{
    lanes[0] = lanes[1] = vdupq_n_s32(0);
    for (size_t j = 0; j < 16; j++) {
        int8x16_t a = vld1q_s8(q + 16 * j), v = vld1q_s8(w->q + 16 * j);
        int16x8_t products = vmlal_s8(vmull_s8(vget_low_s8(v), vget_low_s8(a)), vget_high_s8(v), vget_high_s8(a));
        lanes[0] = vmlal_n_s16(lanes[0], vget_low_s16(products), w->scale[j]);
        lanes[1] = vmlal_n_s16(lanes[1], vget_high_s16(products), w->scale[j]);
    }
}

NEON_INLINE int32_t superblock_minima_neon(const struct superblock *w, const int16_t *sums)
{
    int32x4_t acc = vdupq_n_s32(0);
    for (size_t j = 0; j < 16; j += 4)
        acc = vmlal_s16(acc, vld1_s16(w->min + j), vld1_s16(sums + j));
    return vaddvq_s32(acc);
}

struct superblock_neon_state {
    float32x4_t lanes[2];
    float r;
};

NEON_INLINE void superblock_step_neon(struct superblock_neon_state *s, const struct superblock *w,
                                      const struct act_q8_k *a, enum superblock_rule rule, float inner)
{
    int32x4_t sums[2];
    float d = w->d * a->d;
    if (rule == SUPERBLOCK_GROUPS) {
        for (size_t j = 0; j < 256; j += 32) {
            int32x4_t sum = vdotq_s32(vdupq_n_s32(0), vld1q_s8(w->q + j), vld1q_s8(a->q + j));
            sum = vdotq_s32(sum, vld1q_s8(w->q + j + 16), vld1q_s8(a->q + j + 16));
            s->r += (d * (float)w->scale[j / 16]) * (float)vaddvq_s32(sum);
        }
        return;
    }
    superblock_lanes_neon(w, a->q, sums);
    if (rule == SUPERBLOCK_LANES || rule == SUPERBLOCK_LANES_MIN)
        for (size_t i = 0; i < 2; i++)
            s->lanes[i] = vaddq_f32(s->lanes[i], vmulq_f32(vdupq_n_f32(d), vcvtq_f32_s32(sums[i])));
    float total = (float)vaddvq_s32(vaddq_s32(sums[0], sums[1]));
    if (rule == SUPERBLOCK_SUM)
        s->r += d * (inner * total);
    if (rule == SUPERBLOCK_LANES || rule == SUPERBLOCK_SUM)
        return;
    float minima = (w->dmin * a->d) * (float)superblock_minima_neon(w, a->sums);
    s->r = rule == SUPERBLOCK_LANES_MIN ? s->r - minima : s->r + (d * total - minima);
}

NEON_INLINE float superblock_end_neon(const struct superblock_neon_state *s, enum superblock_rule rule, float factor)
{
    float lanes[8], r = s->r;
    if (rule == SUPERBLOCK_SUM || rule == SUPERBLOCK_GROUPS)
        return factor * r;
    vst1q_f32(lanes, s->lanes[0]);
    vst1q_f32(lanes + 4, s->lanes[1]);
    for (size_t l = 0; l < 8 && rule != SUPERBLOCK_SUM_MIN; l++)
        r += lanes[l];
    return r;
}

NEON_INLINE void superblock_run_neon(const struct product *p, size_t block_bytes, enum superblock_rule rule, float inner,
                                     float factor, void (*unpack)(const void *, struct superblock *))
{
    const struct act_q8_k *x = p->x;
    size_t n = p->n_cols / 256;
    for (size_t row = p->row_begin; row < p->row_end; row++)
        for (size_t t = 0; t < p->n_tokens; t += NEON_TOKENS) {
            struct superblock_neon_state s[NEON_TOKENS];
            size_t n_tokens = neon_tokens_left(p, t);
            memset(s, 0, sizeof s);
            for (size_t b = 0; b < n; b++) {
                struct superblock w;
                unpack((const uint8_t *)p->weights + row * p->row_bytes + b * block_bytes, &w);
                for (size_t i = 0; i < n_tokens; i++)
                    superblock_step_neon(&s[i], &w, x + (t + i) * n + b, rule, inner);
            }
            for (size_t i = 0; i < n_tokens; i++)
                p->y[(t + i) * p->y_stride + row] = superblock_end_neon(&s[i], rule, factor);
        }
}

/* 128 bytes of nibbles. */
NEON_INLINE void neon_nibbles_256(const uint8_t *packed, int8_t *q)
{
    for (size_t k = 0; k < 8; k++) {
        uint8x16_t v = vld1q_u8(packed + 16 * k);
        int8_t *out = q + 64 * (k / 2) + 16 * (k % 2);
        vst1q_s8(out, vreinterpretq_s8_u8(vandq_u8(v, vdupq_n_u8(15))));
        vst1q_s8(out + 32, vreinterpretq_s8_u8(vshrq_n_u8(v, 4)));
    }
}

/* ---- plain floats: lanes are rows, sums double ---- */

/* Four elements of four rows -> four columns. */
NEON_INLINE void neon_transpose(float32x4_t v[4])
{
    float32x4_t a = vtrn1q_f32(v[0], v[1]), b = vtrn2q_f32(v[0], v[1]);
    float32x4_t c = vtrn1q_f32(v[2], v[3]), d = vtrn2q_f32(v[2], v[3]);
    v[0] = vcombine_f32(vget_low_f32(a), vget_low_f32(c));
    v[1] = vcombine_f32(vget_low_f32(b), vget_low_f32(d));
    v[2] = vcombine_f32(vget_high_f32(a), vget_high_f32(c));
    v[3] = vcombine_f32(vget_high_f32(b), vget_high_f32(d));
}

/* Elements [k, k + m) of a row, m <= 4, zeros behind. */
NEON_INLINE float32x4_t float_load_neon(const uint8_t *row, size_t k, size_t m, size_t size,
                                        float32x4_t (*load)(const uint8_t *))
{
    uint8_t tail[16] = {0};
    if (m >= 4)
        return load(row + k * size);
    memcpy(tail, row + k * size, m * size);
    return load(tail);
}

NEON_INLINE void float_run_neon(const struct product *p, size_t size, float32x4_t (*load)(const uint8_t *))
{
    for (size_t row = p->row_begin; row < p->row_end; row += NEON_ROWS) {
        const uint8_t *rows[NEON_ROWS], *x = p->x;
        size_t n_rows = neon_rows(p, row, rows);
        for (size_t t = 0; t < p->n_tokens; t++) {
            const uint8_t *token = x + t * p->n_cols * size;
            float64x2_t low = vdupq_n_f64(0), high = vdupq_n_f64(0);
            for (size_t k = 0; k < p->n_cols; k += 4) {
                size_t m = p->n_cols - k < 4 ? p->n_cols - k : 4;
                float32x4_t column[4];
                float a[4];
                for (size_t i = 0; i < 4; i++)
                    column[i] = float_load_neon(rows[i], k, m, size, load);
                neon_transpose(column);
                vst1q_f32(a, float_load_neon(token, k, m, size, load));
                for (size_t i = 0; i < m; i++) {
                    float32x4_t product = vmulq_n_f32(column[i], a[i]);
                    low = vaddq_f64(low, vcvt_f64_f32(vget_low_f32(product)));
                    high = vaddq_f64(high, vcvt_high_f64_f32(product));
                }
            }
            float32x4_t r = vcombine_f32(vcvt_f32_f64(low), vcvt_f32_f64(high));
            neon_store(p, row, n_rows, t, 1, &r);
        }
    }
}

/* In a format's file, behind NAME_load_neon or its unpacking: NAME_neon. */
#define BLOCK32_KERNEL_NEON(name, bytes, rule) BLOCK32_SCALED_KERNEL_NEON(name, bytes, rule, neon_halves)
#define BLOCK32_SCALED_KERNEL_NEON(name, bytes, rule, scales)           \
    NEON static void name##_neon(const struct product *p)               \
    {                                                                   \
        block32_run_neon(p, bytes, rule, name##_load_neon, scales);     \
    }
#define BLOCK32_PARTS_KERNEL_NEON(name, bytes, n_parts, rule, scale)            \
    NEON static void name##_neon(const struct product *p)                       \
    {                                                                           \
        block32_parts_run_neon(p, bytes, n_parts, rule, name##_load_neon, scale); \
    }
#define SUPERBLOCK_KERNEL_NEON(name, bytes, rule, inner, factor, unpack)    \
    NEON static void name##_neon(const struct product *p)                   \
    {                                                                       \
        superblock_run_neon(p, bytes, rule, inner, factor, unpack);         \
    }
#define FLOAT_KERNEL_NEON(name, bytes)                      \
    NEON static void name##_neon(const struct product *p)   \
    {                                                       \
        float_run_neon(p, bytes, name##_load_neon);         \
    }
#define NEON_SLOT(name, act) [TIER_NEON] = {.layout = &layout_canonical[act], .run = name##_neon, .row_tile = NEON_ROWS},

#else
#define NEON_SLOT(name, act)
#endif
#endif
