/* Places of all buffers in one arena, and where workers must meet. Lifetimes are intervals of nodes; a buffer takes the
 * lowest gap between the buffers that are alive with it. Everything is a multiple of 64 bytes. */
#include <stdlib.h>

#include "engine/exec/experts.h"
#include "engine/exec/graph.h"
#include "engine/exec/help.h"
#include "engine/exec/run.h"
#include "engine/ops/attention.h"

enum { PLAN_ALIGN = 64 };
#define PLAN_LIMIT ((size_t)1 << 46) /* 64 TiB: far below overflow, far above any machine */

static size_t align_up(size_t n)
{
    return (n + PLAN_ALIGN - 1) / PLAN_ALIGN * PLAN_ALIGN;
}

static size_t rows_max(const struct graph *g, enum rows rows)
{
    return rows == ROWS_WANTED ? GRAPH_WANTED_MAX : g->batch;
}

/* Bytes of an encoded buffer: its slots side by side; the two modes share the space. */
static size_t plan_encoded(struct graph *g, struct graph_buffer *b)
{
    size_t bytes = 0, n = rows_max(g, b->rows) * b->copies;
    for (int mode = 0; mode < MODE_COUNT; mode++) {
        size_t end = b->grouped && mode ? bytes : 0; /* groups of one row stand beside larger ones: share nothing */
        for (int i = 0; i < b->encoding.n[mode]; i++) {
            const struct activation_layout *layout = b->encoding.layout[mode][i];
            b->encoding.offset[mode][i] = end;
            if (b->grouped)
                end += align_up(experts_encoded_bytes(layout, b->width, n, (size_t)b->grouped));
            else
                end += align_up(layout->bytes(b->width, mode == MODE_DECODE ? 1 : n));
        }
        bytes = end > bytes ? end : bytes;
    }
    return bytes;
}

static size_t plan_bytes(struct graph *g, struct graph_buffer *b)
{
    size_t n = rows_max(g, b->rows);
    switch (b->kind) {
    case BUFFER_FLOATS:
        return align_up(n * b->copies * b->width * sizeof(float));
    case BUFFER_ENCODED:
        return plan_encoded(g, b);
    case BUFFER_CHOICE:
        return align_up(choice_bytes(n, b->copies, b->width));
    }
    return 0;
}

static void plan_touch(struct graph *g, int buffer, size_t node)
{
    if (buffer < 0)
        return;
    struct graph_buffer *b = &g->buffers[buffer];
    if (b->first < 0)
        b->first = (int)node;
    b->last = (int)node;
}

static void plan_lifetimes(struct graph *g)
{
    for (size_t i = 0; i < g->n_buffers; i++)
        g->buffers[i].first = g->buffers[i].last = -1;
    for (size_t i = 0; i < g->n_nodes; i++) {
        for (int j = 0; j < 4; j++)
            plan_touch(g, g->nodes[i].in[j], i);
        plan_touch(g, g->nodes[i].out, i);
        plan_touch(g, g->nodes[i].out_encoded, i);
    }
    /* The part that makes logits may run several times over what the rest left behind. */
    for (size_t i = 0; i < g->n_buffers; i++)
        if ((size_t)g->buffers[i].first < g->head_begin && (size_t)g->buffers[i].last >= g->head_begin)
            g->buffers[i].last = (int)g->n_nodes - 1;
    g->buffers[g->logits].last = (int)g->n_nodes;
}

static bool buffers_meet(const struct graph_buffer *a, const struct graph_buffer *b)
{
    return a->first <= b->last && b->first <= a->last;
}

static bool buffers_overlap(const struct graph_buffer *a, const struct graph_buffer *b)
{
    return a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
}

/* Lowest offset at which `b` fits among the n live buffers, which are sorted by offset. */
static size_t plan_gap(const struct graph *g, const size_t *live, size_t n, const struct graph_buffer *b)
{
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        const struct graph_buffer *other = &g->buffers[live[i]];
        if (other->offset >= at + b->bytes)
            break;
        if (other->offset + other->bytes > at)
            at = other->offset + other->bytes;
    }
    return at;
}

/* Buffers are created in the order of their first use, up to encodings, so that one pass suffices: drop the dead, place
 * the new one, keep the live ones sorted. */
static enum status plan_places(struct graph *g, struct error *err)
{
    size_t *live = malloc(g->n_buffers * sizeof *live), n = 0;
    if (!live)
        return error_no_memory(err, g->n_buffers * sizeof *live, "planning the graph");
    g->buffers_bytes = 0;
    for (size_t node = 0; node < g->n_nodes; node++) {
        size_t kept = 0;
        for (size_t i = 0; i < n; i++)
            if (g->buffers[live[i]].last >= (int)node)
                live[kept++] = live[i];
        n = kept;
        const int made[3] = {g->nodes[node].out, g->nodes[node].out_encoded, -1};
        for (int j = 0; made[j] >= 0 || j == 0; j++) {
            if (made[j] < 0 || g->buffers[made[j]].first != (int)node)
                continue;
            struct graph_buffer *b = &g->buffers[made[j]];
            b->offset = plan_gap(g, live, n, b);
            size_t at = n++;
            for (; at > 0 && g->buffers[live[at - 1]].offset > b->offset; at--)
                live[at] = live[at - 1];
            live[at] = (size_t)made[j];
            if (b->offset + b->bytes > g->buffers_bytes)
                g->buffers_bytes = b->offset + b->bytes;
        }
    }
    free(live);
    return STATUS_OK;
}

