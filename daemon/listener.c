/* Binding and accepting; see listener.h. */
#include "daemon/listener.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/address.h"
#include "daemon/connection.h"
#include "daemon/notify.h"
#include "daemon/server.h"

enum { BACKLOG = 512, ACCEPTS_AT_ONCE = 64, RETRY_ACCEPT_MS = 100,  };

static enum status listen_on(struct listener *l, int family, const struct sockaddr *address, socklen_t size,
                             struct error *err)
{
    int on = 1;
    l->fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (l->fd < 0)
        return error_set(err, STATUS_IO, "socket: %s", strerror(errno));
    if (family != AF_UNIX)
        setsockopt(l->fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (family == AF_INET6)
        setsockopt(l->fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    if (bind(l->fd, address, size))
        return error_set(err, STATUS_IO, "bind: %s", strerror(errno));
    if (listen(l->fd, BACKLOG))
        return error_set(err, STATUS_IO, "listen: %s", strerror(errno));
    return STATUS_OK;
}

/* A path is free when nothing is there, or a socket that nobody answers on. Anything else is left alone. A process that
 * still answers may be about to end, as with a TCP port: a failure of this run, not of the configuration. */
static enum status free_path(const struct sockaddr_un *address, struct error *err)
{
    struct stat st;
    if (lstat(address->sun_path, &st))
        return errno == ENOENT ? STATUS_OK : error_set(err, STATUS_IO, "%s", strerror(errno));
    if (!S_ISSOCK(st.st_mode))
        return error_set(err, STATUS_INVALID, "exists and is not a socket");
    int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (probe < 0)
        return error_set(err, STATUS_IO, "socket: %s", strerror(errno));
    int r = connect(probe, (const struct sockaddr *)address, sizeof *address), why = errno;
    close(probe);
    if (r == 0 || why != ECONNREFUSED)
        return error_set(err, STATUS_IO, "is in use by another process (%s)", r ? strerror(why) : "it answers");
    if (unlink(address->sun_path) && errno != ENOENT)
        return error_set(err, STATUS_IO, "cannot remove the stale socket: %s", strerror(errno));
    return STATUS_OK;
}

static enum status bind_unix(struct listener *l, const char *path, unsigned mode, struct error *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    socklen_t name = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path));
    strcpy(address.sun_path, path);
    if (path[0] == '@') { /* abstract: no file, no mode */
        address.sun_path[0] = 0;
        return listen_on(l, AF_UNIX, (const struct sockaddr *)&address, name, err);
    }
    enum status status = free_path(&address, err);
    if (status)
        return status;
    mode_t old = umask(0777); /* nobody connects before the mode is right */
    status = listen_on(l, AF_UNIX, (const struct sockaddr *)&address, sizeof address, err);
    umask(old);
    if (status)
        return status;
    strcpy(l->path, path);
    if (chmod(path, (mode_t)mode))
        return error_set(err, STATUS_IO, "chmod %04o: %s", mode, strerror(errno));
    return STATUS_OK;
}

static enum status bind_inet(struct listener *l, const struct address *a, struct error *err)
{
    char port[8];
    struct addrinfo hints = {.ai_flags = AI_PASSIVE | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM}, *found = NULL;
    snprintf(port, sizeof port, "%u", a->port);
    int r = getaddrinfo(a->host[0] ? a->host : NULL, port, &hints, &found);
    if (r)
        return error_set(err, STATUS_INVALID, "%s", gai_strerror(r));
    const struct addrinfo *best = found; /* of a name's addresses the IPv4 one, which "localhost" is expected to mean */
    for (const struct addrinfo *i = found; i; i = i->ai_next)
        if (i->ai_family == AF_INET && best->ai_family != AF_INET)
            best = i;
    enum status status = listen_on(l, best->ai_family, best->ai_addr, best->ai_addrlen, err);
    freeaddrinfo(found);
    return status;
}

/* The address that is really bound: port 0 became a number. */
static void name_listener(struct listener *l)
{
    struct sockaddr_storage address;
    socklen_t size = sizeof address;
    char host[NI_MAXHOST], port[NI_MAXSERV];
    if (getsockname(l->fd, (struct sockaddr *)&address, &size))
        return;
    const struct sockaddr_un *local = (const struct sockaddr_un *)&address;
    if (address.ss_family == AF_UNIX) {
        size_t n = size - offsetof(struct sockaddr_un, sun_path);
        bool abstract = n > 0 && local->sun_path[0] == 0;
        snprintf(l->name, sizeof l->name, "unix:%s%.*s", abstract ? "@" : "", (int)(abstract ? n - 1 : strnlen(local->sun_path, n)),
                 local->sun_path + abstract);
    }
    else if (getnameinfo((const struct sockaddr *)&address, size, host, sizeof host, port, sizeof port,
                         NI_NUMERICHOST | NI_NUMERICSERV) == 0)
        snprintf(l->name, sizeof l->name, address.ss_family == AF_INET6 ? "[%.90s]:%s" : "%.90s:%s", host, port);
}

