/* Models whose container is sound but whose metadata, vocabulary or tensors are not: each is refused with file, field,
 * value and limit, or loads and works. What loads is run: tokenized, evaluated, detokenized. */
#include "engine/engine.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/support/gguf_builder.h"
#include "tests/support/mutation.h"
#include "tests/support/suite.h"

enum edit { U32, I32, U64, F32, BOOL, STRING, NO_KEY, NO_TENSOR, RENAME, CUSTOM };

struct hostile {
    const char *name; /* of the key or tensor, or what a custom edit does */
    enum edit edit;
    double number;
    const char *text;
    void (*custom)(struct gguf_builder *b);
    const char *expected; /* pattern of the refusal; NULL: loads and runs */
};

#define KEY_U32(name, value, expected) {name, U32, value, NULL, NULL, expected}
#define KEY_F32(name, value, expected) {name, F32, value, NULL, NULL, expected}
#define KEY(type, name, value, expected) {name, type, value, NULL, NULL, expected}
#define KEY_STRING(name, value, expected) {name, STRING, 0, value, NULL, expected}
#define WITHOUT(name, expected) {name, NO_KEY, 0, NULL, NULL, expected}
#define CALL(function, expected) {#function, CUSTOM, 0, NULL, function, expected}

/* ---- edits of arrays ---- */

static void array_u32(struct gguf_builder *b, const char *name, size_t n, uint32_t value, uint32_t last)
{
    uint32_t values[8];
    for (size_t i = 0; i < n; i++)
        values[i] = i + 1 == n ? last : value;
    gguf_builder_array(b, name, GGUF_U32, n, values, n * sizeof *values);
}

static void heads_per_layer(struct gguf_builder *b)
{
    array_u32(b, "llama.attention.head_count", 2, 4, 4);
}

static void heads_differ(struct gguf_builder *b)
{
    array_u32(b, "llama.attention.head_count", 2, 4, 2);
}

static void heads_for_one_layer(struct gguf_builder *b)
{
    array_u32(b, "llama.attention.head_count", 1, 4, 4);
}

static void heads_empty(struct gguf_builder *b)
{
    gguf_builder_array(b, "llama.attention.head_count", GGUF_U32, 0, NULL, 0);
}

static void heads_as_floats(struct gguf_builder *b)
{
    gguf_builder_array(b, "llama.attention.head_count", GGUF_F32, 2, (float[]){4, 4}, 8);
}

static void heads_negative(struct gguf_builder *b)
{
    gguf_builder_array(b, "llama.attention.head_count", GGUF_I32, 2, (int32_t[]){-4, -4}, 8);
}

static void epsilon_as_f64(struct gguf_builder *b)
{
    gguf_builder_raw(b, span_of("llama.attention.layer_norm_rms_epsilon"), GGUF_F64, (double[]){1e-5}, 8, false);
}

/* ---- edits of the vocabulary ---- */

static size_t n_tokens(struct gguf_builder *b)
{
    uint64_t n;
    memcpy(&n, gguf_builder_payload(b, "tokenizer.ggml.tokens", NULL) + 4, sizeof n);
    return (size_t)n;
}

/* Sets the length of scores or types, or the element type they claim. */
static void resize(struct gguf_builder *b, const char *name, enum gguf_type element, size_t n)
{
    unsigned char *zeros = calloc(n + 1, 8);
    static const unsigned char bytes[GGUF_TYPE_COUNT] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    for (size_t i = 0; i < n; i++)
        zeros[i * bytes[element]] = element != GGUF_F32;
    gguf_builder_array(b, name, element, n, zeros, n * bytes[element]);
    free(zeros);
}

static void scores_u8(struct gguf_builder *b)
{
    resize(b, "tokenizer.ggml.scores", GGUF_U8, n_tokens(b));
}

static void scores_f64(struct gguf_builder *b)
{
    resize(b, "tokenizer.ggml.scores", GGUF_F64, n_tokens(b));
}

static void scores_i32(struct gguf_builder *b)
{
    resize(b, "tokenizer.ggml.scores", GGUF_I32, n_tokens(b));
}

static void scores_short(struct gguf_builder *b)
{
    resize(b, "tokenizer.ggml.scores", GGUF_F32, n_tokens(b) - 1);
}

static void scores_long(struct gguf_builder *b)
{
    resize(b, "tokenizer.ggml.scores", GGUF_F32, n_tokens(b) + 1);
}

static void scores_nan(struct gguf_builder *b)
{
    size_t bytes;
    char *p = gguf_builder_payload(b, "tokenizer.ggml.scores", &bytes);
    memset(p + 12, 0xff, bytes - 12);
}

static void types_u8(struct gguf_builder *b)
{
    resize(b, "tokenizer.ggml.token_type", GGUF_U8, n_tokens(b));
}

static void types_u32(struct gguf_builder *b)
{
    resize(b, "tokenizer.ggml.token_type", GGUF_U32, n_tokens(b));
}

static void types_f32(struct gguf_builder *b)
{
    resize(b, "tokenizer.ggml.token_type", GGUF_F32, n_tokens(b));
}

static void types_short(struct gguf_builder *b)
{
    resize(b, "tokenizer.ggml.token_type", GGUF_I32, n_tokens(b) - 1);
}

static void set_type(struct gguf_builder *b, size_t token, int32_t type)
{
    memcpy(gguf_builder_payload(b, "tokenizer.ggml.token_type", NULL) + 12 + 4 * token, &type, sizeof type);
}

