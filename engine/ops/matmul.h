/* Matrix products of a stored weight matrix with a batch of activations, in the exact order of every format.
 *
 * The activations are encoded once, in multiples of the layout's token tile (all products that share x and a layout
 * share the encoding), then rows are computed. Bits do not depend on tier, thread count or batch split. */
#ifndef GGUFD_OPS_MATMUL_H
#define GGUFD_OPS_MATMUL_H

#include <stddef.h>

#include "engine/quant/quant.h"

/* A weight matrix as bound from the file: n_rows rows of n_cols elements. */
struct matrix {
    const struct format *format;
    const void *data;
    const void *data_end; /* end of readable memory behind it */
    size_t n_cols, n_rows;
};

/* Layout the activations must have for products of this matrix with n_tokens tokens on this tier. */
const struct activation_layout *matmul_layout(const struct matrix *w, enum cpu_tier tier, size_t n_tokens);

/* Scratch one worker needs; 64-byte aligned, contents free between calls. So is the activations' buffer. */
size_t matmul_scratch_bytes(const struct matrix *w, enum cpu_tier tier, size_t n_tokens);

/* y[t * y_stride + r] for r in [row_begin, row_end), all n_tokens; x in matmul_layout()'s layout. row_begin is a multiple
 * of the kernel's row tile; workers may take the rows in any order. */
void matmul(const struct matrix *w, enum cpu_tier tier, const void *x, size_t n_tokens, size_t row_begin,
            size_t row_end, float *y, size_t y_stride, void *scratch);

#endif
