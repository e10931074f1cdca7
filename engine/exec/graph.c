/* Building a graph and checking it. What a fault would mean is a bug in a model's file, or a file's shapes that the
 * binder let pass; both are reported with the node's number and nothing is run. */
#include "engine/exec/graph.h"

#include <stdlib.h>
#include <string.h>

const char *node_what(enum node_kind kind)
{
    static const char *const what[] = {
#define X(id, text) text,
        NODE_TABLE(X)
#undef X
    };
    return what[kind];
}

static void graph_fault(struct graph *g, const char *what, const char *name)
{
    if (g->fault.status == STATUS_OK)
        error_set(&g->fault, STATUS_INVALID, "graph node %zu: %s%s%s", g->n_nodes, what, name ? " " : "",
                  name ? name : "");
}

/* Doubles an array of `size`-byte elements so that one more fits; false without memory. */
static bool graph_grow(struct graph *g, void **array, size_t count, size_t *capacity, size_t size)
{
    if (count < *capacity)
        return true;
    size_t wanted = *capacity ? *capacity * 2 : 64;
    void *grown = realloc(*array, wanted * size);
    if (!grown) {
        if (g->fault.status == STATUS_OK)
            error_no_memory(&g->fault, wanted * size, "the graph");
        return false;
    }
    *array = grown;
    *capacity = wanted;
    return true;
}

static int graph_buffer_new(struct graph *g, const char *name, enum graph_buffer_kind kind, enum rows rows,
                            size_t copies, size_t width)
{
    void *array = g->buffers;
    if (!graph_grow(g, &array, g->n_buffers, &g->buffer_capacity, sizeof *g->buffers))
        return -1;
    g->buffers = array;
    g->buffers[g->n_buffers] = (struct graph_buffer){.name = name, .kind = kind, .rows = rows, .copies = copies,
                                                     .width = width, .encoded = -1, .first = -1, .last = -1};
    return (int)g->n_buffers++;
}

static struct node *graph_node_new(struct graph *g, enum node_kind kind)
{
    void *array = g->nodes;
    if (!graph_grow(g, &array, g->n_nodes, &g->node_capacity, sizeof *g->nodes))
        return &g->sink;
    g->nodes = array;
    g->nodes[g->n_nodes] = (struct node){.kind = kind, .in = {-1, -1, -1, -1}, .out = -1, .out_encoded = -1};
    return &g->nodes[g->n_nodes++];
}

/* A builder's operand: buffer `index` if it holds floats, else a fault is remembered and NULL returned. */
static struct graph_buffer *graph_floats(struct graph *g, int index)
{
    if (g->fault.status != STATUS_OK)
        return NULL;
    if (index < 0 || (size_t)index >= g->n_buffers || g->buffers[index].kind != BUFFER_FLOATS) {
        graph_fault(g, "operand is no float buffer", NULL);
        return NULL;
    }
    return &g->buffers[index];
}

void graph_init(struct graph *g, const struct graph_config *config, enum cpu_tier tier)
{
    *g = (struct graph){.config = *config, .tier = tier, .angles = -1, .logits = -1};
    g->angles = graph_buffer_new(g, "angles", BUFFER_FLOATS, ROWS_BATCH, 1, config->head_size + 1);
    graph_node_new(g, NODE_ANGLES)->out = g->angles;
}

void graph_clear(struct graph *g)
{
    free(g->nodes);
    free(g->buffers);
    *g = (struct graph){.angles = -1, .logits = -1};
}

/* The encodings of x, empty at first; products add the layouts they need. */
static int graph_encoded_new(struct graph *g, int x, int grouped)
{
    struct graph_buffer b = g->buffers[x];
    int encoded = graph_buffer_new(g, b.name, BUFFER_ENCODED, b.rows, b.copies, b.width);
    if (encoded < 0)
        return -1;
    g->buffers[encoded].grouped = grouped;
    g->buffers[x].encoded = encoded;
    return encoded;
}

static void encoding_add(struct graph *g, struct encoding *e, int mode, const struct activation_layout *layout)
{
    for (int i = 0; i < e->n[mode]; i++)
        if (e->layout[mode][i] == layout)
            return;
    if (e->n[mode] == ENCODING_SLOTS)
        graph_fault(g, "too many activation layouts", NULL);
    else
        e->layout[mode][e->n[mode]++] = layout;
}

