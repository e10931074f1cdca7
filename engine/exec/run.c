/* Executing nodes. Every worker walks the same list; a barrier stands where the plan put one. Worker 0 looks at the
 * cancel flag before each barrier and writes what it saw to stop[k & 1] of barrier k; all read it behind that barrier.
 * The slot is written again only before barrier k + 2, which worker 0 reaches after all have come to k + 1, hence have
 * read it. */
#include "engine/exec/run.h"

#include <string.h>

#include "engine/cpu/cpu.h"
#include "engine/exec/run_node.h"
#include "engine/ops/attention.h"
#include "engine/ops/elementwise.h"

size_t run_rows(const struct run *run, const struct graph_buffer *b)
{
    return run->rows[b->rows] * b->copies;
}

float *run_floats(const struct run *run, int buffer, size_t row)
{
    return (float *)(void *)run_bytes(run, buffer) + row * run->graph->buffers[buffer].width;
}

void worker_share(size_t n, size_t tile, unsigned index, unsigned count, size_t *begin, size_t *end)
{
    size_t tiles = (n + tile - 1) / tile;
    size_t first = tiles * index / count * tile, last = tiles * (index + 1) / count * tile;
    *begin = first < n ? first : n;
    *end = last < n ? last : n;
}

/* ---- rows ---- */

static void node_embed(const struct worker *worker, const struct node *node)
{
    const struct run *run = worker->run;
    const struct matrix *w = node->w[0];
    size_t begin, end, row_bytes = format_row_bytes(w->format, w->n_cols);
    worker_share(run->rows[ROWS_BATCH], 1, worker->index, worker->count, &begin, &end);
    for (size_t t = begin; t < end; t++)
        w->format->dequantize((const unsigned char *)w->data + (size_t)run->tokens[t] * row_bytes,
                              run_floats(run, node->out, t), w->n_cols);
}

/* A row: cosines, sines, temperature. */
static void node_angles(const struct worker *worker, const struct node *node)
{
    const struct run *run = worker->run;
    const struct rope *rope = &run->graph->config.rope;
    size_t begin, end, half = rope->options.n_dims / 2;
    worker_share(run->rows[ROWS_BATCH], 1, worker->index, worker->count, &begin, &end);
    for (size_t t = begin; t < end; t++) {
        float *row = run_floats(run, node->out, t);
        rope_angles(rope, run->position + t, row, row + half);
        row[2 * half] = rope_temperature(rope, run->position + t);
    }
}

size_t encoding_tile(const struct encoding *e, int mode)
{
    size_t tile = 1;
    for (int i = 0; i < e->n[mode]; i++) {
        size_t other = e->layout[mode][i]->token_tile ? e->layout[mode][i]->token_tile : 1;
        tile = least_multiple(tile, other);
    }
    return tile;
}

static void encode_rows(const struct run *run, int floats, int encoded, size_t begin, size_t end)
{
    const struct graph_buffer *b = &run->graph->buffers[encoded];
    size_t n = run_rows(run, b);
    int mode = rows_mode(n);
    for (int i = 0; i < b->encoding.n[mode] && begin < end; i++)
        b->encoding.layout[mode][i]->encode(run_floats(run, floats, 0), b->width, b->width, begin, end, n,
                                            run_bytes(run, encoded) + b->encoding.offset[mode][i]);
}

/* Whole token tiles, so that no two workers write one tile. */
static void encode_share(const struct worker *worker, int encoded, size_t *begin, size_t *end)
{
    const struct graph_buffer *b = &worker->run->graph->buffers[encoded];
    size_t n = run_rows(worker->run, b);
    worker_share(n, encoding_tile(&b->encoding, rows_mode(n)), worker->index, worker->count, begin, end);
}

