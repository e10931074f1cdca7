/* Matrix products: finds the kernel of a matrix's format.
 * Knows no format and no tier by name; all arithmetic is in engine/quant. */
#include "engine/ops/matmul.h"

const struct activation_layout *matmul_layout(const struct matrix *w, enum cpu_tier tier, size_t n_tokens)
{
    return format_kernel(w->format, tier, n_tokens)->layout;
}

size_t matmul_scratch_bytes(const struct matrix *w, enum cpu_tier tier, size_t n_tokens)
{
    const struct kernel *k = format_kernel(w->format, tier, n_tokens);
    return k->scratch_bytes ? k->scratch_bytes(w->n_cols, n_tokens) : 0;
}

void matmul(const struct matrix *w, enum cpu_tier tier, const void *x, size_t n_tokens, size_t row_begin,
            size_t row_end, float *y, size_t y_stride, void *scratch)
{
    if (row_begin == row_end || n_tokens == 0)
        return;
    const struct product p = {
        .weights = w->data,
        .weights_end = w->data_end,
        .row_bytes = format_row_bytes(w->format, w->n_cols),
        .n_cols = w->n_cols,
        .row_begin = row_begin,
        .row_end = row_end,
        .x = x,
        .n_tokens = n_tokens,
        .y = y,
        .y_stride = y_stride,
        .scratch = scratch,
    };
    format_kernel(w->format, tier, n_tokens)->run(&p);
}
