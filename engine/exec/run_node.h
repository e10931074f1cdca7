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
/* The next units of a node's claims, at most `most`; false as well once the run's `cancel` is set, so that the longest
 * node of a large model does not hold a cancel up: the run then counts as cancelled, whatever the later nodes make of the
 * rows that are missing. */
bool claim_units(const struct worker *worker, uint64_t generation, size_t n_units, size_t most, struct claim *claim);
uint64_t node_generation(const struct run *run, const struct node *node);

/* Memory that a worker reads first, in one stream, when it comes to a node; bytes may be 0. */
struct stretch {
    const char *at;
    size_t bytes;
};

/* products.c */
struct stretch product_begins(const struct worker *worker, const struct node *node);
void node_product(const struct worker *worker, const struct node *node);
void node_gated(const struct worker *worker, const struct node *node);
void worker_product(const struct worker *worker, const struct product_job *job);
void worker_gated(const struct worker *worker, const struct product_job *job);

/* Slot of `encoded` that holds the layout w needs for n rows. */
int encoding_slot(const struct graph *g, const struct graph_buffer *encoded, const struct matrix *w, size_t n);

size_t least_multiple(size_t a, size_t b); /* common, of two positive numbers */

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
