/* A mixture of experts for a batch: rows are sorted by expert, so that every expert's matrices are read once a step. */
#include "engine/exec/experts.h"

#include <string.h>

#include "engine/exec/run_node.h"
#include "engine/ops/elementwise.h"

enum { GROUP_ALIGN = 64 };

size_t experts_group_bytes(const struct activation_layout *layout, size_t width, size_t n)
{
    return (layout->bytes(width, n) + GROUP_ALIGN - 1) / GROUP_ALIGN * GROUP_ALIGN;
}

size_t experts_encoded_bytes(const struct activation_layout *layout, size_t width, size_t n_places, size_t n_experts)
{
    size_t tile = layout->token_tile ? layout->token_tile : 1, groups = n_places < n_experts ? n_places : n_experts;
    return experts_group_bytes(layout, width, n_places) +
           groups * (experts_group_bytes(layout, width, tile) + GROUP_ALIGN);
}

/* The choice buffer of a node of the mixture, for this step's rows. */
static struct choice node_choice(const struct run *run, int buffer, size_t *n)
{
    const struct graph_buffer *b = &run->graph->buffers[buffer];
    *n = run->rows[b->rows];
    return choice_at(run_bytes(run, buffer), *n, b->copies);
}

void node_route(const struct worker *worker, const struct node *node)
{
    const struct run *run = worker->run;
    const struct graph_buffer *b = &run->graph->buffers[node->out];
    size_t n, begin, end;
    struct choice c = node_choice(run, node->out, &n);
    worker_share(n, 1, worker->index, worker->count, &begin, &end);
    for (size_t t = begin; t < end; t++)
        ops_router(run->graph->tier, run_floats(run, node->in[0], t), b->width, b->copies, c.chosen + t * b->copies,
                   c.weights + t * b->copies);
}

/* Counting sort by expert; a few thousand steps at most, so one worker does it. */
void node_group(const struct worker *worker, const struct node *node)
{
    if (worker->index != 0)
        return;
    const struct graph_buffer *b = &worker->run->graph->buffers[node->out];
    size_t n, used = b->copies, n_experts = b->width;
    struct choice c = node_choice(worker->run, node->out, &n);
    memset(c.begin, 0, (n_experts + 1) * sizeof *c.begin);
    for (size_t i = 0; i < n * used; i++)
        c.begin[c.chosen[i] + 1]++;
    for (size_t e = 0; e < n_experts; e++)
        c.begin[e + 1] += c.begin[e];
    for (size_t i = 0; i < n * used; i++) {
        uint32_t place = c.begin[c.chosen[i]]++;
        c.place[i] = place;
        c.row[place] = (uint32_t)(i / used);
    }
    memmove(c.begin + 1, c.begin, n_experts * sizeof *c.begin); /* each begin had moved to its end */
    c.begin[0] = 0;
}

/* One expert's rows, and where their encodings stand in every slot of both modes. */
struct group {
    size_t expert, first, n;
    size_t offset[MODE_COUNT][ENCODING_SLOTS];
};

/* Steps to the next expert that has rows. `group` starts zeroed but for expert = SIZE_MAX. */
static bool group_next(const struct graph_buffer *encoded, const struct choice *c, size_t n_experts,
                       struct group *group)
{
    if (group->n) {
        int mode = rows_mode(group->n);
        for (int i = 0; i < encoded->encoding.n[mode]; i++)
            group->offset[mode][i] += experts_group_bytes(encoded->encoding.layout[mode][i], encoded->width, group->n);
    }
    for (size_t e = group->expert + 1; e < n_experts; e++)
        if (c->begin[e + 1] > c->begin[e]) {
            group->expert = e;
            group->first = c->begin[e];
            group->n = c->begin[e + 1] - c->begin[e];
            return true;
        }
    return false;
}

#define GROUP_START ((struct group){.expert = SIZE_MAX})

static unsigned group_index(const struct worker *worker, const struct group *group)
{
    return (unsigned)((worker->index + group->expert) % worker->count);
}