static void node_norm(const struct worker *worker, const struct node *node)
{
    const struct run *run = worker->run;
    const struct graph *g = run->graph;
    size_t begin, end, n = g->buffers[node->out].width;
    encode_share(worker, node->out_encoded, &begin, &end);
    if (begin >= end)
        return;
    struct rms_norm norm = {.x = run_floats(run, node->in[0], begin), .weight = node->norm[0],
                            .out = run_floats(run, node->out, begin), .n = n, .n_rows = end - begin,
                            .x_stride = n, .out_stride = n, .epsilon = g->config.rms_epsilon};
    ops_rms_norm(g->tier, &norm);
    encode_rows(run, node->out, node->out_encoded, begin, end);
}

static void node_encode(const struct worker *worker, const struct node *node)
{
    size_t begin, end;
    encode_share(worker, node->out_encoded, &begin, &end);
    encode_rows(worker->run, node->in[0], node->out_encoded, begin, end);
}

static void node_tail(const struct worker *worker, const struct node *node)
{
    const struct run *run = worker->run;
    size_t begin, end, width = run->graph->buffers[node->out].width;
    worker_share(run->rows[ROWS_TAIL], 1, worker->index, worker->count, &begin, &end);
    if (begin < end)
        memcpy(run_floats(run, node->out, begin), run_floats(run, node->in[0], run->tail_first + begin),
               (end - begin) * width * sizeof(float));
}

static void node_select(const struct worker *worker, const struct node *node)
{
    const struct run *run = worker->run;
    size_t begin, end, width = run->graph->buffers[node->out].width;
    worker_share(run->rows[ROWS_WANTED], 1, worker->index, worker->count, &begin, &end);
    for (size_t t = begin; t < end; t++)
        memcpy(run_floats(run, node->out, t), run_floats(run, node->in[0], run->wanted[t]), width * sizeof(float));
}

/* ---- attention ---- */

static void heads_norm(const struct graph *g, const float *weight, float *x, size_t n_heads)
{
    size_t n = g->config.head_size;
    struct rms_norm norm = {.x = x, .weight = weight, .out = x, .n = n, .n_rows = n_heads, .x_stride = n,
                            .out_stride = n, .epsilon = g->config.rms_epsilon};
    ops_rms_norm(g->tier, &norm);
}

static void heads_row(const struct worker *worker, const struct node *node, size_t t)
{
    const struct run *run = worker->run;
    const struct graph *g = run->graph;
    const struct graph_config *c = &g->config;
    const float *angles = run_floats(run, node->in[3], t);
    const float *sines = angles + c->head_size / 2, temperature = angles[c->head_size];
    float *q = run_floats(run, node->in[0], t), *k = run_floats(run, node->in[1], t);
    if (node->norm[0])
        heads_norm(g, node->norm[0], q, c->n_heads);
    if (node->norm[1])
        heads_norm(g, node->norm[1], k, c->n_heads_kv);
    rope_apply(g->tier, &c->rope, angles, sines, q, c->n_heads);
    rope_apply(g->tier, &c->rope, angles, sines, k, c->n_heads_kv);
    if (c->rope.options.temperature_scale != 0)
        ops_scale(g->tier, q, temperature, q, c->n_heads * c->head_size);
}

static void node_heads(const struct worker *worker, const struct node *node)
{
    const struct run *run = worker->run;
    size_t begin, end, width = run->graph->buffers[node->in[1]].width;
    worker_share(run->rows[ROWS_BATCH], 1, worker->index, worker->count, &begin, &end);
    if (begin >= end)
        return;
    for (size_t t = begin; t < end; t++)
        heads_row(worker, node, t);
    struct attention_store store = {.kv = run->kv, .layer = node->layer, .position = run->position + begin,
                                    .n_tokens = end - begin, .k = run_floats(run, node->in[1], begin),
                                    .v = run_floats(run, node->in[2], begin), .k_stride = width, .v_stride = width};
    attention_store_share(run->graph->tier, &store, 0, 1);
}

