/* One client connection: what libmicrohttpd does not do for it.
 *
 * libmicrohttpd sees no peer leave while a connection is suspended, and loses a FIN that arrives together with data:
 * each connection therefore has its own UV_DISCONNECT watch. Its idle timeout never ends a sender of one byte a
 * second: each phase has a deadline of its own here. All of it belongs to the loop's thread. */
#ifndef GGUFD_DAEMON_CONNECTION_H
#define GGUFD_DAEMON_CONNECTION_H

#include <microhttpd.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct request;
struct server;

enum connection_phase {
    CONNECTION_IDLE,    /* no request has begun; since accept or the last reply */
    CONNECTION_HEADERS, /* request line seen */
    CONNECTION_BODY,
    CONNECTION_BUSY,    /* the request is with us: no deadline of the connection's */
    CONNECTION_REPLY    /* bytes wait for the client; since the last progress */
};

struct connection {
    struct server *server;
    struct MHD_Connection *mhd;
    struct request *request; /* the one being served, or NULL */
    struct connection *next, *previous;
    uv_poll_t watch;
    int fd;
    bool local;    /* Unix socket: a half-close can be told from a close there */
    bool watched;  /* the handle exists */
    bool peer_fin; /* the peer will send no more */
    bool cut;      /* shutdown() was called; libmicrohttpd will drop it */
    enum connection_phase phase;
    uint64_t since_ms;  /* loop time at which the phase began or last moved */
    unsigned requests;
    char peer[64];
};

/* libmicrohttpd's MHD_OPTION_NOTIFY_CONNECTION; cls is the server. */
void connection_notify(void *cls, struct MHD_Connection *mhd, void **socket_context,
                       enum MHD_ConnectionNotificationCode code);
struct connection *connection_of(struct MHD_Connection *mhd);

void connection_enter(struct connection *c, enum connection_phase phase);
/* Takes the connection down: a suspended request is resumed to notice, the rest is shut down. Pump afterwards. */
void connection_cut(struct connection *c);

/* The process did not run for so long: nobody's time went by. */
void connections_forgive(struct server *s, uint64_t ms);
/* Cuts connections whose phase lasts too long; true if there were any. */
bool connections_expire(struct server *s, uint64_t now_ms);
/* Cuts the connection that waits longest without a complete request; false if every one is being served. */
bool connections_evict(struct server *s);

#endif
