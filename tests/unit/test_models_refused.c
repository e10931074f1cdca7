/* Every required key and every tensor of every architecture, spoilt in every way: the file is refused, and the message
 * names what is wrong. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/quant/quant.h"
#include "tests/support/evaluate.h"
#include "tests/support/model_cases.h"
#include "tests/support/suite.h"

static const struct model_case bases[] = {
    {.name = "base llama", .architecture = "llama", .format = "F16", .n_layers = 2, .n_embd = 64, .n_heads = 4,
     .n_heads_kv = 2, .head_size = 16, .n_ff = 96, .n_tokens = 1, .biases = true, .rope_freqs = true},
    {.name = "base experts", .architecture = "llama", .format = "F16", .n_layers = 2, .n_embd = 64, .n_heads = 4,
     .n_heads_kv = 2, .head_size = 16, .n_ff = 96, .n_tokens = 1, .n_experts = 4, .n_used = 2},
    {.name = "base mistral3", .architecture = "mistral3", .format = "F16", .n_layers = 1, .n_embd = 64, .n_heads = 4,
     .n_heads_kv = 2, .head_size = 32, .n_ff = 96, .n_tokens = 1, .scaling = "yarn", .factor = 4,
     .temperature = 0.1f, .original_context = 8},
    {.name = "base qwen2", .architecture = "qwen2", .format = "F16", .n_layers = 2, .n_embd = 64, .n_heads = 4,
     .n_heads_kv = 2, .head_size = 16, .n_ff = 96, .n_tokens = 1},
    {.name = "base qwen3", .architecture = "qwen3", .format = "F16", .n_layers = 2, .n_embd = 64, .n_heads = 4,
     .n_heads_kv = 2, .head_size = 24, .n_ff = 96, .n_tokens = 1},
};
enum { BASES = sizeof bases / sizeof bases[0] };

static char path[256];
static size_t n_refused;

static enum status open_model(struct gguf_builder *b, struct error *err)
{
    snprintf(path, sizeof path, "%s/model.gguf", suite_tmp());
    gguf_builder_write(b, path);
    gguf_builder_free(b);
    struct engine_options options = {.model = path, .threads = 1};
    struct engine *e;
    err->text[0] = '\0';
    enum status s = engine_open(&options, &e, err);
    engine_close(e);
    return s;
}

static void expect_refused(struct gguf_builder *b, const char *what, const char *names)
{
    struct error err;
    if (open_model(b, &err) == STATUS_OK)
        ck_abort_msg("%s: accepted", what);
    if (!strstr(err.text, names))
        ck_abort_msg("%s: \"%s\" does not name %s", what, err.text, names);
    n_refused++;
}

static void expect_accepted(struct gguf_builder *b, const char *what)
{
    struct error err;
    if (open_model(b, &err) != STATUS_OK)
        ck_abort_msg("%s: %s", what, err.text);
}

/* ---- keys ---- */

struct number_case {
    const char *key;
    double value;
    const char *names; /* what the message must hold; NULL: the key */
};

static const struct number_case integers[] = {
    {"context_length", 0, NULL},
    {"context_length", 4294967295.0, NULL},
    {"embedding_length", 0, NULL},
    {"embedding_length", 63, "63"},
    {"embedding_length", 65, "65"},
    {"embedding_length", 4294967295.0, NULL},
    {"block_count", 0, NULL},
    {"block_count", 3, "blk."},
    {"block_count", 1u << 31, NULL},
    {"block_count", 4294967295.0, NULL},
    {"feed_forward_length", 0, NULL},
    {"feed_forward_length", 64, "ffn_"},
    {"feed_forward_length", 4294967295.0, NULL},
    {"attention.head_count", 0, NULL},
    {"attention.head_count", 3, "head_count"},
    {"attention.head_count", 4294967295.0, NULL},
    {"attention.head_count_kv", 0, NULL},
    {"attention.head_count_kv", 3, NULL},
    {"attention.head_count_kv", 5, NULL},
    {"attention.head_count_kv", 8, NULL},
    {"attention.head_count_kv", 1, "attn_k"},
    {"attention.key_length", 0, NULL},
    {"attention.key_length", 7, NULL},
    {"attention.key_length", 4294967295.0, NULL},
    {"attention.value_length", 0, NULL},
    {"attention.value_length", 8, NULL},
    {"rope.dimension_count", 0, NULL},
    {"rope.dimension_count", 1, NULL},
    {"rope.dimension_count", 7, NULL},
    {"rope.dimension_count", 34, NULL},
    {"rope.scaling.original_context_length", 4294967295.0, NULL},
    {"vocab_size", 419, NULL},
    {"expert_group_count", 2, NULL},
    {"nextn_predict_layers", 1, NULL},
};

