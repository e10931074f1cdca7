/* Architectures: the reference's logits for models that exercise one feature each (hashes checked in), and what a file
 * may look like. Needs nothing outside the clone. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/hash.h"
#include "tests/support/evaluate.h"
#include "tests/support/model_cases.h"
#include "tests/support/suite.h"

static const char *write_model(struct gguf_builder *b)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/model.gguf", suite_tmp());
    gguf_builder_write(b, path);
    gguf_builder_free(b);
    return path;
}

static uint64_t case_hash(const struct model_case *c, const char *path, const char *tier, unsigned batch,
                          unsigned threads)
{
    size_t n = (size_t)c->n_tokens * MODEL_CASE_VOCAB;
    int32_t *tokens = calloc(c->n_tokens, sizeof *tokens);
    float *rows = calloc(n, sizeof *rows);
    struct evaluation e = evaluation_open(path, tier, c->n_tokens, batch, threads);
    struct error err;
    model_case_tokens(c, tokens);
    if (evaluation_logits(&e, tokens, c->n_tokens, 0, 0, rows, &err) != STATUS_OK)
        ck_abort_msg("%s: %s", c->name, err.text);
    uint64_t hash = hash_bytes(HASH_SEED, rows, n * sizeof *rows);
    evaluation_close(&e);
    free(tokens);
    free(rows);
    return hash;
}

static void expect_cases(const char *tier, unsigned batch, unsigned threads)
{
    for (const struct model_case *c = model_cases; c->name; c++) {
        if (suite_sanitized() && c->n_tokens > 60)
            continue;
        uint64_t hash = case_hash(c, write_model(model_case_build(c)), tier, batch, threads);
        if (hash != c->hash)
            ck_abort_msg("%s, %s, batch %u, %u threads: 0x%016" PRIx64 ", not 0x%016" PRIx64, c->name, tier, batch,
                         threads, hash, c->hash);
    }
}

TEST(scalar_logits_of_every_feature_are_the_references)
{
    expect_cases("scalar", 64, 2);
}
END

TEST(best_tier_prefill_has_the_references_logits)
{
    expect_cases("auto", 33, 3);
}
END

TEST(best_tier_decode_has_the_references_logits)
{
    if (suite_tsan())
        SKIP("one thread has no races");
    expect_cases("auto", 1, 1);
}
END

static const struct model_case *find_case(const char *name)
{
    const struct model_case *c = model_cases;
    while (strcmp(c->name, name) != 0)
        c++;
    return c;
}

TEST(arrays_of_equal_entries_stand_for_one_number)
{
    const struct model_case *c = find_case("llama-f32");
    struct gguf_builder *b = model_case_build(c);
    uint32_t heads[2] = {c->n_heads, c->n_heads}, kv[2] = {c->n_heads_kv, c->n_heads_kv}, ff[2] = {c->n_ff, c->n_ff};
    gguf_builder_array(b, "llama.attention.head_count", GGUF_U32, 2, heads, sizeof heads);
    gguf_builder_array(b, "llama.attention.head_count_kv", GGUF_I32, 2, kv, sizeof kv);
    gguf_builder_array(b, "llama.feed_forward_length", GGUF_U32, 2, ff, sizeof ff);
    ck_assert_uint_eq(case_hash(c, write_model(b), "auto", 8, 2), c->hash);
}
END

TEST(a_tied_model_uses_the_embedding_as_output)
{
    struct tiny_model tiny = {.architecture = "llama", .tied = true, .seed = 5};
    struct evaluation tied = evaluation_open(write_model(gguf_builder_tiny(&tiny)), "auto", 0, 0, 1);
    uint32_t n = engine_info(tied.engine)->n_vocab;
    int32_t tokens[3] = {1, 300, 310};
    float *a = calloc(3 * n, sizeof *a), *b = calloc(3 * n, sizeof *b);
    struct error err;
    ck_assert_int_eq(evaluation_logits(&tied, tokens, 3, 0, 0, a, &err), STATUS_OK);
    evaluation_close(&tied);
    struct gguf_builder *builder = gguf_builder_tiny(&tiny);
    uint64_t dims[2] = {64, n};
    size_t bytes;
    char *embedding = gguf_builder_tensor_data(builder, "token_embd.weight", &bytes), *copy = malloc(bytes);
    memcpy(copy, embedding, bytes);
    gguf_builder_tensor(builder, "output.weight", 0, 2, dims, copy, bytes);
    free(copy);
    struct evaluation own = evaluation_open(write_model(builder), "auto", 0, 0, 1);
    ck_assert_int_eq(evaluation_logits(&own, tokens, 3, 0, 0, b, &err), STATUS_OK);
    ck_assert_mem_eq(a, b, 3 * n * sizeof *a);
    evaluation_close(&own);
    free(a);
    free(b);
}
END

TEST(a_vocabulary_may_have_any_architecture)
{
    struct tiny_model tiny = {.architecture = "gemma4", .vocabulary_only = true};
    struct engine_options options = {.model = write_model(gguf_builder_tiny(&tiny))};
    struct engine *e;
    struct session *s;
    struct error err;
    struct engine_ids ids = {0};
    ck_assert_int_eq(engine_open(&options, &e, &err), STATUS_OK);
    ck_assert(engine_info(e)->vocabulary_only);
    ck_assert_str_eq(engine_info(e)->architecture, "gemma4");
    ck_assert_int_eq(engine_tokenize(e, span_of("the hello"), 0, SIZE_MAX, &ids, &err), STATUS_OK);
    ck_assert_uint_gt(ids.count, 0);
    engine_ids_clear(&ids);
    ck_assert_int_eq(session_new(e, &s, &err), STATUS_VOCABULARY_ONLY);
    ck_assert_ptr_null(s);
    engine_close(e);
}
END

static void count_notes(void *context, enum log_level level, const char *text)
{
    int *n = context;
    (void)level;
    n[0] += strstr(text, "no effect") != NULL;
    n[1] += strstr(text, "sliding_window") != NULL;
}

TEST(keys_that_the_reference_ignores_are_logged_once)
{
    const struct model_case *c = find_case("llama-f32");
    struct gguf_builder *b = model_case_build(c);
    int notes[2] = {0, 0};
    gguf_builder_u32(b, "llama.attention.sliding_window", 8);
    gguf_builder_f32(b, "llama.attention.scale", 0.5f);
    gguf_builder_bool(b, "llama.attention.causal", true);
    struct engine_options options = {.model = write_model(b), .log = {count_notes, notes}};
    struct engine *e;
    struct error err;
    ck_assert_int_eq(engine_open(&options, &e, &err), STATUS_OK);
    engine_close(e);
    ck_assert_int_eq(notes[0], 1);
    ck_assert_int_eq(notes[1], 1);
    ck_assert_uint_eq(case_hash(c, options.model, "auto", 8, 1), c->hash);
}
END

TEST(the_page_on_adding_a_model_shows_the_file)
{
    char *page = suite_read(suite_root("docs/adding-a-model.md"), NULL);
    char *file = suite_read(suite_root("engine/models/qwen3.c"), NULL);
    ck_assert_ptr_nonnull(page);
    ck_assert_ptr_nonnull(file);
    ck_assert_ptr_nonnull(strstr(page, file));
    free(page);
    free(file);
}
END

SUITE(models, T(scalar_logits_of_every_feature_are_the_references), T(best_tier_prefill_has_the_references_logits),
      T(best_tier_decode_has_the_references_logits), T(arrays_of_equal_entries_stand_for_one_number),
      T(a_tied_model_uses_the_embedding_as_output), T(a_vocabulary_may_have_any_architecture),
      T(keys_that_the_reference_ignores_are_logged_once), T(the_page_on_adding_a_model_shows_the_file))
