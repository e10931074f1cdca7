/* Executing nodes. Every worker walks the same list; a barrier stands where the plan put one. Worker 0 looks at the
 * cancel flag before each barrier and writes what it saw to stop[k & 1] of barrier k; all read it behind that barrier.
 * The slot is written again only before barrier k + 2, which worker 0 reaches after all have come to k + 1, hence have
 * read it. */
#include "engine/exec/run.h"

#include <string.h>

#include "engine/exec/run_node.h"
#include "engine/ops/attention.h"
#include "engine/ops/elementwise.h"

/* Floats of one chunk: small enough to stay in the second-level cache beside the weights that pass through. */
enum { CHUNK_FLOATS = 32768, SWIGLU_TILE = 4 };

/* Weights of one claim: long enough to read in a stream, short enough that workers end together. */
enum { CLAIM_BYTES = 128 << 10 };

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

/* ---- products ---- */

static size_t gcd(size_t a, size_t b)
{
    while (b) {
        size_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static size_t row_tile(const struct matrix *w, enum cpu_tier tier, size_t n)
{
    size_t tile = format_kernel(w->format, tier, n)->row_tile;
    return tile ? tile : 1;
}

/* Rows that the workers may not split, for both matrices and for the groups of four of SiLU. */
static size_t gated_tile(const struct product_job *job, enum cpu_tier tier)
{
    size_t a = row_tile(job->w[0], tier, job->n), b = row_tile(job->w[1], tier, job->n);
    size_t tile = a / gcd(a, b) * b;
    return tile / gcd(tile, SWIGLU_TILE) * SWIGLU_TILE;
}

/* Rows of a chunk: a multiple of tile, at least one tile. */
static size_t chunk_rows(size_t n, size_t tile)
{
    size_t rows = CHUNK_FLOATS / n / tile * tile;
    return rows ? rows : tile;
}

static size_t chunk_floats(size_t n, size_t tile)
{
    return chunk_rows(n, tile) * n;
}

/* The largest chunk of any product that needs one: two of them for gate and up. */
size_t run_chunk_bytes(const struct graph *g)
{
    size_t largest = 0;
    for (size_t i = 0; i < g->n_nodes; i++) {
        const struct node *node = &g->nodes[i];
        if (!node->w[0] || node->kind == NODE_EMBED || node->kind == NODE_PRODUCT)
            continue;
        size_t most = g->batch * (g->config.n_experts ? g->config.n_experts_used : 1);
        for (size_t n = 1; n <= most; n = n == most ? n + 1 : most < n * 2 ? most : n * 2) {
            struct product_job job = {.w = {node->w[0], node->w[1] ? node->w[1] : node->w[0]}, .n = n};
            size_t floats = 2 * chunk_floats(n, gated_tile(&job, g->tier));
            largest = floats > largest ? floats : largest;
        }
    }
    if (largest && largest < 2 * CHUNK_FLOATS)
        largest = 2 * CHUNK_FLOATS;
    return largest * sizeof(float);
}

/* Rows [begin, begin + n_rows) as a matrix of its own. */
static struct matrix matrix_rows(const struct matrix *w, size_t begin, size_t n_rows)
{
    struct matrix part = *w;
    part.data = (const unsigned char *)w->data + begin * format_row_bytes(w->format, w->n_cols);
    part.n_rows = n_rows;
    return part;
}

static void worker_chunk(const struct worker *worker, const struct product_job *job, int which, size_t begin,
                         size_t n_rows, float *out)
{
    struct matrix part = matrix_rows(job->w[which], begin, n_rows);
    enum cpu_tier tier = worker->run->graph->tier;
    matmul(&part, tier, job->x[which], job->n, 0, n_rows, out, n_rows, worker->scratch);
    if (job->bias[which])
        for (size_t t = 0; t < job->n; t++)
            ops_add(tier, out + t * n_rows, job->bias[which] + begin, out + t * n_rows, n_rows);
}

/* The rows of a job that this worker computes, a step at a time: claimed from all workers' shares, or its own fixed share
 * where jobs follow each other without a barrier. */
struct row_steps {
    const struct worker *worker;
    uint64_t generation; /* 0: fixed share [next, end) */
    size_t n_rows, step, next, end;
};

static struct row_steps row_steps(const struct worker *worker, const struct product_job *job, size_t tile)
{
    const struct matrix *w = job->w[0];
    struct row_steps s = {.worker = worker, .generation = job->generation, .n_rows = w->n_rows};
    s.step = chunk_rows(job->n, tile);
    if (s.generation == 0) {
        unsigned index = (worker->index + job->rotate) % worker->count;
        worker_share(w->n_rows, tile, index, worker->count, &s.next, &s.end);
        return s;
    }
    size_t rows = CLAIM_BYTES / format_row_bytes(w->format, w->n_cols) / tile * tile;
    s.step = rows < s.step ? (rows ? rows : tile) : s.step;
    size_t least = (w->n_rows + CLAIM_UNITS_MAX - 1) / CLAIM_UNITS_MAX;
    s.step = s.step < least ? (least + tile - 1) / tile * tile : s.step;
    return s;
}

/* The next unit of a node's claims; false as well once `cancel` is set, so that the longest node of a large model does not
 * hold a cancel up: the run then counts as cancelled, whatever the later nodes make of the rows that are missing. */
static bool unit_next(const struct worker *worker, uint64_t generation, size_t n_units, size_t *unit)
{
    const struct run *run = worker->run;
    if (run->cancel && atomic_load_explicit(run->cancel, memory_order_relaxed)) {
        atomic_store_explicit(run->abandoned, true, memory_order_relaxed);
        return false;
    }
    return claim_next(&run->claims, generation, worker->index, n_units, unit);
}

static bool row_steps_next(struct row_steps *s, size_t *begin, size_t *rows)
{
    size_t end = s->n_rows, unit;
    if (s->generation) {
        if (!unit_next(s->worker, s->generation, (s->n_rows + s->step - 1) / s->step, &unit))
            return false;
        *begin = unit * s->step;
    } else {
        if (s->next >= s->end)
            return false;
        *begin = s->next;
        s->next += s->step;
        end = s->end;
    }
    *rows = end - *begin < s->step ? end - *begin : s->step;
    return true;
}

void worker_product(const struct worker *worker, const struct product_job *job)
{
    enum cpu_tier tier = worker->run->graph->tier;
    struct row_steps steps = row_steps(worker, job, row_tile(job->w[0], tier, job->n));
    for (size_t r, rows; row_steps_next(&steps, &r, &rows);) {
        if (job->add)
            worker_chunk(worker, job, 0, r, rows, worker->chunk);
        else
            matmul(job->w[0], tier, job->x[0], job->n, r, r + rows, job->out, job->out_stride, worker->scratch);
        for (size_t t = 0; t < job->n; t++) {
            float *y = job->out + t * job->out_stride + r;
            if (job->add)
                ops_add(tier, worker->chunk + t * rows, y, y, rows);
            else if (job->bias[0])
                ops_add(tier, y, job->bias[0] + r, y, rows);
        }
    }
}

/* Shares and chunks start at multiples of four and end there or at the last row, so that a chunk's groups of four are
 * the whole row's. */
void worker_gated(const struct worker *worker, const struct product_job *job)
{
    enum cpu_tier tier = worker->run->graph->tier;
    struct row_steps steps = row_steps(worker, job, gated_tile(job, tier));
    for (size_t r, rows; row_steps_next(&steps, &r, &rows);) {
        float *gate = worker->chunk, *up = worker->chunk + rows * job->n;
        worker_chunk(worker, job, 0, r, rows, gate);
        worker_chunk(worker, job, 1, r, rows, up);
        for (size_t t = 0; t < job->n; t++)
            ops_swiglu(tier, gate + t * rows, up + t * rows, job->out + t * job->out_stride + r, rows, 0, rows);
    }
}

int encoding_slot(const struct graph *g, const struct graph_buffer *encoded, const struct matrix *w, size_t n)
{
    int mode = rows_mode(n), slot = 0;
    const struct activation_layout *layout = matmul_layout(w, g->tier, n);
    while (slot + 1 < encoded->encoding.n[mode] && encoded->encoding.layout[mode][slot] != layout)
        slot++;
    return slot;
}

static uint64_t node_generation(const struct run *run, const struct node *node)
{
    return run->generation + (uint64_t)(node - run->graph->nodes);
}

static struct product_job node_job(const struct worker *worker, const struct node *node)
{
    const struct run *run = worker->run;
    const struct graph_buffer *encoded = &run->graph->buffers[node->in[0]];
    struct product_job job = {.n = run_rows(run, encoded), .out = run_floats(run, node->out, 0),
                              .out_stride = run->graph->buffers[node->out].width,
                              .generation = node_generation(run, node)};
    for (int i = 0; i < 2 && node->w[i]; i++) {
        job.w[i] = node->w[i];
        job.bias[i] = node->bias[i];
        int slot = encoding_slot(run->graph, encoded, node->w[i], job.n);
        job.x[i] = run_bytes(run, node->in[0]) + encoded->encoding.offset[rows_mode(job.n)][slot];
    }
    return job;
}

static void node_product(const struct worker *worker, const struct node *node)
{
    struct product_job job = node_job(worker, node);
    job.add = node->kind == NODE_PRODUCT_ADD;
    if (job.n)
        worker_product(worker, &job);
}

static void node_gated(const struct worker *worker, const struct node *node)
{
    struct product_job job = node_job(worker, node);
    if (job.n)
        worker_gated(worker, &job);
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
        tile = tile / gcd(tile, other) * other;
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

static void node_attention(const struct worker *worker, const struct node *node)
{
    const struct run *run = worker->run;
    const struct graph *g = run->graph;
    const struct graph_buffer *out = &g->buffers[node->out];
    size_t first = out->rows == ROWS_TAIL ? run->tail_first : 0;
    struct attention a = {.kv = run->kv, .layer = node->layer, .n_heads = g->config.n_heads,
                          .position = run->position + first, .n_tokens = run_rows(run, out),
                          .q = run_floats(run, node->in[0], first), .out = run_floats(run, node->out, 0),
                          .q_stride = out->width, .out_stride = out->width};
    if (a.n_tokens == 0)
        return;
    size_t n_items = attention_items(&a, worker->count), unit;
    size_t step = (n_items + CLAIM_UNITS_MAX - 1) / CLAIM_UNITS_MAX, n_units = (n_items + step - 1) / step;
    while (unit_next(worker, node_generation(run, node), n_units, &unit))
        for (size_t item = unit * step; item < n_items && item < (unit + 1) * step; item++)
            attention_item(g->tier, &a, worker->count, item, worker->scratch);
}

/* ---- the walk ---- */

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
    unsigned barrier = 0;
    for (size_t i = run->node_begin; i < run->node_end; i++) {
        const struct node *node = &g->nodes[i];
        if (node_is_idle(run, node))
            continue;
        if (node->barrier) {
            if (index == 0)
                run->stop[barrier & 1] = run->cancel && atomic_load_explicit(run->cancel, memory_order_relaxed);
            pool_barrier(run->pool);
            if (run->stop[barrier++ & 1]) {
                if (index == 0)
                    run->cancelled = true;
                return;
            }
        }
        node_functions[node->kind](&worker, node);
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