static void types_out_of_range(struct gguf_builder *b)
{
    set_type(b, 300, 0);
    set_type(b, 301, 7);
    set_type(b, 302, -1);
    set_type(b, 303, INT32_MIN);
}

static void set_token(struct gguf_builder *b, size_t token, struct span text)
{
    size_t n;
    struct span *tokens = gguf_builder_get_strings(b, "tokenizer.ggml.tokens", &n);
    tokens[token] = text;
    gguf_builder_strings(b, "tokenizer.ggml.tokens", tokens, n);
    free(tokens);
}

static void token_changed_count(struct gguf_builder *b, int change)
{
    size_t n;
    struct span *tokens = gguf_builder_get_strings(b, "tokenizer.ggml.tokens", &n);
    tokens[n] = span_of("one more");
    n = (size_t)((int)n + change);
    gguf_builder_strings(b, "tokenizer.ggml.tokens", tokens, n);
    free(tokens);
    resize(b, "tokenizer.ggml.scores", GGUF_F32, n);
    resize(b, "tokenizer.ggml.token_type", GGUF_I32, n);
}

static void token_fewer(struct gguf_builder *b)
{
    token_changed_count(b, -1);
}

static void token_more(struct gguf_builder *b)
{
    token_changed_count(b, 1);
}

static void tokens_as_one_string(struct gguf_builder *b)
{
    gguf_builder_string(b, "tokenizer.ggml.tokens", "hello");
}

static void tokens_as_numbers(struct gguf_builder *b)
{
    resize(b, "tokenizer.ggml.tokens", GGUF_U32, 355);
}

static void tokens_none(struct gguf_builder *b)
{
    gguf_builder_strings(b, "tokenizer.ggml.tokens", NULL, 0);
}

static void tokens_equal(struct gguf_builder *b)
{
    set_token(b, 300, span_of("he"));
    set_token(b, 301, span_of("he"));
}

static void token_with_nul(struct gguf_builder *b)
{
    set_token(b, 300, (struct span){"a\0b", 3});
    set_token(b, 301, (struct span){"\0", 1});
}

static void token_empty(struct gguf_builder *b)
{
    set_token(b, 300, span_of(""));
}

static void token_of_a_megabyte(struct gguf_builder *b)
{
    char *text = malloc(1 << 20);
    memset(text, 'x', 1 << 20);
    set_token(b, 300, (struct span){text, 1 << 20});
    free(text);
}

static void token_not_utf8(struct gguf_builder *b)
{
    set_token(b, 300, (struct span){"\xff\xfe\xc0", 3});
    set_token(b, 301, (struct span){"\xe2\x96", 2});
}

static void byte_tokens_odd(struct gguf_builder *b)
{
    set_token(b, 3 + 0x41, span_of("<0x-1>"));
    set_token(b, 3 + 0x42, span_of("<0xZZ>"));
    set_token(b, 3 + 0x43, span_of("<0x41424344>"));
    set_token(b, 3 + 0x44, span_of("<0x"));
}

static void byte_token_short(struct gguf_builder *b)
{
    set_token(b, 3 + 0x41, span_of("A"));
}

static void byte_token_missing(struct gguf_builder *b)
{
    set_token(b, 3 + 0xc3, span_of("not a byte"));
    set_type(b, 3 + 0xc3, 1);
}

static void no_newline_token(struct gguf_builder *b)
{
    set_token(b, 3 + 10, span_of("no newline"));
    set_type(b, 3 + 10, 1);
}

static void all_control(struct gguf_builder *b)
{
    for (size_t i = 0; i < n_tokens(b); i++)
        set_type(b, i, 3);
}

static void eos_as_i32(struct gguf_builder *b)
{
    gguf_builder_i32(b, "tokenizer.ggml.eos_token_id", -1);
}

/* ---- edits of tensors ---- */

static void replace_tensor(struct gguf_builder *b, const char *name, uint32_t type, uint32_t n_dims,
                           const uint64_t *dims)
{
    ck_assert(gguf_builder_remove_tensor(b, name));
    gguf_builder_tensor(b, name, type, n_dims, dims, NULL, 0);
}

static void embedding_twice_as_wide(struct gguf_builder *b)
{
    replace_tensor(b, "token_embd.weight", 0, 2, (uint64_t[]){128, n_tokens(b)});
}

static void embedding_of_other_rows(struct gguf_builder *b)
{
    replace_tensor(b, "token_embd.weight", 8, 2, (uint64_t[]){64, n_tokens(b) + 32});
}

static void output_of_other_rows(struct gguf_builder *b)
{
    replace_tensor(b, "output.weight", 8, 2, (uint64_t[]){64, n_tokens(b) - 1});
}

static void query_transposed(struct gguf_builder *b)
{
    replace_tensor(b, "blk.0.attn_k.weight", 0, 2, (uint64_t[]){32, 64});
}

static void query_in_three_dimensions(struct gguf_builder *b)
{
    replace_tensor(b, "blk.0.attn_q.weight", 0, 3, (uint64_t[]){64, 32, 2});
}

static void norm_as_f16(struct gguf_builder *b)
{
    replace_tensor(b, "blk.0.attn_norm.weight", 1, 1, (uint64_t[]){64});
}

static void norm_as_matrix(struct gguf_builder *b)
{
    replace_tensor(b, "output_norm.weight", 0, 2, (uint64_t[]){64, 64});
}

