/* Golden logits of the reference, bit for bit: every model of the fixtures, across batch splits, thread counts, cache
 * states and tiers. */
#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/cpu/cpu.h"
#include "tests/support/evaluate.h"
#include "tests/support/suite.h"

struct golden {
    const char *model;
    int32_t *tokens, *greedy;
    size_t n_tokens, n_greedy, n_vocab;
    float *logits;
};

static int32_t *golden_ids(const cJSON *array, size_t *n)
{
    *n = (size_t)cJSON_GetArraySize(array);
    int32_t *ids = malloc((*n + 1) * sizeof *ids);
    size_t i = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, array) ids[i++] = (int32_t)item->valueint;
    return ids;
}

static char *fixture(const char *relative)
{
    char path[512];
    snprintf(path, sizeof path, "fixtures/%s", relative);
    const char *full = suite_shared(path);
    return full ? strdup(full) : NULL;
}

static struct golden golden_read(const cJSON *entry)
{
    struct golden g = {.model = cJSON_GetObjectItem(entry, "model")->valuestring};
    g.tokens = golden_ids(cJSON_GetObjectItem(entry, "tokens"), &g.n_tokens);
    g.greedy = golden_ids(cJSON_GetObjectItem(entry, "greedy"), &g.n_greedy);
    g.n_vocab = (size_t)cJSON_GetObjectItem(entry, "vocab")->valueint;
    char *path = fixture(cJSON_GetObjectItem(entry, "logits")->valuestring);
    size_t size = 0;
    g.logits = path ? (float *)(void *)suite_read(path, &size) : NULL;
    if (!g.logits || size != g.n_tokens * g.n_vocab * sizeof(float))
        ck_abort_msg("golden logits of %s are unreadable", g.model);
    free(path);
    return g;
}

static void golden_free(struct golden *g)
{
    free(g->tokens);
    free(g->greedy);
    free(g->logits);
}

static size_t differing(const struct golden *g, const float *rows, size_t from)
{
    size_t n = 0;
    for (size_t i = from * g->n_vocab; i < g->n_tokens * g->n_vocab; i++)
        n += memcmp(&rows[i], &g->logits[i], sizeof rows[i]) != 0;
    return n;
}

static size_t figures[3]; /* models, evaluations, logits compared */

static void expect_logits(const struct golden *g, struct evaluation *e, size_t from, size_t reuse, const char *how)
{
    float *rows = calloc(g->n_tokens * g->n_vocab, sizeof *rows);
    struct error err;
    if (evaluation_logits(e, g->tokens, g->n_tokens, from, reuse, rows, &err) != STATUS_OK)
        ck_abort_msg("%s, %s: %s", g->model, how, err.text);
    size_t n = differing(g, rows, from);
    if (n)
        ck_abort_msg("%s, %s: %zu of %zu logits differ", g->model, how, n, (g->n_tokens - from) * g->n_vocab);
    figures[1]++;
    figures[2] += (g->n_tokens - from) * g->n_vocab;
    free(rows);
}

static void expect_greedy(const struct golden *g, struct evaluation *e, const char *how)
{
    int32_t *tokens = malloc((g->n_tokens + g->n_greedy) * sizeof *tokens);
    struct error err;
    memcpy(tokens, g->tokens, g->n_tokens * sizeof *tokens);
    if (evaluation_greedy(e, tokens, g->n_tokens, g->n_greedy, &err) != STATUS_OK)
        ck_abort_msg("%s, %s: %s", g->model, how, err.text);
    for (size_t i = 0; i < g->n_greedy; i++)
        if (tokens[g->n_tokens + i] != g->greedy[i])
            ck_abort_msg("%s, %s: greedy token %zu is %d, not %d", g->model, how, i, tokens[g->n_tokens + i],
                         g->greedy[i]);
    free(tokens);
}

struct setting {
    const char *tier;
    unsigned batch, threads;
};

/* GGUFD_FULL=1: every setting and every seventh prefix, minutes instead of seconds. */
static bool is_full(void)
{
    return getenv("GGUFD_FULL") != NULL;
}

