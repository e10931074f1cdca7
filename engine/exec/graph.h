/* The program of one model: rows of operations over a few named buffers, built once, checked once, run for every step.
 *
 * Not a general graph language: a node is one of a few fused operations, every buffer is a matrix of rows, and how many
 * rows a step has is known only when it runs. A model's file calls the builder functions below in order of execution;
 * they never fail: the first fault is remembered and graph_check reports it. A graph is
 * immutable after graph_plan and may be run by several sessions. */
#ifndef GGUFD_EXEC_GRAPH_H
#define GGUFD_EXEC_GRAPH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/error.h"
#include "engine/kv/kv.h"
#include "engine/ops/matmul.h"
#include "engine/ops/rope.h"

/* Which rows of a step a buffer holds. */
enum rows {
    ROWS_BATCH,  /* every token of the step */
    ROWS_TAIL,   /* the tokens from the first wanted one on: all that the last layer needs behind its K and V */
    ROWS_WANTED, /* one group of positions whose logits are wanted, at most GRAPH_WANTED_MAX */
    ROWS_COUNT
};
enum { GRAPH_WANTED_MAX = 16 };

/* One token takes the decode kernels, more take the prefill kernels; their layouts differ. */
enum { MODE_DECODE, MODE_PREFILL, MODE_COUNT };
static inline int rows_mode(size_t n_rows)
{
    return n_rows == 1 ? MODE_DECODE : MODE_PREFILL;
}

/* The encoded forms of a float buffer: one slot per distinct layout among the products that read it. */
enum { ENCODING_SLOTS = 4 };
struct encoding {
    int n[MODE_COUNT];
    const struct activation_layout *layout[MODE_COUNT][ENCODING_SLOTS];
    size_t offset[MODE_COUNT][ENCODING_SLOTS]; /* bytes from the buffer's start, set by the plan */
};

enum graph_buffer_kind {
    BUFFER_FLOATS,  /* [rows * copies][width] float */
    BUFFER_ENCODED, /* encodings of another buffer */
    BUFFER_CHOICE   /* which experts a token chose, see experts.h */
};

struct graph_buffer {
    const char *name;
    enum graph_buffer_kind kind;
    enum rows rows;
    size_t copies; /* rows per row of the step: 1, or the number of experts a token uses */
    size_t width;  /* elements of a row */
    int encoded;   /* FLOATS: buffer with its encodings, or -1 */
    int grouped;   /* ENCODED: number of experts whose groups are encoded apart, or 0 */
    struct encoding encoding;
    /* Set by graph_plan. */
    size_t bytes, offset;
    int first, last; /* nodes that write it first and touch it last */
};

#define NODE_TABLE(X)                                                                    \
    X(NODE_EMBED, "rows of the embedding matrix")                                        \
    X(NODE_ANGLES, "sines and cosines of every position")                                \
    X(NODE_NORM, "RMS norm, then its encodings")                                         \
    X(NODE_ENCODE, "encodings of a finished buffer")                                     \
    X(NODE_PRODUCT, "matrix product, bias")                                              \
    X(NODE_PRODUCT_ADD, "matrix product, bias, added to the residual stream")            \
    X(NODE_GATED, "gate and up products, biases, SwiGLU")                                \
    X(NODE_HEADS, "Q and K: norms, rotation, temperature; K and V into the cache")       \
    X(NODE_ATTENTION, "causal attention over the cache")                                 \
    X(NODE_TAIL, "rows from the first wanted one on")                                    \
    X(NODE_SELECT, "the wanted rows")                                                    \
    X(NODE_ROUTE, "choice and weights of experts")                                       \
    X(NODE_GROUP, "tokens sorted by expert")                                             \
    X(NODE_GATHER, "rows in the experts' order, then their encodings")                   \
    X(NODE_EXPERT_GATED, "gate and up products of every expert's rows, SwiGLU")          \
    X(NODE_EXPERT_ENCODE, "encodings of every expert's rows")                            \
    X(NODE_EXPERT_DOWN, "down product of every expert's rows")                           \
    X(NODE_EXPERT_SUM, "weighted sum over a token's experts, added to the residual stream")