static void mixed_formats(struct gguf_builder *b)
{
    replace_tensor(b, "blk.0.attn_q.weight", 1, 2, (uint64_t[]){64, 64});
    replace_tensor(b, "blk.1.attn_q.weight", 2, 2, (uint64_t[]){64, 64});
    replace_tensor(b, "blk.1.ffn_up.weight", 0, 2, (uint64_t[]){64, 96});
}

static void stray_tensor(struct gguf_builder *b)
{
    gguf_builder_tensor(b, "blk.0.\033[2J", 0, 1, (uint64_t[]){64}, NULL, 0);
}

static void stray_layer(struct gguf_builder *b)
{
    gguf_builder_tensor(b, "blk.2.attn_norm.weight", 0, 1, (uint64_t[]){64}, NULL, 0);
}

static void biases(struct gguf_builder *b)
{
    gguf_builder_tensor(b, "blk.0.attn_q.bias", 0, 1, (uint64_t[]){64}, NULL, 0);
    gguf_builder_tensor(b, "blk.1.ffn_down.bias", 0, 1, (uint64_t[]){64}, NULL, 0);
}

static void bias_too_short(struct gguf_builder *b)
{
    gguf_builder_tensor(b, "blk.0.attn_q.bias", 0, 1, (uint64_t[]){32}, NULL, 0);
}

static void rope_factors(struct gguf_builder *b, float value, uint64_t n)
{
    float values[64];
    for (int i = 0; i < 64; i++)
        values[i] = i == 3 ? value : 1;
    gguf_builder_tensor(b, "rope_freqs.weight", 0, 1, &n, values, n * sizeof *values);
}

static void rope_factor_zero(struct gguf_builder *b)
{
    rope_factors(b, 0, 8);
}

static void rope_factor_nan(struct gguf_builder *b)
{
    rope_factors(b, NAN, 8);
}

static void rope_factors_good(struct gguf_builder *b)
{
    rope_factors(b, 2, 8);
}

static void rope_factors_too_many(struct gguf_builder *b)
{
    rope_factors(b, 2, 16);
}

static void fused_qkv(struct gguf_builder *b)
{
    gguf_builder_tensor(b, "blk.0.attn_qkv.weight", 8, 2, (uint64_t[]){64, 128}, NULL, 0);
}

static void experts_announced(struct gguf_builder *b)
{
    gguf_builder_u32(b, "llama.expert_count", 4);
    gguf_builder_u32(b, "llama.expert_used_count", 2);
}

static void experts_more_used_than_there(struct gguf_builder *b)
{
    gguf_builder_u32(b, "llama.expert_count", 2);
    gguf_builder_u32(b, "llama.expert_used_count", 3);
}

/* Data that begins at an odd address. */
static void alignment_1(struct gguf_builder *b)
{
    char name[8] = "";
    size_t data;
    gguf_builder_alignment(b, 1);
    do {
        struct buffer image = {0};
        strcat(name, "x");
        gguf_builder_string(b, "general.name", name);
        gguf_builder_image(b, &image);
        data = gguf_image_field(image.data, image.size, "data");
        buffer_clear(&image);
    } while (data % 2 == 0);
}

/* The least alignment that loads everywhere. */
static void alignment_4(struct gguf_builder *b)
{
    gguf_builder_alignment(b, 4);
}

static void architecture_of_ten_megabytes(struct gguf_builder *b)
{
    char *text = malloc(10 << 20);
    memset(text, '\n', 10 << 20);
    gguf_builder_bytes(b, "general.architecture", (struct span){text, 10 << 20});
    free(text);
}

static void nothing_changed(struct gguf_builder *b)
{
    (void)b;
}

#define SHAPE(name, is, must) "*m.gguf: tensor " name " has shape " is ", must have " must

