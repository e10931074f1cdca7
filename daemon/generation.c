/* The greedy loop; see generation.h. */
#include "daemon/generation.h"

#include <string.h>

#include "daemon/job.h"

struct run {
    const struct generation_options *options;
    struct generation_result *result;
    struct session *session;
    struct engine_ids *tokens;
    struct text_stream text;
    struct buffer line;        /* text of one token */
    int32_t next;              /* greedy choice of the last logits */
    float next_logprob;
    struct reply_candidate top[REQUEST_TOP_MAX];
    size_t n_top;
};

static enum status take_logits(void *context, size_t position, const float *logits)
{
    (void)position;
    struct run *run = context;
    const struct generation_options *o = run->options;
    size_t n = engine_info(o->engine)->n_vocab;
    run->next = logits_argmax(logits, n);
    if (!o->logprobs)
        return STATUS_OK;
    struct logits_entry best[REQUEST_TOP_MAX];
    float max;
    double log_sum;
    logits_normalizer(logits, n, &max, &log_sum);
    run->next_logprob = logits_logprob(logits[run->next], max, log_sum);
    run->n_top = logits_top(logits, n, o->top, best);
    for (size_t i = 0; i < run->n_top; i++)
        run->top[i] = (struct reply_candidate){best[i].id, best[i].logit, best[i].logprob,
                                               engine_piece(o->engine, best[i].id)};
    return STATUS_OK;
}

static void tell_progress(void *context, size_t evaluated)
{
    struct run *run = context;
    if (run->options->on_progress)
        run->options->on_progress(run->options->context, evaluated);
}

static enum status evaluate(struct run *run, size_t *reused, struct error *err)
{
    const struct generation_options *o = run->options;
    struct session_sync sync = {
        .tokens = run->tokens->data,
        .n_tokens = run->tokens->count,
        .reuse_limit = o->cache_prompt ? SIZE_MAX : 0,
        .want_all_from = o->max_tokens ? run->tokens->count - 1 : SIZE_MAX,
        .on_logits = take_logits,
        .on_progress = tell_progress,
        .context = run,
        .cancel = o->cancel,
    };
    if (run->result->generated_tokens)
        sync.reuse_limit = SIZE_MAX;
    return session_run(run->session, &sync, reused, err);
}

static bool ends_generation(const struct generation_options *o, int32_t id, enum reason *reason)
{
    if (o->stop_tokens && request_ids_has(o->stop_tokens, id))
        *reason = REASON_STOP;
    else if (!o->ignore_eos && engine_is_eog(o->engine, id))
        *reason = REASON_EOS;
    else
        return false;
    return true;
}

/* The choice as it is handed out, with the text that became certain. */
static struct reply_token token_of(const struct run *run)
{
    return (struct reply_token){.index = run->result->generated_tokens - 1, .id = run->next,
                                .text = buffer_span(&run->line), .has_logprob = run->options->logprobs,
                                .logprob = run->next_logprob, .top = run->top, .n_top = run->n_top};
}

/* True when generation ends with this token. */
static bool show_token(struct run *run, double step_s)
{
    const struct generation_options *o = run->options;
    struct generation_result *r = run->result;
    run->line.size = 0;
    bool stopped = text_stream_push(&run->text, engine_piece(o->engine, run->next), &run->line);
    if (run->line.failed) {
        r->reason = REASON_ERROR;
        return true;
    }
    struct reply_token token = token_of(run);
    if (!o->on_token(o->context, &token, step_s)) { /* cancelled, or no memory to pass it on */
        r->reason = atomic_load(o->cancel) ? REASON_CANCELLED : REASON_ERROR;
        return true;
    }
    if (!stopped)
        return false;
    r->reason = REASON_STOP;
    r->stop = run->text.stop;
    return true;
}

/* Takes the choice of the last logits; true when generation ends with it. */
static bool take_token(struct run *run, double step_s)
{
    const struct generation_options *o = run->options;
    struct generation_result *r = run->result;
    if (r->generated_tokens++ == 0)
        r->first_token_ns = clock_ns();
    if (ends_generation(o, run->next, &r->reason)) {
        run->line.size = 0;
        struct reply_token last = token_of(run);
        if (o->on_last)
            o->on_last(o->context, &last);
        return true;
    }
    if (!engine_ids_push(run->tokens, run->next)) {
        r->reason = REASON_ERROR;
        return true;
    }
    if (show_token(run, step_s))
        return true;
    if (r->generated_tokens == o->max_tokens)
        r->reason = REASON_LENGTH;
    else if (run->tokens->count >= engine_info(o->engine)->context)
        r->reason = REASON_CONTEXT;
    else if (o->deadline_ns && clock_ns() >= o->deadline_ns)
        r->reason = REASON_DEADLINE;
    else
        return false;
    return true;
}

static enum status prefill(struct run *run, struct error *err)
{
    struct generation_result *r = run->result;
    uint64_t start = clock_ns();
    enum status status = evaluate(run, &r->cached_tokens, err);
    r->prefill_ms = (double)(clock_ns() - start) / 1e6;
    r->prefill_tokens = session_length(run->session) > r->cached_tokens ? session_length(run->session) - r->cached_tokens : 0;
    return status;
}

static enum status decode(struct run *run, struct error *err)
{
    struct generation_result *r = run->result;
    uint64_t start = clock_ns(), before = start;
    enum status status = STATUS_OK;
    double step_s = 0;
    while (!take_token(run, step_s)) {
        status = evaluate(run, NULL, err);
        uint64_t now = clock_ns();
        r->decode_ms = (double)(now - start) / 1e6;
        if (status)
            break;
        step_s = (double)(now - before) / 1e9;
        before = now;
        r->decode_tokens++;
    }
    return status;
}

enum status generation_run(struct session *s, const struct generation_options *o, struct engine_ids *tokens,
                           struct generation_result *result, struct problem *problem)
{
    struct run run = {.options = o, .result = result, .session = s, .tokens = tokens};
    struct error err;
    *result = (struct generation_result){.reason = REASON_LENGTH, .stop = -1};
    enum status status = text_stream_init(&run.text, o->stops, &err);
    if (!status)
        status = prefill(&run, &err);
    if (!status && o->max_tokens)
        status = decode(&run, &err);
    if (status == STATUS_CANCELLED) {
        result->reason = REASON_CANCELLED;
        status = STATUS_OK;
    }
    if (!status && result->reason == REASON_ERROR)
        status = error_no_memory(&err, tokens->count * sizeof(int32_t), "tokens or their text");
    text_stream_finish(&run.text, &result->tail);
    if (!status && result->tail.failed)
        status = error_no_memory(&err, run.text.pending.size, "the end of the text");
    if (status) {
        result->reason = REASON_ERROR;
        problem_from_error(problem, &err);
    }
    text_stream_clear(&run.text);
    buffer_clear(&run.line);
    return status;
}