static const struct number_case floats[] = {
    {"attention.layer_norm_rms_epsilon", 0, NULL},
    {"attention.layer_norm_rms_epsilon", -1, NULL},
    {"attention.layer_norm_rms_epsilon", NAN, NULL},
    {"attention.layer_norm_rms_epsilon", INFINITY, NULL},
    {"rope.freq_base", 0, NULL},
    {"rope.freq_base", -1, NULL},
    {"rope.freq_base", NAN, NULL},
    {"rope.freq_base", INFINITY, NULL},
    {"rope.scaling.factor", -4, NULL},
    {"rope.scaling.factor", NAN, NULL},
    {"rope.scaling.factor", INFINITY, NULL},
    {"rope.scaling.factor", 1e-30, NULL},
    {"rope.scale_linear", -1, NULL},
    {"rope.scale_linear", NAN, NULL},
    {"rope.scaling.attn_factor", 0, NULL},
    {"rope.scaling.attn_factor", NAN, NULL},
};

/* Keys that only mistral3 reads. */
static const struct number_case mistral3_floats[] = {
    {"rope.scaling.yarn_beta_fast", 0, NULL},
    {"rope.scaling.yarn_beta_fast", NAN, NULL},
    {"rope.scaling.yarn_beta_slow", -1, NULL},
    {"rope.scaling.yarn_beta_slow", INFINITY, NULL},
    {"rope.scaling.yarn_log_multiplier", -1, NULL},
    {"rope.scaling.yarn_log_multiplier", NAN, NULL},
    {"attention.temperature_scale", -1, NULL},
    {"attention.temperature_scale", NAN, NULL},
};

static const struct number_case expert_integers[] = {
    {"expert_count", 513, NULL},
    {"expert_count", 4294967295.0, NULL},
    {"expert_count", 3, "ffn_gate_inp"},
    {"expert_count", 1, "expert_used_count"},
    {"expert_count", 0, "expert"},
    {"expert_used_count", 0, NULL},
    {"expert_used_count", 5, NULL},
    {"expert_used_count", 4294967295.0, NULL},
};

static const char *const required_keys[] = {
    "context_length", "embedding_length", "block_count", "feed_forward_length", "attention.head_count",
    "attention.layer_norm_rms_epsilon",
};

static void expect_numbers(const struct model_case *base, const struct number_case *cases, size_t n, bool integer)
{
    for (size_t i = 0; i < n; i++) {
        struct gguf_builder *b = model_case_build(base);
        char key[96], what[160];
        snprintf(key, sizeof key, "%s.%s", base->architecture, cases[i].key);
        snprintf(what, sizeof what, "%s with %s = %g", base->name, key, cases[i].value);
        if (integer)
            gguf_builder_u32(b, key, (uint32_t)cases[i].value);
        else
            gguf_builder_f32(b, key, (float)cases[i].value);
        expect_refused(b, what, cases[i].names ? cases[i].names : cases[i].key);
    }
}

#define NUMBERS(base, table, integer) expect_numbers(base, table, sizeof table / sizeof table[0], integer)

TEST(keys_out_of_range_are_refused_by_name)
{
    for (size_t i = 0; i < BASES; i++) {
        expect_accepted(model_case_build(&bases[i]), bases[i].name);
        NUMBERS(&bases[i], integers, true);
        NUMBERS(&bases[i], floats, false);
        if (strcmp(bases[i].architecture, "mistral3") == 0)
            NUMBERS(&bases[i], mistral3_floats, false);
        if (bases[i].n_experts)
            NUMBERS(&bases[i], expert_integers, true);
    }
    printf("note: %zu files refused\n", n_refused);
}
END

TEST(missing_and_mistyped_keys_are_refused_by_name)
{
    for (size_t i = 0; i < BASES; i++)
        for (size_t k = 0; k < sizeof required_keys / sizeof required_keys[0]; k++) {
            char key[96];
            snprintf(key, sizeof key, "%s.%s", bases[i].architecture, required_keys[k]);
            struct gguf_builder *b = model_case_build(&bases[i]);
            ck_assert(gguf_builder_remove_key(b, key));
            expect_refused(b, "without the key", key);
            b = model_case_build(&bases[i]);
            gguf_builder_string(b, key, "4");
            expect_refused(b, "the key as a string", key);
        }
}
END

