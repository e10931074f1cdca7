/* Row operations: tier choice, what depends on indices, and the plain code, which is the specification. */
#include "engine/ops/elementwise.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>

#include "engine/base/f16.h"
#include "engine/ops/math.h"
#include "engine/ops/rows.h"

/* ---- plain code ---- */

static void plain_rms_norm(const struct rms_norm *m)
{
    for (size_t r = 0; r < m->n_rows; r++) {
        const float *x = m->x + r * m->x_stride;
        float *out = m->out + r * m->out_stride;
        double sum = 0.0;
        for (size_t i = 0; i < m->n; i++)
            sum += (double)(x[i] * x[i]);
        float mean = (float)(sum / (double)m->n), c = 1.0f / sqrtf(mean + m->epsilon);
        for (size_t i = 0; i < m->n; i++)
            out[i] = (x[i] * c) * m->weight[i];
    }
}

static void plain_swiglu(const float *gate, const float *up, float *out, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = (gate[i] / (1.0f + math_pexp(0.0f - gate[i]))) * up[i];
}

static void plain_silu(const float *x, float *out, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = x[i] / (1.0f + math_pexp(0.0f - x[i]));
}

static void plain_add(const float *a, const float *b, float *out, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = a[i] + b[i];
}

static void plain_scale(const float *x, float factor, float *out, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = x[i] * factor;
}

static void plain_add_scaled(const float *x, float factor, float *sum, size_t n)
{
    for (size_t i = 0; i < n; i++)
        sum[i] = sum[i] + (x[i] * factor);
}

static void plain_pexp(const float *x, float max, float *out, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = math_pexp(x[i] - max);
}

static float plain_max(const float *x, size_t n)
{
    float max = -INFINITY;
    for (size_t i = 0; i < n; i++)
        max = x[i] > max ? x[i] : max;
    return max;
}

static double plain_softmax_groups(float *x, float max, size_t n)
{
    double sum = 0.0;
    for (size_t i = 0; i < n; i += 4) {
        plain_pexp(x + i, max, x + i, 4);
        sum += (double)((x[i] + x[i + 1]) + (x[i + 2] + x[i + 3]));
    }
    return sum;
}

static void plain_f16_encode(const float *x, uint16_t *out, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = f16_from_float(x[i]);
}

static void rotate(float *u0, float *u1, float c, float s)
{
    float a = *u0, b = *u1;
    *u0 = (a * c) - (b * s);
    *u1 = (a * s) + (b * c);
}

static void plain_rotate_normal(const float *cosines, const float *sines, float *x, size_t n_dims)
{
    for (size_t i = 0; i < n_dims / 2; i++)
        rotate(&x[2 * i], &x[2 * i + 1], cosines[i], sines[i]);
}

static void plain_rotate_neox(const float *cosines, const float *sines, float *x, size_t n_dims)
{
    for (size_t i = 0; i < n_dims / 2; i++)
        rotate(&x[i], &x[i + n_dims / 2], cosines[i], sines[i]);
}

const struct rows rows_scalar = {
    .rms_norm = plain_rms_norm,
    .swiglu = plain_swiglu,
    .silu = plain_silu,
    .add = plain_add,
    .scale = plain_scale,
    .add_scaled = plain_add_scaled,
    .pexp = plain_pexp,
    .max = plain_max,
    .softmax_groups = plain_softmax_groups,
    .f16_encode = plain_f16_encode,
    .rotate_normal = plain_rotate_normal,
    .rotate_neox = plain_rotate_neox,
};

const struct rows *rows_find(enum cpu_tier tier)
{
    static const struct rows *const tiers[TIER_COUNT] = {
        [TIER_SCALAR] = &rows_scalar,
#if defined(__x86_64__)
        [TIER_AVX2] = &rows_avx2,
        [TIER_AVX512] = &rows_avx512,
#elif defined(__aarch64__)
        [TIER_NEON] = &rows_neon,
#endif
    };
    while (!tiers[tier])
        tier = cpu_tier_below(tier);
    return tiers[tier];
}

