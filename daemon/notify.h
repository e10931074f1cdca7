/* Talking to systemd without libsystemd: readiness datagrams, the watchdog, and sockets handed over. Loop thread. */
#ifndef GGUFD_DAEMON_NOTIFY_H
#define GGUFD_DAEMON_NOTIFY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/error.h"

struct notify {
    int fd; /* -1: nobody listens */
    uint64_t watchdog_ms; /* send WATCHDOG=1 this often: half of WATCHDOG_USEC; 0: not wanted */
};

/* Reads NOTIFY_SOCKET (a path, or @abstract), WATCHDOG_USEC and WATCHDOG_PID and removes them from the environment.
 * Absent variables are no error. */
enum status notify_open(struct notify *n, struct error *err);
void notify_close(struct notify *n);

/* One datagram of lines ("READY=1\nSTATUS=..."); never blocks; true when it was sent, or nobody listens. */
bool notify_send(struct notify *n, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool notify_ready(struct notify *n, const char *status);       /* READY=1 STATUS= */
bool notify_status(struct notify *n, const char *status);      /* STATUS= */
bool notify_extend(struct notify *n, uint64_t timeout_ms);     /* EXTEND_TIMEOUT_USEC= */
bool notify_reloading(struct notify *n);                       /* RELOADING=1 MONOTONIC_USEC= */
bool notify_stopping(struct notify *n, const char *status);    /* STOPPING=1 STATUS= */
bool notify_watchdog(struct notify *n);                        /* WATCHDOG=1 */

#define NOTIFY_SOCKETS_MAX 64
struct notify_socket {
    int fd; /* close-on-exec is set */
    bool is_unix;
};
/* Listening stream sockets of LISTEN_FDS meant for this process (LISTEN_PID); the variables are removed. *n 0: none.
 * Refuses more than NOTIFY_SOCKETS_MAX, and a descriptor that is no listening TCP or Unix stream socket. */
enum status notify_sockets(struct notify_socket sockets[NOTIFY_SOCKETS_MAX], size_t *n, struct error *err);

#endif
