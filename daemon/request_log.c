/* The line about a request; see request_log.h. Prompt text is not in it. */
#include "daemon/request_log.h"

#include <stdio.h>

#include "daemon/connection.h"
#include "daemon/job.h"
#include "daemon/request.h"
#include "daemon/route.h"
#include "daemon/server.h"

void request_log(const struct request *r, bool complete)
{
    struct server *s = r->server;
    const struct job_figures none = {0}, *f = r->job ? &r->job->figures : &none;
    bool ended = r->job && r->stage == REQUEST_ANSWERED && complete;
    struct span reason = {0};
    char status[8];
    snprintf(status, sizeof status, "%u", r->reply.status);
    metrics_add(s->metrics, METRIC_REQUESTS, METRICS_LABELS(r->route ? r->route->name : "other", status), 1);
    if (ended)
        reason = span_of(reason_name(r->job->reason));
    else if (r->job)
        reason = span_of("cancelled");
    bool quiet = !r->job && r->reply.status < 400 && r->route && (r->route->flags & ROUTE_QUIET);
    LOG(quiet ? LOG_LEVEL_DEBUG : LOG_LEVEL_INFO, "request", LOG_TEXT("id", r->id), LOG_TEXT("peer", r->connection->peer),
        LOG_TEXT("method", r->method_name), LOG_SPAN("path", buffer_span(&r->path)),
        LOG_INTEGER("status", r->reply.status), LOG_INTEGER("in_bytes", r->body_bytes),
        LOG_INTEGER("out_bytes", r->sent), LOG_INTEGER("ms", uv_now(&s->loop) - r->arrived_ms),
        LOG_BOOLEAN("complete", complete), LOG_SPAN("reason", reason),
        LOG_TEXT("problem", r->problem.kind != PROBLEM_NONE ? problem_name(r->problem.kind) : NULL),
        LOG_INTEGER("prompt_tokens", ended ? f->prompt_tokens : 0),
        LOG_INTEGER("cached_tokens", ended ? f->cached_tokens : 0),
        LOG_INTEGER("generated_tokens", ended ? f->generated_tokens : 0),
        LOG_NUMBER("queue_ms", ended ? f->queue_ms : 0), LOG_NUMBER("prefill_ms", ended ? f->prefill_ms : 0),
        LOG_NUMBER("decode_ms", ended ? f->decode_ms : 0));
}
