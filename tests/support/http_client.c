/* See http_client.h. */
#include "tests/support/http_client.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static int connect_to(int fd, const void *address, socklen_t size)
{
    int r;
    do
        r = connect(fd, address, size);
    while (r && errno == EINTR);
    return r && errno == EISCONN ? 0 : r; /* done while it was interrupted */
}

/* What was written in pieces must be on its way, and not wait for the peer's delayed acknowledgement. */
static void send_at_once(int fd)
{
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on); /* no TCP: no such option, and no such wait */
}

bool http_open(struct http *h, const char *address)
{
    *h = (struct http){.fd = -1};
    int r;
    if (strncmp(address, "unix:", 5) == 0) {
        struct sockaddr_un a = {.sun_family = AF_UNIX};
        strncpy(a.sun_path, address + 5, sizeof a.sun_path - 1);
        size_t size = a.sun_path[0] == '@' ? offsetof(struct sockaddr_un, sun_path) + strlen(a.sun_path) : sizeof a;
        if (a.sun_path[0] == '@') /* abstract: the name has no end but its length */
            a.sun_path[0] = 0;
        h->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        r = connect_to(h->fd, &a, (socklen_t)size);
    } else if (address[0] == '[') {
        struct sockaddr_in6 a = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
        a.sin6_port = htons((uint16_t)atoi(strrchr(address, ':') + 1));
        h->fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
        r = connect_to(h->fd, &a, sizeof a);
    } else {
        struct sockaddr_in a = {.sin_family = AF_INET};
        a.sin_port = htons((uint16_t)atoi(strchr(address, ':') + 1));
        a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        h->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        r = connect_to(h->fd, &a, sizeof a);
    }
    if (r == 0) {
        send_at_once(h->fd);
        return true;
    }
    http_close(h);
    return false;
}

void http_close(struct http *h)
{
    if (h->fd >= 0)
        close(h->fd);
    h->fd = -1;
    buffer_clear(&h->in);
}

