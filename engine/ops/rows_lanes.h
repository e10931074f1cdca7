/* Row operations in lanes: one body, compiled once per tier by the files that include lanes.h and this. */
#include <math.h>

#include "engine/ops/rows.h"

/* ---- one input or two, one output ---- */

/* Runs `expression` on vectors a (and b) of all n elements; the last incomplete vector in a copy. */
#define FOR_LANES(n, a_from, b_from, out, expression)                       \
    do {                                                                    \
        size_t i_ = 0;                                                      \
        for (; i_ + LANES <= (n); i_ += LANES) {                            \
            f32v a = lanes_load((a_from) + i_), b = lanes_load((b_from) + i_); \
            (void)b;                                                        \
            lanes_store((out) + i_, (expression));                          \
        }                                                                   \
        size_t rest_ = (n) - i_;                                            \
        if (rest_) {                                                        \
            f32v a = lanes_load_part((a_from) + i_, rest_);                 \
            f32v b = lanes_load_part((b_from) + i_, rest_);                 \
            (void)b;                                                        \
            lanes_store_part((out) + i_, (expression), rest_);              \
        }                                                                   \
    } while (0)

INLINE f32v lanes_pexp_one(f32v x)
{
    lanes_pexp(&x, 1);
    return x;
}

INLINE f32v lanes_silu(f32v x)
{
    return x / (1.0f + lanes_pexp_one(0.0f - x));
}

TARGET static void swiglu(const float *gate, const float *up, float *out, size_t n)
{
    size_t i = 0;
    for (; i + 4 * LANES <= n; i += 4 * LANES) {
        f32v e[4];
        UNROLL for (int k = 0; k < 4; k++)
            e[k] = 0.0f - lanes_load(gate + i + k * LANES);
        lanes_pexp(e, 4);
        UNROLL for (int k = 0; k < 4; k++)
            lanes_store(out + i + k * LANES,
                        (lanes_load(gate + i + k * LANES) / (1.0f + e[k])) * lanes_load(up + i + k * LANES));
    }
    FOR_LANES(n - i, gate + i, up + i, out + i, lanes_silu(a) * b);
}

TARGET static void silu(const float *x, float *out, size_t n)
{
    FOR_LANES(n, x, x, out, lanes_silu(a));
}

TARGET static void add(const float *x, const float *y, float *out, size_t n)
{
    FOR_LANES(n, x, y, out, a + b);
}

TARGET static void scale(const float *x, float factor, float *out, size_t n)
{
    FOR_LANES(n, x, x, out, a * factor);
}

TARGET static void add_scaled(const float *x, float factor, float *sum, size_t n)
{
    FOR_LANES(n, x, sum, sum, b + (a * factor));
}

TARGET static void pexp(const float *x, float max, float *out, size_t n)
{
    FOR_LANES(n, x, x, out, lanes_pexp_one(a - max));
}

TARGET static void f16_encode(const float *x, uint16_t *out, size_t n)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        lanes_store_f16(out + i, lanes_load(x + i));
    if (i < n) {
        uint16_t part[LANES];
        lanes_store_f16(part, lanes_load_part(x + i, n - i));
        memcpy(out + i, part, (n - i) * sizeof *out);
    }
}

/* ---- softmax ---- */

TARGET static float max_of(const float *x, size_t n)
{
    f32v m[4];
    for (int k = 0; k < 4; k++)
        m[k] = lanes_set(-INFINITY);
    size_t i = 0;
    for (; i + 4 * LANES <= n; i += 4 * LANES)
        UNROLL for (int k = 0; k < 4; k++)
            m[k] = lanes_max(lanes_load(x + i + k * LANES), m[k]);
    for (; i + LANES <= n; i += LANES)
        m[0] = lanes_max(lanes_load(x + i), m[0]);
    m[0] = lanes_max(lanes_max(m[0], m[1]), lanes_max(m[2], m[3]));
    float max = -INFINITY;
    for (int l = 0; l < LANES; l++)
        max = m[0][l] > max ? m[0][l] : max;
    for (; i < n; i++)
        max = x[i] > max ? x[i] : max;
    return max;
}

/* Even and odd elements of a then b within each 128 bits. */
#if LANES == 16
#define EVEN(a, b) __builtin_shufflevector(a, b, 0, 2, 16, 18, 4, 6, 20, 22, 8, 10, 24, 26, 12, 14, 28, 30)
#define ODD(a, b) __builtin_shufflevector(a, b, 1, 3, 17, 19, 5, 7, 21, 23, 9, 11, 25, 27, 13, 15, 29, 31)
#define IN_ORDER(a) __builtin_shufflevector(a, a, 0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15)
#elif LANES == 8
#define EVEN(a, b) __builtin_shufflevector(a, b, 0, 2, 8, 10, 4, 6, 12, 14)
#define ODD(a, b) __builtin_shufflevector(a, b, 1, 3, 9, 11, 5, 7, 13, 15)
#define IN_ORDER(a) __builtin_shufflevector(a, a, 0, 4, 1, 5, 2, 6, 3, 7)
#else
#define EVEN(a, b) __builtin_shufflevector(a, b, 0, 2, 4, 6)
#define ODD(a, b) __builtin_shufflevector(a, b, 1, 3, 5, 7)
#define IN_ORDER(a) (a)
#endif

