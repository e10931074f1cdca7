/* Sending replies; see answer.h. */
#include "daemon/answer.h"

#include <stdio.h>
#include <string.h>

#include "daemon/connection.h"
#include "daemon/job.h"
#include "daemon/request.h"
#include "daemon/route.h"
#include "daemon/server.h"

/* Bodies up to this size are handed over at once; larger ones are read piece by piece, which shows a client's progress. */
enum { WHOLE_BYTES = 16384, BLOCK_BYTES = 65536 };

static void add_headers(struct request *r, struct MHD_Response *response, const char *content_type)
{
    MHD_add_response_header(response, "X-Request-Id", r->id);
    if (content_type)
        MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, content_type);
    for (size_t i = 0; i < r->reply.n_headers; i++)
        MHD_add_response_header(response, r->reply.headers[i].name, r->reply.headers[i].value);
    if (r->cors_origin[0]) {
        MHD_add_response_header(response, "Access-Control-Allow-Origin", r->cors_origin);
        MHD_add_response_header(response, "Access-Control-Expose-Headers",
                                "X-Request-Id, X-Logits-Shape, X-Logits-Dtype, Retry-After");
        MHD_add_response_header(response, MHD_HTTP_HEADER_VARY, "Origin");
    }
    if (r->close || r->server->draining)
        MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
}

/* Takes the response, which may be NULL (no memory). */
static enum MHD_Result queue_response(struct request *r, unsigned status, const char *content_type,
                                      struct MHD_Response *response)
{
    if (!response)
        return MHD_NO;
    add_headers(r, response, content_type);
    r->stage = REQUEST_ANSWERED;
    r->reply.status = status;
    connection_enter(r->connection, CONNECTION_REPLY);
    enum MHD_Result queued = MHD_queue_response(r->mhd, status, response);
    MHD_destroy_response(response);
    return queued;
}

static ssize_t read_body(void *cls, uint64_t position, char *data, size_t size)
{
    struct request *r = cls;
    size_t left = r->reply.body.size - (size_t)position, n = left < size ? left : size;
    connection_enter(r->connection, CONNECTION_REPLY);
    memcpy(data, r->reply.body.data + position, n);
    r->sent += n;
    return (ssize_t)n;
}

static void write_problem(struct request *r)
{
    struct reply *reply = &r->reply;
    int64_t retry = problem_member_value(&r->problem, "retry_after_s", -1);
    buffer_clear(&reply->body);
    problem_write(&reply->body, &r->problem, r->route && (r->route->flags & ROUTE_OPENAI));
    buffer_byte(&reply->body, '\n');
    reply->status = problem_status(r->problem.kind);
    reply->content_type = PROBLEM_CONTENT_TYPE;
    if (retry >= 0)
        request_header(r, MHD_HTTP_HEADER_RETRY_AFTER, "%lld", (long long)retry);
}

enum MHD_Result answer_request(struct request *r)
{
    struct reply *reply = &r->reply;
    if (r->problem.kind != PROBLEM_NONE)
        write_problem(r);
    if (reply->body.failed)
        return MHD_NO;
    struct MHD_Response *response;
    if (reply->body.size <= WHOLE_BYTES) {
        response = MHD_create_response_from_buffer(reply->body.size, reply->body.data, MHD_RESPMEM_MUST_FREE);
        if (response) {
            r->sent = reply->body.size;
            buffer_init(&reply->body); /* given away */
        }
    } else {
        response = MHD_create_response_from_callback(reply->body.size, BLOCK_BYTES, read_body, r, NULL);
    }
    return queue_response(r, reply->status, reply->content_type, response);
}

/* libmicrohttpd has sent what it had. Nothing more yet: sleep until the job has something. */
static ssize_t read_job(void *cls, uint64_t position, char *data, size_t size)
{
    (void)position;
    struct request *r = cls;
    bool ended, broken;
    if (r->gone)
        return MHD_CONTENT_READER_END_WITH_ERROR;
    size_t n = job_read(r->job, data, size, &ended, &broken);
    if (ended)
        job_settle(r->job);
    if (n) {
        connection_enter(r->connection, CONNECTION_REPLY);
        r->sent += n;
        return (ssize_t)n;
    }
    if (ended)
        return broken ? MHD_CONTENT_READER_END_WITH_ERROR : MHD_CONTENT_READER_END_OF_STREAM;
    request_suspend(r);
    return 0;
}

static enum MHD_Result begin_stream(struct request *r)
{
    const struct job *j = r->job;
    uint64_t size = j->reply_bytes ? j->reply_bytes : MHD_SIZE_UNKNOWN;
    request_header(r, "X-Accel-Buffering", "no");
    request_header(r, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    return queue_response(r, MHD_HTTP_OK, j->content_type,
                          MHD_create_response_from_callback(size, BLOCK_BYTES, read_job, r, NULL));
}

enum MHD_Result answer_job(struct request *r)
{
    struct job *j = r->job;
    struct job_queue *q = &r->server->queue;
    pthread_mutex_lock(&q->lock);
    bool committed = j->committed, done = j->state == JOB_DONE, broken = j->broken;
    if (done && !committed && j->problem.kind == PROBLEM_NONE) {
        r->reply.body = j->out; /* the job's last act was to write it */
        buffer_init(&j->out);
    }
    pthread_mutex_unlock(&q->lock);
    if (committed)
        return begin_stream(r);
    if (done && broken && j->problem.kind == PROBLEM_NONE)
        return MHD_NO; /* a whole reply found no memory */
    if (!done) {
        request_suspend(r);
        return MHD_YES;
    }
    job_settle(j);
    r->problem = j->problem;
    request_reply(r, MHD_HTTP_OK, "application/json");
    return answer_request(r);
}