static struct gguf_builder *llama(void)
{
    return model_case_build(&bases[0]);
}

TEST(what_would_change_the_result_is_refused)
{
    struct gguf_builder *b = llama();
    gguf_builder_string(b, "llama.rope.scaling.type", "longrope");
    expect_refused(b, "longrope", "\"longrope\"; supported are none, linear, yarn");
    b = llama();
    gguf_builder_bool(b, "llama.attention.causal", false);
    expect_refused(b, "not causal", "attention.causal");
    b = llama();
    gguf_builder_string(b, "general.architecture", "gemma4");
    expect_refused(b, "another architecture", "\"gemma4\" is not supported; supported are llama, mistral3, qwen2, qwen3");
    b = llama();
    gguf_builder_string(b, "general.architecture", "a\n\x1b[31m");
    expect_refused(b, "terminal escapes", "\"a\\x0a\\x1b[31m\"");
    b = llama();
    gguf_builder_remove_key(b, "general.architecture");
    expect_refused(b, "no architecture", "general.architecture");
    b = llama();
    gguf_builder_string(b, "general.architecture", "gemma4");
    gguf_builder_string(b, "tokenizer.ggml.model", "gemma4");
    expect_refused(b, "an architecture with a vocabulary of its own", "architecture \"gemma4\"");
    b = llama();
    gguf_builder_string(b, "general.type", "adapter");
    gguf_builder_remove_key(b, "tokenizer.ggml.model");
    expect_refused(b, "an adapter", "general.type");
    b = llama();
    gguf_builder_string(b, "llama.rope.scaling.type", "yarn");
    gguf_builder_u32(b, "llama.rope.scaling.original_context_length", 0);
    expect_refused(b, "YaRN without original context", "original_context_length");
    b = model_case_build(&bases[2]);
    gguf_builder_string(b, "mistral3.rope.scaling.type", "none");
    gguf_builder_u32(b, "mistral3.rope.scaling.original_context_length", 0);
    expect_refused(b, "temperature without original context", "attention.temperature_scale");
    b = llama();
    uint32_t heads[2] = {4, 2};
    gguf_builder_array(b, "llama.attention.head_count_kv", GGUF_U32, 2, heads, sizeof heads);
    expect_refused(b, "layers that differ", "head_count_kv");
    b = llama();
    uint32_t three[3] = {4, 4, 4};
    gguf_builder_array(b, "llama.attention.head_count", GGUF_U32, 3, three, sizeof three);
    expect_refused(b, "an array that is too long", "head_count");
    b = model_case_build(&bases[3]);
    gguf_builder_u32(b, "qwen2.attention.key_length", 32);
    gguf_builder_u32(b, "qwen2.attention.value_length", 32);
    gguf_builder_u32(b, "qwen2.rope.dimension_count", 32);
    expect_refused(b, "qwen2 heads wider than the embedding", "embedding_length");
}
END

/* ---- tensors ---- */

struct tensor_facts {
    char name[64];
    uint32_t type, n_dims;
    uint64_t dims[4];
};

/* Directory of a base model. */
static struct tensor_facts *read_tensors(const struct model_case *base, size_t *n)
{
    struct gguf_builder *b = model_case_build(base);
    struct gguf *g;
    struct error err;
    snprintf(path, sizeof path, "%s/base.gguf", suite_tmp());
    gguf_builder_write(b, path);
    gguf_builder_free(b);
    ck_assert_int_eq(gguf_open(path, NULL, &g, &err), STATUS_OK);
    *n = gguf_tensor_count(g);
    struct tensor_facts *facts = calloc(*n, sizeof *facts);
    for (size_t i = 0; i < *n; i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        snprintf(facts[i].name, sizeof facts[i].name, "%.*s", (int)t->name.size, t->name.data);
        facts[i].type = t->format->id;
        facts[i].n_dims = t->n_dims;
        memcpy(facts[i].dims, t->dims, sizeof facts[i].dims);
    }
    gguf_close(g);
    return facts;
}

static bool is_optional(const char *name)
{
    return strstr(name, ".bias") || strcmp(name, "output.weight") == 0 || strcmp(name, "rope_freqs.weight") == 0;
}

