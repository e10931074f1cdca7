/* POST /generate and DELETE /generate/{id}. */
#include <stdlib.h>

#include "daemon/generation.h"
#include "daemon/prompt_ids.h"
#include "daemon/request.h"
#include "daemon/request_limits.h"
#include "daemon/route.h"
#include "daemon/server.h"

enum { WINDOW_BYTES = 1 << 20 };

struct generate_plan {
    struct generate_request q;
    struct engine_ids tokens;   /* prompt, then what was generated */
    size_t n_prompt;
    struct generation_result result;
    struct buffer line;
    struct buffer text;         /* without stream: all of it */
    struct buffer entries;      /* without stream: logprobs */
};

static void plan_free(void *plan)
{
    struct generate_plan *p = plan;
    if (!p)
        return;
    generate_request_clear(&p->q);
    engine_ids_clear(&p->tokens);
    buffer_clear(&p->result.tail);
    buffer_clear(&p->line);
    buffer_clear(&p->text);
    buffer_clear(&p->entries);
    free(p);
}

/* ---- engine thread ---- */

static void note_step(struct job *j, double step_s)
{
    float seconds = (float)step_s;
    pthread_mutex_lock(&j->server->queue.lock);
    j->spoke = true;
    if (step_s > 0)
        buffer_append(&j->steps, &seconds, sizeof seconds);
    pthread_mutex_unlock(&j->server->queue.lock);
}

static bool on_token(void *context, const struct reply_token *token, double step_s)
{
    struct job *j = context;
    struct generate_plan *p = j->plan;
    atomic_store(&j->generated, token->index + 1);
    note_step(j, step_s);
    if (!p->q.stream) {
        buffer_append(&p->text, token->text.data, token->text.size);
        if (p->q.logprobs)
            reply_logprob_entry(&p->entries, token);
        return true;
    }
    p->line.size = 0;
    reply_token_line(&p->line, token);
    return !p->line.failed && job_emit(j, p->line.data, p->line.size);
}

static void on_progress(void *context, size_t evaluated)
{
    struct job *j = context;
    atomic_store(&j->processed, evaluated < j->figures.prompt_tokens ? evaluated : j->figures.prompt_tokens);
    atomic_store(&j->server->engine_thread.context_used, evaluated);
}

static void copy_figures(struct job *j, const struct generation_result *result)
{
    struct job_figures *f = &j->figures;
    f->cached_tokens = result->cached_tokens;
    f->generated_tokens = result->generated_tokens;
    f->prefill_tokens = result->prefill_tokens;
    f->decode_tokens = result->decode_tokens;
    f->prefill_ms = result->prefill_ms;
    f->decode_ms = result->decode_ms;
    if (result->first_token_ns)
        f->first_token_ms = (double)(result->first_token_ns - j->arrived_ns) / 1e6;
}

static enum reason run_generate(struct job *j, struct session *s, struct problem *problem)
{
    struct generate_plan *p = j->plan;
    struct generation_options options = {
        .engine = j->engine,
        .max_tokens = p->q.max_tokens,
        .stops = &p->q.stop,
        .stop_tokens = &p->q.stop_tokens,
        .ignore_eos = p->q.ignore_eos,
        .cache_prompt = p->q.cache_prompt,
        .logprobs = p->q.logprobs > 0,
        .top = p->q.logprobs,
        .cancel = &j->cancel,
        .deadline_ns = j->deadline_ns,
        .on_progress = on_progress,
        .on_token = on_token,
        .context = j,
    };
    generation_run(s, &options, &p->tokens, &p->result, problem);
    copy_figures(j, &p->result);
    return p->result.reason == REASON_CANCELLED && job_is_cancelled(j) ? job_cancel_reason(j) : p->result.reason;
}

