/* Row operations: the plain code is the specification; see elementwise.h. */
#include "engine/ops/elementwise.h"

#include <assert.h>
#include <math.h>

#include "engine/base/f16.h"
#include "engine/ops/math.h"

static void norm_row(const float *x, const float *weight, float *out, size_t n, float epsilon)
{
    double sum = 0.0;
    for (size_t i = 0; i < n; i++)
        sum += (double)(x[i] * x[i]);
    float mean = (float)(sum / (double)n), c = 1.0f / sqrtf(mean + epsilon);
    for (size_t i = 0; i < n; i++)
        out[i] = (x[i] * c) * weight[i];
}

void ops_rms_norm(enum cpu_tier tier, const struct rms_norm *norm)
{
    (void)tier;
    for (size_t r = 0; r < norm->n_rows; r++)
        norm_row(norm->x + r * norm->x_stride, norm->weight, norm->out + r * norm->out_stride, norm->n, norm->epsilon);
}

static float silu(float x, size_t i, size_t n)
{
    float e = i < n / 4 * 4 ? math_pexp(0.0f - x) : math_expf(-x);
    return x / (1.0f + e);
}

void ops_swiglu(enum cpu_tier tier, const float *gate, const float *up, float *out, size_t n, size_t begin,
                size_t end)
{
    (void)tier;
    for (size_t i = begin; i < end; i++)
        out[i] = silu(gate[i], i, n) * up[i];
}

void ops_silu(enum cpu_tier tier, const float *x, float *out, size_t n, size_t begin, size_t end)
{
    (void)tier;
    for (size_t i = begin; i < end; i++)
        out[i] = silu(x[i], i, n);
}

void ops_add(enum cpu_tier tier, const float *a, const float *b, float *out, size_t n)
{
    (void)tier;
    for (size_t i = 0; i < n; i++)
        out[i] = a[i] + b[i];
}

void ops_scale(enum cpu_tier tier, const float *x, float factor, float *out, size_t n)
{
    (void)tier;
    for (size_t i = 0; i < n; i++)
        out[i] = x[i] * factor;
}

void ops_add_scaled(enum cpu_tier tier, const float *x, float factor, float *sum, size_t n)
{
    (void)tier;
    for (size_t i = 0; i < n; i++)
        sum[i] = sum[i] + (x[i] * factor);
}

float ops_max(enum cpu_tier tier, const float *x, size_t n)
{
    (void)tier;
    float max = -INFINITY;
    for (size_t i = 0; i < n; i++)
        max = x[i] > max ? x[i] : max;
    return max;
}

void ops_pexp(enum cpu_tier tier, const float *x, float max, float *out, size_t n)
{
    (void)tier;
    for (size_t i = 0; i < n; i++)
        out[i] = math_pexp(x[i] - max);
}

void ops_softmax(enum cpu_tier tier, float *x, size_t n)
{
    float max = ops_max(tier, x, n);
    size_t groups = n / 4 * 4;
    ops_pexp(tier, x, max, x, groups);
    double sum = 0.0;
    for (size_t i = 0; i < groups; i += 4)
        sum += (double)((x[i] + x[i + 1]) + (x[i + 2] + x[i + 3]));
    for (size_t i = groups; i < n; i++) {
        x[i] = math_expf(x[i] - max);
        sum += (double)x[i];
    }
    ops_scale(tier, x, (float)(1.0 / sum), x, n);
}

void ops_f16_encode(enum cpu_tier tier, const float *x, uint16_t *out, size_t n)
{
    (void)tier;
    for (size_t i = 0; i < n; i++)
        out[i] = f16_from_float(x[i]);
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
