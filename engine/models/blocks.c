/* The pieces that the architectures share. Absent optional weights are NULL and add nothing. */
#include "engine/models/architecture.h"

void block_attention(const struct model *m, struct graph *g, size_t layer, int *x)
{
    const struct layer *l = &m->layers[layer];
    bool last = layer + 1 == m->hparams.n_layers;
    int h = graph_norm(g, "attn norm", *x, l->attn_norm.vector);
    int q = graph_product(g, "q", h, &l->attn_q.matrix, l->attn_q_bias.vector);
    int k = graph_product(g, "k", h, &l->attn_k.matrix, l->attn_k_bias.vector);
    int v = graph_product(g, "v", h, &l->attn_v.matrix, l->attn_v_bias.vector);
    graph_heads(g, layer, q, k, v, l->attn_q_norm.vector, l->attn_k_norm.vector);
    int att = graph_attention(g, layer, q, last);
    if (last)
        *x = graph_tail(g, *x);
    graph_product_add(g, att, &l->attn_output.matrix, l->attn_output_bias.vector, *x);
}

void block_feed_forward(const struct model *m, struct graph *g, size_t layer, int x)
{
    const struct layer *l = &m->layers[layer];
    int h = graph_norm(g, "ffn norm", x, l->ffn_norm.vector);
    if (m->hparams.n_experts) {
        graph_experts(g, h, &l->router.matrix, &l->gate_experts.matrix, &l->up_experts.matrix,
                      &l->down_experts.matrix, x);
        return;
    }
    int act = graph_gated(g, h, &l->ffn_gate.matrix, l->ffn_gate_bias.vector, &l->ffn_up.matrix,
                          l->ffn_up_bias.vector);
    graph_product_add(g, act, &l->ffn_down.matrix, l->ffn_down_bias.vector, x);
}

void block_decoder(const struct model *m, struct graph *g)
{
    int x = graph_embed(g, &m->token_embd.matrix);
    for (size_t layer = 0; layer < m->hparams.n_layers; layer++) {
        block_attention(m, g, layer, &x);
        block_feed_forward(m, g, layer, x);
    }
    x = graph_select(g, x);
    int h = graph_norm(g, "output norm", x, m->output_norm.vector);
    const struct weight *output = m->output.tensor ? &m->output : &m->token_embd;
    graph_logits(g, graph_product(g, "logits", h, &output->matrix, m->output_bias.vector));
}