static struct attention node_queries(const struct run *run, const struct node *node)
{
    const struct graph *g = run->graph;
    const struct graph_buffer *out = &g->buffers[node->out];
    size_t first = out->rows == ROWS_TAIL ? run->tail_first : 0;
    return (struct attention){.kv = run->kv, .layer = node->layer, .n_heads = g->config.n_heads,
                              .position = run->position + first, .n_tokens = run_rows(run, out),
                              .q = run_floats(run, node->in[0], first), .out = run_floats(run, node->out, 0),
                              .q_stride = out->width, .out_stride = out->width};
}

static void node_attention(const struct worker *worker, const struct node *node)
{
    const struct run *run = worker->run;
    struct attention a = node_queries(run, node);
    struct help_giver giver = {&run->help, worker->index};
    struct attention_help help = {help_wanted, help_give, help_take_back, &giver};
    if (a.n_tokens == 0)
        return;
    a.help = &help;
    struct claim claim;
    size_t n_items = attention_items(&a, worker->count);
    size_t step = (n_items + CLAIM_UNITS_MAX - 1) / CLAIM_UNITS_MAX, n_units = (n_items + step - 1) / step;
    while (claim_units(worker, node_generation(run, node), n_units, 1, &claim))
        for (size_t item = claim.first * step; item < n_items && item < (claim.first + 1) * step; item++)
            attention_item(run->graph->tier, &a, worker->count, item, worker->scratch);
}

/* Keys of the worker's first item. */
static struct stretch attention_begins(const struct worker *worker, const struct node *node)
{
    struct attention a = node_queries(worker->run, node);
    struct stretch s = {NULL, 0};
    if (a.n_tokens != 1)
        return s;
    size_t begin, end;
    claim_share(attention_items(&a, worker->count), worker->index, worker->count, &begin, &end);
    if (begin < end)
        s.at = attention_item_keys(&a, worker->count, begin, &s.bytes);
    return s;
}

/* ---- kinds of nodes ---- */

typedef void node_function(const struct worker *worker, const struct node *node);
static node_function *const node_functions[NODE_KIND_COUNT] = {
    [NODE_EMBED] = node_embed,
    [NODE_ANGLES] = node_angles,
    [NODE_NORM] = node_norm,
    [NODE_ENCODE] = node_encode,
    [NODE_PRODUCT] = node_product,
    [NODE_PRODUCT_ADD] = node_product,
    [NODE_GATED] = node_gated,
    [NODE_HEADS] = node_heads,
    [NODE_ATTENTION] = node_attention,
    [NODE_TAIL] = node_tail,
    [NODE_SELECT] = node_select,
    [NODE_ROUTE] = node_route,
    [NODE_GROUP] = node_group,
    [NODE_GATHER] = node_gather,
    [NODE_EXPERT_GATED] = node_expert_gated,
    [NODE_EXPERT_ENCODE] = node_expert_encode,
    [NODE_EXPERT_DOWN] = node_expert_down,
    [NODE_EXPERT_SUM] = node_expert_sum,
};

/* ---- fetching ahead ---- */

typedef struct stretch begins_function(const struct worker *worker, const struct node *node);
static begins_function *const begins_functions[NODE_KIND_COUNT] = {
    [NODE_PRODUCT] = product_begins,
    [NODE_PRODUCT_ADD] = product_begins,
    [NODE_GATED] = product_begins,
    [NODE_ATTENTION] = attention_begins,
};

/* What a worker that waits at a barrier asks its second-level cache for: the beginning of the next node that reads much,
 * as far as the cache can hold it beside all else. */
enum { AHEAD_BYTES = 512 << 10, AHEAD_STEP = 512 };

struct ahead {
    const struct node *node;
    const char *at, *end; /* what is left */
};

static void ahead_seek(const struct worker *worker, struct ahead *ahead, const struct node *next)
{
    const struct node *end = worker->run->graph->nodes + worker->run->node_end;
    while (next < end && !begins_functions[next->kind])
        next++;
    if (next == end || next == ahead->node)
        return;
    struct stretch s = begins_functions[next->kind](worker, next);
    *ahead = (struct ahead){next, s.at, s.bytes ? s.at + (s.bytes < AHEAD_BYTES ? s.bytes : AHEAD_BYTES) : s.at};
}