enum status listener_bind(struct listener *l, const char *address, unsigned mode, struct error *err)
{
    char quoted[ERROR_QUOTE_BYTES];
    struct address a;
    l->fd = -1;
    enum status status = address_parse(address, &a, err);
    if (status)
        return status;
    status = a.is_unix ? bind_unix(l, a.path, mode, err) : bind_inet(l, &a, err);
    if (status)
        error_context(err, "cannot listen on %s", error_quote(address, strlen(address), quoted));
    else
        name_listener(l);
    return status;
}

enum status listeners_open(struct server *s, struct error *err)
{
    struct notify_socket passed[NOTIFY_SOCKETS_MAX];
    size_t n_passed = 0;
    enum status status = notify_sockets(passed, &n_passed, err);
    if (status)
        return status;
    size_t n = n_passed ? n_passed : s->config->listen.count;
    s->listeners = calloc(n, sizeof *s->listeners);
    if (!s->listeners)
        return error_no_memory(err, n * sizeof *s->listeners, "listeners");
    for (size_t i = 0; i < n && !status; i++) {
        struct listener *l = &s->listeners[s->n_listeners++];
        l->server = s;
        if (n_passed) {
            l->fd = passed[i].fd;
            fcntl(l->fd, F_SETFL, fcntl(l->fd, F_GETFL) | O_NONBLOCK);
            name_listener(l);
        } else {
            status = listener_bind(l, s->config->listen.items[i], s->config->socket_mode, err);
        }
    }
    if (status)
        listeners_close(s);
    return status;
}

static void on_retry(uv_timer_t *timer)
{
    listeners_resume(timer->data);
}

static bool has_caller(const struct listener *l)
{
    struct pollfd p = {.fd = l->fd, .events = POLLIN};
    return poll(&p, 1, 0) > 0;
}

/* False when nothing more can be taken now. At the limit a connection goes only where another really comes. */
static bool accept_one(struct listener *l)
{
    struct server *s = l->server;
    if (s->n_connections >= (size_t)s->config->max_connections) {
        if (!has_caller(l))
            return false;
        if (!connections_evict(s)) {
            listeners_pause(s);
            return false;
        }
        pump_run(&s->pump);
        if (s->n_connections >= (size_t)s->config->max_connections)
            return false;
    }
    struct sockaddr_storage address;
    socklen_t size = sizeof address;
    int fd = accept4(l->fd, (struct sockaddr *)&address, &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
        MHD_add_connection(s->pump.mhd, fd, (struct sockaddr *)&address, size); /* closes fd when it fails */
        return true;
    }
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        connections_evict(s);
        listeners_pause(s);
        uv_timer_start(&s->accept_timer, on_retry, RETRY_ACCEPT_MS, 0);
        return false;
    }
    return errno == ECONNABORTED || errno == EINTR;
}

static void on_connect(uv_poll_t *poll, int status, int events)
{
    (void)status, (void)events;
    struct listener *l = poll->data;
    for (int i = 0; i < ACCEPTS_AT_ONCE && accept_one(l); i++)
        continue;
    pump_run(&l->server->pump);
}

enum status listeners_start(struct server *s, struct error *err)
{
    s->accept_timer.data = s;
    for (size_t i = 0; i < s->n_listeners; i++) {
        struct listener *l = &s->listeners[i];
        int r = uv_poll_init(&s->loop, &l->poll, l->fd);
        if (r)
            return error_set(err, STATUS_IO, "cannot watch %s: %s", l->name, uv_strerror(r));
        l->poll.data = l;
        l->started = true;
        uv_poll_start(&l->poll, UV_READABLE, on_connect);
    }
    return STATUS_OK;
}

void listeners_pause(struct server *s)
{
    s->paused = true;
    for (size_t i = 0; i < s->n_listeners; i++)
        if (s->listeners[i].started)
            uv_poll_stop(&s->listeners[i].poll);
}

void listeners_resume(struct server *s)
{
    if (!s->paused)
        return;
    s->paused = false;
    for (size_t i = 0; i < s->n_listeners; i++)
        if (s->listeners[i].started)
            uv_poll_start(&s->listeners[i].poll, UV_READABLE, on_connect);
}

/* Closing is no shutdown(): a socket that systemd keeps goes on listening for the next instance. */
void listeners_close(struct server *s)
{
    for (size_t i = 0; i < s->n_listeners; i++) {
        struct listener *l = &s->listeners[i];
        if (l->started) {
            uv_poll_stop(&l->poll);
            uv_close((uv_handle_t *)&l->poll, NULL);
            l->started = false;
        }
        if (l->fd >= 0)
            close(l->fd);
        l->fd = -1;
        if (l->path[0])
            unlink(l->path);
        l->path[0] = 0;
    }
}
