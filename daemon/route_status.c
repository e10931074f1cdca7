/* What the process says about itself: /, /health, /ready, /metrics; and what it does not do. */
#include <string.h>

#include "daemon/page.h"
#include "daemon/request.h"
#include "daemon/route.h"
#include "daemon/server.h"

static void start_page(struct request *r)
{
    if (!r->server->config->page) {
        problem_set(&r->problem, PROBLEM_NOT_FOUND, "the page is switched off; there are:%s", routes_text());
        return;
    }
    struct span html = page_html();
    buffer_append(&r->reply.body, html.data, html.size);
    request_header(r, "Content-Security-Policy",
                   "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; "
                   "img-src data:; frame-ancestors 'none'; base-uri 'none'");
    request_header(r, "X-Content-Type-Options", "nosniff");
    request_header(r, "Referrer-Policy", "no-referrer");
    request_reply(r, 200, "text/html; charset=utf-8");
}
const struct route_actions route_page = {.start = start_page};

static void reply_ok(struct request *r)
{
    reply_status(&r->reply.body, "ok");
    buffer_byte(&r->reply.body, '\n');
    request_reply(r, 200, "application/json");
}

const struct route_actions route_health = {.start = reply_ok};

static void start_ready(struct request *r)
{
    struct server *s = r->server;
    const char *why = NULL;
    if (s->draining)
        problem_busy(&r->problem, PROBLEM_DRAINING, server_drain_seconds(s), "the server is shutting down");
    else if (!s->engine)
        problem_busy(&r->problem, PROBLEM_LOADING, server_load_seconds(s), "the model is being loaded");
    else if (server_model_changed(s, &why))
        problem_busy(&r->problem, PROBLEM_MODEL_CHANGED, MODEL_CHANGED_RETRY_S, why);
    else if (server_is_stalled(s))
        problem_busy(&r->problem, PROBLEM_STALLED, 5, "a job is running, and the engine has made no step for stall_timeout");
    else
        reply_ok(r);
}
const struct route_actions route_ready = {.start = start_ready};

static void start_metrics(struct request *r)
{
    struct server *s = r->server;
    size_t running, waiting = job_count(s, &running);
    metrics_set(s->metrics, METRIC_JOBS_RUNNING, NULL, (double)running);
    metrics_set(s->metrics, METRIC_JOBS_QUEUED, NULL, (double)waiting);
    metrics_set(s->metrics, METRIC_CONNECTIONS, NULL, (double)s->n_connections);
    metrics_set(s->metrics, METRIC_BODY_BYTES, NULL, (double)s->body_bytes);
    metrics_set(s->metrics, METRIC_CONTEXT_USED, NULL, (double)atomic_load(&s->engine_thread.context_used));
    metrics_write(s->metrics, &r->reply.body);
    request_reply(r, 200, METRICS_CONTENT_TYPE);
}
const struct route_actions route_metrics = {.start = start_metrics};

static void start_chat(struct request *r)
{
    problem_set(&r->problem, PROBLEM_NOT_IMPLEMENTED,
                "chat templates are not applied here: write the prompt as the model's card says and use /generate or "
                "/v1/completions");
}
const struct route_actions route_chat = {.start = start_chat};