static const struct hostile llama[] = {
    CALL(nothing_changed, NULL),

    /* A10: hyper-parameters */
    KEY_U32("llama.block_count", 0, "*m.gguf: key \"llama.block_count\" is 0, must be 1 to 512"),
    KEY_U32("llama.block_count", 1, "*m.gguf: tensor blk.1.attn_norm.weight and 8 more has no use in llama of 1 layers"),
    KEY_U32("llama.block_count", 3, "*m.gguf: tensor blk.2.attn_norm.weight is missing, llama needs it"),
    KEY_U32("llama.block_count", 513, "*m.gguf: key \"llama.block_count\" is 513, must be 1 to 512"),
    KEY_U32("llama.block_count", 4294967295, "*m.gguf: key \"llama.block_count\" is 4294967295, must be 1 to 512"),
    KEY(I32, "llama.block_count", 2, "*m.gguf: key \"llama.block_count\" has type i32, must be u32"),
    KEY(U64, "llama.block_count", 2, "*m.gguf: key \"llama.block_count\" has type u64, must be u32"),
    KEY(F32, "llama.block_count", 2, "*m.gguf: key \"llama.block_count\" has type f32, must be u32"),
    KEY(BOOL, "llama.block_count", 1, "*m.gguf: key \"llama.block_count\" has type bool, must be u32"),
    KEY_STRING("llama.block_count", "2", "*m.gguf: key \"llama.block_count\" has type string, must be u32"),
    KEY_U32("llama.attention.head_count", 0, "*m.gguf: key \"llama.attention.head_count\" is 0, must be 1 to 65536"),
    KEY_U32("llama.attention.head_count", 3, "*m.gguf: *head_count*3*"),
    KEY_U32("llama.attention.head_count", 5, "*m.gguf: *head_count*5*"),
    KEY_U32("llama.attention.head_count", 8, "*m.gguf: *rope.dimension_count*16*head size 8*"),
    KEY_U32("llama.attention.head_count", 65, "*m.gguf: *head_count*65*"),
    KEY_U32("llama.attention.head_count", 4294967295,
            "*m.gguf: key \"llama.attention.head_count\" is 4294967295, must be 1 to 65536"),
    KEY_U32("llama.attention.head_count_kv", 0,
            "*m.gguf: key \"llama.attention.head_count_kv\" is 0, must be 1 to 65536"),
    KEY_U32("llama.attention.head_count_kv", 3, "*m.gguf: *head_count 4 is no multiple of *head_count_kv 3"),
    KEY_U32("llama.attention.head_count_kv", 5, "*m.gguf: *head_count 4 is no multiple of *head_count_kv 5"),
    KEY_U32("llama.attention.head_count_kv", 4, SHAPE("blk.0.attn_k.weight", "64 x 32", "64 x 64")),
    KEY_U32("llama.attention.head_count_kv", 1, SHAPE("blk.0.attn_k.weight", "64 x 32", "64 x 16")),
    WITHOUT("llama.attention.head_count_kv", SHAPE("blk.0.attn_k.weight", "64 x 32", "64 x 64")),
    KEY_U32("llama.attention.head_count_kv", 4294967295, "*m.gguf: key \"llama.attention.head_count_kv\" is *"),
    CALL(heads_per_layer, NULL),
    CALL(heads_differ, "*m.gguf: key \"llama.attention.head_count\" differs between layers (4 and, for layer 1, 2)"),
    CALL(heads_for_one_layer, "*m.gguf: key \"llama.attention.head_count\" has 1 entries for 2 layers"),
    CALL(heads_empty, "*m.gguf: key \"llama.attention.head_count\" is an empty array"),
    CALL(heads_as_floats, "*m.gguf: key \"llama.attention.head_count\" is an array of f32, must be of u32 or i32"),
    CALL(heads_negative, "*m.gguf: key \"llama.attention.head_count\" is negative (-4)"),
    KEY_U32("llama.embedding_length", 0, "*m.gguf: key \"llama.embedding_length\" is 0, must be 1 to 1048576"),
    KEY_U32("llama.embedding_length", 63, "*m.gguf: *embedding_length*63*"),
    KEY_U32("llama.embedding_length", 65, "*m.gguf: *64 x 355*65 x 355*"),
    KEY_U32("llama.embedding_length", 128, "*m.gguf: *"),
    KEY_U32("llama.embedding_length", 4294967295, "*m.gguf: key \"llama.embedding_length\" is *, must be 1 to 1048576"),
    KEY_U32("llama.feed_forward_length", 0, "*m.gguf: key \"llama.feed_forward_length\" is 0, must be 1 to 16777216"),
    KEY_U32("llama.feed_forward_length", 95, SHAPE("blk.0.ffn_gate.weight", "64 x 96", "64 x 95")),
    KEY_U32("llama.feed_forward_length", 4294967295, "*m.gguf: key \"llama.feed_forward_length\" is *, must be 1 to *"),
    KEY_U32("llama.context_length", 0, "*m.gguf: key \"llama.context_length\" is 0, must be 1 to 1073741824"),
    KEY_U32("llama.context_length", 4294967295, "*m.gguf: key \"llama.context_length\" is *, must be 1 to 1073741824"),
    KEY_U32("llama.context_length", 1073741824, NULL), /* the default context is 4096 */
    KEY_U32("llama.rope.dimension_count", 0, "*m.gguf: key \"llama.rope.dimension_count\" is 0, must be 2 to 65536"),
    KEY_U32("llama.rope.dimension_count", 1, "*m.gguf: key \"llama.rope.dimension_count\" is 1, must be 2 to 65536"),
    KEY_U32("llama.rope.dimension_count", 7, "*m.gguf: llama.rope.dimension_count 7 must equal the head size 16"),
    KEY_U32("llama.rope.dimension_count", 18, "*m.gguf: llama.rope.dimension_count 18 must equal the head size 16"),
    WITHOUT("llama.rope.dimension_count", NULL),
    KEY_U32("llama.attention.key_length", 16, NULL),
    KEY_U32("llama.attention.key_length", 32, "*m.gguf: llama.attention.key_length 32 and *value_length 16 must be equal"),
    KEY_U32("llama.attention.value_length", 8, "*m.gguf: llama.attention.key_length 16 and *value_length 8 must be equal"),
    KEY_F32("llama.attention.layer_norm_rms_epsilon", 0, "*m.gguf: key \"*epsilon\" is 0, must be *"),
    KEY_F32("llama.attention.layer_norm_rms_epsilon", -1, "*m.gguf: key \"*epsilon\" is -1, must be *"),
    KEY_F32("llama.attention.layer_norm_rms_epsilon", NAN, "*m.gguf: key \"*epsilon\" is *nan, must be *"),
    KEY_F32("llama.attention.layer_norm_rms_epsilon", INFINITY, "*m.gguf: key \"*epsilon\" is inf, must be *"),
    CALL(epsilon_as_f64, "*m.gguf: key \"llama.attention.layer_norm_rms_epsilon\" has type f64, must be f32"),
    WITHOUT("llama.attention.layer_norm_rms_epsilon", "*m.gguf: key \"*epsilon\" is missing"),
    KEY_F32("llama.rope.freq_base", 0, "*m.gguf: key \"llama.rope.freq_base\" is 0, must be *"),
    KEY_F32("llama.rope.freq_base", -1, "*m.gguf: key \"llama.rope.freq_base\" is -1, must be *"),
    KEY_F32("llama.rope.freq_base", NAN, "*m.gguf: key \"llama.rope.freq_base\" is *nan, must be *"),
    KEY_F32("llama.rope.freq_base", INFINITY, "*m.gguf: key \"llama.rope.freq_base\" is inf, must be *"),
    WITHOUT("llama.rope.freq_base", NULL),
    KEY_F32("llama.rope.scaling.factor", 0, NULL),
    KEY_F32("llama.rope.scaling.factor", 4, NULL),
    KEY_F32("llama.rope.scaling.factor", -4, "*m.gguf: key \"llama.rope.scaling.factor\" is -4, must be *"),
    KEY_F32("llama.rope.scaling.factor", NAN, "*m.gguf: key \"llama.rope.scaling.factor\" is *nan, must be *"),
    KEY_F32("llama.rope.scaling.factor", INFINITY, "*m.gguf: key \"llama.rope.scaling.factor\" is inf, must be *"),
    KEY_F32("llama.rope.scale_linear", -1, "*m.gguf: key \"llama.rope.scale_linear\" is -1, must be *"),
    KEY_F32("llama.rope.scaling.attn_factor", 0, "*m.gguf: key \"llama.rope.scaling.attn_factor\" is 0, must be *"),
    KEY_STRING("llama.rope.scaling.type", "none", NULL),
    KEY_STRING("llama.rope.scaling.type", "yarn", NULL),
    KEY_STRING("llama.rope.scaling.type", "longrope", "*m.gguf: key \"*scaling.type\" is \"longrope\"; supported are *"),
    KEY_STRING("llama.rope.scaling.type", "", "*m.gguf: key \"*scaling.type\" is \"\"; supported are *"),
    KEY_U32("llama.rope.scaling.type", 1, "*m.gguf: key \"llama.rope.scaling.type\" has type u32, must be string"),
    CALL(experts_announced, "*m.gguf: tensor blk.0.ffn_gate_inp.weight is missing, llama needs it"),
    CALL(experts_more_used_than_there, "*m.gguf: llama.expert_used_count is 3, must be 1 to expert_count 2"),
    KEY_U32("llama.expert_count", 4294967295, "*m.gguf: key \"llama.expert_count\" is *, must be 0 to 512"),
    KEY_U32("llama.expert_count", 4, "*m.gguf: llama.expert_used_count is 0, must be 1 to expert_count 4"),
    WITHOUT("llama.block_count", "*m.gguf: key \"llama.block_count\" is missing"),
    WITHOUT("llama.embedding_length", "*m.gguf: key \"llama.embedding_length\" is missing"),
    WITHOUT("llama.context_length", "*m.gguf: key \"llama.context_length\" is missing"),
    WITHOUT("llama.feed_forward_length", "*m.gguf: key \"llama.feed_forward_length\" is missing"),
    WITHOUT("llama.attention.head_count", "*m.gguf: key \"llama.attention.head_count\" is missing"),

    /* A17: architecture */
    KEY_STRING("general.architecture", "gemma4", "*m.gguf: architecture \"gemma4\" is not supported; supported are *"),
    KEY_STRING("general.architecture", "", "*m.gguf: architecture \"\" is not supported; supported are *llama*"),
    KEY_STRING("general.architecture", "a\n\033[2J", "*m.gguf: architecture \"a\\x0a\\x1b[2J\" is not supported*"),
    KEY_STRING("general.architecture", "LLAMA", "*m.gguf: architecture \"LLAMA\" is not supported*"),
    KEY_STRING("general.architecture", "qwen2", "*m.gguf: key \"qwen2.context_length\" is missing"),
    CALL(architecture_of_ten_megabytes, "*m.gguf: architecture \"\\x0a*...\" is not supported*"),
    KEY_U32("general.architecture", 1, "*m.gguf: key \"general.architecture\" has type u32, must be string"),
    WITHOUT("general.architecture", "*m.gguf: key \"general.architecture\" is missing"),
    KEY_STRING("general.type", "adapter", "*m.gguf: key \"general.type\" is \"adapter\", must be \"model\""),
    KEY_STRING("general.name", "\033]0;pwned\a", NULL),
    KEY_U32("general.name", 1, "*m.gguf: key \"general.name\" has type u32, must be string"),

    /* A9: arrays of the vocabulary */
    KEY_STRING("tokenizer.ggml.model", "wordpiece", "*m.gguf: tokenizer.ggml.model \"wordpiece\": *"),
    WITHOUT("tokenizer.ggml.model", "*m.gguf: key \"tokenizer.ggml.model\" is missing"),
    WITHOUT("tokenizer.ggml.tokens", "*m.gguf: key \"tokenizer.ggml.tokens\" is missing"),
    WITHOUT("tokenizer.ggml.scores", NULL),
    WITHOUT("tokenizer.ggml.token_type", NULL),
    CALL(scores_u8, "*m.gguf: *tokenizer.ggml.scores*u8*"),
    CALL(scores_f64, "*m.gguf: *tokenizer.ggml.scores*f64*"),
    CALL(scores_i32, NULL),
    CALL(scores_short, "*m.gguf: tokenizer.ggml.scores has 354 entries for 355 tokens"),
    CALL(scores_long, NULL),
    CALL(scores_nan, NULL),
    CALL(types_u8, "*m.gguf: *tokenizer.ggml.token_type*u8*i32*"),
    CALL(types_u32, "*m.gguf: *tokenizer.ggml.token_type*u32*i32*"),
    CALL(types_f32, "*m.gguf: *tokenizer.ggml.token_type*f32*i32*"),
    CALL(types_short, "*m.gguf: tokenizer.ggml.token_type has 354 entries for 355 tokens"),
    CALL(types_out_of_range, NULL),
    CALL(tokens_as_one_string, "*m.gguf: key \"tokenizer.ggml.tokens\" has type string, must be array"),
    CALL(tokens_as_numbers, "*m.gguf: key \"tokenizer.ggml.tokens\" is an array of u32, must be of string"),
    CALL(tokens_none, "*m.gguf: tokenizer.ggml.tokens has 0 entries, allowed are 1 to *"),

    /* A11: special ids. Out of range: the default stays (tokenizer.md). */
    KEY_U32("tokenizer.ggml.eos_token_id", 4294967295, NULL),
    KEY_U32("tokenizer.ggml.eos_token_id", 355, NULL),
    KEY_U32("tokenizer.ggml.bos_token_id", 355, NULL),
    KEY_U32("tokenizer.ggml.unknown_token_id", 4294967295, NULL),
    KEY_U32("tokenizer.ggml.padding_token_id", 4294967295, NULL),
    KEY_U32("tokenizer.ggml.eot_token_id", 355, NULL),
    KEY(I32, "tokenizer.ggml.bos_token_id", 1, "*m.gguf: key \"tokenizer.ggml.bos_token_id\" has type i32, must be u32"),
    KEY(U64, "tokenizer.ggml.padding_token_id", 1, "*m.gguf: key \"*padding_token_id\" has type u64, must be u32"),
    CALL(eos_as_i32, "*m.gguf: key \"tokenizer.ggml.eos_token_id\" has type i32, must be u32"),
    WITHOUT("tokenizer.ggml.eos_token_id", NULL),
    WITHOUT("tokenizer.ggml.bos_token_id", NULL),
    WITHOUT("tokenizer.ggml.unknown_token_id", NULL),
    KEY_U32("tokenizer.ggml.add_bos_token", 1, "*m.gguf: key \"tokenizer.ggml.add_bos_token\" has type u32, must be bool"),

    /* A12: how many tokens */
    CALL(token_fewer, "*m.gguf: the vocabulary has 354 tokens, but token_embd.weight has 355 rows"),
    CALL(token_more, "*m.gguf: the vocabulary has 356 tokens, but token_embd.weight has 355 rows"),
    KEY_U32("llama.vocab_size", 355, NULL),
    KEY_U32("llama.vocab_size", 419, "*m.gguf: key \"llama.vocab_size\" is 419, but the vocabulary has 355 tokens"),
    CALL(embedding_of_other_rows, "*m.gguf: the vocabulary has 355 tokens, but token_embd.weight has 387 rows"),
    CALL(output_of_other_rows, SHAPE("output.weight", "64 x 354", "64 x 355")),

    /* A13: tied embeddings */
    {"output.weight", NO_TENSOR, 0, NULL, NULL, NULL},
    {"output.weight", RENAME, 0, "outpuX.weight", NULL, "*m.gguf: tensor outpuX.weight has no use in llama of 2 layers"},
    {"token_embd.weight", NO_TENSOR, 0, NULL, NULL, "*m.gguf: tensor token_embd.weight is missing, llama needs it"},
    {"output_norm.weight", NO_TENSOR, 0, NULL, NULL, "*m.gguf: tensor output_norm.weight is missing, llama needs it"},
    {"blk.1.ffn_up.weight", NO_TENSOR, 0, NULL, NULL, "*m.gguf: tensor blk.1.ffn_up.weight is missing, llama needs it"},

    /* A16: what the tokens are */
    CALL(tokens_equal, NULL),
    CALL(token_with_nul, NULL),
    CALL(token_empty, NULL),
    CALL(token_of_a_megabyte, NULL),
    CALL(token_not_utf8, NULL),
    CALL(byte_tokens_odd, NULL),
    CALL(byte_token_short, "*m.gguf: token 68 has the type of a byte, but its text \"A\" is shorter than 3 bytes*"),
    CALL(byte_token_missing, NULL),
    CALL(no_newline_token, NULL),
    CALL(all_control, NULL),

    /* A3, A18: shapes and formats */
    CALL(embedding_twice_as_wide, SHAPE("token_embd.weight", "128 x 355", "64 x 355")),
    CALL(query_transposed, SHAPE("blk.0.attn_k.weight", "32 x 64", "64 x 32")),
    CALL(query_in_three_dimensions, SHAPE("blk.0.attn_q.weight", "64 x 32 x 2", "64 x 64")),
    CALL(norm_as_f16, "*m.gguf: tensor blk.0.attn_norm.weight is stored as F16, must be F32"),
    CALL(norm_as_matrix, SHAPE("output_norm.weight", "64 x 64", "64")),
    CALL(mixed_formats, NULL),
    CALL(stray_tensor, "*m.gguf: tensor blk.0.\\x1b[2J has no use in llama of 2 layers"),
    CALL(stray_layer, "*m.gguf: tensor blk.2.attn_norm.weight has no use in llama of 2 layers"),
    CALL(biases, NULL),
    CALL(bias_too_short, SHAPE("blk.0.attn_q.bias", "32", "64")),
    CALL(rope_factors_good, NULL),
    CALL(rope_factor_zero, "*m.gguf: tensor rope_freqs.weight: value 3 is 0, must be finite and not 0"),
    CALL(rope_factor_nan, "*m.gguf: tensor rope_freqs.weight: value 3 is *nan, must be finite and not 0"),
    CALL(rope_factors_too_many, SHAPE("rope_freqs.weight", "16", "8")),
    CALL(fused_qkv, "*m.gguf: tensor blk.0.attn_qkv.weight has no use in llama of 2 layers (fused*"),
    CALL(alignment_4, NULL),
    CALL(alignment_1, "*m.gguf: tensor * does not start at a multiple of 4 bytes; general.alignment must be 4 or more"),
};