/* Declares that w will be multiplied with x: the shapes must agree, x gets encoded if it was not. */
static void graph_operand(struct graph *g, int x, const struct matrix *w)
{
    struct graph_buffer *b = graph_floats(g, x);
    if (!b)
        return;
    if (!w || w->n_cols != b->width) {
        graph_fault(g, w ? "matrix rows have another length than" : "matrix missing for", b->name);
        return;
    }
    if (b->encoded < 0) {
        int encoded = graph_encoded_new(g, x, 0);
        if (encoded < 0)
            return;
        struct node *node = graph_node_new(g, NODE_ENCODE);
        node->in[0] = x;
        node->out_encoded = encoded;
    }
    struct encoding *e = &g->buffers[g->buffers[x].encoded].encoding;
    encoding_add(g, e, MODE_DECODE, matmul_layout(w, g->tier, 1));
    encoding_add(g, e, MODE_PREFILL, matmul_layout(w, g->tier, 2));
}

int graph_embed(struct graph *g, const struct matrix *embedding)
{
    if (embedding->n_cols != g->config.n_embd)
        graph_fault(g, "embedding rows have another length than", "x");
    int x = graph_buffer_new(g, "x", BUFFER_FLOATS, ROWS_BATCH, 1, g->config.n_embd);
    struct node *node = graph_node_new(g, NODE_EMBED);
    node->w[0] = embedding;
    node->out = x;
    return x;
}

int graph_norm(struct graph *g, const char *name, int x, const float *weight)
{
    if (!graph_floats(g, x))
        return -1;
    if (!weight)
        graph_fault(g, "norm weight missing for", name);
    int h = graph_buffer_new(g, name, BUFFER_FLOATS, g->buffers[x].rows, 1, g->buffers[x].width);
    if (h < 0)
        return -1;
    int encoded = graph_encoded_new(g, h, 0);
    struct node *node = graph_node_new(g, NODE_NORM);
    node->in[0] = x;
    node->out = h;
    node->out_encoded = encoded;
    node->norm[0] = weight;
    return h;
}

int graph_product(struct graph *g, const char *name, int x, const struct matrix *w, const float *bias)
{
    graph_operand(g, x, w);
    if (g->fault.status != STATUS_OK)
        return -1;
    int y = graph_buffer_new(g, name, BUFFER_FLOATS, g->buffers[x].rows, 1, w->n_rows);
    struct node *node = graph_node_new(g, NODE_PRODUCT);
    node->in[0] = g->buffers[x].encoded;
    node->w[0] = w;
    node->bias[0] = bias;
    node->out = y;
    return y;
}

void graph_product_add(struct graph *g, int x, const struct matrix *w, const float *bias, int residual)
{
    graph_operand(g, x, w);
    struct graph_buffer *r = graph_floats(g, residual);
    if (!r)
        return;
    if (r->width != w->n_rows || r->rows != g->buffers[x].rows)
        graph_fault(g, "product has another shape than", r->name);
    struct node *node = graph_node_new(g, NODE_PRODUCT_ADD);
    node->in[0] = g->buffers[x].encoded;
    node->in[1] = residual;
    node->w[0] = w;
    node->bias[0] = bias;
    node->out = residual;
}

int graph_gated(struct graph *g, int x, const struct matrix *gate, const float *gate_bias, const struct matrix *up,
                const float *up_bias)
{
    graph_operand(g, x, gate);
    graph_operand(g, x, up);
    if (g->fault.status != STATUS_OK)
        return -1;
    if (gate->n_rows != up->n_rows)
        graph_fault(g, "gate and up differ in rows", NULL);
    int y = graph_buffer_new(g, "act", BUFFER_FLOATS, g->buffers[x].rows, 1, up->n_rows);
    struct node *node = graph_node_new(g, NODE_GATED);
    node->in[0] = g->buffers[x].encoded;
    node->w[0] = gate;
    node->w[1] = up;
    node->bias[0] = gate_bias;
    node->bias[1] = up_bias;
    node->out = y;
    return y;
}