/* Cold, then warm from some prefixes, then greedy. */
static void expect_setting(const struct golden *g, const struct setting *s, bool warm)
{
    size_t step = is_full() ? 7 : g->n_tokens / 2;
    char how[96], *path = fixture(g->model);
    snprintf(how, sizeof how, "%s, batch %u, %u threads", s->tier, s->batch, s->threads);
    unsigned context = (unsigned)(g->n_tokens + g->n_greedy);
    struct evaluation e = evaluation_open(path, s->tier, context, s->batch, s->threads);
    expect_logits(g, &e, 0, 0, how);
    for (size_t k = 3; warm && k < g->n_tokens; k += step)
        expect_logits(g, &e, k, k, how);
    expect_greedy(g, &e, how);
    expect_logits(g, &e, g->n_tokens / 2, SIZE_MAX, how);
    evaluation_close(&e);
    free(path);
}

typedef void golden_function(const struct golden *g);

static void each_golden(golden_function *function)
{
    char *path = fixture("manifest.json"), *text = path ? suite_read(path, NULL) : NULL;
    cJSON *manifest = cJSON_Parse(text);
    if (!manifest)
        ck_abort_msg("the manifest is unreadable");
    const cJSON *entry;
    size_t i = 0;
    cJSON_ArrayForEach(entry, manifest)
    {
        if (suite_sanitized() && !is_full() && i++ % 4) /* the sanitizers see every fourth */
            continue;
        struct golden g = golden_read(entry);
        function(&g);
        golden_free(&g);
        figures[0]++;
    }
    cJSON_Delete(manifest);
    free(text);
    free(path);
    printf("note: %zu models, %zu evaluations, %zu logits, 0 differ\n", figures[0], figures[1], figures[2]);
}

static bool is_trained(const struct golden *g)
{
    return strstr(g->model, "stories") != NULL;
}

/* Whether setting i of a table belongs to this run. */
static bool is_chosen(const bool *quick, size_t i)
{
    return is_full() || (suite_sanitized() ? i == 0 : quick[i]);
}

static void scalar_splits(const struct golden *g)
{
    static const struct setting settings[] = {{"scalar", 7, 2}, {"scalar", 1, 1}, {"scalar", 64, 3}};
    static const bool quick[] = {true, false, false};
    for (size_t i = 0; i < 3; i++)
        if (is_chosen(quick, i))
            expect_setting(g, &settings[i], i == 0);
}

static void best_tier_splits(const struct golden *g)
{
    const char *best = cpu_tier_name(cpu_tier_best());
    const struct setting settings[] = {{best, 64, 2}, {best, 1, 1}, {best, 7, 3}, {best, 1, 3}, {best, 7, 1},
                                       {best, 64, 3}, {best, 32, 5}, {best, 512, 5}};
    static const bool quick[] = {true, true, true, false, false, false, true, true};
    for (size_t i = 0; i < (is_trained(g) ? 8 : 6); i++)
        if (is_chosen(quick, i))
            expect_setting(g, &settings[i], i == 0 || i == 2);
}

/* The tiers between scalar and best: one prefill and one decode. */
static void other_tiers(const struct golden *g)
{
    for (int tier = 0; tier < TIER_COUNT; tier++) {
        struct setting prefill = {cpu_tier_name((enum cpu_tier)tier), 24, 2}, decode = {prefill.tier, 1, 1};
        if (tier == TIER_SCALAR || tier == (int)cpu_tier_best() || !cpu_tier_available((enum cpu_tier)tier))
            continue;
        expect_setting(g, &prefill, false);
        if (is_full())
            expect_setting(g, &decode, false);
    }
}

TEST(scalar_logits_are_the_references)
{
    if (!suite_shared("fixtures/manifest.json"))
        SKIP("../shared/fixtures is missing");
    each_golden(scalar_splits);
}
END

TEST(logits_do_not_depend_on_tier_batch_threads_or_cache)
{
    if (!suite_shared("fixtures/manifest.json"))
        SKIP("../shared/fixtures is missing");
    each_golden(best_tier_splits);
}
END

TEST(every_tier_has_the_references_logits)
{
    if (!suite_shared("fixtures/manifest.json"))
        SKIP("../shared/fixtures is missing");
    each_golden(other_tiers);
}
END

SUITE(golden, T_SLOW(scalar_logits_are_the_references, 1200),
      T_SLOW(logits_do_not_depend_on_tier_batch_threads_or_cache, 1200),
      T_SLOW(every_tier_has_the_references_logits, 1200))
