/* From request line to reply; see request.h. */
#include "daemon/request.h"

#include <assert.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include "daemon/admission.h"
#include "daemon/answer.h"
#include "daemon/connection.h"
#include "daemon/job.h"
#include "daemon/request_log.h"
#include "daemon/route.h"
#include "daemon/server.h"

/* A larger body is parsed and tokenized on a worker thread. */
enum { INLINE_BODY_BYTES = 4096, NO_TIMEOUT_S = 7 * 86400 };

/* ---- headers ---- */

struct lookup {
    const char *name;
    struct span value;
    size_t count;
};

static enum MHD_Result look(void *cls, enum MHD_ValueKind kind, const char *key, size_t key_size, const char *value,
                            size_t value_size)
{
    (void)kind;
    struct lookup *l = cls;
    if (strlen(l->name) == key_size && strncasecmp(key, l->name, key_size) == 0) {
        if (l->count++ == 0)
            l->value = (struct span){value, value_size};
    }
    return MHD_YES;
}

struct span request_header_get(const struct request *r, const char *name, size_t *count)
{
    struct lookup l = {.name = name};
    MHD_get_connection_values_n(r->mhd, MHD_HEADER_KIND, look, &l);
    if (count)
        *count = l.count;
    return l.value;
}

struct span request_host(const struct request *r)
{
    return r->authority.data ? r->authority : request_header_get(r, "Host", NULL);
}

void request_header(struct request *r, const char *name, const char *format, ...)
{
    assert(r->reply.n_headers < REQUEST_HEADERS_MAX);
    va_list args;
    va_start(args, format);
    vsnprintf(r->reply.headers[r->reply.n_headers].value, sizeof r->reply.headers[0].value, format, args);
    va_end(args);
    r->reply.headers[r->reply.n_headers++].name = name;
}

void *request_new_plan(struct request *r, size_t size)
{
    r->plan = calloc(1, size);
    if (!r->plan)
        problem_set(&r->problem, PROBLEM_INTERNAL, "out of memory for a request");
    return r->plan;
}

void request_reply(struct request *r, unsigned status, const char *content_type)
{
    r->reply.status = status;
    r->reply.content_type = content_type;
}

/* ---- beginning ---- */

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Every server has to take "http://host:port/path" for "/path" (RFC 9112, 3.2.2). Returns the bytes before the path. */
static size_t take_authority(struct request *r)
{
    const char *uri = r->uri.data;
    size_t scheme = strncasecmp(uri, "http://", 7) == 0 ? 7 : strncasecmp(uri, "https://", 8) == 0 ? 8 : 0;
    if (!scheme)
        return 0;
    r->authority = (struct span){uri + scheme, strcspn(uri + scheme, "/?#")};
    return scheme + r->authority.size;
}

/* Path of the URI, escapes undone, counted: %00 stays a byte that no route has. */
static void take_path(struct request *r)
{
    const char *uri = r->uri.data + take_authority(r);
    size_t n = strcspn(uri, "?");
    if (r->authority.data && uri[0] != '/') /* RFC 9110, 4.2.3: an empty path is the same as "/" */
        buffer_byte(&r->path, '/');
    for (size_t i = 0; i < n; i++) {
        int high = uri[i] == '%' && i + 2 < n ? hex_digit(uri[i + 1]) : -1;
        int low = high >= 0 ? hex_digit(uri[i + 2]) : -1;
        if (low >= 0) {
            buffer_byte(&r->path, (char)(high << 4 | low));
            i += 2;
        } else {
            buffer_byte(&r->path, uri[i]);
        }
    }
}

void *request_begin(void *cls, const char *uri, struct MHD_Connection *mhd)
{
    struct server *s = cls;
    struct connection *c = connection_of(mhd);
    struct request *r = c ? calloc(1, sizeof *r) : NULL;
    if (!r)
        return NULL; /* request_handle drops the connection */
    r->server = s;
    r->connection = c;
    r->mhd = mhd;
    buffer_text(&r->uri, uri);
    buffer_byte(&r->uri, 0);
    r->target = uri;
    r->target_end = uri + strlen(uri);
    if (!r->uri.failed) {
        r->uri.size--; /* the terminator */
        take_path(r);
    }
    server_update_time(s);
    r->arrived_ms = uv_now(&s->loop);
    c->request = r;
    c->requests++;
    connection_enter(c, CONNECTION_HEADERS);
    return r;
}

/* ---- the body ---- */

static void drop_body(struct request *r)
{
    r->server->body_bytes -= r->body.size;
    buffer_clear(&r->body);
}

/* A body that nobody wants is still read, so that its sender finds the reply and the connection lives on; beyond
 * SWALLOW_BYTES it is not worth that. */
static bool store_body(struct request *r, const char *data, size_t size)
{
    struct server *s = r->server;
    r->body_bytes += size;
    if (!r->swallow && !admission_check_body_bytes(r, size)) {
        r->swallow = true;
        drop_body(r);
    }
    if (r->swallow)
        return r->body_bytes <= SWALLOW_BYTES;
    buffer_append(&r->body, data, size);
    if (r->body.failed)
        return false;
    s->body_bytes += size;
    return true;
}

/* ---- preparing ---- */

static void do_prepare(struct request *r)
{
    r->route->actions->prepare(r);
}

static void on_worker(uv_work_t *work)
{
    do_prepare(work->data);
}