/* Encodes this worker's rows of one group; with `from`, gathers them first. */
static void group_encode(const struct worker *worker, const struct node *node, const struct group *group,
                         const struct choice *c, int floats, int from)
{
    const struct run *run = worker->run;
    const struct graph_buffer *b = &run->graph->buffers[node->out_encoded];
    int mode = rows_mode(group->n);
    size_t begin, end;
    worker_share(group->n, encoding_tile(&b->encoding, mode), group_index(worker, group), worker->count, &begin, &end);
    for (size_t t = begin; from >= 0 && t < end; t++)
        memcpy(run_floats(run, floats, group->first + t), run_floats(run, from, c->row[group->first + t]),
               b->width * sizeof(float));
    for (int i = 0; i < b->encoding.n[mode] && begin < end; i++)
        b->encoding.layout[mode][i]->encode(run_floats(run, floats, group->first), b->width, b->width, begin, end,
                                            group->n, run_bytes(run, node->out_encoded) +
                                                          b->encoding.offset[mode][i] + group->offset[mode][i]);
}

static void node_encode_groups(const struct worker *worker, const struct node *node, int floats, int from)
{
    const struct run *run = worker->run;
    const struct graph_buffer *b = &run->graph->buffers[node->out_encoded];
    size_t n;
    struct choice c = node_choice(run, node->in[1], &n);
    struct group group = GROUP_START;
    while (group_next(b, &c, (size_t)b->grouped, &group))
        group_encode(worker, node, &group, &c, floats, from);
}

void node_gather(const struct worker *worker, const struct node *node)
{
    node_encode_groups(worker, node, node->out, node->in[0]);
}

void node_expert_encode(const struct worker *worker, const struct node *node)
{
    node_encode_groups(worker, node, node->in[0], -1);
}

/* Expert e's rows of a stacked matrix. */
static struct matrix expert_matrix(const struct matrix *w, size_t expert, size_t n_experts)
{
    struct matrix part = *w;
    part.n_rows = w->n_rows / n_experts;
    part.data = (const unsigned char *)w->data + expert * part.n_rows * format_row_bytes(w->format, w->n_cols);
    return part;
}

static void node_expert_products(const struct worker *worker, const struct node *node)
{
    const struct run *run = worker->run;
    const struct graph *g = run->graph;
    const struct graph_buffer *encoded = &g->buffers[node->in[0]];
    size_t n, n_experts = (size_t)encoded->grouped;
    struct choice c = node_choice(run, node->in[1], &n);
    struct group group = GROUP_START;
    while (group_next(encoded, &c, n_experts, &group)) {
        struct matrix part[2];
        struct product_job job = {.n = group.n, .out = run_floats(run, node->out, group.first),
                                  .out_stride = g->buffers[node->out].width, .rotate = (unsigned)group.expert};
        for (int i = 0; i < 2 && node->w[i]; i++) {
            part[i] = expert_matrix(node->w[i], group.expert, n_experts);
            job.w[i] = &part[i];
            int slot = encoding_slot(g, encoded, &part[i], group.n), mode = rows_mode(group.n);
            job.x[i] = run_bytes(run, node->in[0]) + encoded->encoding.offset[mode][slot] + group.offset[mode][slot];
        }
        if (node->w[1])
            worker_gated(worker, &job);
        else
            worker_product(worker, &job);
    }
}

void node_expert_gated(const struct worker *worker, const struct node *node)
{
    node_expert_products(worker, node);
}

void node_expert_down(const struct worker *worker, const struct node *node)
{
    node_expert_products(worker, node);
}

/* y = o_0 * w_0, then + o_k * w_k in the order of choice, then + residual. The sum is made in the first expert's row:
 * every place belongs to one row. */
void node_expert_sum(const struct worker *worker, const struct node *node)
{
    const struct run *run = worker->run;
    const struct graph *g = run->graph;
    size_t n, begin, end, width = g->buffers[node->out].width, used = g->config.n_experts_used;
    struct choice c = node_choice(run, node->in[1], &n);
    worker_share(n, 1, worker->index, worker->count, &begin, &end);
    for (size_t t = begin; t < end; t++) {
        const uint32_t *place = c.place + t * used;
        const float *weights = c.weights + t * used;
        float *sum = run_floats(run, node->in[0], place[0]), *x = run_floats(run, node->out, t);
        ops_scale(g->tier, sum, weights[0], sum, width);
        for (size_t k = 1; k < used; k++)
            ops_add_scaled(g->tier, run_floats(run, node->in[0], place[k]), weights[k], sum, width);
        ops_add(g->tier, sum, x, x, width);
    }
}
