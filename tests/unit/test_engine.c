/* The engine's account of a model and of memory, and reading rows of logits. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/engine_state.h"
#include "engine/memory.h"
#include "engine/ops/math.h"
#include "tests/support/evaluate.h"
#include "tests/support/gguf_builder.h"
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

/* ---- engine_info ---- */

TEST(the_account_of_a_model_is_complete)
{
    struct tiny_model tiny = {.architecture = "qwen2", .type = 8, .n_layers = 3, .seed = 3};
    struct gguf_builder *b = gguf_builder_tiny(&tiny);
    gguf_builder_string(b, "general.name", "T\xc3\xafny\n\x1b[1m \xff!");
    struct evaluation e = evaluation_open(write_model(b), "scalar", 100, 200, 2);
    const struct engine_info *info = engine_info(e.engine);
    ck_assert_str_eq(info->name, "T\xc3\xafny??[1m ?!");
    ck_assert_str_eq(info->architecture, "qwen2");
    ck_assert(!info->vocabulary_only);
    ck_assert_uint_eq(info->n_vocab, 355);
    ck_assert_uint_eq(info->context, 100);
    ck_assert_uint_eq(info->context_trained, 256);
    ck_assert_uint_eq(info->batch, 100); /* no longer than the context */
    ck_assert_uint_eq(info->n_layers, 3);
    ck_assert_uint_eq(info->n_embd, 64);
    ck_assert_uint_eq(info->n_heads, 4);
    ck_assert_uint_eq(info->n_heads_kv, 2);
    ck_assert_int_eq(info->bos, 1);
    ck_assert_int_eq(info->eos, 2);
    ck_assert_int_eq(info->padding, -1);
    ck_assert_str_eq(info->tokenizer, "llama");
    ck_assert_str_eq(info->tier, "scalar");
    ck_assert_uint_eq(info->threads, 2);
    ck_assert_uint_gt(strlen(info->threads_reason), 0);
    ck_assert_uint_eq(strlen(info->fingerprint), 16);
    uint64_t tensors = 0, bytes = 0;
    for (size_t i = 0; i < info->n_types; i++) {
        tensors += info->types[i].tensors;
        bytes += info->types[i].bytes;
    }
    ck_assert_uint_eq(info->n_types, 2); /* Q8_0 and F32 */
    ck_assert_uint_eq(tensors, 3 + 3 * 12);
    ck_assert_uint_lt(bytes, info->file_bytes);
    size_t layer = 64 * 64 * 2 + 64 * 32 * 2 + 3 * 64 * 96 + 64 * 2 + 64 + 32 * 2;
    ck_assert_uint_eq(info->parameters, 2 * 355 * 64 + 64 + 3 * layer);
    evaluation_close(&e);
}
END

TEST(memory_is_accounted_before_it_is_taken)
{
    struct tiny_model tiny = {.architecture = "llama", .seed = 3, .context = 8192};
    struct engine_options options = {.model = write_model(gguf_builder_tiny(&tiny))};
    struct engine *e;
    struct error err;
    ck_assert_int_eq(engine_open(&options, &e, &err), STATUS_OK);
    const struct engine_info *info = engine_info(e);
    ck_assert_uint_eq(info->context, 4096);
    ck_assert_uint_eq(info->batch, 256);
    const struct engine_memory *m = &info->memory;
    size_t kv = 2u * 2 * 2 * 16 * 4096 * 2; /* K and V, layers, heads, head size, positions, F16 */
    ck_assert(m->kv_bytes >= kv && m->kv_bytes < kv + 65536);
    ck_assert_uint_gt(m->arena_bytes, 256 * 64 * 4);
    ck_assert_uint_gt(m->vocabulary_bytes, 0);
    ck_assert_uint_eq(m->anonymous_bytes, m->kv_bytes + m->arena_bytes + m->vocabulary_bytes);
    ck_assert_uint_gt(m->available_bytes, m->anonymous_bytes);
    engine_close(e);
}
END

struct stages {
    int n, ready;
    double last;
};

static void on_stage(void *context, const char *stage, double fraction)
{
    struct stages *s = context;
    s->n++;
    s->ready += strcmp(stage, "ready") == 0;
    if (strcmp(stage, "read") == 0) {
        ck_assert(fraction >= s->last && fraction <= 1);
        s->last = fraction;
    }
}

TEST(opening_reports_progress_and_reads_the_file_in_when_asked)
{
    struct tiny_model tiny = {.architecture = "llama", .seed = 3};
    struct stages stages = {0};
    struct engine_options options = {.model = write_model(gguf_builder_tiny(&tiny)), .prefault = true,
                                     .lock_memory = true, .progress = on_stage, .progress_context = &stages};
    struct engine *e;
    struct error err;
    ck_assert_int_eq(engine_open(&options, &e, &err), STATUS_OK);
    ck_assert_int_eq(stages.ready, 1);
    ck_assert_int_ge(stages.n, 4);
    ck_assert(stages.last == 1);
    engine_close(e);
}
END

/* ---- plan ---- */

/* Every case's graph, at several sizes: no live buffers overlap, and workers meet ten times a dense layer at most. */
TEST(plans_keep_live_buffers_apart)
{
    static const unsigned batches[] = {1, 2, 17, 256};
    for (const struct model_case *c = model_cases; c->name; c++) {
        struct evaluation e = evaluation_open(write_model(model_case_build(c)), "auto", 300, 0, 1);
        for (size_t i = 0; i < sizeof batches / sizeof batches[0]; i++) {
            struct graph *g = &e.engine->graph;
            struct error err;
            ck_assert_int_eq(graph_plan(g, batches[i], 300, 4, &err), STATUS_OK);
            ck_assert_int_eq(graph_check_plan(g, &err), STATUS_OK);
            size_t barriers = 0;
            for (size_t n = 0; n < g->n_nodes; n++)
                barriers += g->nodes[n].barrier;
            size_t most = (c->n_experts ? 15 : 10) * (size_t)c->n_layers + 5;
            if (barriers > most)
                ck_abort_msg("%s: %zu barriers", c->name, barriers);
        }
        evaluation_close(&e);
    }
}
END

