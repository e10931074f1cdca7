/* The graph builder refuses programs that are wrong, and the plan keeps apart what lives at once. */
#include <stdlib.h>
#include <string.h>

#include "engine/exec/graph.h"
#include "tests/support/suite.h"

enum { EMBD = 32, VOCAB = 10, HEADS = 2, KV_HEADS = 1, HEAD = 16, FF = 48 };

static float data[VOCAB * EMBD * 8]; /* weights nobody multiplies here; distinct addresses */

static struct matrix matrix(size_t n_cols, size_t n_rows)
{
    static size_t next;
    return (struct matrix){.format = format_by_name("F32"), .data = data + next++ % 64, .data_end = data + VOCAB * EMBD * 8,
                           .n_cols = n_cols, .n_rows = n_rows};
}

/* A correct program of n_layers layers but for what `fault` names. */
enum fault { NO_FAULT, WIDE_PRODUCT, WIDE_HEADS, NO_NORM_WEIGHT, UNREAD_BUFFER, LAYER_TWICE, LAYER_MISSING, NO_LOGITS,
             SHORT_LOGITS, NO_MATRIX, BAD_RESIDUAL, FAULTS };

struct weights {
    struct matrix embedding, q, kv, output, gate, up, down, logits, wrong;
};

static void build_layer(struct graph *g, const struct weights *w, size_t layer, int *x, bool last, enum fault fault)
{
    bool here = layer == 1;
    int h = graph_norm(g, "h", *x, here && fault == NO_NORM_WEIGHT ? NULL : data);
    int q = graph_product(g, "q", h, here && fault == WIDE_HEADS ? &w->kv : &w->q, NULL);
    int k = graph_product(g, "k", h, here && fault == NO_MATRIX ? NULL : &w->kv, NULL);
    int v = graph_product(g, "v", h, here && fault == WIDE_PRODUCT ? &w->wrong : &w->kv, data);
    if (here && fault == UNREAD_BUFFER)
        graph_product(g, "surplus", h, &w->kv, NULL);
    size_t stored = here && fault == LAYER_TWICE ? 0 : layer;
    graph_heads(g, stored, q, k, v, NULL, NULL);
    int att = graph_attention(g, stored, q, last);
    int before = *x;
    if (last)
        *x = graph_tail(g, *x);
    graph_product_add(g, att, &w->output, NULL, here && fault == BAD_RESIDUAL ? before : *x);
    h = graph_norm(g, "h", *x, data);
    graph_product_add(g, graph_gated(g, h, &w->gate, NULL, &w->up, NULL), &w->down, NULL, *x);
}

static struct weights weights_make(void)
{
    return (struct weights){.embedding = matrix(EMBD, VOCAB), .q = matrix(EMBD, HEADS * HEAD),
                            .kv = matrix(EMBD, KV_HEADS * HEAD), .output = matrix(HEADS * HEAD, EMBD),
                            .gate = matrix(EMBD, FF), .up = matrix(EMBD, FF), .down = matrix(FF, EMBD),
                            .logits = matrix(EMBD, VOCAB), .wrong = matrix(EMBD + 1, KV_HEADS * HEAD)};
}

static void build(struct graph *g, const struct weights *w, size_t n_layers, enum fault fault)
{
    struct graph_config c = {.n_embd = EMBD, .n_layers = n_layers, .n_heads = HEADS, .n_heads_kv = KV_HEADS,
                             .head_size = HEAD, .n_vocab = VOCAB, .rms_epsilon = 1e-5f};
    struct rope_options rope = ROPE_OPTIONS_DEFAULT;
    rope.n_dims = HEAD;
    rope.original_context = 64;
    rope_init(&c.rope, &rope);
    graph_init(g, &c, TIER_SCALAR);
    int x = graph_embed(g, &w->embedding);
    size_t built = n_layers - (fault == LAYER_MISSING);
    for (size_t layer = 0; layer < built; layer++)
        build_layer(g, w, layer, &x, layer + 1 == built, fault);
    int h = graph_norm(g, "out", graph_select(g, x), data);
    int logits = graph_product(g, "logits", h, fault == SHORT_LOGITS ? &w->kv : &w->logits, NULL);
    if (fault != NO_LOGITS)
        graph_logits(g, logits);
}

