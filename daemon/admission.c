/* Decisions before the route; see admission.h. */
#include "daemon/admission.h"

#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include "daemon/auth.h"
#include "daemon/framing.h"
#include "daemon/job.h"
#include "daemon/request.h"
#include "daemon/route.h"
#include "daemon/server.h"
#include "engine/base/hash.h"

/* ---- identity ---- */

static void choose_id(struct request *r)
{
    struct span given = request_header_get(r, "X-Request-Id", NULL);
    if (given.data && request_id_is_valid(given))
        memcpy(r->id, given.data, given.size);
    else
        snprintf(r->id, sizeof r->id, "%016llx",
                 (unsigned long long)hash_mix(r->server->id_seed + r->server->n_requests));
    r->server->n_requests++;
}

/* A preflight of an allowed origin is answered here; others find no methods. */
static bool answer_preflight(struct request *r, unsigned allowed)
{
    if (r->method != METHOD_OPTIONS || !r->cors_origin[0] || !allowed)
        return false;
    struct buffer text = {0};
    methods_text(allowed, &text);
    request_header(r, "Access-Control-Allow-Methods", "%.*s", (int)text.size, text.data);
    request_header(r, "Access-Control-Allow-Headers", "Authorization, Content-Type, X-Request-Id");
    request_header(r, "Access-Control-Max-Age", "600");
    buffer_clear(&text);
    request_reply(r, 204, NULL);
    return true;
}

static void refuse_method(struct request *r, unsigned allowed)
{
    struct buffer text = {0};
    char quoted[ERROR_QUOTE_BYTES];
    methods_text(allowed, &text);
    request_header(r, "Allow", "%.*s", (int)text.size, text.data);
    problem_set(&r->problem, PROBLEM_METHOD_NOT_ALLOWED, "%s is not a method of %s, which knows %.*s",
                error_quote(r->method_name, strlen(r->method_name), quoted), r->route->name, (int)text.size, text.data);
    buffer_clear(&text);
}

static void refuse_path(struct request *r)
{
    char quoted[ERROR_QUOTE_BYTES];
    problem_set(&r->problem, PROBLEM_NOT_FOUND, "no route has the path %s; there are:%s",
                error_quote(r->path.data, r->path.size, quoted), routes_text());
}

static void check_route(struct request *r)
{
    unsigned allowed;
    struct server *s = r->server;
    r->method = method_parse(r->method_name);
    r->route = route_find(buffer_span(&r->path), &allowed);
    if (!auth_origin_allowed(r)) {
        problem_set(&r->problem, PROBLEM_FORBIDDEN_ORIGIN,
                    "the Origin is neither this server's own nor one of allowed_origins");
    } else if (answer_preflight(r, allowed)) {
        return;
    } else if (!r->route) {
        refuse_path(r);
    } else if (!(r->route->flags & ROUTE_OPEN) && !auth_key_allowed(s->keys, request_header_get(r, "Authorization", NULL))) {
        request_header(r, "WWW-Authenticate", "Bearer realm=\"ggufd\"");
        problem_set(&r->problem, PROBLEM_UNAUTHORIZED, "send the header Authorization: Bearer KEY");
    } else if (!(r->method & allowed)) {
        refuse_method(r, allowed);
    }
}

/* ---- the body to come ---- */

static void refuse_size(struct request *r)
{
    if (r->problem.kind != PROBLEM_NONE)
        return;
    problem_set(&r->problem, PROBLEM_PAYLOAD_TOO_LARGE, "a body may have at most %lld bytes",
                (long long)r->server->config->max_body);
    problem_member(&r->problem, "max_body", r->server->config->max_body);
}

bool admission_check_body_bytes(struct request *r, size_t more)
{
    const struct server *s = r->server;
    char text[160];
    if (r->body_bytes > (size_t)s->config->max_body) {
        refuse_size(r);
        return false;
    }
    if (s->body_bytes + more <= (size_t)s->config->body_memory)
        return true;
    snprintf(text, sizeof text, "the bodies of all requests may take %lld bytes at one time (body_memory)",
             (long long)s->config->body_memory);
    problem_busy(&r->problem, PROBLEM_BODY_MEMORY, 1, text);
    return false;
}

static void check_body(struct request *r)
{
    struct span type = request_header_get(r, "Content-Type", NULL);
    struct span coding = request_header_get(r, "Content-Encoding", NULL);
    struct span length = request_header_get(r, "Content-Length", NULL);
    bool waits = request_header_get(r, "Expect", NULL).data != NULL;
    if (r->problem.kind == PROBLEM_NONE && coding.data)
        problem_set(&r->problem, PROBLEM_UNSUPPORTED_MEDIA_TYPE, "a Content-Encoding is not undone; send plain JSON");
    if (r->problem.kind == PROBLEM_NONE && type.size >= 19 && strncasecmp(type.data, "multipart/form-data", 19) == 0)
        problem_set(&r->problem, PROBLEM_UNSUPPORTED_MEDIA_TYPE, "multipart/form-data is not read; send plain JSON");
    /* libmicrohttpd has refused a length that does not fit 64 bits. */
    unsigned long long bytes = length.data ? strtoull(length.data, NULL, 10) : 0;
    if (bytes > (unsigned long long)r->server->config->max_body)
        refuse_size(r);
    if (r->problem.kind != PROBLEM_NONE && (waits || bytes > SWALLOW_BYTES))
        r->close = true;
}

void admission_check_headers(struct request *r, const char *method, const char *version)
{
    const char *fault = framing_fault(r, method, version);
    choose_id(r);
    if (fault) {
        problem_set(&r->problem, PROBLEM_INVALID_REQUEST, "the request is ambiguous: %s", fault);
        r->close = true;
        return;
    }
    check_route(r);
    check_body(r);
}

/* ---- before the route acts ---- */

/* What stands against a new job now. */
static void check_engine(struct request *r)
{
    struct server *s = r->server;
    const char *why = NULL;
    if (engine_info(s->engine)->vocabulary_only)
        problem_set(&r->problem, PROBLEM_VOCABULARY_ONLY,
                    "the model holds a vocabulary and no weights: /tokenize and /detokenize work");
    else if (s->draining)
        problem_busy(&r->problem, PROBLEM_DRAINING, server_drain_seconds(s), "the server is shutting down");
    else if (server_model_changed(s, &why))
        problem_busy(&r->problem, PROBLEM_MODEL_CHANGED, MODEL_CHANGED_RETRY_S, why);
    else
        job_refuse_full(s, &r->problem);
    if (r->problem.kind != PROBLEM_NONE)
        metrics_add(s->metrics, METRIC_JOBS, METRICS_LABELS(r->route->name, "refused"), 1);
}

void admission_check_complete(struct request *r)
{
    struct server *s = r->server;
    if (r->problem.kind != PROBLEM_NONE || r->reply.status)
        return;
    if ((r->route->flags & ROUTE_MODEL) && !s->engine)
        problem_busy(&r->problem, PROBLEM_LOADING, server_load_seconds(s), "the model is being loaded");
    else if (r->route->flags & ROUTE_WEIGHTS)
        check_engine(r);
}