enum { SOFTMAX_STEP = 4 * LANES }; /* elements whose sums of four fill one vector */

/* Sums (v0 + v1) + (v2 + v3) of LANES groups of four, in order, as double. */
INLINE void group_sums(const f32v v[4], double *sums)
{
    f32v ab = EVEN(v[0], v[1]) + ODD(v[0], v[1]), cd = EVEN(v[2], v[3]) + ODD(v[2], v[3]);
    f32v all = EVEN(ab, cd) + ODD(ab, cd);
    float part[LANES];
    lanes_store(part, IN_ORDER(all));
    lanes_store_doubles(sums, lanes_widen(part));
    lanes_store_doubles(sums + DOUBLES, lanes_widen(part + DOUBLES));
}

/* Exponentials of SOFTMAX_STEP elements in place and their sums of four. */
INLINE void softmax_step(float *x, f32v max, double *sums)
{
    f32v v[4];
    UNROLL for (int k = 0; k < 4; k++)
        v[k] = lanes_load(x + k * LANES) - max;
    lanes_pexp(v, 4);
    UNROLL for (int k = 0; k < 4; k++)
        lanes_store(x + k * LANES, v[k]);
    group_sums(v, sums);
}

/* The same for the first n < SOFTMAX_STEP elements; the other sums are 0. */
TARGET static void softmax_part(float *x, float max, size_t n, double *sums)
{
    float copy[SOFTMAX_STEP];
    f32v v[4];
    for (size_t i = 0; i < SOFTMAX_STEP; i++)
        copy[i] = i < n ? x[i] : max; /* of which the exponential is fast */
    softmax_step(copy, lanes_set(max), sums);
    memcpy(x, copy, n * sizeof *x);
    for (size_t i = n; i < SOFTMAX_STEP; i++)
        copy[i] = 0.0f;
    UNROLL for (int k = 0; k < 4; k++)
        v[k] = lanes_load(copy + k * LANES);
    group_sums(v, sums);
}

TARGET static double softmax_groups(float *x, float max, size_t n)
{
    double sum = 0.0, sums[LANES];
    for (size_t i = 0; i < n; i += SOFTMAX_STEP) {
        if (n - i < SOFTMAX_STEP)
            softmax_part(x + i, max, n - i, sums);
        else
            softmax_step(x + i, lanes_set(max), sums);
        for (int g = 0; g < LANES; g++)
            sum += sums[g];
    }
    return sum;
}

/* ---- RMS norm ---- */

enum { NORM_ROWS = 8 }; /* rows whose sums grow side by side, each in order */
typedef float f32x4 __attribute__((vector_size(16)));
typedef float f32x8 __attribute__((vector_size(32)));
typedef double f64x8 __attribute__((vector_size(64)));

INLINE void add_widened(f64x8 *sums, f32x8 v)
{
#if defined(TIER_IS_AVX512)
    *sums += (f64x8)_mm512_cvtps_pd((__m256)v); /* gcc would convert two halves */
#else
    *sums += __builtin_convertvector(v, f64x8);
#endif
}

/* Four squares of each of two rows. */
INLINE f32x8 squares(const float *x, size_t stride)
{
    f32x4 a, b;
    memcpy(&a, x, sizeof a);
    memcpy(&b, x + 4 * stride, sizeof b);
    f32x8 both = __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7);
    return both * both;
}

/* Adds four squares of each of eight rows to the rows' sums, in order. */
INLINE void add_squares(f64x8 *sums, const float *x, size_t stride)
{
    f32x8 a = squares(x, stride), b = squares(x + stride, stride);
    f32x8 c = squares(x + 2 * stride, stride), d = squares(x + 3 * stride, stride);
    f32x8 ab = __builtin_shufflevector(a, b, 0, 8, 1, 9, 4, 12, 5, 13);
    f32x8 ab2 = __builtin_shufflevector(a, b, 2, 10, 3, 11, 6, 14, 7, 15);
    f32x8 cd = __builtin_shufflevector(c, d, 0, 8, 1, 9, 4, 12, 5, 13);
    f32x8 cd2 = __builtin_shufflevector(c, d, 2, 10, 3, 11, 6, 14, 7, 15);
    add_widened(sums, __builtin_shufflevector(ab, cd, 0, 1, 8, 9, 4, 5, 12, 13));
    add_widened(sums, __builtin_shufflevector(ab, cd, 2, 3, 10, 11, 6, 7, 14, 15));
    add_widened(sums, __builtin_shufflevector(ab2, cd2, 0, 1, 8, 9, 4, 5, 12, 13));
    add_widened(sums, __builtin_shufflevector(ab2, cd2, 2, 3, 10, 11, 6, 7, 14, 15));
}

