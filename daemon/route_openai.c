/* POST /v1/completions and GET /v1/models: /generate with the names that OpenAI's clients know. One job works through
 * all prompts of a request. */
#include <stdlib.h>
#include <time.h>

#include "daemon/generation.h"
#include "daemon/prompt_ids.h"
#include "daemon/request.h"
#include "daemon/request_limits.h"
#include "daemon/route.h"
#include "daemon/server.h"
#include "proto/openai.h"

enum { WINDOW_BYTES = 1 << 20 };

struct openai_plan {
    struct openai_request q;
    struct engine_ids *prompts;  /* q.n_prompts of them */
    struct openai_reply head;
    struct buffer out;           /* without stream: the reply; with: one event */
    /* of the choice at hand */
    struct job *job;
    size_t index, first_shown;   /* first_shown: 1 where a BOS was put in front */
    struct engine_ids *tokens;
    struct openai_logprobs logprobs;
    struct buffer text;
    size_t prompt_tokens, generated_tokens; /* sums */
    bool lost;                   /* an event was not passed on */
};

static void plan_free(void *plan)
{
    struct openai_plan *p = plan;
    if (!p)
        return;
    for (size_t i = 0; p->prompts && i < p->q.n_prompts; i++)
        engine_ids_clear(&p->prompts[i]);
    free(p->prompts);
    openai_request_clear(&p->q);
    openai_logprobs_clear(&p->logprobs);
    buffer_clear(&p->out);
    buffer_clear(&p->text);
    free(p);
}

/* ---- engine thread ---- */

static const struct openai_logprobs *logprobs_of(const struct openai_plan *p)
{
    return p->q.has_logprobs ? &p->logprobs : NULL;
}

/* Sends what the choice has as one event. */
static bool emit_choice(struct openai_plan *p, struct span text, const char *finish)
{
    p->out.size = 0;
    openai_event_choice(&p->out, &p->head, p->index, text, logprobs_of(p), finish);
    openai_logprobs_reset(&p->logprobs);
    return !p->out.failed && job_emit(p->job, p->out.data, p->out.size);
}

static bool logprobs_lost(const struct openai_logprobs *l)
{
    return l->tokens.failed || l->logprobs.failed || l->top.failed || l->offsets.failed || l->tail.failed;
}

static bool on_token(void *context, const struct reply_token *token, double step_s)
{
    struct openai_plan *p = context;
    struct job *j = p->job;
    float seconds = (float)step_s;
    atomic_fetch_add(&j->generated, 1);
    pthread_mutex_lock(&j->server->queue.lock);
    if (step_s > 0)
        buffer_append(&j->steps, &seconds, sizeof seconds);
    pthread_mutex_unlock(&j->server->queue.lock);
    if (p->q.has_logprobs)
        openai_logprobs_add(&p->logprobs, engine_piece(j->engine, token->id), true, token->logprob, token->top,
                            token->n_top);
    if (logprobs_lost(&p->logprobs))
        return false;
    if (p->q.stream)
        return emit_choice(p, token->text, NULL);
    buffer_append(&p->text, token->text.data, token->text.size);
    return true;
}

static void on_last(void *context, const struct reply_token *token)
{
    struct openai_plan *p = context;
    if (p->q.has_logprobs)
        openai_logprobs_add(&p->logprobs, engine_piece(p->job->engine, token->id), true, token->logprob, token->top,
                            token->n_top);
}

/* Probabilities of the prompt's own tokens: each row tells about the token behind it. */
static enum status on_prompt_logits(void *context, size_t position, const float *logits)
{
    struct openai_plan *p = context;
    const struct engine *e = p->job->engine;
    size_t n = engine_info(e)->n_vocab;
    struct logits_entry best[REQUEST_TOP_MAX];
    struct reply_candidate top[REQUEST_TOP_MAX];
    float max;
    double log_sum;
    if (position + 1 >= p->tokens->count)
        return STATUS_OK;
    int32_t id = p->tokens->data[position + 1];
    logits_normalizer(logits, n, &max, &log_sum);
    size_t n_top = logits_top(logits, n, p->q.logprobs, best);
    for (size_t i = 0; i < n_top; i++)
        top[i] = (struct reply_candidate){best[i].id, best[i].logit, best[i].logprob, engine_piece(e, best[i].id)};
    openai_logprobs_add(&p->logprobs, engine_piece(e, id), true, logits_logprob(logits[id], max, log_sum), top, n_top);
    return logprobs_lost(&p->logprobs) ? STATUS_NO_MEMORY : STATUS_OK;
}

