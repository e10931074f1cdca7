/* One HTTP request, from its request line to the log line about its reply.
 *
 * Decisions fall in libmicrohttpd's first call (headers known), bodies are gathered or swallowed, and replies go out
 * in the final call, which keeps connections alive. A request that needs time is suspended and its handler called
 * again after request_resume. Loop thread only, except prepare(), which may run on a worker thread while nothing else
 * touches the fields named "worker". */
#ifndef GGUFD_DAEMON_REQUEST_H
#define GGUFD_DAEMON_REQUEST_H

#include <microhttpd.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "daemon/config.h"
#include "engine/base/buffer.h"
#include "proto/problem.h"
#include "proto/requests.h"

struct connection;
struct job;
struct route;
struct server;

#define REQUEST_HEADERS_MAX 8

enum request_stage {
    REQUEST_OPEN,      /* headers and body are still coming */
    REQUEST_PREPARING, /* on a worker thread */
    REQUEST_PREPARED,
    REQUEST_WAITING,   /* a job works for it */
    REQUEST_ANSWERED
};

struct reply {
    unsigned status;
    const char *content_type;
    struct buffer body;
    size_t n_headers;
    struct {
        const char *name;
        char value[200];
    } headers[REQUEST_HEADERS_MAX];
};

struct request {
    struct server *server;
    struct connection *connection;
    struct MHD_Connection *mhd;
    const struct route *route; /* NULL: none has this path */
    enum request_stage stage;
    unsigned method;           /* METHOD_* bit, 0: unknown */
    char method_name[16];
    struct buffer uri;         /* as sent */
    struct span authority;     /* in uri, where that is "http://authority/path"; else data is NULL */
    const char *target, *target_end; /* in libmicrohttpd's memory, its end as text: to be compared, not read */
    struct buffer path;        /* unescaped, counted, without query */
    char id[REQUEST_ID_BYTES_MAX + 1];
    char cors_origin[CONFIG_ORIGIN_BYTES_MAX + 1]; /* to be named in the reply's CORS headers; "" if none */
    uint64_t arrived_ms;

    bool http_1_0;
    bool seen;       /* the first handler call was made */
    bool swallow;    /* the body is read and dropped: the answer is known */
    bool close;      /* the connection ends with this reply */
    bool suspended;
    bool gone;       /* the peer left or was cut */
    bool completed;  /* libmicrohttpd is done with it */
    size_t body_bytes; /* received, stored or not */
    struct buffer body; /* its size counts in server->body_bytes */

    struct problem problem; /* worker; kind PROBLEM_NONE: none */
    struct reply reply;     /* worker */
    void *plan;             /* worker; the route's own, freed by route->clear */
    struct job *job;        /* held; NULL before and without one */
    uv_work_t work;
    size_t sent;
};

/* libmicrohttpd's MHD_OPTION_URI_LOG_CALLBACK: makes the request; cls is the server. */
void *request_begin(void *cls, const char *uri, struct MHD_Connection *mhd);
/* The access handler and MHD_OPTION_NOTIFY_COMPLETED. */
enum MHD_Result request_handle(void *cls, struct MHD_Connection *mhd, const char *url, const char *method,
                               const char *version, const char *data, size_t *size, void **context);
void request_completed(void *cls, struct MHD_Connection *mhd, void **context,
                       enum MHD_RequestTerminationCode code);

/* Fixes the answer: reply.body is what was written there. */
void request_reply(struct request *r, unsigned status, const char *content_type);
void request_header(struct request *r, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Makes r->plan, zeroed. NULL: no memory, and r->problem says so. */
void *request_new_plan(struct request *r, size_t size);

/* A header's value, counted; data NULL when absent. `count` (may be NULL) is how often it occurs. */
struct span request_header_get(const struct request *r, const char *name, size_t *count);
/* The host, with its port, that the request is for: the target's own before the Host header (RFC 9112, 3.2.2). */
struct span request_host(const struct request *r);

/* True while a suspended or streaming request would profit from being ended early. */
bool request_is_waiting(const struct request *r);
/* The peer is gone: cancels the job. */
void request_abandon(struct request *r);
/* Lets a suspended request's handler or reader run at the next pump; false if it was not suspended. */
bool request_resume(struct request *r);
void request_suspend(struct request *r);

#endif