static void request_free(struct request *r)
{
    if (r->route && r->route->actions->clear)
        r->route->actions->clear(r);
    if (r->job)
        job_release(r->job);
    buffer_clear(&r->uri);
    buffer_clear(&r->path);
    drop_body(r);
    buffer_clear(&r->reply.body);
    free(r);
}

static void after_worker(uv_work_t *work, int status)
{
    struct request *r = work->data;
    struct server *s = r->server;
    (void)status; /* never cancelled */
    r->stage = REQUEST_PREPARED;
    s->n_working--;
    if (r->completed)
        request_free(r);
    else if (request_resume(r))
        pump_run(&s->pump);
    server_check_drained(s);
}

/* The first work starts libuv's threads, and they must not let in the signals that end the process in order. */
static bool start_worker(struct request *r)
{
    sigset_t old;
    server_hold_signals(&old);
    int status = uv_queue_work(&r->server->loop, &r->work, on_worker, after_worker);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return status == 0;
}

static void prepare(struct request *r)
{
    r->stage = REQUEST_PREPARED;
    if (r->problem.kind != PROBLEM_NONE || r->reply.status || !r->route->actions->prepare)
        return;
    r->work.data = r;
    if (r->body.size > INLINE_BODY_BYTES && start_worker(r)) {
        r->stage = REQUEST_PREPARING;
        r->server->n_working++;
        request_suspend(r);
        return;
    }
    do_prepare(r);
}

/* ---- the handler ---- */

/* The whole request is there, or something that it waited for has happened. */
static enum MHD_Result proceed(struct request *r)
{
    if (r->gone)
        return MHD_NO;
    if (r->stage == REQUEST_OPEN) {
        connection_enter(r->connection, CONNECTION_BUSY);
        admission_check_complete(r);
        prepare(r);
    }
    if (r->stage == REQUEST_PREPARED) {
        drop_body(r);
        if (r->problem.kind == PROBLEM_NONE && !r->reply.status)
            r->route->actions->start(r);
        if (r->gone)
            return MHD_NO;
        if (!r->job)
            return answer_request(r);
        r->stage = REQUEST_WAITING;
    }
    if (r->stage == REQUEST_WAITING)
        return answer_job(r);
    return MHD_YES; /* prepared by a worker: suspended until then */
}

static enum MHD_Result first_call(struct request *r, const char *method, const char *version)
{
    if (r->uri.failed || r->path.failed)
        return MHD_NO; /* half a path is another path */
    r->http_1_0 = strcmp(version, "HTTP/1.0") == 0;
    snprintf(r->method_name, sizeof r->method_name, "%s", method);
    r->seen = true;
    connection_enter(r->connection, CONNECTION_BODY);
    admission_check_headers(r, method, version);
    if (r->problem.kind == PROBLEM_NONE && !r->reply.status)
        return MHD_YES;
    r->swallow = true;
    if (r->close)
        return answer_request(r);
    return MHD_YES;
}

enum MHD_Result request_handle(void *cls, struct MHD_Connection *mhd, const char *url, const char *method,
                               const char *version, const char *data, size_t *size, void **context)
{
    (void)cls, (void)mhd, (void)url;
    struct request *r = *context;
    if (!r)
        return MHD_NO;
    if (!r->seen)
        return first_call(r, method, version);
    if (*size) {
        bool stored = store_body(r, data, *size);
        *size = 0;
        return stored ? MHD_YES : MHD_NO;
    }
    return proceed(r);
}

/* ---- waiting and ending ---- */

/* libmicrohttpd reads a resumed connection before it calls the handler of its request, and drops the request if it finds
 * the end of the client's sending there; only connections with a timeout of their own get the handler first. On TCP that
 * end cancels anyway. */
static void answer_before_reading(const struct request *r)
{
    if (r->connection->local)
        MHD_set_connection_option(r->mhd, MHD_CONNECTION_OPTION_TIMEOUT, (unsigned)NO_TIMEOUT_S);
}

void request_suspend(struct request *r)
{
    assert(!r->suspended); /* libmicrohttpd calls nobody for a suspended connection */
    r->suspended = true;
    answer_before_reading(r);
    connection_enter(r->connection, CONNECTION_BUSY);
    MHD_suspend_connection(r->mhd);
}

bool request_resume(struct request *r)
{
    if (!r->suspended)
        return false;
    r->suspended = false;
    MHD_resume_connection(r->mhd);
    return true;
}

bool request_is_waiting(const struct request *r)
{
    return r->job || r->stage == REQUEST_PREPARING;
}

void request_abandon(struct request *r)
{
    r->gone = true;
    if (r->job)
        job_cancel(r->job, REASON_CANCELLED);
}

void request_completed(void *cls, struct MHD_Connection *mhd, void **context,
                       enum MHD_RequestTerminationCode code)
{
    (void)mhd;
    struct server *s = cls;
    struct request *r = *context;
    *context = NULL;
    if (!r)
        return;
    struct connection *c = r->connection;
    c->request = NULL;
    connection_enter(c, CONNECTION_IDLE);
    r->completed = true;
    if (code != MHD_REQUEST_TERMINATED_COMPLETED_OK)
        request_abandon(r);
    request_log(r, code == MHD_REQUEST_TERMINATED_COMPLETED_OK);
    if (r->job)
        r->job->request = NULL;
    if (r->stage != REQUEST_PREPARING)
        request_free(r);
    server_check_drained(s);
}
