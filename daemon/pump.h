/* Drives one libmicrohttpd daemon (external epoll, no listen socket) from a libuv loop.
 *
 * Everything here and every libmicrohttpd call runs on the loop's thread. pump_run() has to follow each event that
 * may let libmicrohttpd move: its epoll descriptor, its timeout, a resumed, added or shut down connection. */
#ifndef GGUFD_DAEMON_PUMP_H
#define GGUFD_DAEMON_PUMP_H

#include <microhttpd.h>
#include <stdbool.h>
#include <uv.h>

#include "engine/base/error.h"

struct pump {
    struct MHD_Daemon *mhd;
    uv_poll_t poll;
    uv_timer_t timer;
    bool running;     /* inside MHD_run: callbacks must not recurse */
    bool again;       /* a connection closed: libmicrohttpd needs another round to notice the free slot */
};

/* Takes over mhd, which lives until pump_stop. */
enum status pump_start(struct pump *p, uv_loop_t *loop, struct MHD_Daemon *mhd, struct error *err);
void pump_run(struct pump *p);
/* Stops the daemon; every suspended connection must have been resumed and pumped. The handles are left to uv_close. */
void pump_stop(struct pump *p);

#endif