void graph_heads(struct graph *g, size_t layer, int q, int k, int v, const float *q_norm, const float *k_norm)
{
    const struct graph_config *c = &g->config;
    if (!graph_floats(g, q) || !graph_floats(g, k) || !graph_floats(g, v))
        return;
    size_t kv_width = c->n_heads_kv * c->head_size;
    if (g->buffers[q].width != c->n_heads * c->head_size || g->buffers[k].width != kv_width ||
        g->buffers[v].width != kv_width)
        graph_fault(g, "Q, K or V has another width than its heads", NULL);
    struct node *node = graph_node_new(g, NODE_HEADS);
    node->in[0] = q;
    node->in[1] = k;
    node->in[2] = v;
    node->in[3] = g->angles;
    node->out = q;
    node->norm[0] = q_norm;
    node->norm[1] = k_norm;
    node->layer = layer;
}

int graph_attention(struct graph *g, size_t layer, int q, bool tail)
{
    if (!graph_floats(g, q))
        return -1;
    int out = graph_buffer_new(g, "att", BUFFER_FLOATS, tail ? ROWS_TAIL : ROWS_BATCH, 1, g->buffers[q].width);
    struct node *node = graph_node_new(g, NODE_ATTENTION);
    node->in[0] = q;
    node->out = out;
    node->layer = layer;
    return out;
}

static int graph_rows(struct graph *g, enum node_kind kind, int x, enum rows rows)
{
    if (!graph_floats(g, x))
        return -1;
    int y = graph_buffer_new(g, g->buffers[x].name, BUFFER_FLOATS, rows, 1, g->buffers[x].width);
    struct node *node = graph_node_new(g, kind);
    node->in[0] = x;
    node->out = y;
    return y;
}

int graph_tail(struct graph *g, int x)
{
    return graph_rows(g, NODE_TAIL, x, ROWS_TAIL);
}

int graph_select(struct graph *g, int x)
{
    g->head_begin = g->n_nodes;
    return graph_rows(g, NODE_SELECT, x, ROWS_WANTED);
}

/* A node of the mixture: reads `in`, `choice` and, if given, `x`. */
static struct node *graph_expert_node(struct graph *g, enum node_kind kind, int in, int choice, int out)
{
    struct node *node = graph_node_new(g, kind);
    node->in[0] = in;
    node->in[1] = choice;
    node->out = out;
    return node;
}

void graph_experts(struct graph *g, int x, const struct matrix *router, const struct matrix *gate,
                   const struct matrix *up, const struct matrix *down, int residual)
{
    size_t n = g->config.n_experts, used = g->config.n_experts_used;
    int scores = graph_product(g, "router", x, router, NULL);
    if (scores < 0)
        return;
    size_t width = g->buffers[x].width, n_ff = up->n_rows / n;
    enum rows rows = g->buffers[x].rows;
    if (router->n_rows != n || gate->n_rows != up->n_rows || up->n_rows % n || down->n_rows % n ||
        down->n_cols != n_ff || down->n_rows / n != width || !graph_floats(g, residual)) {
        graph_fault(g, "experts' matrices differ in shape", NULL);
        return;
    }
    int choice = graph_buffer_new(g, "choice", BUFFER_CHOICE, rows, used, n);
    graph_expert_node(g, NODE_ROUTE, scores, -1, choice);
    graph_expert_node(g, NODE_GROUP, -1, choice, choice);
    int rows_in = graph_buffer_new(g, "expert in", BUFFER_FLOATS, rows, used, width);
    int act = graph_buffer_new(g, "expert act", BUFFER_FLOATS, rows, used, n_ff);
    int out = graph_buffer_new(g, "expert out", BUFFER_FLOATS, rows, used, width);
    if (choice < 0 || rows_in < 0 || act < 0 || out < 0)
        return;
    int in_encoded = graph_encoded_new(g, rows_in, (int)n), act_encoded = graph_encoded_new(g, act, (int)n);
    if (in_encoded < 0 || act_encoded < 0)
        return;
    graph_expert_node(g, NODE_GATHER, x, choice, rows_in)->out_encoded = in_encoded;
    graph_operand(g, rows_in, gate);
    graph_operand(g, rows_in, up);
    struct node *gated = graph_expert_node(g, NODE_EXPERT_GATED, in_encoded, choice, act);
    gated->w[0] = gate;
    gated->w[1] = up;
    graph_expert_node(g, NODE_EXPERT_ENCODE, act, choice, -1)->out_encoded = act_encoded;
    graph_operand(g, act, down);
    graph_expert_node(g, NODE_EXPERT_DOWN, act_encoded, choice, out)->w[0] = down;
    graph_expert_node(g, NODE_EXPERT_SUM, out, choice, residual)->in[2] = residual;
}

