/* Activation blocks, canonical layout, and what the scalar kernels of all formats share. */
#ifndef GGUFD_QUANT_ACTIVATION_H
#define GGUFD_QUANT_ACTIVATION_H

#include "engine/base/f16.h"
#include "engine/quant/quant.h"

struct act_q8_0 {
    uint16_t d; /* F16 */
    int8_t q[32];
};
_Static_assert(sizeof(struct act_q8_0) == 34, "Q8_0 block");

struct act_q8_1 {
    uint16_t d, s; /* F16; s = sum of q, times the scale before its rounding to F16 */
    int8_t q[32];
};
_Static_assert(sizeof(struct act_q8_1) == 36, "Q8_1 block");

struct act_q8_k {
    float d;
    int8_t q[256];      /* -127..127 */
    int16_t sums[16];   /* of 16 q each */
};
_Static_assert(sizeof(struct act_q8_k) == 292, "Q8_K block");

/* Sum of the 32 q of group g. */
static inline int16_t act_q8_k_sum32(const struct act_q8_k *block, size_t g)
{
    return (int16_t)(block->sums[2 * g] + block->sums[2 * g + 1]);
}

/* Tokens one after the other, each its canonical blocks: the layout of every scalar kernel. One row per encoding. */
extern const struct activation_layout layout_canonical[ACT_COUNT];

static inline size_t activation_row_bytes(enum activation a, size_t n)
{
    const struct activation_format *f = activation_format(a);
    return n / f->block_elements * f->block_bytes;
}

/* The scalar kernel of a format: its dot for every row and token. */
static inline void product_by_dot(const struct product *p, enum activation a,
                                  float (*dot)(const void *row, const void *act_blocks, size_t n))
{
    size_t x_bytes = activation_row_bytes(a, p->n_cols);
    for (size_t r = p->row_begin; r < p->row_end; r++)
        for (size_t t = 0; t < p->n_tokens; t++)
            p->y[t * p->y_stride + r] = dot((const char *)p->weights + r * p->row_bytes,
                                            (const char *)p->x + t * x_bytes, p->n_cols);
}

/* In a format's file: SCALAR_KERNEL(q8_0, ACT_Q8_0) defines what [TIER_SCALAR] = SCALAR(q8_0, ACT_Q8_0) refers to. */
#define SCALAR_KERNEL(name, act)                          \
    static void name##_scalar(const struct product *p)    \
    {                                                     \
        product_by_dot(p, act, name##_dot);               \
    }
#define SCALAR(name, act) {.layout = &layout_canonical[act], .run = name##_scalar, .row_tile = 1}

#endif
