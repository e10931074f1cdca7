/* Operations on rows of floats between the matrix products: norm, activation, sums, softmax, expert choice.
 *
 * Every tier returns the bits of docs/numerics.md. Pointers need no alignment; `out` may be the same array as an input
 * where both have one shape, but must not overlap it otherwise. Sizes may be 0. */
#ifndef GGUFD_OPS_ELEMENTWISE_H
#define GGUFD_OPS_ELEMENTWISE_H

#include <stddef.h>
#include <stdint.h>

#include "engine/cpu/cpu.h"

/* RMS norm of n_rows rows of n values: out[r][i] = (x[r][i] * c_r) * weight[i]. Strides in floats. Per-head norms are
 * rows of n = head size with stride = head size. */
struct rms_norm {
    const float *x, *weight;
    float *out;
    size_t n, n_rows, x_stride, out_stride;
    float epsilon;
};
void ops_rms_norm(enum cpu_tier tier, const struct rms_norm *norm);

/* out[i] = silu(gate[i]) * up[i] for i in [begin, end) of ONE row of n: which exponential an element gets depends on its
 * index in the row and on n, not on the share. */
void ops_swiglu(enum cpu_tier tier, const float *gate, const float *up, float *out, size_t n, size_t begin,
                size_t end);

/* out[i] = silu(x[i]); shares as above. */
void ops_silu(enum cpu_tier tier, const float *x, float *out, size_t n, size_t begin, size_t end);

/* out[i] = a[i] + b[i] (bias, residual). */
void ops_add(enum cpu_tier tier, const float *a, const float *b, float *out, size_t n);

/* out[i] = x[i] * factor. */
void ops_scale(enum cpu_tier tier, const float *x, float factor, float *out, size_t n);

/* sum[i] = sum[i] + (x[i] * factor), product and sum each rounded: the further experts of a mixture. */
void ops_add_scaled(enum cpu_tier tier, const float *x, float factor, float *sum, size_t n);

/* Softmax of one row in place; the last n mod 4 values use math_expf. */
void ops_softmax(enum cpu_tier tier, float *x, size_t n);

/* out[i] = math_pexp(x[i] - max) for all n. */
void ops_pexp(enum cpu_tier tier, const float *x, float max, float *out, size_t n);

/* Largest of n >= 1 values; NaN values are ignored, -inf if all are. */
float ops_max(enum cpu_tier tier, const float *x, size_t n);

/* Nearest F16, ties to even; NaN becomes sign|0x7e00. */
void ops_f16_encode(enum cpu_tier tier, const float *x, uint16_t *out, size_t n);

/* Mixture of experts, one token: scores[n_experts] (the router's products) become probabilities in place; chosen[k] and
 * weights[k], k < n_used <= n_experts, are the experts of largest probability in descending order (ties: lower index)
 * and their normalised weights. NaN probabilities count as smaller than all others. */
void ops_router(enum cpu_tier tier, float *scores, size_t n_experts, size_t n_used, uint32_t *chosen,
                float *weights);

#endif