/* ---- public ---- */

void ops_rms_norm(enum cpu_tier tier, const struct rms_norm *norm)
{
    rows_find(tier)->rms_norm(norm);
}

/* Elements of a row that fill groups of four take the lane exponential, the last n mod 4 take expf: splits a share. */
static void split_share(size_t n, size_t begin, size_t *middle, size_t end)
{
    size_t groups = n / 4 * 4;
    *middle = end < groups ? end : groups;
    if (*middle < begin)
        *middle = begin;
}

static float silu_leftover(float x)
{
    return x / (1.0f + math_expf(-x));
}

void ops_swiglu(enum cpu_tier tier, const float *gate, const float *up, float *out, size_t n, size_t begin,
                size_t end)
{
    size_t middle;
    split_share(n, begin, &middle, end);
    rows_find(tier)->swiglu(gate + begin, up + begin, out + begin, middle - begin);
    for (size_t i = middle; i < end; i++)
        out[i] = silu_leftover(gate[i]) * up[i];
}

void ops_silu(enum cpu_tier tier, const float *x, float *out, size_t n, size_t begin, size_t end)
{
    size_t middle;
    split_share(n, begin, &middle, end);
    rows_find(tier)->silu(x + begin, out + begin, middle - begin);
    for (size_t i = middle; i < end; i++)
        out[i] = silu_leftover(x[i]);
}

void ops_add(enum cpu_tier tier, const float *a, const float *b, float *out, size_t n)
{
    rows_find(tier)->add(a, b, out, n);
}

void ops_scale(enum cpu_tier tier, const float *x, float factor, float *out, size_t n)
{
    rows_find(tier)->scale(x, factor, out, n);
}

void ops_add_scaled(enum cpu_tier tier, const float *x, float factor, float *sum, size_t n)
{
    rows_find(tier)->add_scaled(x, factor, sum, n);
}

float ops_max(enum cpu_tier tier, const float *x, size_t n)
{
    return rows_find(tier)->max(x, n);
}

void ops_pexp(enum cpu_tier tier, const float *x, float max, float *out, size_t n)
{
    rows_find(tier)->pexp(x, max, out, n);
}

void ops_softmax(enum cpu_tier tier, float *x, size_t n)
{
    const struct rows *rows = rows_find(tier);
    float max = rows->max(x, n);
    double sum = rows->softmax_groups(x, max, n / 4 * 4);
    for (size_t i = n / 4 * 4; i < n; i++) {
        x[i] = math_expf(x[i] - max);
        sum += (double)x[i];
    }
    rows->scale(x, (float)(1.0 / sum), x, n);
}

void ops_f16_encode(enum cpu_tier tier, const float *x, uint16_t *out, size_t n)
{
    rows_find(tier)->f16_encode(x, out, n);
}

/* Index of the largest value not yet chosen; lowest index on a tie, NaN below everything. */
static uint32_t router_best(const float *p, size_t n, const uint32_t *chosen, size_t n_chosen)
{
    size_t best = n;
    for (size_t e = 0; e < n; e++) {
        bool taken = false;
        for (size_t k = 0; k < n_chosen; k++)
            taken |= chosen[k] == e;
        if (!taken && (best == n || p[e] > p[best] || (isnan(p[best]) && !isnan(p[e]))))
            best = e;
    }
    return (uint32_t)best;
}

void ops_router(enum cpu_tier tier, float *scores, size_t n_experts, size_t n_used, uint32_t *chosen,
                float *weights)
{
    assert(n_used <= n_experts);
    ops_softmax(tier, scores, n_experts);
    double sum = 0.0;
    for (size_t k = 0; k < n_used; k++) {
        chosen[k] = router_best(scores, n_experts, chosen, k);
        sum += (double)scores[chosen[k]];
    }
    float total = (float)sum;
    total = total < 0x1p-14f ? 0x1p-14f : total;
    for (size_t k = 0; k < n_used; k++)
        weights[k] = scores[chosen[k]] / total;
}
