#include "tests/support/model_cases.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/hash.h"
#include "engine/quant/quant.h"
#include "tests/support/encode.h"

/* ---- keys ---- */

static const char *case_key(const struct model_case *c, const char *name)
{
    static char key[128];
    snprintf(key, sizeof key, "%s.%s", c->architecture, name);
    return key;
}

static void key_u32(struct gguf_builder *b, const struct model_case *c, const char *name, uint32_t value)
{
    if (value)
        gguf_builder_u32(b, case_key(c, name), value);
}

static void key_f32(struct gguf_builder *b, const struct model_case *c, const char *name, float value)
{
    if (value != 0)
        gguf_builder_f32(b, case_key(c, name), value);
}

static void case_keys(struct gguf_builder *b, const struct model_case *c)
{
    key_u32(b, c, "attention.key_length", c->head_size);
    key_u32(b, c, "attention.value_length", c->head_size);
    key_u32(b, c, "rope.dimension_count", c->head_size);
    key_u32(b, c, "expert_count", c->n_experts);
    key_u32(b, c, "expert_used_count", c->n_used);
    key_u32(b, c, "rope.scaling.original_context_length", c->original_context);
    if (c->scaling)
        gguf_builder_string(b, case_key(c, "rope.scaling.type"), c->scaling);
    key_f32(b, c, "rope.scaling.factor", c->factor);
    key_f32(b, c, "rope.scale_linear", c->scale_linear);
    key_f32(b, c, "rope.freq_base", c->base);
    key_f32(b, c, "rope.scaling.attn_factor", c->attn_factor);
    key_f32(b, c, "rope.scaling.yarn_beta_fast", c->beta_fast);
    key_f32(b, c, "rope.scaling.yarn_beta_slow", c->beta_slow);
    key_f32(b, c, "rope.scaling.yarn_log_multiplier", c->log_multiplier);
    key_f32(b, c, "attention.temperature_scale", c->temperature);
}

/* ---- tensors ---- */

struct case_writer {
    struct gguf_builder *b;
    const struct model_case *c;
    uint64_t state;
    unsigned n_matrices;
};

static void write_vector(struct case_writer *w, const char *name, uint64_t n, float low, float high)
{
    uint64_t dims[1] = {n};
    gguf_builder_tensor(w->b, name, format_by_name("F32")->id, 1, dims, NULL, 0);
    char *data = gguf_builder_tensor_data(w->b, name, NULL);
    for (uint64_t i = 0; i < n; i++) {
        float x = test_random_float(&w->state, low, high);
        memcpy(data + i * sizeof x, &x, sizeof x);
    }
}

static void write_matrix(struct case_writer *w, const char *name, uint64_t n_cols, uint64_t n_rows, uint64_t n_experts)
{
    uint64_t dims[3] = {n_cols, n_rows, n_experts ? n_experts : 1};
    const char *wanted = w->n_matrices++ % 2 && w->c->format2 ? w->c->format2 : w->c->format;
    const struct format *f = format_by_name(wanted);
    if (!f || n_cols % f->block_elements)
        f = format_by_name(n_cols % 32 ? "F16" : "Q8_0");
    gguf_builder_tensor(w->b, name, f->id, n_experts ? 3 : 2, dims, NULL, 0);
    char *data = gguf_builder_tensor_data(w->b, name, NULL);
    float scale = 1.7f / sqrtf((float)n_cols), *row = malloc(n_cols * sizeof *row);
    size_t row_bytes = format_row_bytes(f, n_cols);
    if (!encode_row(f, memset(row, 0, n_cols * sizeof *row), data, n_cols)) { /* no encoder: any valid blocks */
        random_blocks(f, &w->state, data, n_rows * dims[2] * n_cols / f->block_elements);
        free(row);
        return;
    }
    for (uint64_t r = 0; r < n_rows * dims[2]; r++) {
        for (uint64_t i = 0; i < n_cols; i++)
            row[i] = test_random_float(&w->state, -scale, scale);
        encode_row(f, row, data + r * row_bytes, n_cols);
    }
    free(row);
}