/* ---- byte-level BPE ---- */

static void merges_of(struct gguf_builder *b, const struct span *lines, size_t n)
{
    gguf_builder_strings(b, "tokenizer.ggml.merges", lines, n);
}

static void merges_odd(struct gguf_builder *b)
{
    static const struct span lines[] = {{"", 0},     {"nospace", 7}, {" ", 1},      {"a  b", 4},          {"zz qq", 5},
                                        {"a ", 2},   {" a", 2},      {"a b\0c", 5}, {"\xff\xfe \xc0", 4}, {"h e", 3},
                                        {"h e", 3}};
    merges_of(b, lines, sizeof lines / sizeof lines[0]);
}

static void merges_empty(struct gguf_builder *b)
{
    merges_of(b, NULL, 0);
}

static void merges_as_numbers(struct gguf_builder *b)
{
    resize(b, "tokenizer.ggml.merges", GGUF_U32, 10);
}

static void byte_character_missing(struct gguf_builder *b)
{
    set_token(b, 'h', span_of("not a byte"));
    set_token(b, 200, span_of("neither"));
}

static void token_outside_the_alphabet(struct gguf_builder *b)
{
    set_token(b, 300, span_of("\xe6\x97\xa5"));
    set_token(b, 301, (struct span){"\xff", 1});
}