static void retyped(const struct model_case *base, const struct tensor_facts *t, uint32_t type, const uint64_t *dims,
                    uint32_t n_dims, const char *what)
{
    struct gguf_builder *b = model_case_build(base);
    ck_assert(gguf_builder_remove_tensor(b, t->name));
    gguf_builder_tensor(b, t->name, type, n_dims, dims, NULL, 0);
    expect_refused(b, what, t->name);
}

static void expect_tensor(const struct model_case *base, const struct tensor_facts *t)
{
    struct gguf_builder *b = model_case_build(base);
    gguf_builder_remove_tensor(b, t->name);
    if (is_optional(t->name))
        expect_accepted(b, t->name);
    else
        expect_refused(b, "without the tensor", t->name);
    b = model_case_build(base);
    gguf_builder_rename_tensor(b, t->name, "surplus.weight");
    expect_refused(b, "another name", is_optional(t->name) ? "surplus.weight" : t->name);
    uint64_t dims[4] = {t->dims[0] + 32, t->dims[1], t->dims[2], t->dims[3]};
    retyped(base, t, t->type, dims, t->n_dims, "longer rows");
    memcpy(dims, t->dims, sizeof dims);
    dims[t->n_dims - 1]++;
    retyped(base, t, t->type, dims, t->n_dims, "one row more");
    if (t->n_dims > 1 && t->dims[0] != t->dims[1]) {
        uint64_t swapped[4] = {t->dims[1], t->dims[0], t->dims[2], t->dims[3]};
        retyped(base, t, t->type, swapped, t->n_dims, "transposed");
    }
    if (t->n_dims == 1) {
        retyped(base, t, format_by_name("F16")->id, t->dims, 1, "a vector in F16");
        retyped(base, t, format_by_name("BF16")->id, t->dims, 1, "a vector in BF16");
    }
    uint64_t fourth[4] = {t->dims[0], t->dims[1], t->dims[2], 2};
    retyped(base, t, t->type, fourth, 4, "a fourth dimension");
}

TEST(missing_misshapen_and_mistyped_tensors_are_refused_by_name)
{
    for (size_t i = 0; i < BASES; i++) {
        size_t n;
        struct tensor_facts *facts = read_tensors(&bases[i], &n);
        for (size_t t = 0; t < n; t++)
            expect_tensor(&bases[i], &facts[t]);
        free(facts);
    }
    printf("note: %zu files refused\n", n_refused);
}
END

TEST(a_vocabulary_of_another_length_is_refused_with_both_numbers)
{
    for (int by = -1; by <= 1; by += 2) {
        struct gguf_builder *b = llama();
        uint64_t dims[2] = {64, (uint64_t)(MODEL_CASE_VOCAB + by)};
        char rows[32];
        gguf_builder_remove_tensor(b, "token_embd.weight");
        gguf_builder_tensor(b, "token_embd.weight", 1, 2, dims, NULL, 0);
        snprintf(rows, sizeof rows, "has %d rows", MODEL_CASE_VOCAB + by);
        struct error err;
        ck_assert_int_ne(open_model(b, &err), STATUS_OK);
        ck_assert_ptr_nonnull(strstr(err.text, "355 tokens"));
        ck_assert_ptr_nonnull(strstr(err.text, rows));
    }
}
END

TEST(tensors_of_unsupported_features_say_why)
{
    static const char *const extra[][2] = {
        {"blk.0.attn_qkv.weight", "fused"},
        {"blk.1.ffn_down.scale", "scales"},
        {"blk.0.attn_q.weight.lora_a", "adapter"},
        {"blk.0.ffn_gate_shexp.weight", "no use"},
        {"blk.2.attn_q.weight", "2 layers"},
    };
    for (size_t i = 0; i < sizeof extra / sizeof extra[0]; i++) {
        struct gguf_builder *b = llama();
        uint64_t dims[2] = {64, 128};
        gguf_builder_tensor(b, extra[i][0], 0, 2, dims, NULL, 0);
        struct error err;
        ck_assert_int_eq(open_model(b, &err), STATUS_UNSUPPORTED);
        if (!strstr(err.text, extra[i][0]) || !strstr(err.text, extra[i][1]))
            ck_abort_msg("%s", err.text);
    }
}
END