/* Sums of squares of up to NORM_ROWS rows. */
TARGET static void sum_squares(const float *x, size_t stride, size_t n, size_t n_rows, double *sums)
{
    size_t i = 0;
    f64x8 all = {0};
    for (; n_rows == NORM_ROWS && i + 4 <= n; i += 4)
        add_squares(&all, x + i, stride);
    memcpy(sums, &all, sizeof all);
    for (size_t r = 0; r < n_rows; r++) {
        double sum = sums[r];
        for (size_t k = i; k < n; k++)
            sum += (double)(x[r * stride + k] * x[r * stride + k]);
        sums[r] = sum;
    }
}

TARGET static void rms_norm(const struct rms_norm *m)
{
    double sums[NORM_ROWS];
    for (size_t r = 0; r < m->n_rows; r += NORM_ROWS) {
        size_t n_rows = m->n_rows - r < NORM_ROWS ? m->n_rows - r : NORM_ROWS;
        sum_squares(m->x + r * m->x_stride, m->x_stride, m->n, n_rows, sums);
        for (size_t k = 0; k < n_rows; k++) {
            float mean = (float)(sums[k] / (double)m->n), c = 1.0f / sqrtf(mean + m->epsilon);
            FOR_LANES(m->n, m->x + (r + k) * m->x_stride, m->weight, m->out + (r + k) * m->out_stride, (a * c) * b);
        }
    }
}

/* ---- rotation ---- */

TARGET static void rotate_neox(const float *cosines, const float *sines, float *x, size_t n_dims)
{
    size_t half = n_dims / 2, i = 0;
    for (; i + LANES <= half; i += LANES) {
        f32v a = lanes_load(x + i), b = lanes_load(x + half + i), c = lanes_load(cosines + i), s = lanes_load(sines + i);
        lanes_store(x + i, (a * c) - (b * s));
        lanes_store(x + half + i, (a * s) + (b * c));
    }
    for (; i < half; i++) {
        float a = x[i], b = x[half + i];
        x[i] = (a * cosines[i]) - (b * sines[i]);
        x[half + i] = (a * sines[i]) + (b * cosines[i]);
    }
}

/* Every value twice, in neighbouring lanes. */
INLINE f32v lanes_twice(const float *p)
{
    f32h v;
    memcpy(&v, p, sizeof v);
#if LANES == 16
    return __builtin_shufflevector(v, v, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
#elif LANES == 8
    return __builtin_shufflevector(v, v, 0, 0, 1, 1, 2, 2, 3, 3);
#else
    return __builtin_shufflevector(v, v, 0, 0, 1, 1);
#endif
}

INLINE f32v lanes_swap(f32v v)
{
#if LANES == 16
    return __builtin_shufflevector(v, v, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14);
#elif LANES == 8
    return __builtin_shufflevector(v, v, 1, 0, 3, 2, 5, 4, 7, 6);
#else
    return __builtin_shufflevector(v, v, 1, 0, 3, 2);
#endif
}

/* Even lanes (u0*c) - (u1*s), odd lanes (u1*c) + (u0*s): adding a product with its sign changed is subtracting it. */
TARGET static void rotate_normal(const float *cosines, const float *sines, float *x, size_t n_dims)
{
    size_t i = 0;
    u32v even = {0};
    for (int l = 0; l < LANES; l += 2)
        even[l] = 0x80000000u;
    for (; i + LANES <= n_dims; i += LANES) {
        f32v u = lanes_load(x + i), crossed = lanes_swap(u) * lanes_twice(sines + i / 2);
        lanes_store(x + i, (u * lanes_twice(cosines + i / 2)) + (f32v)((u32v)crossed ^ even));
    }
    for (; i < n_dims; i += 2) {
        float a = x[i], b = x[i + 1], c = cosines[i / 2], s = sines[i / 2];
        x[i] = (a * c) - (b * s);
        x[i + 1] = (a * s) + (b * c);
    }
}

const struct rows TIER(rows) = {
    .rms_norm = rms_norm,
    .swiglu = swiglu,
    .silu = silu,
    .add = add,
    .scale = scale,
    .add_scaled = add_scaled,
    .pexp = pexp,
    .max = max_of,
    .softmax_groups = softmax_groups,
    .f16_encode = f16_encode,
    .rotate_normal = rotate_normal,
    .rotate_neox = rotate_neox,
};