/* ---- memory limits ---- */

static char root[256];

static void put(const char *path, const char *text)
{
    char full[512];
    snprintf(full, sizeof full, "%s", root);
    for (const char *at = path; (at = strchr(at + 1, '/')) != NULL;) {
        snprintf(full, sizeof full, "%s%.*s", root, (int)(at - path), path);
        mkdir(full, 0700);
    }
    snprintf(full, sizeof full, "%s%s", root, path);
    FILE *f = fopen(full, "w");
    ck_assert_ptr_nonnull(f);
    fputs(text, f);
    fclose(f);
}

TEST(available_memory_is_the_least_of_all_limits)
{
    snprintf(root, sizeof root, "%s", suite_tmp());
    ck_assert_uint_eq(memory_available(root), 0);
    put("/proc/meminfo", "MemTotal:  9000 kB\nMemFree: 1 kB\nMemAvailable:    5000 kB\n");
    ck_assert_uint_eq(memory_available(root), 5000 * 1024);
    put("/proc/self/cgroup", "0::/a.slice/b.service\n");
    put("/sys/fs/cgroup/a.slice/b.service/memory.max", "max\n");
    put("/sys/fs/cgroup/a.slice/memory.max", "4000000\n");
    ck_assert_uint_eq(memory_available(root), 4000000);
    put("/sys/fs/cgroup/a.slice/memory.current", "1500000\n");
    ck_assert_uint_eq(memory_available(root), 2500000);
    put("/sys/fs/cgroup/a.slice/memory.stat", "anon 500000\nfile 900000\nfile_mapped 7\n");
    ck_assert_uint_eq(memory_available(root), 3400000); /* page cache gives way */
    put("/sys/fs/cgroup/memory.max", "1000000\n");
    ck_assert_uint_eq(memory_available(root), 1000000);
    put("/sys/fs/cgroup/a.slice/b.service/memory.max", "10\n");
    put("/sys/fs/cgroup/a.slice/b.service/memory.current", "20\n");
    ck_assert_uint_eq(memory_available(root), 1); /* none left: not the same as unknown */
    put("/proc/self/cgroup", "5:cpu,memory:/old\n1:name=systemd:/x\n");
    put("/sys/fs/cgroup/memory/old/memory.limit_in_bytes", "2000000\n");
    put("/sys/fs/cgroup/memory/old/memory.usage_in_bytes", "600000\n");
    put("/sys/fs/cgroup/memory/old/memory.stat", "cache 1\ntotal_cache 100000\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    ck_assert_uint_eq(memory_available(root), 1500000);
}
END

/* ---- logits ---- */

static float row[1000];

static void random_row(uint64_t seed, size_t n)
{
    for (size_t i = 0; i < n; i++)
        row[i] = (float)(int)(test_random(&seed) % 200) / 8 - 10; /* many ties */
}

/* Plain definition: how many come before. */
static size_t rank_of(size_t n, size_t id)
{
    size_t before = 0;
    for (size_t i = 0; i < n; i++)
        before += row[i] > row[id] || (row[i] == row[id] && i < id);
    return before;
}

TEST(ties_go_to_the_lower_id)
{
    for (uint64_t seed = 1; seed < 20; seed++) {
        size_t n = 1 + seed * 53 % 1000;
        random_row(seed, n);
        struct logits_entry top[100];
        size_t kept = logits_top(row, n, 100, top);
        ck_assert_uint_eq(kept, n < 100 ? n : 100);
        ck_assert_int_eq(top[0].id, logits_argmax(row, n));
        for (size_t i = 0; i < kept; i++) {
            if (rank_of(n, (size_t)top[i].id) != i || logits_rank(row, n, top[i].id) != i ||
                top[i].logit != row[top[i].id])
                ck_abort_msg("place %zu holds %d", i, top[i].id);
        }
        ck_assert_uint_eq(logits_top(row, n, 0, top), 0);
    }
}
END

TEST(log_probabilities_follow_their_definition)
{
    for (uint64_t seed = 30; seed < 40; seed++) {
        size_t n = 1 + seed * 71 % 1000;
        random_row(seed, n);
        float max, most = row[0];
        double log_sum, sum = 0, total = 0;
        for (size_t i = 1; i < n; i++)
            most = row[i] > most ? row[i] : most;
        for (size_t i = 0; i < n; i++)
            sum += (double)math_pexp(row[i] - most);
        logits_normalizer(row, n, &max, &log_sum);
        ck_assert(max == most && log_sum == math_log(sum));
        for (size_t i = 0; i < n; i++) {
            float p = logits_logprob(row[i], max, log_sum);
            if (p != (float)((double)row[i] - (double)most - math_log(sum)))
                ck_abort_msg("%zu", i);
            total += exp((double)p);
        }
        ck_assert(fabs(total - 1) < 1e-5);
    }
}
END

SUITE(engine, T(the_account_of_a_model_is_complete), T(memory_is_accounted_before_it_is_taken),
      T(opening_reports_progress_and_reads_the_file_in_when_asked), T(plans_keep_live_buffers_apart),
      T(available_memory_is_the_least_of_all_limits), T(ties_go_to_the_lower_id),
      T(log_probabilities_follow_their_definition))
