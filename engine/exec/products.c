/* Matrix products of a node: rows divided among the workers, and epilogues. See run_node.h. */
#include "engine/exec/run_node.h"
#include "engine/ops/elementwise.h"

/* Floats of one chunk: small enough to stay in the second-level cache beside the weights that pass through. */
enum { CHUNK_FLOATS = 32768, SWIGLU_TILE = 4 };

/* Weights of a unit, the least that is claimed, short enough that workers end together; and of the largest claim, which
 * bounds the time to a cancel. */
enum { UNIT_BYTES = 32 << 10, CLAIM_BYTES = 1 << 20 };

size_t least_multiple(size_t a, size_t b)
{
    size_t x = a, y = b;
    while (y) {
        size_t rest = x % y;
        x = y;
        y = rest;
    }
    return a / x * b;
}

static size_t row_tile(const struct matrix *w, enum cpu_tier tier, size_t n)
{
    size_t tile = format_kernel(w->format, tier, n)->row_tile;
    return tile ? tile : 1;
}

/* Rows that the workers may not split, for both matrices and for the groups of four of SiLU. */
static size_t gated_tile(const struct product_job *job, enum cpu_tier tier)
{
    size_t tile = least_multiple(row_tile(job->w[0], tier, job->n), row_tile(job->w[1], tier, job->n));
    return least_multiple(tile, SWIGLU_TILE);
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

/* The rows of a job that this worker computes, a range at a time: claimed from all workers' shares, or its own fixed share
 * where jobs follow each other without a barrier. */
struct row_steps {
    const struct worker *worker;
    uint64_t generation; /* 0: fixed share [next, end) */
    size_t n_rows, step, most, next, end; /* step: rows of a unit; most: units of a range */
};

static struct row_steps row_steps(const struct worker *worker, const struct product_job *job, size_t tile)
{
    const struct matrix *w = job->w[0];
    size_t row_bytes = format_row_bytes(w->format, w->n_cols), chunk = chunk_rows(job->n, tile);
    struct row_steps s = {.worker = worker, .generation = job->generation, .n_rows = w->n_rows, .step = chunk, .most = 1};
    if (s.generation == 0) {
        unsigned index = (worker->index + job->rotate) % worker->count;
        worker_share(w->n_rows, tile, index, worker->count, &s.next, &s.end);
        return s;
    }
    size_t rows = UNIT_BYTES / row_bytes / tile * tile, least = (w->n_rows + CLAIM_UNITS_MAX - 1) / CLAIM_UNITS_MAX;
    rows = rows > least ? rows : (least + tile - 1) / tile * tile;
    s.step = rows < chunk ? (rows ? rows : tile) : chunk;
    size_t most = CLAIM_BYTES / row_bytes / s.step;
    most = most < chunk / s.step ? most : chunk / s.step;
    s.most = most ? most : 1;
    return s;
}

static size_t row_units(const struct row_steps *s)
{
    return (s->n_rows + s->step - 1) / s->step;
}

bool claim_units(const struct worker *worker, uint64_t generation, size_t n_units, size_t most, struct claim *claim)
{
    const struct run *run = worker->run;
    if (run->cancel && atomic_load_explicit(run->cancel, memory_order_relaxed)) {
        atomic_store_explicit(run->abandoned, true, memory_order_relaxed);
        return false;
    }
    return claim_next(&run->claims, generation, worker->index, n_units, most, claim);
}

static bool row_steps_next(struct row_steps *s, size_t *begin, size_t *rows)
{
    struct claim claim;
    if (s->generation) {
        if (!claim_units(s->worker, s->generation, row_units(s), s->most, &claim))
            return false;
        *begin = claim.first * s->step;
        *rows = claim.count * s->step;
        if (*rows > s->n_rows - *begin)
            *rows = s->n_rows - *begin;
        return true;
    }
    if (s->next >= s->end)
        return false;
    *begin = s->next;
    *rows = s->end - s->next < s->step ? s->end - s->next : s->step;
    s->next += *rows;
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

uint64_t node_generation(const struct run *run, const struct node *node)
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

void node_product(const struct worker *worker, const struct node *node)
{
    struct product_job job = node_job(worker, node);
    job.add = node->kind == NODE_PRODUCT_ADD;
    if (job.n)
        worker_product(worker, &job);
}

void node_gated(const struct worker *worker, const struct node *node)
{
    struct product_job job = node_job(worker, node);
    if (job.n)
        worker_gated(worker, &job);
}

/* Of one matrix all of the worker's share, of two that are read in turns what it claims first. With more than one row the
 * weights are not what takes the time. */
struct stretch product_begins(const struct worker *worker, const struct node *node)
{
    struct product_job job = node_job(worker, node);
    enum cpu_tier tier = worker->run->graph->tier;
    if (job.n != 1)
        return (struct stretch){NULL, 0};
    size_t tile = node->kind == NODE_GATED ? gated_tile(&job, tier) : row_tile(job.w[0], tier, job.n);
    struct row_steps steps = row_steps(worker, &job, tile);
    size_t begin, end;
    claim_share(row_units(&steps), worker->index, worker->count, &begin, &end);
    if (begin == end)
        return (struct stretch){NULL, 0};
    size_t units = job.w[1] ? claim_size(end - begin, steps.most) : end - begin, first = begin * steps.step;
    size_t rows = units * steps.step < steps.n_rows - first ? units * steps.step : steps.n_rows - first;
    struct matrix part = matrix_rows(job.w[0], first, rows);
    return (struct stretch){part.data, rows * format_row_bytes(part.format, part.n_cols)};
}
