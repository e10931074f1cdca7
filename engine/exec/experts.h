/* The choice buffer of a mixture of experts: which experts every row chose, and the rows sorted by expert. */
#ifndef GGUFD_EXEC_EXPERTS_H
#define GGUFD_EXEC_EXPERTS_H

#include "engine/exec/graph.h"

/* n rows chose `used` experts each; a place is one such pair. Places are grouped by expert, rows ascending inside:
 * expert e has places begin[e] .. begin[e + 1] - 1. */
struct choice {
    uint32_t *chosen; /* [n][used] experts in descending order of weight */
    float *weights;   /* [n][used] */
    uint32_t *place;  /* [n][used] where the pair went */
    uint32_t *row;    /* [n * used] row of a place */
    uint32_t *begin;  /* [n_experts + 1] */
};

static inline size_t choice_bytes(size_t n, size_t used, size_t n_experts)
{
    return (n * used * 4 + n_experts + 1) * sizeof(uint32_t);
}

static inline struct choice choice_at(void *data, size_t n, size_t used)
{
    uint32_t *p = data;
    size_t pairs = n * used;
    return (struct choice){p, (float *)(p + pairs), p + 2 * pairs, p + 3 * pairs, p + 4 * pairs};
}

/* Bytes of the encodings of all groups in one layout: every group may be padded to a tile. */
size_t experts_encoded_bytes(const struct activation_layout *layout, size_t width, size_t n_places, size_t n_experts);

/* Bytes of one group's encodings, a multiple of 64. */
size_t experts_group_bytes(const struct activation_layout *layout, size_t width, size_t n);

#endif