TEST(frequency_factors_must_be_finite_and_not_zero)
{
    const float wrong[] = {0, NAN, INFINITY};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct gguf_builder *b = llama();
        memcpy(gguf_builder_tensor_data(b, "rope_freqs.weight", NULL) + 8, &wrong[i], sizeof wrong[i]);
        expect_refused(b, "a factor", "rope_freqs.weight: value 2");
    }
}
END

/* Flips bytes of header, keys and directory: refused or run, never a fault. */
TEST(no_flipped_byte_of_the_metadata_is_fatal)
{
    uint64_t state = 77;
    size_t n_run = 0;
    struct buffer images[BASES];
    for (size_t i = 0; i < BASES; i++) {
        struct gguf_builder *b = model_case_build(&bases[i]);
        buffer_init(&images[i]);
        gguf_builder_image(b, &images[i]);
        gguf_builder_free(b);
    }
    for (int round = 0; round < (suite_sanitized() ? 150 : 600); round++) {
        struct buffer image;
        buffer_init(&image);
        buffer_append(&image, images[round % BASES].data, images[round % BASES].size);
        /* the keys of the architecture come before the vocabulary: half of the flips go there */
        size_t end = gguf_image_field(image.data, image.size, "directory_end");
        size_t range = round % 2 ? end : 1024;
        for (int flips = 1 + (int)(test_random(&state) % 2); flips > 0; flips--)
            image.data[test_random(&state) % range] ^= (char)(1 << test_random(&state) % 8);
        snprintf(path, sizeof path, "%s/flipped.gguf", suite_tmp());
        gguf_image_write(image.data, image.size, path);
        buffer_clear(&image);
        struct engine_options options = {.model = path, .threads = 1, .context = 32};
        struct evaluation e = {NULL, NULL};
        struct error err = {.text = ""};
        if (engine_open(&options, &e.engine, &err) == STATUS_OK && session_new(e.engine, &e.session, &err) == STATUS_OK) {
            int32_t tokens[4] = {1, 2, 3, 4};
            float *rows = calloc(4 * engine_info(e.engine)->n_vocab, sizeof *rows);
            enum status s = evaluation_logits(&e, tokens, 4, 0, 0, rows, &err);
            if (s != STATUS_OK && s != STATUS_NON_FINITE)
                ck_abort_msg("round %d: %s", round, err.text);
            free(rows);
            n_run++;
        } else if (err.text[0] == '\0') {
            ck_abort_msg("round %d: refused without a word", round);
        }
        evaluation_close(&e);
    }
    for (size_t i = 0; i < BASES; i++)
        buffer_clear(&images[i]);
    printf("note: %zu flipped files ran\n", n_run);
    ck_assert_uint_gt(n_run, 0);
}
END

TEST(memory_is_refused_with_numbers_before_it_is_taken)
{
    struct engine_options options = {.context = 1 << 30, .batch = 1 << 14};
    struct engine *e;
    struct error err;
    open_model(llama(), &err);
    options.model = path;
    ck_assert_int_eq(engine_open(&options, &e, &err), STATUS_NO_MEMORY);
    ck_assert_ptr_null(e);
    ck_assert_ptr_nonnull(strstr(err.text, "MiB needed (KV cache of 1073741824 tokens"));
    ck_assert_ptr_nonnull(strstr(err.text, "MiB available"));
    options.context = UINT32_MAX;
    ck_assert_int_eq(engine_open(&options, &e, &err), STATUS_RANGE);
    options.context = 0;
    options.batch = UINT32_MAX;
    ck_assert_int_eq(engine_open(&options, &e, &err), STATUS_RANGE);
    options.batch = 0;
    options.threads = UINT32_MAX;
    ck_assert_int_eq(engine_open(&options, &e, &err), STATUS_RANGE);
    options.threads = 0;
    options.tier = "sse9";
    ck_assert_int_ne(engine_open(&options, &e, &err), STATUS_OK);
}
END

SUITE(models_refused, T(keys_out_of_range_are_refused_by_name), T(missing_and_mistyped_keys_are_refused_by_name),
      T(what_would_change_the_result_is_refused), T(missing_misshapen_and_mistyped_tensors_are_refused_by_name),
      T(a_vocabulary_of_another_length_is_refused_with_both_numbers), T(tensors_of_unsupported_features_say_why),
      T(frequency_factors_must_be_finite_and_not_zero), T(no_flipped_byte_of_the_metadata_is_fatal),
      T(memory_is_refused_with_numbers_before_it_is_taken))