/* A few lines more. */
static bool ahead_fetch(struct ahead *ahead)
{
    if (ahead->at >= ahead->end)
        return false;
    for (size_t i = 0; i < AHEAD_STEP; i += 64)
        __builtin_prefetch(ahead->at + i, 0, 2);
    ahead->at += AHEAD_STEP;
    return true;
}

/* ---- waiting ---- */

/* Behind attention a worker looks so often for pieces of the others' work before it goes to sleep. */
enum { LOOKS = 4096 };

struct waiting {
    const struct worker *worker;
    struct ahead ahead;
    bool may_help;
    unsigned looks; /* left; the worker counts as idle meanwhile */
};

static void waiting_end(struct waiting *w)
{
    if (w->looks)
        help_idle(&w->worker->run->help, false);
    w->looks = 0;
    w->may_help = false;
}

static bool help_others(struct waiting *w)
{
    const struct run *run = w->worker->run;
    if (w->may_help && !w->looks) {
        w->looks = LOOKS;
        help_idle(&run->help, true);
    }
    if (!w->looks || help_one(&run->help, w->worker->index, run->graph->tier, w->worker->scratch))
        return w->looks != 0;
    if (w->looks == 1)
        waiting_end(w);
    else
        w->looks--;
    return true;
}

/* A pool_idle_function. */
static bool wait_usefully(void *context)
{
    struct waiting *w = context;
    bool helps = help_others(w), fetches = ahead_fetch(&w->ahead);
    if (helps && !fetches)
        cpu_pause();
    return helps || fetches;
}

/* ---- the walk ---- */

/* Rows a node works on; a node without rows needs no barrier either, and all workers see that alike. */
static bool node_is_idle(const struct run *run, const struct node *node)
{
    int buffer = node->out >= 0 ? node->out : node->out_encoded;
    return run->rows[run->graph->buffers[buffer].rows] == 0;
}

static void run_worker(void *context, unsigned index, unsigned count)
{
    struct run *run = context;
    const struct graph *g = run->graph;
    struct worker worker = {.run = run, .index = index, .count = count};
    worker.scratch = run->arena + g->buffers_bytes + index * g->worker_bytes;
    worker.chunk = (float *)(void *)(worker.scratch + g->worker_bytes - g->chunk_bytes);
    struct waiting waiting = {.worker = &worker};
    const struct node *before = NULL;
    unsigned barrier = 0;
    for (size_t i = run->node_begin; i < run->node_end; i++) {
        const struct node *node = &g->nodes[i];
        if (node_is_idle(run, node))
            continue;
        if (node->barrier) {
            if (index == 0)
                run->stop[barrier & 1] = run->cancel && atomic_load_explicit(run->cancel, memory_order_relaxed);
            ahead_seek(&worker, &waiting.ahead, node);
            waiting.may_help = before && before->kind == NODE_ATTENTION;
            pool_barrier(run->pool, wait_usefully, &waiting);
            waiting_end(&waiting);
            if (run->stop[barrier++ & 1]) {
                if (index == 0)
                    run->cancelled = true;
                return;
            }
        }
        node_functions[node->kind](&worker, node);
        before = node;
        if (index == 0)
            atomic_fetch_add_explicit(run->steps, 1, memory_order_relaxed);
    }
}

enum status run_nodes(struct run *run)
{
    run->cancelled = false;
    atomic_store_explicit(run->abandoned, false, memory_order_relaxed);
    pool_run(run->pool, run_worker, run);
    run->generation += run->graph->n_nodes;
    bool abandoned = atomic_load_explicit(run->abandoned, memory_order_relaxed); /* ordered by the pool's last barrier */
    return run->cancelled || abandoned ? STATUS_CANCELLED : STATUS_OK;
}
