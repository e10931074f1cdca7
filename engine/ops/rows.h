/* What a tier offers for rows of floats: the inner loops behind elementwise.h and rope.h, private to this folder. */
#ifndef GGUFD_OPS_ROWS_H
#define GGUFD_OPS_ROWS_H

#include "engine/ops/elementwise.h"

struct rows {
    void (*rms_norm)(const struct rms_norm *norm);
    void (*swiglu)(const float *gate, const float *up, float *out, size_t n); /* lane exponential for all */
    void (*silu)(const float *x, float *out, size_t n);
    void (*add)(const float *a, const float *b, float *out, size_t n);
    void (*scale)(const float *x, float factor, float *out, size_t n);
    void (*add_scaled)(const float *x, float factor, float *sum, size_t n);
    void (*pexp)(const float *x, float max, float *out, size_t n);
    float (*max)(const float *x, size_t n);
    double (*softmax_groups)(float *x, float max, size_t n); /* n a multiple of 4: exponentials in place, their sum */
    void (*f16_encode)(const float *x, uint16_t *out, size_t n);
    void (*rotate_normal)(const float *cosines, const float *sines, float *x, size_t n_dims);
    void (*rotate_neox)(const float *cosines, const float *sines, float *x, size_t n_dims);
};

extern const struct rows rows_scalar, rows_avx2, rows_avx512, rows_neon;

/* The tier's, or the next lower one's. */
const struct rows *rows_find(enum cpu_tier tier);

#endif
