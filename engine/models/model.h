/* Models: from a GGUF file to bound weights and a graph. Nothing outside this folder knows an architecture's name.
 *
 * Refused, always naming what and what would be allowed: another architecture, hyper-parameters out of range, keys that
 * change the result in a way this engine does not compute, missing tensors, tensors of another shape or type, and
 * tensors nobody reads. Contract: docs/numerics.md, "Metadata keys" and "Tensors". */
#ifndef GGUFD_MODELS_MODEL_H
#define GGUFD_MODELS_MODEL_H

#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/exec/graph.h"
#include "engine/gguf/gguf.h"

/* Hyper-parameters, in range and consistent. */
struct hparams {
    uint32_t context_trained, n_embd, n_layers, n_ff, n_heads, n_heads_kv, head_size, value_size;
    uint32_t n_experts, n_experts_used;
    uint32_t n_vocab; /* rows of token_embd; 0 until bound */
    float rms_epsilon;
    float factor, scale_linear; /* NaN: absent */
    struct rope_options rope;
};

/* A weight of the file; tensor == NULL: optional and absent. */
struct weight {
    const struct gguf_tensor *tensor;
    struct matrix matrix;  /* dims[1] * dims[2] rows of dims[0] */
    const float *vector;   /* where the tensor is a vector of floats */
};

struct layer {
    struct weight attn_norm, attn_q, attn_k, attn_v, attn_q_bias, attn_k_bias, attn_v_bias, attn_q_norm, attn_k_norm,
        attn_output, attn_output_bias;
    struct weight ffn_norm, ffn_gate, ffn_up, ffn_down, ffn_gate_bias, ffn_up_bias, ffn_down_bias;
    struct weight router, gate_experts, up_experts, down_experts;
};

struct model {
    const struct architecture *architecture;
    struct hparams hparams;
    struct weight token_embd, output_norm, output, output_bias, rope_freqs;
    struct layer *layers;
};

/* Starts a model by its architecture: refuses adapters and the like, and architectures without a row. */
enum status model_choose(struct model *m, const struct gguf *g, struct error *err);

/* Reads the keys and binds every tensor of g, which must outlive the model. m comes from model_choose; n_tokens: length
 * of the vocabulary. On failure the model is cleared. */
enum status model_init(struct model *m, const struct gguf *g, size_t n_tokens, const struct log_sink *log,
                       struct error *err);
void model_clear(struct model *m); /* a zeroed struct is fine */

/* Builds and checks the graph; the model must outlive it. On failure the graph is cleared. */
enum status model_graph(const struct model *m, enum cpu_tier tier, struct graph *g, struct error *err);

/* Name that general.architecture holds, or STATUS_INVALID if absent. */
enum status model_architecture(const struct gguf *g, struct span *name, struct error *err);

#endif
