/* One connection of the stress test: never blocks, sends as much of a request as it is told, reads as it is told. */
#ifndef GGUFD_TESTS_STRESS_CLIENT_H
#define GGUFD_TESTS_STRESS_CLIENT_H

#include <stdbool.h>
#include <stddef.h>

#include "engine/base/buffer.h"

enum stress_state {
    STRESS_CLOSED,  /* no connection */
    STRESS_IDLE,    /* connected, nothing asked */
    STRESS_ASKING,  /* a request is (partly) sent, its reply not complete */
    STRESS_REPLIED, /* the reply is complete: stress_client_next() */
    STRESS_LOST     /* the peer ended the connection; what came is in reply and body */
};

struct stress_client {
    enum stress_state state;
    int fd;
    bool local;             /* a Unix socket: a half-close does not cancel */
    struct buffer out;      /* the request */
    size_t out_at, out_end; /* sent, and to be sent for now */
    bool stopped;           /* does not read */
    bool half_closed;       /* will send no more */
    size_t sip;             /* most bytes of one read; 0: no limit */
    struct buffer in;       /* received, not parsed */
    size_t in_at;
    struct buffer head, body; /* terminated */
    int status;             /* 0: no head yet */
    bool chunked, last, closes;
    long long left;         /* of the body or chunk; -1: a chunk's head is due */
};

bool stress_client_open(struct stress_client *c, const char *address); /* as http_open; false: refused */
void stress_client_close(struct stress_client *c);
/* Takes the request; `first` bytes go out now, the rest when out_end is raised. */
void stress_client_ask(struct stress_client *c, const char *text, size_t size, size_t first);
void stress_client_half_close(struct stress_client *c);
/* Sends and reads what can be without waiting. */
void stress_client_move(struct stress_client *c);
bool stress_client_has_sent(const struct stress_client *c);
short stress_client_events(const struct stress_client *c); /* for poll */
/* After a reply: forgets it; idle again, or closed. */
void stress_client_next(struct stress_client *c);
/* A header's value in `out`; false when absent. */
bool stress_client_header(const struct stress_client *c, const char *name, char *out, size_t size);

#endif
