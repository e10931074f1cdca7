/* Running a planned graph on one step of tokens: no allocation, no lock, no log. */
#ifndef GGUFD_EXEC_RUN_H
#define GGUFD_EXEC_RUN_H

#include <stdatomic.h>

#include "engine/exec/claim.h"
#include "engine/exec/graph.h"
#include "engine/exec/help.h"
#include "engine/exec/pool.h"

struct run {
    const struct graph *graph;
    struct pool *pool;
    struct kv *kv;
    unsigned char *arena;       /* graph->arena_bytes, aligned to 64 */
    atomic_ullong *steps;       /* counts finished nodes */
    const atomic_bool *cancel;  /* may be NULL */
    struct claims claims;       /* in the arena, at graph->claims_offset */
    struct help help;           /* likewise, at graph->help_offset */
    uint64_t generation;        /* of node 0 in this run; grows by n_nodes a run, never 0 */
    atomic_bool *abandoned;     /* set by a worker that saw `cancel` within a node and left units undone */
    bool stop[2];               /* agreed at barriers in turn: see run.c */

    /* The step. */
    const int32_t *tokens;      /* [rows[ROWS_BATCH]] */
    size_t position;            /* of the first token */
    size_t rows[ROWS_COUNT];
    size_t tail_first;          /* token of row 0 of ROWS_TAIL; rows[ROWS_TAIL] may be 0 */
    const uint32_t *wanted;     /* [rows[ROWS_WANTED]] rows of ROWS_TAIL */
    size_t node_begin, node_end;
    bool cancelled;
};

/* Nodes [node_begin, node_end) on all workers; STATUS_CANCELLED once `cancel` was seen: buffers are then undefined. */
enum status run_nodes(struct run *run);

/* Row r of a float buffer. */
float *run_floats(const struct run *run, int buffer, size_t row);

/* Scratch of a worker for chunks of rows between a product and its epilogue. */
size_t run_chunk_bytes(const struct graph *g);

#endif
