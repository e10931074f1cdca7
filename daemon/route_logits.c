/* POST /logits: logits of chosen positions, as JSON or as raw float32. */
#include <stdlib.h>

#include "daemon/prompt_ids.h"
#include "daemon/request.h"
#include "daemon/request_limits.h"
#include "daemon/route.h"
#include "daemon/server.h"

enum {
    WINDOW_BYTES = 8 << 20,
    FLUSH_BYTES = 4 << 20 /* JSON beyond this is sent while it grows: a long prompt's rows cost no memory */
};

struct logits_plan {
    struct logits_request q;
    struct engine_ids tokens;
    struct buffer json;
    struct job *job;
    enum status failure; /* of writing */
};

static void plan_free(void *plan)
{
    struct logits_plan *p = plan;
    if (!p)
        return;
    logits_request_clear(&p->q);
    engine_ids_clear(&p->tokens);
    buffer_clear(&p->json);
    free(p);
}

/* ---- engine thread ---- */

static void write_row(struct logits_plan *p, size_t position, const float *logits)
{
    const struct engine *e = p->job->engine;
    size_t n = engine_info(e)->n_vocab;
    struct reply_candidate top[REQUEST_TOP_MAX];
    struct logits_entry best[REQUEST_TOP_MAX];
    float max;
    double log_sum;
    logits_normalizer(logits, n, &max, &log_sum);
    struct reply_row row = {.position = position, .token = p->tokens.data[position], .top = top};
    row.n_top = logits_top(logits, n, p->q.top, best);
    for (size_t i = 0; i < row.n_top; i++)
        top[i] = (struct reply_candidate){best[i].id, best[i].logit, best[i].logprob, engine_piece(e, best[i].id)};
    if (position + 1 < p->tokens.count) {
        row.has_next = true;
        row.next_id = p->tokens.data[position + 1];
        row.next_logit = logits[row.next_id];
        row.next_logprob = logits_logprob(row.next_logit, max, log_sum);
        row.next_rank = logits_rank(logits, n, row.next_id);
    }
    reply_logits_row(&p->json, &row);
}

static enum status on_logits(void *context, size_t position, const float *logits)
{
    struct logits_plan *p = context;
    if (p->q.f32) {
        size_t bytes = engine_info(p->job->engine)->n_vocab * sizeof(float);
        return job_emit(p->job, logits, bytes) ? STATUS_OK : STATUS_CANCELLED;
    }
    write_row(p, position, logits);
    if (p->json.failed)
        return STATUS_NO_MEMORY;
    if (p->json.size < FLUSH_BYTES)
        return STATUS_OK;
    size_t n = p->json.size - 1; /* the last byte stays: it decides about the next row's comma */
    bool sent = job_emit(p->job, p->json.data, n);
    p->json.data[0] = p->json.data[n];
    p->json.size = 1;
    return sent ? STATUS_OK : STATUS_CANCELLED;
}

static void on_progress(void *context, size_t evaluated)
{
    struct logits_plan *p = context;
    atomic_store(&p->job->processed, evaluated);
    atomic_store(&p->job->server->engine_thread.context_used, evaluated);
}