/* The prompt in front of the choice's text, with its probabilities if they are asked for. */
static enum status echo_prompt(struct openai_plan *p, struct session *s, struct error *err)
{
    struct job *j = p->job;
    struct buffer bytes = {0};
    for (size_t i = p->first_shown; i < p->tokens->count; i++) {
        struct span piece = engine_piece(j->engine, p->tokens->data[i]);
        buffer_append(&bytes, piece.data, piece.size);
    }
    text_append_valid(&p->text, buffer_span(&bytes));
    buffer_clear(&bytes);
    if (p->text.failed)
        return error_no_memory(err, p->text.size, "the prompt's text");
    if (!p->q.has_logprobs)
        return STATUS_OK;
    struct span first = engine_piece(j->engine, p->tokens->data[0]); /* nothing precedes it: no probability */
    if (p->first_shown == 0)
        openai_logprobs_add(&p->logprobs, first, false, 0, NULL, 0);
    else
        openai_logprobs_add_hidden(&p->logprobs, first);
    struct session_sync sync = {.tokens = p->tokens->data, .n_tokens = p->tokens->count, .reuse_limit = SIZE_MAX,
                                .want_all_from = 0, .on_logits = on_prompt_logits, .context = p, .cancel = &j->cancel};
    return session_run(s, &sync, NULL, err);
}

static void add_figures(struct job *j, const struct generation_result *r)
{
    struct job_figures *f = &j->figures;
    f->cached_tokens += r->cached_tokens;
    f->generated_tokens += r->generated_tokens;
    f->prefill_tokens += r->prefill_tokens;
    f->decode_tokens += r->decode_tokens;
    f->prefill_ms += r->prefill_ms;
    f->decode_ms += r->decode_ms;
    if (r->first_token_ns && f->first_token_ms <= 0)
        f->first_token_ms = (double)(r->first_token_ns - j->arrived_ns) / 1e6;
}

static void finish_choice(struct openai_plan *p, enum reason reason, struct span tail)
{
    const char *finish = openai_finish_reason(reason);
    if (p->q.stream) {
        p->lost |= !emit_choice(p, tail, finish);
        return;
    }
    buffer_append(&p->text, tail.data, tail.size);
    openai_reply_choice(&p->out, p->index, buffer_span(&p->text), logprobs_of(p), finish);
}

/* An event could not be passed on: its client is gone, or there was no memory for it, and then the stream says so. */
static enum reason lose(struct openai_plan *p, struct problem *problem)
{
    if (job_is_cancelled(p->job))
        return job_cancel_reason(p->job);
    problem_set(problem, PROBLEM_INTERNAL, "out of memory for a part of the reply");
    return REASON_ERROR;
}

static enum reason run_choice(struct openai_plan *p, struct session *s, struct problem *problem)
{
    struct job *j = p->job;
    struct error err;
    struct generation_result result;
    struct generation_options options = {
        .engine = j->engine, .max_tokens = p->q.max_tokens, .stops = &p->q.stop, .cache_prompt = true,
        .logprobs = p->q.has_logprobs, .top = p->q.logprobs, .cancel = &j->cancel, .on_token = on_token,
        .on_last = on_last, .context = p,
    };
    p->text.size = 0;
    openai_logprobs_clear(&p->logprobs);
    p->prompt_tokens += p->tokens->count;
    enum status status = p->q.echo ? echo_prompt(p, s, &err) : STATUS_OK;
    if (status == STATUS_CANCELLED)
        return job_cancel_reason(j);
    if (status) {
        problem_from_error(problem, &err);
        return REASON_ERROR;
    }
    if (p->q.stream && p->q.echo)
        p->lost |= !emit_choice(p, buffer_span(&p->text), NULL);
    if (p->lost)
        return lose(p, problem);
    generation_run(s, &options, p->tokens, &result, problem);
    add_figures(j, &result);
    p->generated_tokens += result.generated_tokens;
    enum reason reason = result.reason == REASON_CANCELLED && job_is_cancelled(j) ? job_cancel_reason(j) : result.reason;
    if (reason != REASON_ERROR)
        finish_choice(p, reason, buffer_span(&result.tail));
    buffer_clear(&result.tail);
    return p->lost ? lose(p, problem) : reason;
}