static const struct hostile qwen2[] = {
    CALL(nothing_changed, NULL),
    WITHOUT("tokenizer.ggml.merges", "*m.gguf: *tokenizer.ggml.merges* missing*"),
    CALL(merges_odd, NULL),
    CALL(merges_empty, NULL),
    CALL(merges_as_numbers, "*m.gguf: key \"tokenizer.ggml.merges\" is an array of u32, must be of string"),
    WITHOUT("tokenizer.ggml.pre", NULL),
    KEY_STRING("tokenizer.ggml.pre", "", NULL),
    KEY_STRING("tokenizer.ggml.pre", "llama-bpe", NULL),
    KEY_STRING("tokenizer.ggml.pre", "no\nsuch", "*m.gguf: tokenizer.ggml.pre \"no\\x0asuch\"*"),
    KEY_U32("tokenizer.ggml.pre", 1, "*m.gguf: key \"tokenizer.ggml.pre\" has type u32, must be string"),
    WITHOUT("tokenizer.ggml.bos_token_id", NULL),
    WITHOUT("tokenizer.ggml.eos_token_id", NULL),
    CALL(byte_character_missing, NULL),
    CALL(token_outside_the_alphabet, NULL),
    CALL(token_empty, NULL),
    CALL(token_with_nul, NULL),
    CALL(all_control, NULL),
    {"blk.0.attn_q.bias", NO_TENSOR, 0, NULL, NULL, NULL}, /* optional, as the reference has it */
    {"blk.0.attn_k.weight", NO_TENSOR, 0, NULL, NULL, "*m.gguf: tensor blk.0.attn_k.weight is missing, qwen2 needs it"},
};