/* What a node reads or writes of one buffer. */
struct touch {
    int buffer;
    bool writes;
};

enum { TOUCHES = 7 };
static int node_touches(const struct node *node, struct touch *out)
{
    int n = 0;
    for (int j = 0; j < 4; j++)
        if (node->in[j] >= 0)
            out[n++] = (struct touch){node->in[j], node->kind == NODE_HEADS && j < 2};
    if (node->out >= 0)
        out[n++] = (struct touch){node->out, true};
    if (node->out_encoded >= 0)
        out[n++] = (struct touch){node->out_encoded, true};
    return n;
}

/* True when the workers of `later` must not start before all have finished `earlier`. */
static bool nodes_conflict(const struct graph *g, const struct node *earlier, const struct node *later)
{
    if (earlier->kind == NODE_HEADS && later->kind == NODE_ATTENTION)
        return true; /* through the cache */
    struct touch a[TOUCHES], b[TOUCHES];
    int n_a = node_touches(earlier, a), n_b = node_touches(later, b);
    for (int i = 0; i < n_a; i++)
        for (int j = 0; j < n_b; j++)
            if ((a[i].writes || b[j].writes) &&
                buffers_overlap(&g->buffers[a[i].buffer], &g->buffers[b[j].buffer]))
                return true;
    return false;
}

static void plan_barriers(struct graph *g)
{
    size_t since = 0; /* first node behind the last barrier */
    for (size_t i = 0; i < g->n_nodes; i++) {
        bool barrier = i == g->head_begin || i - since >= CLAIM_SETS - 1;
        for (size_t j = since; j < i && !barrier; j++)
            barrier = nodes_conflict(g, &g->nodes[j], &g->nodes[i]);
        g->nodes[i].barrier = barrier;
        if (barrier)
            since = i;
    }
}

static size_t max_size(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Scratch of one worker: a product's own, and the chunks between products and their epilogues; or attention's. */
static size_t plan_worker(const struct graph *g)
{
    size_t products = 0;
    for (size_t i = 0; i < g->n_nodes; i++)
        for (int j = 0; j < 2; j++)
            if (g->nodes[i].w[j] && g->nodes[i].kind != NODE_EMBED) {
                const struct matrix *w = g->nodes[i].w[j];
                size_t n = g->batch * (g->config.n_experts ? g->config.n_experts_used : 1);
                n = max_size(n, GRAPH_WANTED_MAX);
                products = max_size(products, matmul_scratch_bytes(w, g->tier, 1));
                products = max_size(products, matmul_scratch_bytes(w, g->tier, n));
                products = max_size(products, matmul_scratch_bytes(w, g->tier, 2));
            }
    size_t attention = attention_scratch_bytes(&g->kv, g->config.n_heads, g->batch);
    return max_size(align_up(products) + align_up(g->chunk_bytes), align_up(attention));
}

enum status graph_plan(struct graph *g, size_t batch, size_t context, unsigned n_workers, struct error *err)
{
    const struct graph_config *c = &g->config;
    g->batch = batch;
    g->n_workers = n_workers;
    g->kv = (struct kv_config){.n_layers = c->n_layers, .n_heads = c->n_heads_kv, .head_size = c->head_size,
                               .n_positions = context};
    plan_lifetimes(g);
    for (size_t i = 0; i < g->n_buffers; i++) {
        struct graph_buffer *b = &g->buffers[i];
        if (b->width > PLAN_LIMIT / (batch + GRAPH_WANTED_MAX) / b->copies / 16)
            return error_set(err, STATUS_RANGE, "buffer %s: %zu rows of %zu values are too large", b->name,
                             batch * b->copies, b->width);
        b->bytes = plan_bytes(g, b);
    }
    enum status status = plan_places(g, err);
    if (status != STATUS_OK)
        return status;
    plan_barriers(g);
    g->chunk_bytes = align_up(run_chunk_bytes(g));
    g->worker_bytes = plan_worker(g);
    g->claims_offset = g->buffers_bytes + g->worker_bytes * n_workers;
    g->help_offset = g->claims_offset + claims_bytes(n_workers);
    g->arena_bytes = g->help_offset + help_bytes(n_workers);
    return graph_check_plan(g, err);
}

enum status graph_check_plan(const struct graph *g, struct error *err)
{
    for (size_t i = 0; i < g->n_buffers; i++)
        for (size_t j = i + 1; j < g->n_buffers; j++) {
            const struct graph_buffer *a = &g->buffers[i], *b = &g->buffers[j];
            if (buffers_meet(a, b) && buffers_overlap(a, b))
                return error_set(err, STATUS_INVALID, "graph buffers %s (%zu) and %s (%zu) live at once and overlap",
                                 a->name, i, b->name, j);
        }
    return STATUS_OK;
}