static void write_feed_forward(struct case_writer *w, const char *prefix)
{
    const struct model_case *c = w->c;
    static const char *const names[] = {"ffn_gate", "ffn_up", "ffn_down"};
    char name[64];
    snprintf(name, sizeof name, "%sffn_gate_inp.weight", prefix);
    if (c->n_experts) {
        struct case_writer router = *w;
        struct model_case plain = *c;
        plain.format = plain.format2 = "F32";
        router.c = &plain;
        write_matrix(&router, name, c->n_embd, c->n_experts, 0);
        w->state = router.state;
    }
    for (int i = 0; i < 3; i++) {
        uint64_t n_cols = i < 2 ? c->n_embd : c->n_ff, n_rows = i < 2 ? c->n_ff : c->n_embd;
        snprintf(name, sizeof name, "%s%s%s.weight", prefix, names[i], c->n_experts ? "_exps" : "");
        write_matrix(w, name, n_cols, n_rows, c->n_experts);
        snprintf(name, sizeof name, "%s%s.bias", prefix, names[i]);
        if (c->biases && !c->n_experts)
            write_vector(w, name, n_rows, -0.2f, 0.2f);
    }
}

static void write_layer(struct case_writer *w, unsigned layer)
{
    const struct model_case *c = w->c;
    char prefix[16], name[64];
    uint64_t q = (uint64_t)c->n_heads * c->head_size, kv = (uint64_t)c->n_heads_kv * c->head_size;
    bool qwen2 = strcmp(c->architecture, "qwen2") == 0, qwen3 = strcmp(c->architecture, "qwen3") == 0;
    const struct {
        const char *name;
        uint64_t n_cols, n_rows; /* 0 rows: a vector of n_cols */
        bool present;
    } tensors[] = {
        {"attn_norm.weight", c->n_embd, 0, true},
        {"attn_q.weight", c->n_embd, q, true},
        {"attn_k.weight", c->n_embd, kv, true},
        {"attn_v.weight", c->n_embd, kv, true},
        {"attn_q.bias", q, 0, qwen2 || c->biases},
        {"attn_k.bias", kv, 0, qwen2 || c->biases},
        {"attn_v.bias", kv, 0, qwen2 || c->biases},
        {"attn_q_norm.weight", c->head_size, 0, qwen3},
        {"attn_k_norm.weight", c->head_size, 0, qwen3},
        {"attn_output.weight", q, c->n_embd, true},
        {"attn_output.bias", c->n_embd, 0, c->biases},
        {"ffn_norm.weight", c->n_embd, 0, true},
    };
    snprintf(prefix, sizeof prefix, "blk.%u.", layer);
    for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++) {
        snprintf(name, sizeof name, "%s%s", prefix, tensors[i].name);
        bool bias = strstr(name, ".bias") != NULL;
        if (tensors[i].present && tensors[i].n_rows)
            write_matrix(w, name, tensors[i].n_cols, tensors[i].n_rows, 0);
        else if (tensors[i].present)
            write_vector(w, name, tensors[i].n_cols, bias ? -0.2f : 0.7f, bias ? 0.2f : 1.4f);
    }
    write_feed_forward(w, prefix);
}

struct gguf_builder *model_case_build(const struct model_case *c)
{
    struct tiny_model tiny = {.architecture = c->architecture, .n_layers = c->n_layers, .n_embd = c->n_embd,
                              .n_heads = c->n_heads, .n_heads_kv = c->n_heads_kv, .n_ff = c->n_ff, .context = 2048,
                              .vocabulary_only = true};
    struct gguf_builder *b = gguf_builder_tiny(&tiny);
    struct case_writer w = {.b = b, .c = c, .state = hash_bytes(HASH_SEED, c->name, strlen(c->name))};
    case_keys(b, c);
    write_matrix(&w, "token_embd.weight", c->n_embd, MODEL_CASE_VOCAB, 0);
    write_vector(&w, "output_norm.weight", c->n_embd, 0.7f, 1.4f);
    if (!c->tied)
        write_matrix(&w, "output.weight", c->n_embd, MODEL_CASE_VOCAB, 0);
    if (c->output_bias)
        write_vector(&w, "output.bias", MODEL_CASE_VOCAB, -0.5f, 0.5f);
    if (c->rope_freqs)
        write_vector(&w, "rope_freqs.weight", c->head_size / 2, 1.0f, 8.0f);
    for (unsigned layer = 0; layer < c->n_layers; layer++)
        write_layer(&w, layer);
    return b;
}

void model_case_tokens(const struct model_case *c, int32_t *tokens)
{
    uint64_t state = hash_bytes(HASH_SEED, c->name, strlen(c->name)) + 1;
    for (uint32_t i = 0; i < c->n_tokens; i++)
        tokens[i] = (int32_t)(test_random(&state) % MODEL_CASE_VOCAB);
}

/* ---- the cases ---- */

#define SHAPE(layers, embd, heads, kv, size, ff) \
    .n_layers = layers, .n_embd = embd, .n_heads = heads, .n_heads_kv = kv, .head_size = size, .n_ff = ff

const struct model_case model_cases[] = {
#include "tests/support/model_cases.inc"
    {.name = NULL},
};
