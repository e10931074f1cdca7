/* What the files that execute nodes share. */
#ifndef GGUFD_EXEC_RUN_NODE_H
#define GGUFD_EXEC_RUN_NODE_H

#include "engine/exec/run.h"

/* One worker on its way through the graph. */
struct worker {
    const struct run *run;
    unsigned index, count;
    unsigned char *scratch;     /* a product's own, or attention's */
    float *chunk;               /* run_chunk_bytes() */
};

/* Contiguous share [*begin, *end) of n items in multiples of `tile`. */
void worker_share(size_t n, size_t tile, unsigned index, unsigned count, size_t *begin, size_t *end);

/* Rows a buffer has in this step, copies included. */
size_t run_rows(const struct run *run, const struct graph_buffer *b);

static inline unsigned char *run_bytes(const struct run *run, int buffer)
{
    return run->arena + run->graph->buffers[buffer].offset;
}

/* One product of n_rows encoded rows, this worker's share of matrix rows, with epilogue. */
struct product_job {
    const struct matrix *w[2];  /* w[1]: up, then out = silu(w[0] . x) * (w[1] . x) */
    const void *x[2];           /* encodings in their layouts */
    const float *bias[2];
    size_t n;                   /* rows of x */
    float *out;
    size_t out_stride;
    bool add;                   /* out = (product + bias) + out */
    uint64_t generation;        /* of the claims that divide the rows; 0: fixed shares, for jobs without a barrier between */
    unsigned rotate;            /* shares start at this worker, so that small jobs in a row spread */
};
void worker_product(const struct worker *worker, const struct product_job *job);
void worker_gated(const struct worker *worker, const struct product_job *job);

/* Slot of `encoded` that holds the layout w needs for n rows. */
int encoding_slot(const struct graph *g, const struct graph_buffer *encoded, const struct matrix *w, size_t n);

/* Rows that workers may not split when they encode: least common multiple of the token tiles of all layouts. */
size_t encoding_tile(const struct encoding *e, int mode);

/* experts.c */
void node_route(const struct worker *worker, const struct node *node);
void node_group(const struct worker *worker, const struct node *node);
void node_gather(const struct worker *worker, const struct node *node);
void node_expert_gated(const struct worker *worker, const struct node *node);
void node_expert_encode(const struct worker *worker, const struct node *node);
void node_expert_down(const struct worker *worker, const struct node *node);
void node_expert_sum(const struct worker *worker, const struct node *node);

#endif
