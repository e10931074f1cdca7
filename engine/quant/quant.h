/* Storage formats: one row each in formats.def, one file each for what it does.
 *
 * A weight row of n elements is n / block_elements consecutive blocks. The scalar `dot` is the specification
 * (docs/numerics.md); the kernels of every tier return its bits. Nothing outside this folder switches over formats. */
#ifndef GGUFD_QUANT_QUANT_H
#define GGUFD_QUANT_QUANT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/cpu/cpu.h"

/* How the other operand of a product is encoded; the weight's format decides. */
enum activation { ACT_F32, ACT_F16, ACT_BF16, ACT_Q8_0, ACT_Q8_1, ACT_Q8_K, ACT_COUNT };

/* One activation encoding: canonical blocks, the layout of the numerics specification. */
struct activation_format {
    const char *name;
    uint32_t block_elements, block_bytes;
    /* n values (a multiple of block_elements) -> n / block_elements blocks. */
    void (*encode)(const float *x, void *blocks, size_t n);
};
const struct activation_format *activation_format(enum activation a);

/* A matrix product y[t][r] = W[r] . x[t] for rows [row_begin, row_end) and all tokens.
 * `x` points to activations in the kernel's layout. Kernels write y only for their rows. */
struct product {
    const void *weights;        /* row 0 of the matrix, unaligned, straight from the file's mapping */
    const void *weights_end;    /* reads at or beyond this address are forbidden (end of the mapping) */
    size_t row_bytes, n_cols;
    size_t row_begin, row_end;
    const void *x;
    size_t n_tokens;
    float *y;                   /* [n_tokens][y_stride] */
    size_t y_stride;            /* in floats */
    void *scratch;              /* the calling thread's, at least product_scratch_bytes() */
};

/* A layout in which a tier's kernels want their activations: derived from the canonical encoding, bits unchanged.
 * encode() handles tokens [token_begin, token_end); begin is a multiple of `token_tile`, so that threads can share it. */
struct activation_layout {
    const char *name;
    enum activation activation;
    size_t token_tile;
    size_t (*bytes)(size_t n_cols, size_t n_tokens);
    void (*encode)(const float *x, size_t x_stride, size_t n_cols, size_t token_begin, size_t token_end,
                   size_t n_tokens, void *out);
};

/* What one format offers on one tier. An empty slot (run == NULL) falls to the next lower tier. */
struct kernel {
    const struct activation_layout *layout;
    void (*run)(const struct product *p);
    size_t row_tile;                                            /* threads split rows at multiples of it */
    size_t (*scratch_bytes)(size_t n_cols, size_t n_tokens);    /* NULL: none */
};

struct format {
    uint32_t id; /* ggml type number in files */
    const char *name;
    uint32_t block_elements, block_bytes;
    enum activation activation;
    void (*dequantize)(const void *row, float *out, size_t n);      /* exact values, n a multiple of the block */
    float (*dot)(const void *row, const void *act_blocks, size_t n);/* scalar specification, canonical activation */
    struct kernel decode[TIER_COUNT];                               /* one token */
    struct kernel prefill[TIER_COUNT];                              /* two tokens or more */
};

/* Row of a type id, or NULL: unknown or refused. */
const struct format *format_find(uint32_t id);

/* Row of a name ("Q4_K"), or NULL. */
const struct format *format_by_name(const char *name);

/* All rows, in table order; *count receives how many. */
const struct format *const *format_all(size_t *count);

/* Name of a type id that exists or existed but cannot be a weight here (removed, or activation only), or NULL. */
const char *format_refused_name(uint32_t id);

/* Kernel that serves n_tokens tokens on `tier`: the tier's own, or the next lower one's; never NULL run. */
const struct kernel *format_kernel(const struct format *f, enum cpu_tier tier, size_t n_tokens);

/* Bytes of a row of n elements; n must be a multiple of block_elements. */
static inline size_t format_row_bytes(const struct format *f, size_t n)
{
    return n / f->block_elements * f->block_bytes;
}

#endif