static enum reason run_logits(struct job *j, struct session *s, struct problem *problem)
{
    struct logits_plan *p = j->plan;
    struct error err = {.text = ""};
    size_t n = p->tokens.count;
    p->job = j;
    struct session_sync sync = {
        .tokens = p->tokens.data,
        .n_tokens = n,
        .reuse_limit = p->q.cache_prompt ? SIZE_MAX : 0,
        .want_all_from = p->q.positions == POSITIONS_LAST ? n - 1 : p->q.positions == POSITIONS_ALL ? 0 : SIZE_MAX,
        .want = (const uint32_t *)p->q.list.data, /* not negative: proto has checked */
        .n_want = p->q.positions == POSITIONS_LIST ? p->q.list.count : 0,
        .on_logits = on_logits,
        .on_progress = on_progress,
        .context = p,
        .cancel = &j->cancel,
    };
    if (!p->q.f32)
        reply_logits_begin(&p->json, p->tokens.data, n, engine_info(j->engine)->n_vocab);
    uint64_t start = clock_ns();
    enum status status = session_run(s, &sync, &j->figures.cached_tokens, &err);
    j->figures.prefill_ms = (double)(clock_ns() - start) / 1e6;
    j->figures.prefill_tokens = session_length(s) > j->figures.cached_tokens ? session_length(s) - j->figures.cached_tokens : 0;
    if (status == STATUS_OK)
        return REASON_LENGTH;
    if (status == STATUS_CANCELLED && job_is_cancelled(j)) {
        if (job_cancel_reason(j) == REASON_SHUTDOWN)
            problem_busy(problem, PROBLEM_DRAINING, 1, "the server is shutting down");
        else
            problem_set(problem, PROBLEM_INTERNAL, "the job was cancelled");
        return job_cancel_reason(j);
    }
    problem_from_error(problem, &err);
    LOG(LOG_LEVEL_ERROR, "logits-failed", LOG_TEXT("id", j->id), LOG_TEXT("why", err.text));
    return REASON_ERROR;
}

static void end_logits(struct job *j, enum reason reason, const struct problem *problem)
{
    struct logits_plan *p = j->plan;
    (void)reason;
    if (problem) {
        job_break(j); /* without effect where nothing has been sent: then the problem is the reply */
        return;
    }
    if (p->q.f32)
        return;
    struct reply_timings timings = {j->figures.queue_ms, j->figures.prefill_ms, 0, j->figures.prefill_tokens, 0};
    reply_logits_end(&p->json, j->figures.cached_tokens, &timings);
    buffer_byte(&p->json, '\n');
    job_put(j, &p->json, job_has_committed(j));
}

static const struct job_type logits_job = {"/logits", run_logits, end_logits, plan_free};

/* ---- request ---- */

static void prepare_logits(struct request *r)
{
    const struct engine *e = r->server->engine;
    struct request_limits limits = request_limits_of(r->server);
    struct logits_plan *p = request_new_plan(r, sizeof *p);
    if (!p)
        return;
    if (logits_request_read(buffer_span(&r->body), &limits, &p->q, &r->problem))
        return;
    if (!prompt_to_ids(e, &p->q.prompt, engine_info(e)->context, false, &p->tokens, &r->problem))
        logits_request_check(&p->q, p->tokens.count, &r->problem);
}

static size_t count_rows(const struct logits_plan *p)
{
    return p->q.positions == POSITIONS_LAST ? 1 : p->q.positions == POSITIONS_ALL ? p->tokens.count : p->q.list.count;
}

static void start_logits(struct request *r)
{
    struct logits_plan *p = r->plan;
    if (r->server->config->log_prompts)
        LOG(LOG_LEVEL_INFO, "prompt", LOG_TEXT("id", r->id), LOG_SPAN("text", buffer_span(&p->q.prompt.text)));
    struct job *j = job_new(r, &logits_job);
    if (!j)
        return;
    size_t rows = count_rows(p), vocab = engine_info(j->engine)->n_vocab;
    j->content_type = "application/json";
    j->window_bytes = WINDOW_BYTES;
    j->figures.prompt_tokens = p->tokens.count;
    if (p->q.f32) {
        j->content_type = "application/octet-stream";
        j->reply_bytes = (uint64_t)rows * vocab * sizeof(float);
        request_header(r, "X-Logits-Shape", "%zu,%zu", rows, vocab);
        request_header(r, "X-Logits-Dtype", "float32-le");
    }
    job_submit(j);
}

static void clear_logits(struct request *r)
{
    plan_free(r->plan);
    r->plan = NULL;
}

const struct route_actions route_logits = {prepare_logits, start_logits, clear_logits};