void graph_logits(struct graph *g, int logits)
{
    struct graph_buffer *b = graph_floats(g, logits);
    if (b && (b->width != g->config.n_vocab || b->rows != ROWS_WANTED))
        graph_fault(g, "logits have another shape than the vocabulary", NULL);
    g->logits = logits;
}

bool graph_uses(const struct graph *g, const void *data)
{
    for (size_t i = 0; i < g->n_nodes; i++) {
        const struct node *node = &g->nodes[i];
        for (int j = 0; j < 2; j++)
            if ((node->w[j] && node->w[j]->data == data) || (const void *)node->bias[j] == data ||
                (const void *)node->norm[j] == data)
                return true;
    }
    return data && data == (const void *)g->config.rope.options.frequency_factors;
}

/* Marks what a node touches: 1 = written, 2 = read behind that. */
static enum status graph_check_node(const struct graph *g, size_t i, unsigned char *state, struct error *err)
{
    const struct node *node = &g->nodes[i];
    for (int j = 0; j < 4; j++) {
        if (node->in[j] < 0)
            continue;
        if (!state[node->in[j]])
            return error_set(err, STATUS_INVALID, "graph node %zu (%s) reads buffer %s before it is written", i,
                             node_what(node->kind), g->buffers[node->in[j]].name);
        state[node->in[j]] = 2;
    }
    if (node->out >= 0 && !state[node->out])
        state[node->out] = 1;
    if (node->out_encoded >= 0)
        state[node->out_encoded] = 1;
    return STATUS_OK;
}

/* Every layer stores its K and V exactly once, and before it is attended to. */
static enum status graph_check_layers(const struct graph *g, struct error *err)
{
    size_t stored = 0;
    for (size_t i = 0; i < g->n_nodes; i++) {
        const struct node *node = &g->nodes[i];
        if (node->kind == NODE_HEADS && node->layer != stored++)
            return error_set(err, STATUS_INVALID, "graph node %zu stores layer %zu, expected %zu", i, node->layer,
                             stored - 1);
        if (node->kind == NODE_ATTENTION && node->layer + 1 != stored)
            return error_set(err, STATUS_INVALID, "graph node %zu attends to layer %zu after storing %zu layers", i,
                             node->layer, stored);
    }
    if (stored != g->config.n_layers)
        return error_set(err, STATUS_INVALID, "the graph stores %zu of %zu layers", stored, g->config.n_layers);
    return STATUS_OK;
}

enum status graph_check(const struct graph *g, struct error *err)
{
    if (g->fault.status != STATUS_OK)
        return error_set(err, g->fault.status, "%s", g->fault.text);
    if (g->logits < 0)
        return error_set(err, STATUS_INVALID, "the graph has no logits");
    unsigned char *state = calloc(g->n_buffers, 1);
    if (!state)
        return error_no_memory(err, g->n_buffers, "checking the graph");
    enum status status = STATUS_OK;
    for (size_t i = 0; i < g->n_nodes && status == STATUS_OK; i++)
        status = graph_check_node(g, i, state, err);
    state[g->logits] = state[g->logits] == 1 ? 2 : state[g->logits];
    for (size_t b = 0; b < g->n_buffers && status == STATUS_OK; b++)
        if (g->buffers[b].kind != BUFFER_FLOATS || g->buffers[b].encoded < 0) {
            if (state[b] != 2)
                status = error_set(err, STATUS_INVALID, "graph buffer %s (%zu) is %s", g->buffers[b].name, b,
                                   state[b] ? "never read" : "never written");
        }
    free(state);
    return status != STATUS_OK ? status : graph_check_layers(g, err);
}
