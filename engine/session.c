/* One timeline of tokens: keeping the common prefix, evaluating the rest in steps, handing out the wanted logits.
 * Everything is taken in session_new. The length moves only when a step has finished, so that a cancelled or failed run
 * leaves a valid prefix behind. */
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/f16.h"
#include "engine/engine_state.h"
#include "engine/exec/run.h"
#include "engine/kv/kv.h"

enum { ARENA_ALIGN = 64 };

struct session {
    struct engine *engine;
    struct kv kv; /* kv.length: tokens evaluated */
    struct pool *pool;
    unsigned char *arena;
    int32_t *tokens;
    atomic_ullong steps;
    atomic_bool abandoned;
    struct run run;
};

enum status session_new(struct engine *e, struct session **out, struct error *err)
{
    *out = NULL;
    if (e->info.vocabulary_only)
        return error_set(err, STATUS_VOCABULARY_ONLY, "the file holds a vocabulary only: nothing to evaluate");
    struct session *s = calloc(1, sizeof *s);
    if (!s)
        return error_no_memory(err, sizeof *s, "the session");
    s->engine = e;
    atomic_init(&s->steps, 0);
    size_t arena_bytes = (e->graph.arena_bytes + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
    size_t tokens_bytes = e->info.context * sizeof *s->tokens;
    enum status status;
    s->arena = aligned_alloc(ARENA_ALIGN, arena_bytes);
    s->tokens = malloc(tokens_bytes);
    if (!s->arena || !s->tokens)
        status = error_no_memory(err, arena_bytes + tokens_bytes, "the session");
    else
        status = kv_init(&s->kv, &e->graph.kv, err);
    if (status == STATUS_OK)
        status = pool_new(e->info.threads, e->cores.usable, &s->pool, err);
    if (status != STATUS_OK) {
        session_free(s);
        return status;
    }
    s->run = (struct run){.graph = &e->graph, .pool = s->pool, .kv = &s->kv, .arena = s->arena, .steps = &s->steps,
                          .abandoned = &s->abandoned};
    s->run.claims = (struct claims){(void *)(s->arena + e->graph.claims_offset), e->info.threads};
    s->run.help = help_init(s->arena + e->graph.help_offset, e->info.threads);
    s->run.generation = 1;
    memset(s->run.claims.words, 0, claims_bytes(e->info.threads));
    *out = s;
    return STATUS_OK;
}

void session_free(struct session *s)
{
    if (!s)
        return;
    pool_free(s->pool);
    kv_clear(&s->kv);
    free(s->arena);
    free(s->tokens);
    free(s);
}

size_t session_length(const struct session *s)
{
    return s->kv.length;
}

uint64_t session_steps(const struct session *s)
{
    return atomic_load_explicit(&s->steps, memory_order_relaxed);
}

/* ---- what is asked for ---- */

/* Lowest wanted position at or behind `position`; SIZE_MAX if there is none. */
static size_t wanted_next(const struct session_sync *sync, size_t position)
{
    if (!sync->on_logits)
        return SIZE_MAX;
    size_t low = 0, high = sync->n_want;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (sync->want[middle] < position)
            low = middle + 1;
        else
            high = middle;
    }
    size_t listed = low < sync->n_want ? sync->want[low] : SIZE_MAX;
    size_t all = sync->want_all_from < sync->n_tokens
                     ? (sync->want_all_from > position ? sync->want_all_from : position) : SIZE_MAX;
    size_t next = listed < all ? listed : all;
    return next < sync->n_tokens ? next : SIZE_MAX;
}

static enum status sync_check(const struct session *s, const struct session_sync *sync, struct error *err)
{
    const struct engine_info *info = &s->engine->info;
    if (sync->n_tokens > info->context)
        return error_set(err, STATUS_OVERFLOW, "%zu tokens exceed the context of %" PRIu32, sync->n_tokens,
                         info->context);
    if (sync->n_tokens == 0)
        return error_set(err, STATUS_RANGE, "a sequence needs at least one token");
    for (size_t i = 0; i < sync->n_tokens; i++)
        if (sync->tokens[i] < 0 || (uint32_t)sync->tokens[i] >= info->n_vocab)
            return error_set(err, STATUS_RANGE, "token %zu is %" PRId32 ", must be 0 to %" PRIu32, i, sync->tokens[i],
                             info->n_vocab - 1);
    for (size_t i = 0; i < sync->n_want; i++)
        if (sync->want[i] >= sync->n_tokens || (i && sync->want[i] <= sync->want[i - 1]))
            return error_set(err, STATUS_RANGE, "wanted position %zu is %" PRIu32 ", must ascend and be below %zu", i,
                             sync->want[i], sync->n_tokens);
    return STATUS_OK;
}

static enum status changed_check(const struct session *s, struct error *err)
{
    const char *why = NULL;
    if (!gguf_has_changed(s->engine->gguf, &why))
        return STATUS_OK;
    return error_set(err, STATUS_MODEL_CHANGED, "%s", why ? why : "the model file was changed while in use");
}