enum node_kind {
#define X(id, what) id,
    NODE_TABLE(X)
#undef X
        NODE_KIND_COUNT
};

struct node {
    enum node_kind kind;
    int in[4];                  /* buffers read, -1: none; their meaning is the kind's */
    int out;                    /* buffer written (or, for *_ADD, *_SUM and HEADS: updated), -1: none */
    int out_encoded;            /* encodings written, -1: none */
    const struct matrix *w[2];  /* borrowed from the model */
    const float *bias[2];
    const float *norm[2];
    size_t layer;
    bool barrier;               /* set by graph_plan: workers meet before this node */
};

struct graph_config {
    size_t n_embd, n_layers, n_heads, n_heads_kv, head_size, n_vocab;
    size_t n_experts, n_experts_used; /* 0, or a mixture */
    float rms_epsilon;
    struct rope rope;
};

struct graph {
    struct graph_config config;
    enum cpu_tier tier;
    struct node *nodes;
    size_t n_nodes, node_capacity;
    struct graph_buffer *buffers;
    size_t n_buffers, buffer_capacity;
    size_t head_begin;  /* first node of the part that makes logits: SELECT */
    int angles, logits; /* buffers */
    /* Set by graph_plan. */
    size_t batch;
    unsigned n_workers;
    struct kv_config kv;
    size_t buffers_bytes, claims_offset, help_offset, arena_bytes;
    size_t worker_bytes, chunk_bytes; /* scratch of one worker; the part between products and their epilogues */
    struct error fault;               /* first fault of the builder */
    struct node sink;                 /* where the builder writes once it found no memory */
};

/* An empty program but for its first node, the rotation angles of every position. */
void graph_init(struct graph *g, const struct graph_config *config, enum cpu_tier tier);
void graph_clear(struct graph *g);

/* ---- builder: buffers are named by index; matrices and vectors are borrowed and must outlive the graph ---- */

int graph_embed(struct graph *g, const struct matrix *embedding);
int graph_norm(struct graph *g, const char *name, int x, const float *weight);
int graph_product(struct graph *g, const char *name, int x, const struct matrix *w, const float *bias);
/* residual = (w . x + bias) + residual */
void graph_product_add(struct graph *g, int x, const struct matrix *w, const float *bias, int residual);
int graph_gated(struct graph *g, int x, const struct matrix *gate, const float *gate_bias, const struct matrix *up,
                const float *up_bias);
/* Norms may be NULL. Q is normalised, rotated and scaled in place; K likewise, then K and V go to the cache. */
void graph_heads(struct graph *g, size_t layer, int q, int k, int v, const float *q_norm, const float *k_norm);
/* `tail`: only for the rows from the first wanted one on. */
int graph_attention(struct graph *g, size_t layer, int q, bool tail);
int graph_tail(struct graph *g, int x);
int graph_select(struct graph *g, int x);
/* residual += sum over the chosen experts of weight * down_e(swiglu(gate_e . x, up_e . x)). Matrices hold all experts'
 * rows one behind the other. */
void graph_experts(struct graph *g, int x, const struct matrix *router, const struct matrix *gate,
                   const struct matrix *up, const struct matrix *down, int residual);
/* Ends the program. */
void graph_logits(struct graph *g, int logits);

/* ---- once built ---- */

/* Faults of the builder, shapes, kinds, reading before writing, results nobody reads, layers without cache rows. */
enum status graph_check(const struct graph *g, struct error *err);

/* True when some node reads the weight that starts at `data`. */
bool graph_uses(const struct graph *g, const void *data);

/* Sizes, lifetimes and places of all buffers for steps of at most `batch` tokens in a cache of `context` positions on
 * n_workers workers; then where workers must meet. Needs a checked graph; allocates nothing of size. */
enum status graph_plan(struct graph *g, size_t batch, size_t context, unsigned n_workers, struct error *err);

/* Independent proof of the plan: no two buffers that live at once overlap. */
enum status graph_check_plan(const struct graph *g, struct error *err);

const char *node_what(enum node_kind kind);

#endif
