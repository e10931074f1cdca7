/* Any bytes as weights of every format: they dequantize, and every tier's kernels return the scalar product's bits.
 *
 * Input: format, columns in blocks, rows, tokens; activations as float32; the rest are weights, repeated as needed. The
 * kernels are compiled without a sanitizer, so weights end at a page that cannot be read. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine/base/f16.h"
#include "engine/quant/quant.h"

enum { BLOCKS_MAX = 5, ROWS_MAX = 40, TOKENS_MAX = 5, GUARDED_BYTES = 1 << 20, HEAD_BYTES = 4 };

static void must(bool condition)
{
    if (!condition)
        abort();
}

/* A region whose end cannot be crossed. */
static char *guarded_end(void)
{
    static char *end;
    if (!end) {
        size_t page = (size_t)sysconf(_SC_PAGESIZE);
        char *p = mmap(NULL, GUARDED_BYTES + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        must(p != MAP_FAILED);
        end = p + GUARDED_BYTES;
        must(mprotect(end, page, PROT_NONE) == 0);
    }
    return end;
}

static void *allocate(size_t bytes)
{
    void *p = NULL;
    must(posix_memalign(&p, 64, bytes ? bytes : 1) == 0);
    return p;
}

static void fill(void *out, size_t bytes, const uint8_t *data, size_t size)
{
    for (size_t i = 0; i < bytes; i++)
        ((uint8_t *)out)[i] = size ? data[i % size] : 0;
}

struct matrix {
    const struct format *format;
    size_t n_cols, n_rows, row_bytes, n_tokens;
    const char *weights;
    const float *x;
    float *expected; /* [n_tokens][n_rows] */
};

static void expect(const struct matrix *m)
{
    const struct activation_format *a = activation_format(m->format->activation);
    void *blocks = allocate(m->n_cols / a->block_elements * a->block_bytes);
    for (size_t t = 0; t < m->n_tokens; t++) {
        a->encode(m->x + t * m->n_cols, blocks, m->n_cols);
        for (size_t r = 0; r < m->n_rows; r++)
            m->expected[t * m->n_rows + r] = m->format->dot(m->weights + r * m->row_bytes, blocks, m->n_cols);
    }
    free(blocks);
}

static void compare(const struct matrix *m, const float *y)
{
    for (size_t i = 0; i < m->n_tokens * m->n_rows; i++)
        must(float_bits(y[i]) == float_bits(m->expected[i]) || (isnan(y[i]) && isnan(m->expected[i])));
}

static void run_tier(const struct matrix *m, enum cpu_tier tier)
{
    const struct kernel *k = format_kernel(m->format, tier, m->n_tokens);
    void *x = allocate(k->layout->bytes(m->n_cols, m->n_tokens));
    void *scratch = allocate(k->scratch_bytes ? k->scratch_bytes(m->n_cols, m->n_tokens) : 0);
    float *y = allocate(m->n_tokens * m->n_rows * sizeof *y);
    k->layout->encode(m->x, m->n_cols, m->n_cols, 0, m->n_tokens, m->n_tokens, x);
    struct product p = {.weights = m->weights, .weights_end = m->weights + m->n_rows * m->row_bytes,
                        .row_bytes = m->row_bytes, .n_cols = m->n_cols, .row_end = m->n_rows, .x = x,
                        .n_tokens = m->n_tokens, .y = y, .y_stride = m->n_rows, .scratch = scratch};
    k->run(&p);
    compare(m, y);
    free(y);
    free(scratch);
    free(x);
}

static void dequantize(const struct matrix *m)
{
    float *out = allocate(m->n_cols * sizeof *out);
    for (size_t r = 0; r < m->n_rows; r++)
        m->format->dequantize(m->weights + r * m->row_bytes, out, m->n_cols);
    free(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t n_formats;
    const struct format *const *all = format_all(&n_formats);
    if (size < HEAD_BYTES)
        return 0;
    struct matrix m = {.format = all[data[0] % n_formats], .n_rows = 1 + data[2] % ROWS_MAX,
                       .n_tokens = 1 + data[3] % TOKENS_MAX};
    m.n_cols = (1 + data[1] % BLOCKS_MAX) * m.format->block_elements;
    const struct activation_format *a = activation_format(m.format->activation);
    while (m.n_cols % a->block_elements)
        m.n_cols += m.format->block_elements;
    m.row_bytes = format_row_bytes(m.format, m.n_cols);
    must(m.n_rows * m.row_bytes <= GUARDED_BYTES);
    data += HEAD_BYTES, size -= HEAD_BYTES;
    float *x = allocate(m.n_tokens * m.n_cols * sizeof *x);
    size_t of_x = size / 2;
    fill(x, m.n_tokens * m.n_cols * sizeof *x, data, of_x);
    char *weights = guarded_end() - m.n_rows * m.row_bytes;
    fill(weights, m.n_rows * m.row_bytes, data + of_x, size - of_x);
    m.weights = weights;
    m.x = x;
    m.expected = allocate(m.n_tokens * m.n_rows * sizeof *m.expected);
    dequantize(&m);
    expect(&m);
    for (int tier = 0; tier < TIER_COUNT; tier++)
        if (cpu_tier_available((enum cpu_tier)tier))
            run_tier(&m, (enum cpu_tier)tier);
    free(m.expected);
    free(x);
    return 0;
}