/* ---- running what loads ---- */

static void tokenize_and_back(struct engine *e)
{
    static const char text[] = "hello the world, \xe6\x97\xa5\xff\n <s></s> <|im_end|> don't 1234  ";
    struct error err;
    for (unsigned flags = 0; flags < 4; flags++) {
        struct engine_ids ids = {0};
        enum status s = engine_tokenize(e, (struct span){text, sizeof text}, flags, 1000, &ids, &err);
        for (size_t i = 0; s == STATUS_OK && i < ids.count; i++)
            if (ids.data[i] < 0 || (uint32_t)ids.data[i] >= engine_info(e)->n_vocab)
                ck_abort_msg("id %d", ids.data[i]);
        engine_ids_clear(&ids);
    }
    size_t bytes = 0;
    for (uint32_t i = 0; i < engine_info(e)->n_vocab; i++)
        bytes += engine_piece(e, (int32_t)i).size;
    ck_assert_uint_gt(bytes, 0);
}

static void evaluate(struct engine *e)
{
    struct session *session;
    struct error err = {0};
    const int32_t tokens[] = {1, 5, 300, 0, 354, 2};
    struct session_sync sync = {.tokens = tokens, .n_tokens = 6, .reuse_limit = SIZE_MAX, .want_all_from = SIZE_MAX};
    if (session_new(e, &session, &err) != STATUS_OK)
        ck_abort_msg("%s", err.text);
    sync.n_tokens = engine_info(e)->n_vocab > 354 ? 6 : 4;
    if (session_run(session, &sync, NULL, &err) != STATUS_OK)
        ck_abort_msg("%s", err.text);
    session_free(session);
}

