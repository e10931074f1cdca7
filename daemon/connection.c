/* Watching and ending connections; see connection.h. */
#include "daemon/connection.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "daemon/request.h"
#include "daemon/server.h"

struct connection *connection_of(struct MHD_Connection *mhd)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info ? info->socket_context : NULL;
}

void connection_enter(struct connection *c, enum connection_phase phase)
{
    c->phase = phase;
    c->since_ms = uv_now(&c->server->loop);
}

void connection_cut(struct connection *c)
{
    c->cut = true;
    if (c->request)
        request_abandon(c->request);
    if (!c->request || !request_resume(c->request))
        shutdown(c->fd, SHUT_RDWR);
}

/* Level-triggered, so the watch is stopped or narrowed first. A hard end (reset, or both directions closed) takes the
 * request along. A FIN alone does so on TCP, where close() and shutdown(SHUT_WR) look the same, but not on a Unix
 * socket. Otherwise shutting down the reading side makes libmicrohttpd look at its socket again. */
static void on_disconnect(uv_poll_t *watch, int status, int events)
{
    (void)events;
    struct connection *c = watch->data;
    struct pollfd p = {.fd = c->fd, .events = POLLRDHUP};
    poll(&p, 1, 0);
    bool hard = status < 0 || (p.revents & (POLLERR | POLLHUP)) != 0;
    c->peer_fin = true;
    if (hard || !c->local)
        uv_poll_stop(watch);
    else
        uv_poll_start(watch, UV_PRIORITIZED, on_disconnect); /* errors and hang-ups only */
    if ((hard || !c->local) && c->request && request_is_waiting(c->request))
        connection_cut(c);
    else
        shutdown(c->fd, SHUT_RD);
    pump_run(&c->server->pump);
}

/* A host that vanished is noticed after `write_timeout` seconds, whether or not bytes are under way. */
static void set_tcp_options(const struct connection *c)
{
    int milliseconds = (int)c->server->config->write_timeout_ms, seconds = milliseconds / 1000, on = 1;
    int idle = seconds > 2 ? seconds / 2 : 1, interval = seconds > 6 ? seconds / 6 : 1, count = 3;
    setsockopt(c->fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &milliseconds, sizeof milliseconds);
    setsockopt(c->fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(c->fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(c->fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
    setsockopt(c->fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
}

static void name_peer(struct connection *c)
{
    struct sockaddr_storage address;
    socklen_t size = sizeof address;
    char text[INET6_ADDRSTRLEN] = "?";
    if (getpeername(c->fd, (struct sockaddr *)&address, &size))
        address.ss_family = AF_UNSPEC;
    c->local = address.ss_family == AF_UNIX;
    if (address.ss_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)&address;
        inet_ntop(AF_INET, &in->sin_addr, text, sizeof text);
        snprintf(c->peer, sizeof c->peer, "%s:%u", text, ntohs(in->sin_port));
    } else if (address.ss_family == AF_INET6) {
        const struct sockaddr_in6 *in = (const struct sockaddr_in6 *)&address;
        inet_ntop(AF_INET6, &in->sin6_addr, text, sizeof text);
        snprintf(c->peer, sizeof c->peer, "[%s]:%u", text, ntohs(in->sin6_port));
    } else {
        snprintf(c->peer, sizeof c->peer, "%s", c->local ? "unix" : "?");
    }
}

static void connection_started(struct server *s, struct MHD_Connection *mhd, void **socket_context)
{
    struct connection *c = calloc(1, sizeof *c);
    if (!c)
        return; /* served all the same, without a watch: request_log_uri refuses it */
    c->server = s;
    c->mhd = mhd;
    c->fd = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    name_peer(c);
    if (!c->local)
        set_tcp_options(c);
    connection_enter(c, CONNECTION_IDLE);
    c->next = s->connections;
    if (c->next)
        c->next->previous = c;
    s->connections = c;
    s->n_connections++;
    *socket_context = c;
    if (uv_poll_init(&s->loop, &c->watch, c->fd) == 0) {
        c->watched = true;
        c->watch.data = c;
        uv_poll_start(&c->watch, UV_DISCONNECT, on_disconnect);
    }
    server_watch_time(s);
}

static void free_watched(uv_handle_t *handle)
{
    free(handle->data);
}

/* libmicrohttpd calls this before it closes the descriptor, and uv_poll_stop takes it out of epoll at once. */
static void connection_closed(struct server *s, void **socket_context)
{
    struct connection *c = *socket_context;
    s->pump.again = true;
    if (!c)
        return;
    *socket_context = NULL;
    if (c->next)
        c->next->previous = c->previous;
    if (c->previous)
        c->previous->next = c->next;
    else
        s->connections = c->next;
    s->n_connections--;
    listeners_resume(s);
    if (!c->watched) {
        free(c);
        return;
    }
    uv_poll_stop(&c->watch);
    uv_close((uv_handle_t *)&c->watch, free_watched);
}

void connection_notify(void *cls, struct MHD_Connection *mhd, void **socket_context,
                       enum MHD_ConnectionNotificationCode code)
{
    if (code == MHD_CONNECTION_NOTIFY_STARTED)
        connection_started(cls, mhd, socket_context);
    else
        connection_closed(cls, socket_context);
}

/* Milliseconds that a phase may last; 0: no limit. */
static int64_t phase_limit_ms(const struct connection *c)
{
    const struct config *config = c->server->config;
    switch (c->phase) {
    case CONNECTION_IDLE:
        return c->requests ? config->keepalive_timeout_ms : config->header_timeout_ms;
    case CONNECTION_HEADERS:
        return config->header_timeout_ms;
    case CONNECTION_BODY:
        return config->body_timeout_ms;
    case CONNECTION_REPLY:
        return config->write_timeout_ms;
    case CONNECTION_BUSY:
        break;
    }
    return 0;
}

void connections_forgive(struct server *s, uint64_t ms)
{
    uint64_t now = uv_now(&s->loop);
    for (struct connection *c = s->connections; c; c = c->next)
        c->since_ms = c->since_ms + ms < now ? c->since_ms + ms : now;
}

/* libmicrohttpd takes a read that did not fill its buffer for the last one until epoll tells of another edge. If data
 * was still unread when the watch saw the end (a request piece behind a reply that is held up), that read comes later and
 * there is no other edge: so the edge is made again while the connection waits for what will not come. */
static bool tell_end_again(struct connection *c)
{
    return c->peer_fin && !c->cut && c->phase <= CONNECTION_BODY && shutdown(c->fd, SHUT_RD) == 0;
}

bool connections_expire(struct server *s, uint64_t now_ms)
{
    bool any = false;
    for (struct connection *c = s->connections; c; c = c->next) {
        any |= tell_end_again(c);
        uint64_t limit = (uint64_t)phase_limit_ms(c);
        if (c->cut || limit == 0 || now_ms - c->since_ms < limit)
            continue;
        connection_cut(c);
        any = true;
    }
    return any;
}

bool connections_evict(struct server *s)
{
    struct connection *oldest = NULL;
    for (struct connection *c = s->connections; c; c = c->next) {
        if (c->cut || c->phase > CONNECTION_BODY)
            continue;
        if (!oldest || c->phase < oldest->phase || (c->phase == oldest->phase && c->since_ms <= oldest->since_ms))
            oldest = c; /* of those of one millisecond the last in the list, which came first */
    }
    if (oldest)
        connection_cut(oldest);
    return oldest != NULL;
}
