/* The protocol of sd_notify(3) and sd_listen_fds(3), own implementation; see notify.h. */
#include "daemon/notify.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define FIRST_FD 3

/* Digits only; false otherwise or above 2^63. */
static bool parse_unsigned(const char *text, uint64_t *out)
{
    uint64_t value = 0;
    if (!text || !*text)
        return false;
    for (; *text; text++) {
        if (*text < '0' || *text > '9' || value > INT64_MAX / 10 - 1)
            return false;
        value = value * 10 + (uint64_t)(*text - '0');
    }
    *out = value;
    return true;
}

/* True when the variable names this process, or is not set. */
static bool is_for_us(const char *variable)
{
    const char *text = getenv(variable);
    uint64_t pid;
    return !text || (parse_unsigned(text, &pid) && pid == (uint64_t)getpid());
}

static uint64_t read_watchdog_ms(void)
{
    uint64_t us;
    if (!parse_unsigned(getenv("WATCHDOG_USEC"), &us) || us == 0 || !is_for_us("WATCHDOG_PID"))
        return 0;
    return us / 2000 > 0 ? us / 2000 : 1;
}

static enum status connect_to(const char *path, int *fd, struct error *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t n = strlen(path);
    char quoted[ERROR_QUOTE_BYTES];
    if ((*path != '/' && *path != '@') || n < 2 || n >= sizeof address.sun_path)
        return error_set(err, STATUS_INVALID,
                         "NOTIFY_SOCKET must be an absolute path or @name of 2..%zu bytes, not \"%s\"",
                         sizeof address.sun_path - 1, error_quote(path, n, quoted));
    memcpy(address.sun_path, path, n);
    if (*path == '@') /* abstract: the name has no end but its length */
        address.sun_path[0] = 0;
    *fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (*fd < 0)
        return error_set(err, STATUS_IO, "NOTIFY_SOCKET: %s", strerror(errno));
    if (connect(*fd, (struct sockaddr *)&address, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n)) == 0)
        return STATUS_OK;
    error_set(err, STATUS_IO, "NOTIFY_SOCKET %s: %s", error_quote(path, n, quoted), strerror(errno));
    close(*fd);
    *fd = -1;
    return STATUS_IO;
}

enum status notify_open(struct notify *n, struct error *err)
{
    *n = (struct notify){.fd = -1, .watchdog_ms = read_watchdog_ms()};
    const char *path = getenv("NOTIFY_SOCKET");
    enum status status = path && *path ? connect_to(path, &n->fd, err) : STATUS_OK;
    unsetenv("NOTIFY_SOCKET");
    unsetenv("WATCHDOG_USEC");
    unsetenv("WATCHDOG_PID");
    if (n->fd < 0)
        n->watchdog_ms = 0;
    return status;
}

void notify_close(struct notify *n)
{
    if (n && n->fd >= 0)
        close(n->fd);
    if (n)
        *n = (struct notify){.fd = -1};
}

bool notify_send(struct notify *n, const char *format, ...)
{
    char text[1024];
    if (n->fd < 0)
        return true;
    va_list args;
    va_start(args, format);
    int size = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if ((size_t)size >= sizeof text)
        size = sizeof text - 1;
    return send(n->fd, text, (size_t)size, MSG_NOSIGNAL | MSG_DONTWAIT) == size;
}

/* The protocol's lines end at a newline: a status must not bring its own. */
static const char *one_line(const char *status, char *out, size_t size)
{
    snprintf(out, size, "%s", status);
    for (char *p = out; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            *p = ' ';
    return out;
}

bool notify_ready(struct notify *n, const char *status)
{
    char line[512];
    return notify_send(n, "READY=1\nSTATUS=%s", one_line(status, line, sizeof line));
}

bool notify_status(struct notify *n, const char *status)
{
    char line[512];
    return notify_send(n, "STATUS=%s", one_line(status, line, sizeof line));
}

bool notify_extend(struct notify *n, uint64_t timeout_ms)
{
    return notify_send(n, "EXTEND_TIMEOUT_USEC=%" PRIu64, timeout_ms * 1000);
}

bool notify_reloading(struct notify *n)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return notify_send(n, "RELOADING=1\nMONOTONIC_USEC=%" PRIu64,
                       (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000);
}

bool notify_stopping(struct notify *n, const char *status)
{
    char line[512];
    return notify_send(n, "STOPPING=1\nSTATUS=%s", one_line(status, line, sizeof line));
}

bool notify_watchdog(struct notify *n)
{
    return notify_send(n, "WATCHDOG=1");
}

/* ---- sockets handed over ---- */

static int socket_option(int fd, int option)
{
    int value = -1;
    socklen_t size = sizeof value;
    return getsockopt(fd, SOL_SOCKET, option, &value, &size) == 0 ? value : -1;
}

static enum status take_socket(int fd, struct notify_socket *out, struct error *err)
{
    int family = socket_option(fd, SO_DOMAIN);
    if (family < 0)
        return error_set(err, STATUS_INVALID, "LISTEN_FDS: descriptor %d is no socket", fd);
    if ((family != AF_INET && family != AF_INET6 && family != AF_UNIX) || socket_option(fd, SO_TYPE) != SOCK_STREAM ||
        socket_option(fd, SO_ACCEPTCONN) != 1)
        return error_set(err, STATUS_INVALID, "LISTEN_FDS: descriptor %d is no listening TCP or Unix stream socket",
                         fd);
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    *out = (struct notify_socket){fd, family == AF_UNIX};
    return STATUS_OK;
}

enum status notify_sockets(struct notify_socket sockets[NOTIFY_SOCKETS_MAX], size_t *n, struct error *err)
{
    const char *text = getenv("LISTEN_FDS");
    uint64_t count = 0;
    enum status status = STATUS_OK;
    *n = 0;
    if (text && getenv("LISTEN_PID") && is_for_us("LISTEN_PID")) {
        char quoted[ERROR_QUOTE_BYTES];
        if (!parse_unsigned(text, &count) || count > NOTIFY_SOCKETS_MAX)
            status = error_set(err, STATUS_INVALID, "LISTEN_FDS must be in 0..%d, not \"%s\"", NOTIFY_SOCKETS_MAX,
                               error_quote(text, strlen(text), quoted));
        for (uint64_t i = 0; status == STATUS_OK && i < count; i++)
            status = take_socket(FIRST_FD + (int)i, &sockets[i], err);
        *n = status == STATUS_OK ? (size_t)count : 0;
    }
    unsetenv("LISTEN_FDS");
    unsetenv("LISTEN_PID");
    unsetenv("LISTEN_FDNAMES");
    return status;
}
