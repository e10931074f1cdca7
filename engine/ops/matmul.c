/* Matrix products: finds the kernel of a matrix's format, and cuts tokens and rows into the workers' shares.
 * Knows no format and no tier by name; all arithmetic is in engine/quant. */
#include "engine/ops/matmul.h"

#include <assert.h>

const struct activation_layout *matmul_layout(const struct matrix *w, enum cpu_tier tier, size_t n_tokens)
{
    return format_kernel(w->format, tier, n_tokens)->layout;
}

size_t matmul_scratch_bytes(const struct matrix *w, enum cpu_tier tier, size_t n_tokens)
{
    const struct kernel *k = format_kernel(w->format, tier, n_tokens);
    return k->scratch_bytes ? k->scratch_bytes(w->n_cols, n_tokens) : 0;
}

/* Part `worker` of n items in `n_workers` parts of nearly equal size, cut at multiples of `tile`. */
static void share(size_t n, size_t tile, unsigned worker, unsigned n_workers, size_t *begin, size_t *end)
{
    assert(n_workers > 0 && worker < n_workers);
    size_t n_tiles = (n + tile - 1) / tile;
    *begin = n_tiles * worker / n_workers * tile;
    *end = n_tiles * (worker + 1) / n_workers * tile;
    if (*begin > n)
        *begin = n;
    if (*end > n)
        *end = n;
}

void matmul_encode_share(const struct activation_layout *layout, size_t n_tokens, unsigned worker,
                         unsigned n_workers, size_t *begin, size_t *end)
{
    share(n_tokens, layout->token_tile, worker, n_workers, begin, end);
}

void matmul_row_share(const struct matrix *w, enum cpu_tier tier, size_t n_tokens, unsigned worker,
                      unsigned n_workers, size_t *begin, size_t *end)
{
    share(w->n_rows, format_kernel(w->format, tier, n_tokens)->row_tile, worker, n_workers, begin, end);
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