static enum reason run_openai(struct job *j, struct session *s, struct problem *problem)
{
    struct openai_plan *p = j->plan;
    enum reason reason = REASON_LENGTH;
    p->job = j;
    if (!p->q.stream)
        openai_reply_begin(&p->out, &p->head);
    for (p->index = 0; p->index < p->q.n_prompts; p->index++) {
        const struct prompt *prompt = &p->q.prompts[p->index];
        const struct engine_info *info = engine_info(j->engine);
        p->tokens = &p->prompts[p->index];
        p->first_shown = prompt->n_parts && !prompt->parts[0].is_ids && info->add_bos && p->tokens->data[0] == info->bos;
        reason = run_choice(p, s, problem);
        if (reason == REASON_ERROR || job_is_cancelled(j))
            break;
    }
    return reason;
}

static void end_openai(struct job *j, enum reason reason, const struct problem *problem)
{
    struct openai_plan *p = j->plan;
    struct buffer last = {0};
    (void)reason;
    if (problem && !job_has_committed(j))
        return;
    if (!p->q.stream) {
        openai_reply_end(&p->out, p->prompt_tokens, p->generated_tokens);
        buffer_byte(&p->out, '\n');
        p->out.failed |= p->text.failed || logprobs_lost(&p->logprobs);
        job_put(j, &p->out, false);
        return;
    }
    if (problem)
        openai_event_problem(&last, problem);
    else if (p->q.include_usage)
        openai_event_usage(&last, &p->head, p->prompt_tokens, p->generated_tokens);
    openai_event_done(&last);
    job_put(j, &last, true);
    buffer_clear(&last);
}

static const struct job_type openai_job = {"/v1/completions", run_openai, end_openai, plan_free};

/* ---- request ---- */

static const char *model_name(const struct server *s)
{
    const struct engine_info *i = engine_info(s->engine);
    return i->name[0] ? i->name : i->architecture;
}

static void prepare_openai(struct request *r)
{
    const struct engine *e = r->server->engine;
    struct request_limits limits = request_limits_of(r->server);
    struct openai_plan *p = request_new_plan(r, sizeof *p);
    if (!p)
        return;
    if (openai_request_read(buffer_span(&r->body), &limits, &p->q, &r->problem))
        return;
    p->prompts = calloc(p->q.n_prompts, sizeof *p->prompts);
    if (!p->prompts) {
        problem_set(&r->problem, PROBLEM_INTERNAL, "out of memory for %zu prompts", p->q.n_prompts);
        return;
    }
    size_t room = p->q.max_tokens > 0, limit = engine_info(e)->context - room;
    for (size_t i = 0; i < p->q.n_prompts && r->problem.kind == PROBLEM_NONE; i++)
        prompt_to_ids(e, &p->q.prompts[i], limit, room != 0, &p->prompts[i], &r->problem);
}

static void start_openai(struct request *r)
{
    struct openai_plan *p = r->plan;
    struct job *j = job_new(r, &openai_job);
    if (!j)
        return;
    p->head = (struct openai_reply){j->id, model_name(r->server), (int64_t)time(NULL)};
    j->content_type = OPENAI_STREAM_CONTENT_TYPE;
    j->window_bytes = WINDOW_BYTES;
    j->max_tokens = p->q.max_tokens * p->q.n_prompts;
    for (size_t i = 0; i < p->q.n_prompts; i++)
        j->figures.prompt_tokens += p->prompts[i].count;
    job_submit(j);
}

static void clear_openai(struct request *r)
{
    plan_free(r->plan);
    r->plan = NULL;
}

const struct route_actions route_completions = {prepare_openai, start_openai, clear_openai};

static void start_models(struct request *r)
{
    openai_models(&r->reply.body, model_name(r->server), (int64_t)time(NULL));
    buffer_byte(&r->reply.body, '\n');
    request_reply(r, 200, "application/json");
}
const struct route_actions route_models = {.start = start_models};
