/* See stress_client.h. */
#include "tests/support/stress_client.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/support/http_client.h"

static void forget(struct stress_client *c)
{
    c->out.size = c->in.size = c->head.size = c->body.size = 0;
    c->out_at = c->out_end = c->in_at = 0;
    c->status = 0;
    c->chunked = c->last = c->closes = false;
}

bool stress_client_open(struct stress_client *c, const char *address)
{
    struct http h;
    if (!http_open(&h, address))
        return false;
    fcntl(h.fd, F_SETFL, fcntl(h.fd, F_GETFL) | O_NONBLOCK);
    forget(c);
    c->fd = h.fd;
    c->local = strncmp(address, "unix:", 5) == 0;
    c->stopped = c->half_closed = false;
    c->sip = 0;
    c->state = STRESS_IDLE;
    return true;
}

void stress_client_close(struct stress_client *c)
{
    if (c->state != STRESS_CLOSED)
        close(c->fd);
    c->state = STRESS_CLOSED;
    buffer_clear(&c->out);
    buffer_clear(&c->in);
    buffer_clear(&c->head);
    buffer_clear(&c->body);
}

void stress_client_ask(struct stress_client *c, const char *text, size_t size, size_t first)
{
    forget(c);
    buffer_append(&c->out, text, size);
    c->out_end = first < size ? first : size;
    c->state = STRESS_ASKING;
    stress_client_move(c);
}

void stress_client_half_close(struct stress_client *c)
{
    shutdown(c->fd, SHUT_WR);
    c->half_closed = true;
}

bool stress_client_has_sent(const struct stress_client *c)
{
    return c->out_at == c->out.size;
}

short stress_client_events(const struct stress_client *c)
{
    if (c->state != STRESS_IDLE && c->state != STRESS_ASKING)
        return 0;
    bool sends = !c->half_closed && c->out_at < c->out_end;
    return (short)((c->stopped ? 0 : POLLIN) | (sends ? POLLOUT : 0));
}

static void send_some(struct stress_client *c)
{
    while (!c->half_closed && c->out_at < c->out_end) {
        ssize_t n = send(c->fd, c->out.data + c->out_at, c->out_end - c->out_at, MSG_NOSIGNAL);
        if (n <= 0)
            return; /* full, or the peer is gone: reading tells */
        c->out_at += (size_t)n;
    }
}

bool stress_client_header(const struct stress_client *c, const char *name, char *out, size_t size)
{
    size_t n = strlen(name);
    for (const char *line = c->head.size ? strchr(c->head.data, '\n') : NULL; line; line = strchr(line + 1, '\n'))
        if (strncasecmp(line + 1, name, n) == 0 && line[n + 1] == ':') {
            const char *value = line + n + 2 + strspn(line + n + 2, " ");
            snprintf(out, size, "%.*s", (int)strcspn(value, "\r"), value);
            return true;
        }
    return false;
}

static void terminate(struct buffer *b)
{
    buffer_byte(b, 0);
    b->size--;
}

static bool parse_head(struct stress_client *c)
{
    char value[64];
    const char *end = c->in.size ? memmem(c->in.data, c->in.size, "\r\n\r\n", 4) : NULL;
    if (!end)
        return false;
    c->in_at = (size_t)(end - c->in.data) + 4;
    buffer_append(&c->head, c->in.data, c->in_at);
    terminate(&c->head);
    c->status = atoi(c->head.data + 9);
    c->chunked = stress_client_header(c, "Transfer-Encoding", value, sizeof value);
    c->left = -1;
    if (!c->chunked && stress_client_header(c, "Content-Length", value, sizeof value))
        c->left = atoll(value);
    c->closes = stress_client_header(c, "Connection", value, sizeof value) && strcasecmp(value, "close") == 0;
    return true;
}

/* The next chunk's size line; false: not there yet. */
static bool parse_chunk_head(struct stress_client *c)
{
    const char *at = c->in.data + c->in_at;
    size_t size = c->in.size - c->in_at, skip = size >= 2 && at[0] == '\r' ? 2 : 0;
    const char *end = size > skip ? memmem(at + skip, size - skip, "\r\n", 2) : NULL;
    if (!end)
        return false;
    c->left = strtoll(at + skip, NULL, 16);
    size_t n = (size_t)(end - at) + 2;
    if (c->left == 0 && size < n + 2) { /* the empty line behind the last chunk */
        c->left = -1;
        return false;
    }
    c->last = c->left == 0;
    c->in_at += c->last ? n + 2 : n;
    return true;
}

static void parse(struct stress_client *c)
{
    if (!c->status && !parse_head(c))
        return;
    while (!c->last) {
        if (c->chunked && c->left < 0 && !parse_chunk_head(c))
            break;
        size_t have = c->in.size - c->in_at, n = (long long)have < c->left ? have : (size_t)c->left;
        buffer_append(&c->body, c->in.data + c->in_at, n);
        c->in_at += n;
        c->left -= (long long)n;
        if (c->left > 0)
            break;
        c->last |= !c->chunked;
        if (c->chunked && !c->last)
            c->left = -1;
    }
    terminate(&c->body);
    memmove(c->in.data, c->in.data + c->in_at, c->in.size - c->in_at);
    c->in.size -= c->in_at;
    c->in_at = 0;
    if (c->last)
        c->state = STRESS_REPLIED;
}

static void read_some(struct stress_client *c)
{
    char data[16384];
    size_t most = c->sip && c->sip < sizeof data ? c->sip : sizeof data;
    for (int i = 0; i < 64 && (c->state == STRESS_IDLE || c->state == STRESS_ASKING); i++) {
        ssize_t n = recv(c->fd, data, most, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n <= 0) {
            c->state = STRESS_LOST;
            return;
        }
        buffer_append(&c->in, data, (size_t)n);
        parse(c);
        if (c->sip)
            return;
    }
}

void stress_client_move(struct stress_client *c)
{
    if (c->state != STRESS_IDLE && c->state != STRESS_ASKING)
        return;
    send_some(c);
    if (!c->stopped)
        read_some(c);
}

void stress_client_next(struct stress_client *c)
{
    bool again = !c->closes && !c->half_closed && stress_client_has_sent(c);
    forget(c);
    c->state = STRESS_IDLE;
    if (!again)
        stress_client_close(c);
}