static void check_printable(void *context, enum log_level level, const char *text)
{
    (void)context, (void)level;
    for (const char *p = text; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            ck_abort_msg("a note holds byte %d", *p);
    if (strlen(text) > 511)
        ck_abort_msg("a note of %zu bytes", strlen(text));
}

static void apply(const struct hostile *h, struct gguf_builder *b)
{
    switch (h->edit) {
    case U32:
        gguf_builder_u32(b, h->name, (uint32_t)h->number);
        return;
    case I32:
        gguf_builder_i32(b, h->name, (int32_t)h->number);
        return;
    case U64:
        gguf_builder_u64(b, h->name, (uint64_t)h->number);
        return;
    case F32:
        gguf_builder_f32(b, h->name, (float)h->number);
        return;
    case BOOL:
        gguf_builder_bool(b, h->name, h->number != 0);
        return;
    case STRING:
        gguf_builder_string(b, h->name, h->text);
        return;
    case NO_KEY:
        ck_assert_msg(gguf_builder_remove_key(b, h->name), "%s", h->name);
        return;
    case NO_TENSOR:
        ck_assert_msg(gguf_builder_remove_tensor(b, h->name), "%s", h->name);
        return;
    case RENAME:
        ck_assert_msg(gguf_builder_rename_tensor(b, h->name, h->text), "%s", h->name);
        return;
    case CUSTOM:
        h->custom(b);
        return;
    }
}

static bool ends_as_expected(const struct hostile *h, const char *path)
{
    struct engine *e;
    struct error err = {0};
    struct engine_options options = {.model = path, .tier = "auto", .threads = 1, .context = 64, .batch = 4,
                                     .log = {check_printable, NULL}};
    enum status s = engine_open(&options, &e, &err);
    if (s == STATUS_OK) {
        tokenize_and_back(e);
        evaluate(e);
        engine_close(e);
    }
    bool right = mutation_is_as_expected(h->expected, s == STATUS_OK ? NULL : err.text);
    if (!right)
        printf("note: %s %g %s: %s; expected %s\n", h->name, h->number, h->text ? h->text : "",
               s == STATUS_OK ? "loads" : err.text, h->expected ? h->expected : "to load");
    return right;
}

static void run_table(const struct hostile *table, size_t n, const struct tiny_model *base)
{
    char path[4096];
    size_t right = 0;
    snprintf(path, sizeof path, "%s/m.gguf", suite_tmp());
    for (size_t i = 0; i < n; i++) {
        struct gguf_builder *b = gguf_builder_tiny(base);
        apply(&table[i], b);
        gguf_builder_write(b, path);
        gguf_builder_free(b);
        right += ends_as_expected(&table[i], path);
    }
    printf("note: %zu of %zu hostile models as expected\n", right, n);
    fflush(stdout);
    ck_assert_uint_eq(right, n);
}

TEST(every_hostile_llama_ends_as_expected)
{
    run_table(llama, sizeof llama / sizeof llama[0], &(struct tiny_model){.type = 8, .seed = 11});
}
END

static void take_tensor(void *context, const struct engine_tensor *tensor)
{
    struct engine_tensor *bad = context;
    ck_assert(tensor->fraction > bad->fraction && tensor->fraction <= 1);
    bad->fraction = tensor->fraction;
    if (tensor->non_finite) {
        snprintf(bad->name, sizeof bad->name, "%s", tensor->name);
        bad->non_finite = tensor->non_finite;
        bad->first_non_finite = tensor->first_non_finite;
    }
}

TEST(a_model_is_looked_through_for_damage)
{
    struct gguf_builder *b = gguf_builder_tiny(&(struct tiny_model){.type = 8});
    struct engine_tensor bad = {0};
    struct engine *e;
    struct error err = {0};
    char path[4096];
    snprintf(path, sizeof path, "%s/m.gguf", suite_tmp());
    memset(gguf_builder_tensor_data(b, "blk.1.ffn_norm.weight", NULL) + 4 * 7, 0xff, 8);
    gguf_builder_write(b, path);
    gguf_builder_free(b);
    struct engine_options options = {.model = path, .tier = "scalar", .threads = 1};
    ck_assert_int_eq(engine_open(&options, &e, &err), STATUS_OK);
    ck_assert_int_eq(engine_inspect(e, take_tensor, &bad, &err), STATUS_OK);
    ck_assert_str_eq(bad.name, "blk.1.ffn_norm.weight");
    ck_assert_uint_eq(bad.non_finite, 2);
    ck_assert_uint_eq(bad.first_non_finite, 7);
    ck_assert(bad.fraction == 1);
    bad = (struct engine_tensor){0};
    FILE *f = fopen(path, "ab");
    ck_assert_int_eq(fputc(0, f), 0);
    fclose(f);
    ck_assert_int_eq(engine_inspect(e, take_tensor, &bad, &err), STATUS_MODEL_CHANGED);
    engine_close(e);
}
END

TEST(every_hostile_bpe_model_ends_as_expected)
{
    run_table(qwen2, sizeof qwen2 / sizeof qwen2[0],
              &(struct tiny_model){.architecture = "qwen2", .bpe = true, .type = 8, .seed = 12});
}
END

SUITE(hostile_models, T(every_hostile_llama_ends_as_expected), T(every_hostile_bpe_model_ends_as_expected),
      T(a_model_is_looked_through_for_damage))
