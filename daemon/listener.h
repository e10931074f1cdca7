/* Listening sockets: host:port, [v6]:port, unix:/path, or those handed over by systemd.
 *
 * The daemon accepts itself, so that it can count connections, serve several sockets with one libmicrohttpd and close
 * the longest idle connection when it is full. */
#ifndef GGUFD_DAEMON_LISTENER_H
#define GGUFD_DAEMON_LISTENER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/un.h>
#include <uv.h>

#include "engine/base/error.h"

struct server;

struct listener {
    struct server *server;
    uv_poll_t poll;
    int fd;
    bool started;  /* poll is a live handle */
    char name[sizeof ((struct sockaddr_un *)0)->sun_path + 8]; /* as bound, for the log */
    char path[sizeof ((struct sockaddr_un *)0)->sun_path];     /* to unlink at the end; "" if not ours */
};

/* Resolves and binds one address of the configuration. A Unix path is taken over only from a dead socket. */
enum status listener_bind(struct listener *l, const char *address, unsigned mode, struct error *err);

/* Opens every address (or systemd's sockets, which replace them); all or none. */
enum status listeners_open(struct server *s, struct error *err);
/* Starts to accept. */
enum status listeners_start(struct server *s, struct error *err);
void listeners_pause(struct server *s);  /* no room: what comes waits in the backlog */
void listeners_resume(struct server *s); /* after a connection closed */
/* Closes the sockets and removes own Unix paths; safe to repeat. */
void listeners_close(struct server *s);

#endif