bool http_send(struct http *h, const void *data, size_t size)
{
    const char *p = data;
    while (size) {
        ssize_t n = send(h->fd, p, size, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        p += n;
        size -= (size_t)n;
    }
    return true;
}

bool http_text(struct http *h, const char *text)
{
    return http_send(h, text, strlen(text));
}

bool http_request(struct http *h, const char *method, const char *path, const char *headers, const char *body)
{
    struct buffer b = {0};
    buffer_printf(&b, "%s %s HTTP/1.1\r\nHost: localhost\r\n%s", method, path, headers ? headers : "");
    if (body)
        buffer_printf(&b, "Content-Length: %zu\r\n", strlen(body));
    buffer_text(&b, "\r\n");
    if (body)
        buffer_text(&b, body);
    bool sent = http_send(h, b.data, b.size);
    buffer_clear(&b);
    return sent;
}

/* 1: more bytes in h->in; 0: the peer ended; -1: timeout or error. */
static int fill(struct http *h, double until)
{
    char data[65536];
    for (;;) {
        double left = until - now_ms();
        struct pollfd p = {.fd = h->fd, .events = POLLIN};
        int r = poll(&p, 1, left > 0 ? (int)left + 1 : 0);
        if (r < 0 && errno == EINTR)
            continue;
        if (r <= 0)
            return -1;
        ssize_t n = recv(h->fd, data, sizeof data, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        buffer_append(&h->in, data, (size_t)n);
        return n > 0;
    }
}

static void consume(struct http *h, size_t n)
{
    memmove(h->in.data, h->in.data + n, h->in.size - n);
    h->in.size -= n;
}

static void terminate(struct buffer *b)
{
    buffer_byte(b, 0);
    b->size--;
}

const char *http_header(const struct http_reply *r, const char *name)
{
    static _Thread_local char values[4][512];
    static _Thread_local unsigned next;
    size_t n = strlen(name);
    for (const char *line = r->head.data; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
        if (strncasecmp(line, name, n) == 0 && line[n] == ':') {
            char *value = values[next++ % 4];
            size_t size = strcspn(line + n + 1, "\r\n");
            snprintf(value, 512, "%.*s", (int)size, line + n + 1);
            return value + strspn(value, " ");
        }
    return NULL;
}

bool http_has(const struct http_reply *r, const char *text)
{
    return r->body.size && memmem(r->body.data, r->body.size, text, strlen(text)) != NULL;
}

void http_reply_clear(struct http_reply *r)
{
    buffer_clear(&r->head);
    buffer_clear(&r->body);
    *r = (struct http_reply){0};
}

bool http_read_head(struct http *h, struct http_reply *r, int timeout_ms)
{
    double until = now_ms() + timeout_ms;
    const char *end = NULL;
    http_reply_clear(r);
    while (!h->in.size || !(end = memmem(h->in.data, h->in.size, "\r\n\r\n", 4)))
        if (fill(h, until) <= 0)
            return false;
    size_t n = (size_t)(end - h->in.data) + 4;
    buffer_append(&r->head, h->in.data, n);
    terminate(&r->head);
    consume(h, n);
    r->status = atoi(r->head.data + 9);
    if (r->status == 100)
        return http_read_head(h, r, timeout_ms);
    const char *length = http_header(r, "Content-Length"), *coding = http_header(r, "Transfer-Encoding");
    h->chunked = coding && strcmp(coding, "chunked") == 0;
    h->left = h->chunked ? 0 : length ? atoll(length) : r->status == 204 ? 0 : -1;
    h->body_done = h->head || (!h->chunked && h->left == 0);
    return true;
}

/* A chunk's size line, and the end of the chunk before; false on failure. */
static bool read_chunk_head(struct http *h, double until)
{
    for (;;) {
        size_t skip = h->in.size >= 2 && h->in.data[0] == '\r' ? 2 : 0;
        const char *end = h->in.size > skip ? memmem(h->in.data + skip, h->in.size - skip, "\r\n", 2) : NULL;
        if (end) {
            h->left = strtoll(h->in.data + skip, NULL, 16);
            consume(h, (size_t)(end - h->in.data) + 2);
            h->body_done = h->left == 0;
            if (h->body_done) /* the empty line behind the last chunk */
                while (h->in.size < 2)
                    if (fill(h, until) <= 0)
                        return false;
            if (h->body_done)
                consume(h, 2);
            return true;
        }
        if (fill(h, until) <= 0)
            return false;
    }
}

bool http_read_some(struct http *h, struct http_reply *r, int timeout_ms)
{
    double until = now_ms() + timeout_ms;
    if (!h->body_done && h->chunked && h->left == 0 && !read_chunk_head(h, until))
        return false;
    if (h->body_done)
        return false;
    while (h->in.size == 0) {
        int got = fill(h, until);
        if (got == 0 && h->left == -1)
            h->body_done = true;
        if (got <= 0)
            return false;
    }
    size_t n = h->left >= 0 && h->in.size > (size_t)h->left ? (size_t)h->left : h->in.size;
    buffer_append(&r->body, h->in.data, n);
    terminate(&r->body);
    consume(h, n);
    if (h->left >= 0)
        h->left -= (long long)n;
    if (!h->chunked && h->left == 0)
        h->body_done = true;
    return true;
}

bool http_read_reply(struct http *h, struct http_reply *r, int timeout_ms)
{
    double until = now_ms() + timeout_ms;
    if (!http_read_head(h, r, timeout_ms))
        return false;
    while (!h->body_done) {
        if (!http_read_some(h, r, (int)(until - now_ms())) && !h->body_done) {
            r->status = 0;
            return false;
        }
    }
    return true;
}

bool http_read_line(struct http *h, struct http_reply *r, struct buffer *line, int timeout_ms)
{
    double until = now_ms() + timeout_ms;
    const char *end;
    while (!r->body.size || !(end = memchr(r->body.data, '\n', r->body.size)))
        if (!http_read_some(h, r, (int)(until - now_ms())))
            return false;
    size_t n = (size_t)(end - r->body.data);
    line->size = 0;
    buffer_append(line, r->body.data, n);
    terminate(line);
    memmove(r->body.data, r->body.data + n + 1, r->body.size - n - 1);
    r->body.size -= n + 1;
    return true;
}

bool http_is_closed(struct http *h, int timeout_ms)
{
    char data[4096];
    double until = now_ms() + timeout_ms;
    for (;;) {
        struct pollfd p = {.fd = h->fd, .events = POLLIN};
        double left = until - now_ms();
        int r = poll(&p, 1, left > 0 ? (int)left + 1 : 0);
        if (r < 0 && errno == EINTR)
            continue;
        if (r <= 0)
            return false;
        ssize_t n = recv(h->fd, data, sizeof data, 0);
        if (n == 0 || (n < 0 && errno != EINTR))
            return true;
    }
}

void http_call(const char *address, const char *method, const char *path, const char *headers, const char *body,
               struct http_reply *r)
{
    struct http h;
    *r = (struct http_reply){0};
    if (!http_open(&h, address))
        return;
    h.head = strcmp(method, "HEAD") == 0;
    http_request(&h, method, path, headers, body); /* a refusal may come before all of a body was taken */
    if (!http_read_reply(&h, r, PATIENCE_MS))
        r->status = 0;
    http_close(&h);
}