TEST(wrong_programs_are_refused_with_a_reason)
{
    static const char *const reasons[FAULTS] = {
        [WIDE_PRODUCT] = "rows have another length than h",
        [WIDE_HEADS] = "another width than its heads",
        [NO_NORM_WEIGHT] = "norm weight missing for h",
        [UNREAD_BUFFER] = "surplus",
        [LAYER_TWICE] = "stores layer 0, expected 1",
        [LAYER_MISSING] = "stores 2 of 3 layers",
        [NO_LOGITS] = "no logits",
        [SHORT_LOGITS] = "another shape than the vocabulary",
        [NO_MATRIX] = "matrix missing for h",
        [BAD_RESIDUAL] = "another shape than x",
    };
    struct weights w = weights_make();
    for (enum fault fault = 0; fault < FAULTS; fault++) {
        struct graph g;
        struct error err = {.text = ""};
        build(&g, &w, fault == BAD_RESIDUAL ? 2 : 3, fault);
        enum status s = graph_check(&g, &err);
        if ((s == STATUS_OK) != (fault == NO_FAULT) || (reasons[fault] && !strstr(err.text, reasons[fault])))
            ck_abort_msg("fault %d: \"%s\"", (int)fault, err.text);
        graph_clear(&g);
    }
}
END

static bool overlap(const struct graph *g, int a, int b)
{
    const struct graph_buffer *x = &g->buffers[a], *y = &g->buffers[b];
    return a >= 0 && b >= 0 && x->offset < y->offset + y->bytes && y->offset < x->offset + x->bytes;
}

/* Does `writer` write what `other` reads or writes? */
static bool disturbs(const struct graph *g, const struct node *writer, const struct node *other)
{
    int written[4] = {writer->out, writer->out_encoded, -1, -1};
    if (writer->kind == NODE_HEADS)
        written[2] = writer->in[1];
    for (int i = 0; i < 3; i++) {
        for (int j = 0; j < 4; j++)
            if (overlap(g, written[i], other->in[j]))
                return true;
        if (overlap(g, written[i], other->out) || overlap(g, written[i], other->out_encoded))
            return true;
    }
    return writer->kind == NODE_HEADS && other->kind == NODE_ATTENTION;
}

TEST(workers_meet_between_nodes_that_disturb_each_other)
{
    struct weights w = weights_make();
    struct graph g;
    struct error err;
    build(&g, &w, 3, NO_FAULT);
    ck_assert_int_eq(graph_check(&g, &err), STATUS_OK);
    ck_assert_int_eq(graph_plan(&g, 9, 64, 3, &err), STATUS_OK);
    size_t since = 0;
    for (size_t i = 0; i < g.n_nodes; i++) {
        if (g.nodes[i].barrier)
            since = i;
        for (size_t j = since; j < i; j++)
            if (disturbs(&g, &g.nodes[i], &g.nodes[j]) || disturbs(&g, &g.nodes[j], &g.nodes[i]))
                ck_abort_msg("nodes %zu and %zu have no barrier between them", j, i);
    }
    graph_clear(&g);
}
END

TEST(a_plan_with_two_live_buffers_in_one_place_is_found)
{
    struct weights w = weights_make();
    struct graph g;
    struct error err;
    build(&g, &w, 2, NO_FAULT);
    ck_assert_int_eq(graph_plan(&g, 4, 64, 2, &err), STATUS_OK);
    size_t n_found = 0;
    for (size_t i = 0; i < g.n_buffers; i++)
        for (size_t j = 0; j < g.n_buffers; j++) {
            size_t kept = g.buffers[i].offset;
            bool live = g.buffers[i].first <= g.buffers[j].last && g.buffers[j].first <= g.buffers[i].last;
            g.buffers[i].offset = g.buffers[j].offset;
            if (i != j && live) {
                ck_assert_int_ne(graph_check_plan(&g, &err), STATUS_OK);
                n_found++;
            }
            g.buffers[i].offset = kept;
        }
    ck_assert_int_eq(graph_check_plan(&g, &err), STATUS_OK);
    ck_assert_uint_gt(n_found, 20);
    graph_clear(&g);
}
END

TEST(dead_buffers_give_their_place_away)
{
    struct weights w = weights_make();
    size_t bytes[2];
    for (size_t i = 0; i < 2; i++) {
        struct graph g;
        struct error err;
        build(&g, &w, i ? 40 : 4, NO_FAULT);
        ck_assert_int_eq(graph_plan(&g, 16, 64, 1, &err), STATUS_OK);
        bytes[i] = g.buffers_bytes;
        graph_clear(&g);
    }
    ck_assert_uint_eq(bytes[0], bytes[1]); /* the arena does not grow with the layers */
}
END

SUITE(graph, T(wrong_programs_are_refused_with_a_reason), T(workers_meet_between_nodes_that_disturb_each_other),
      T(a_plan_with_two_live_buffers_in_one_place_is_found), T(dead_buffers_give_their_place_away))
