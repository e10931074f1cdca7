/* What an architecture's file consists of: which metadata keys it reads, which tensors it needs, how its graph is
 * built. Shared rows and blocks are here, so that a file says only what is special. */
#ifndef GGUFD_MODELS_ARCHITECTURE_H
#define GGUFD_MODELS_ARCHITECTURE_H

#include <float.h>
#include <stddef.h>

#include "engine/models/model.h"

/* ---- metadata keys ---- */

enum key_type { KEY_END, KEY_U32, KEY_UNIFORM /* u32, or an array whose entries are equal */, KEY_F32, KEY_SCALING };
enum need { OPTIONAL, REQUIRED };

/* "<architecture>.<name>" goes to hparams + offset; absent optional keys keep the value that is there. */
struct key_row {
    const char *name;
    enum key_type type;
    enum need need;
    size_t offset;
    double low, high; /* allowed, inclusive */
};

#define KEY(name, type, need, field, low, high) \
    {name, KEY_##type, need, offsetof(struct hparams, field), low, high}

/* Ranges keep every size below overflow, every divisor away from zero and every product of them finite. */
#define KEYS_COMMON                                                                                      \
    KEY("context_length", U32, REQUIRED, context_trained, 1, 1 << 30),                                   \
    KEY("embedding_length", U32, REQUIRED, n_embd, 1, 1 << 20),                                          \
    KEY("block_count", U32, REQUIRED, n_layers, 1, 512),                                                 \
    KEY("feed_forward_length", UNIFORM, REQUIRED, n_ff, 1, 1 << 24),                                     \
    KEY("attention.head_count", UNIFORM, REQUIRED, n_heads, 1, 1 << 16),                                 \
    KEY("attention.head_count_kv", UNIFORM, OPTIONAL, n_heads_kv, 1, 1 << 16),                           \
    KEY("attention.key_length", U32, OPTIONAL, head_size, 2, 1 << 16),                                   \
    KEY("attention.value_length", U32, OPTIONAL, value_size, 2, 1 << 16),                                \
    KEY("attention.layer_norm_rms_epsilon", F32, REQUIRED, rms_epsilon, (double)FLT_MIN, 1),             \
    KEY("rope.dimension_count", U32, OPTIONAL, rope.n_dims, 2, 1 << 16),                                 \
    KEY("rope.freq_base", F32, OPTIONAL, rope.base, 1 + (double)FLT_EPSILON, 1e30),                      \
    KEY("rope.scaling.type", SCALING, OPTIONAL, rope.scaling, 0, 0),                                     \
    KEY("rope.scaling.factor", F32, OPTIONAL, factor, 0, 1e6),                                           \
    KEY("rope.scale_linear", F32, OPTIONAL, scale_linear, 0, 1e6),                                       \
    KEY("rope.scaling.attn_factor", F32, OPTIONAL, rope.attention_factor, 1e-6, 1e6),                    \
    KEY("rope.scaling.original_context_length", U32, OPTIONAL, rope.original_context, 0, 1 << 30)

#define KEYS_EXPERTS                                                                                     \
    KEY("expert_count", U32, OPTIONAL, n_experts, 0, 512),                                               \
    KEY("expert_used_count", U32, OPTIONAL, n_experts_used, 0, 512)

#define KEYS_END {NULL, KEY_END, OPTIONAL, 0, 0, 0}

/* ---- tensors ---- */

enum dim { DIM_NONE, DIM_EMBD, DIM_VOCAB, DIM_Q, DIM_KV, DIM_FF, DIM_HEAD, DIM_ROPE, DIM_EXPERTS };
enum when { ALWAYS, DENSE /* no experts */, EXPERTS };

/* One tensor: name (in layer tables behind "blk.N."), dimensions innermost first, where its weight goes. A vector (one
 * dimension) must be F32; a matrix may have any format whose blocks divide its rows. */
struct tensor_row {
    const char *name;
    size_t offset; /* in struct model or struct layer */
    enum need need;
    enum when when;
    enum dim dims[3];
};

#define TENSOR(name, field, need, when, ...) {name, offsetof(struct model, field), need, when, {__VA_ARGS__}}
#define LAYER(name, field, need, when, ...) {name, offsetof(struct layer, field), need, when, {__VA_ARGS__}}
#define TENSORS_END {NULL, 0, OPTIONAL, ALWAYS, {DIM_NONE}}

#define TENSORS_COMMON                                                           \
    TENSOR("token_embd.weight", token_embd, REQUIRED, ALWAYS, DIM_EMBD, DIM_VOCAB), \
    TENSOR("output_norm.weight", output_norm, REQUIRED, ALWAYS, DIM_EMBD),          \
    TENSOR("output.weight", output, OPTIONAL, ALWAYS, DIM_EMBD, DIM_VOCAB)
#define TENSORS_ROPE_FREQS TENSOR("rope_freqs.weight", rope_freqs, OPTIONAL, ALWAYS, DIM_ROPE)

#define LAYER_ATTENTION                                                          \
    LAYER("attn_norm.weight", attn_norm, REQUIRED, ALWAYS, DIM_EMBD),            \
    LAYER("attn_q.weight", attn_q, REQUIRED, ALWAYS, DIM_EMBD, DIM_Q),           \
    LAYER("attn_k.weight", attn_k, REQUIRED, ALWAYS, DIM_EMBD, DIM_KV),          \
    LAYER("attn_v.weight", attn_v, REQUIRED, ALWAYS, DIM_EMBD, DIM_KV),          \
    LAYER("attn_q.bias", attn_q_bias, OPTIONAL, ALWAYS, DIM_Q),                  \
    LAYER("attn_k.bias", attn_k_bias, OPTIONAL, ALWAYS, DIM_KV),                 \
    LAYER("attn_v.bias", attn_v_bias, OPTIONAL, ALWAYS, DIM_KV),                 \
    LAYER("attn_output.weight", attn_output, REQUIRED, ALWAYS, DIM_Q, DIM_EMBD)
#define LAYER_ATTENTION_OUTPUT_BIAS \
    LAYER("attn_output.bias", attn_output_bias, OPTIONAL, ALWAYS, DIM_EMBD)
#define LAYER_FEED_FORWARD                                                       \
    LAYER("ffn_norm.weight", ffn_norm, REQUIRED, ALWAYS, DIM_EMBD),              \
    LAYER("ffn_gate.weight", ffn_gate, REQUIRED, DENSE, DIM_EMBD, DIM_FF),       \
    LAYER("ffn_up.weight", ffn_up, REQUIRED, DENSE, DIM_EMBD, DIM_FF),           \
    LAYER("ffn_down.weight", ffn_down, REQUIRED, DENSE, DIM_FF, DIM_EMBD)
#define LAYER_FEED_FORWARD_BIAS                                                  \
    LAYER("ffn_gate.bias", ffn_gate_bias, OPTIONAL, DENSE, DIM_FF),              \
    LAYER("ffn_up.bias", ffn_up_bias, OPTIONAL, DENSE, DIM_FF),                  \
    LAYER("ffn_down.bias", ffn_down_bias, OPTIONAL, DENSE, DIM_EMBD)
#define LAYER_EXPERTS                                                            \
    LAYER("ffn_gate_inp.weight", router, REQUIRED, EXPERTS, DIM_EMBD, DIM_EXPERTS), \
    LAYER("ffn_gate_exps.weight", gate_experts, REQUIRED, EXPERTS, DIM_EMBD, DIM_FF, DIM_EXPERTS), \
    LAYER("ffn_up_exps.weight", up_experts, REQUIRED, EXPERTS, DIM_EMBD, DIM_FF, DIM_EXPERTS), \
    LAYER("ffn_down_exps.weight", down_experts, REQUIRED, EXPERTS, DIM_FF, DIM_EMBD, DIM_EXPERTS)

/* ---- the architecture ---- */

struct architecture {
    const char *name;
    enum rope_kind rope;
    const struct key_row *keys;
    const struct tensor_row *tensors, *layer_tensors;
    /* Checks of its own behind the common ones; may be NULL. */
    enum status (*check)(const struct hparams *h, struct error *err);
    void (*build)(const struct model *m, struct graph *g);
};

#define MODEL(name) extern const struct architecture architecture_##name;
#include "engine/models/models.def"
#undef MODEL

const struct architecture *architecture_find(struct span name); /* NULL if there is none */

/* "llama, mistral3, ..." for messages. */
const char *architecture_list(char *out, size_t size);

/* Reads and checks all keys of an architecture. Unknown keys under its prefix are logged once. */
enum status hparams_read(struct hparams *h, const struct architecture *a, const struct gguf *g,
                         const struct log_sink *log, struct error *err);

/* ---- blocks: pieces of a layer, in order; x is the residual stream ---- */

/* Q, K and V of one layer from x, into the cache, attention, output product added to x. In the last layer only the rows
 * that logits depend on go on: *x is replaced by them. */
void block_attention(const struct model *m, struct graph *g, size_t layer, int *x);

/* Norm, gate and up, SwiGLU, down added to x; or a mixture of experts where the model has one. */
void block_feed_forward(const struct model *m, struct graph *g, size_t layer, int x);

/* Embedding, all layers of the two blocks above, final norm, output product: the program of a plain decoder. */
void block_decoder(const struct model *m, struct graph *g);

#endif
