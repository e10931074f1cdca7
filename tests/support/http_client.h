/* A plain HTTP/1.1 client for tests: blocking, explicit about bytes, with timeouts. Failure is returned, not asserted. */
#ifndef GGUFD_TESTS_HTTP_CLIENT_H
#define GGUFD_TESTS_HTTP_CLIENT_H

#include <stdbool.h>
#include <stddef.h>

#include "engine/base/buffer.h"
#include "tests/support/patience.h"

struct http {
    int fd;             /* -1: not connected */
    struct buffer in;   /* received, not consumed */
    bool chunked, head; /* of the reply being read */
    long long left;     /* bytes of the body or chunk still to come; -1: until the connection ends */
    bool body_done;
};

struct http_reply {
    int status;         /* 0: no reply, or not all of it */
    struct buffer head; /* status line and headers, terminated */
    struct buffer body; /* terminated; size without the terminator */
};

/* address: "127.0.0.1:8080", "[::1]:8080", "unix:/path" or "unix:@name". */
bool http_open(struct http *h, const char *address);
void http_close(struct http *h);
/* Sends all; false when the peer does not take it. */
bool http_send(struct http *h, const void *data, size_t size);
bool http_text(struct http *h, const char *text);
/* A request with Host, and with Content-Length unless body is NULL. `headers` (may be NULL): lines that end in \r\n. */
bool http_request(struct http *h, const char *method, const char *path, const char *headers, const char *body);

/* Reads status line and headers; false on timeout or end. */
bool http_read_head(struct http *h, struct http_reply *r, int timeout_ms);
/* Reads more of the body, appended to r->body; false at its end (h->body_done) or on failure. */
bool http_read_some(struct http *h, struct http_reply *r, int timeout_ms);
bool http_read_reply(struct http *h, struct http_reply *r, int timeout_ms); /* all of it */
/* One line of a streamed body into `line` (terminated, without newline); false at the end. */
bool http_read_line(struct http *h, struct http_reply *r, struct buffer *line, int timeout_ms);
/* True when the peer closes, or resets, within the time. */
bool http_is_closed(struct http *h, int timeout_ms);

/* One request on a connection of its own; r->status 0 on failure. Clear r afterwards. */
void http_call(const char *address, const char *method, const char *path, const char *headers, const char *body,
               struct http_reply *r);
void http_reply_clear(struct http_reply *r);
/* A header's value, static storage; NULL when absent. */
const char *http_header(const struct http_reply *r, const char *name);
/* True when the body holds the text. */
bool http_has(const struct http_reply *r, const char *text);

#endif