/* The last line, or the whole reply. A failure before the first byte stays a problem with a status of its own. */
static void end_generate(struct job *j, enum reason reason, const struct problem *problem)
{
    struct generate_plan *p = j->plan;
    const struct engine_info *info = engine_info(j->engine);
    struct buffer out = {0};
    bool streams = p->q.stream && (!problem || job_has_committed(j));
    if (problem && !streams)
        return;
    if (!p->q.stream)
        buffer_append(&p->text, p->result.tail.data, p->result.tail.size);
    bool stopped = reason == REASON_STOP && p->result.stop >= 0;
    struct reply_end end = {
        .text = buffer_span(p->q.stream ? &p->result.tail : &p->text),
        .reason = reason,
        .stop = stopped ? stop_string(&p->q.stop, (size_t)p->result.stop) : (struct span){0},
        .prompt_tokens = j->figures.prompt_tokens,
        .cached_tokens = j->figures.cached_tokens,
        .generated_tokens = j->figures.generated_tokens,
        .timings = {j->figures.queue_ms, j->figures.prefill_ms, j->figures.decode_ms, j->figures.prefill_tokens,
                    j->figures.decode_tokens},
        .model = {info->name, info->fingerprint, ENGINE_NUMERICS_VERSION},
        .problem = problem,
    };
    if (p->q.stream) {
        reply_last_line(&out, &end);
    } else {
        reply_generate(&out, &end, p->tokens.data + p->n_prompt, p->tokens.count - p->n_prompt,
                       p->q.logprobs ? &p->entries : NULL);
        buffer_byte(&out, '\n');
    }
    out.failed |= p->text.failed || p->entries.failed; /* half a text is never a reply */
    job_put(j, &out, p->q.stream);
    buffer_clear(&out);
}

static const struct job_type generate_job = {"/generate", run_generate, end_generate, plan_free};

/* ---- request ---- */

static void prepare_generate(struct request *r)
{
    const struct engine *e = r->server->engine;
    struct request_limits limits = request_limits_of(r->server);
    struct generate_plan *p = request_new_plan(r, sizeof *p);
    if (!p)
        return;
    p->result.stop = -1;
    if (generate_request_read(buffer_span(&r->body), &limits, &p->q, &r->problem))
        return;
    size_t room = p->q.max_tokens > 0, context = engine_info(e)->context;
    if (!prompt_to_ids(e, &p->q.prompt, context - room, room != 0, &p->tokens, &r->problem))
        p->n_prompt = p->tokens.count;
}

static void start_generate(struct request *r)
{
    struct generate_plan *p = r->plan;
    if (r->server->config->log_prompts)
        LOG(LOG_LEVEL_INFO, "prompt", LOG_TEXT("id", r->id), LOG_SPAN("text", buffer_span(&p->q.prompt.text)));
    struct job *j = job_new(r, &generate_job);
    if (!j)
        return;
    if (p->q.id[0])
        memcpy(j->id, p->q.id, sizeof j->id);
    j->content_type = "application/x-ndjson";
    j->window_bytes = WINDOW_BYTES;
    j->progress = p->q.stream && p->q.progress;
    j->max_tokens = p->q.max_tokens;
    j->figures.prompt_tokens = p->n_prompt;
    if (p->q.deadline_ms)
        j->deadline_ns = j->arrived_ns + (uint64_t)p->q.deadline_ms * 1000000;
    job_submit(j);
}

static void clear_generate(struct request *r)
{
    plan_free(r->plan);
    r->plan = NULL;
}

const struct route_actions route_generate = {prepare_generate, start_generate, clear_generate};

/* ---- DELETE ---- */

static void start_cancel(struct request *r)
{
    struct span id = {r->path.data + strlen("/generate/"), r->path.size - strlen("/generate/")};
    char text[REQUEST_ID_BYTES_MAX + 1] = "";
    struct job *j = NULL;
    if (request_id_is_valid(id)) {
        memcpy(text, id.data, id.size);
        j = job_find(r->server, text);
    }
    if (!j || j->type != &generate_job) {
        char quoted[ERROR_QUOTE_BYTES];
        problem_set(&r->problem, PROBLEM_NOT_FOUND, "no job with the id %s is queued or running",
                    error_quote(id.data, id.size, quoted));
        return;
    }
    job_cancel(j, REASON_CANCELLED);
    reply_cancelled(&r->reply.body, id);
    buffer_byte(&r->reply.body, '\n');
    request_reply(r, 202, "application/json");
}
const struct route_actions route_cancel = {.start = start_cancel};