/* Tokens to keep: common prefix, no more than allowed, and nothing from the first wanted position on. */
static size_t reusable(const struct session *s, const struct session_sync *sync)
{
    size_t most = s->kv.length < sync->n_tokens ? s->kv.length : sync->n_tokens;
    size_t wanted = wanted_next(sync, 0), n = 0;
    most = most < sync->reuse_limit ? most : sync->reuse_limit;
    most = most < wanted ? most : wanted;
    while (n < most && s->tokens[n] == sync->tokens[n])
        n++;
    return n;
}

/* ---- steps ---- */

/* Up to GRAPH_WANTED_MAX wanted positions in [from, end), ascending. */
static size_t wanted_group(const struct session_sync *sync, size_t from, size_t end, size_t *positions)
{
    size_t n = 0;
    for (size_t p = wanted_next(sync, from); p < end && n < GRAPH_WANTED_MAX; p = wanted_next(sync, p + 1))
        positions[n++] = p;
    return n;
}

static bool logits_finite(const float *logits, size_t n)
{
    uint32_t bad = 0;
    for (size_t i = 0; i < n; i++)
        bad |= (uint32_t)((float_bits(logits[i]) & 0x7f800000) == 0x7f800000);
    return bad == 0;
}

static enum status deliver(const struct session *s, const struct session_sync *sync, const size_t *positions, size_t n,
                           struct error *err)
{
    size_t n_vocab = s->engine->info.n_vocab;
    enum status status = STATUS_OK;
    for (size_t i = 0; i < n && status == STATUS_OK; i++) {
        const float *logits = run_floats(&s->run, s->engine->graph.logits, i);
        if (!logits_finite(logits, n_vocab))
            return error_set(err, STATUS_NON_FINITE, "the logits of position %zu are not finite", positions[i]);
        status = sync->on_logits(sync->context, positions[i], logits);
        if (status != STATUS_OK)
            error_set(err, status, "ended by the receiver of logits at position %zu: %s", positions[i],
                      status_text(status));
    }
    return status;
}

/* Sets the rows of one group in terms of the step's tail. */
static void run_wanted(struct run *run, uint32_t *rows, const size_t *positions, size_t n)
{
    for (size_t i = 0; i < n; i++)
        rows[i] = (uint32_t)(positions[i] - run->position - run->tail_first);
    run->wanted = rows;
    run->rows[ROWS_WANTED] = n;
}

/* Runs nodes [from, end of the graph): all of a step, or only what makes logits. What was computed while the file
 * changed is not used. */
static enum status step_nodes(struct session *s, const struct session_sync *sync, size_t from, struct error *err)
{
    s->run.node_begin = from;
    s->run.node_end = s->run.graph->n_nodes;
    if (run_nodes(&s->run) != STATUS_OK)
        return error_set(err, STATUS_CANCELLED, "cancelled after %zu of %zu tokens", s->kv.length, sync->n_tokens);
    return changed_check(s, err);
}

/* Evaluates tokens [begin, end); the first group of wanted logits belongs to the same run of the graph. */
static enum status session_step(struct session *s, const struct session_sync *sync, size_t begin, size_t end,
                                struct error *err)
{
    struct run *run = &s->run;
    size_t positions[GRAPH_WANTED_MAX];
    uint32_t rows[GRAPH_WANTED_MAX];
    size_t n = wanted_group(sync, begin, end, positions);
    run->tokens = sync->tokens + begin;
    run->position = begin;
    run->rows[ROWS_BATCH] = end - begin;
    run->tail_first = n ? positions[0] - begin : 0;
    run->rows[ROWS_TAIL] = n ? end - positions[0] : 0;
    run->cancel = sync->cancel;
    run_wanted(run, rows, positions, n);
    enum status status = step_nodes(s, sync, 0, err);
    if (status != STATUS_OK)
        return status;
    memcpy(s->tokens + begin, sync->tokens + begin, (end - begin) * sizeof *s->tokens);
    s->kv.length = end;
    while (n && status == STATUS_OK) {
        status = deliver(s, sync, positions, n, err);
        n = wanted_group(sync, positions[n - 1] + 1, end, positions);
        run_wanted(run, rows, positions, n);
        if (n && status == STATUS_OK)
            status = step_nodes(s, sync, run->graph->head_begin, err);
    }
    return status;
}

enum status session_run(struct session *s, const struct session_sync *sync, size_t *reused, struct error *err)
{
    if (reused)
        *reused = 0;
    enum status status = sync_check(s, sync, err);
    if (status == STATUS_OK)
        status = changed_check(s, err);
    if (status != STATUS_OK)
        return status;
    s->kv.length = reusable(s, sync);
    if (reused)
        *reused = s->kv.length;
    while (status == STATUS_OK && s->kv.length < sync->n_tokens) {
        size_t begin = s->kv.length, end = begin + s->engine->info.batch;
        status = session_step(s, sync, begin, end < sync->n_tokens ? end : sync->n_tokens, err);
        if (status == STATUS_OK && sync->on_progress)
            sync->on_progress(sync->context, s->kv.length);
        if (status == STATUS_OK)
            kv_settle(&s->kv, s->kv.length - begin);
    }
    return status;
}
