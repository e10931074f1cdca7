/* libmicrohttpd driven by libuv; see pump.h. */
#include "daemon/pump.h"

#include <assert.h>

/* Rounds of MHD_run in one go before other events get their turn; a pending rest continues through a zero timer. */
enum { PUMP_ROUNDS = 32 };

static void on_epoll(uv_poll_t *poll, int status, int events)
{
    (void)status, (void)events;
    pump_run(poll->data);
}

static void on_timer(uv_timer_t *timer)
{
    pump_run(timer->data);
}

enum status pump_start(struct pump *p, uv_loop_t *loop, struct MHD_Daemon *mhd, struct error *err)
{
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(mhd, MHD_DAEMON_INFO_EPOLL_FD);
    uv_timer_init(loop, &p->timer);
    int r = uv_poll_init(loop, &p->poll, info->epoll_fd); /* it was started with MHD_USE_EPOLL */
    if (r == 0)
        r = uv_poll_start(&p->poll, UV_READABLE, on_epoll);
    if (r)
        return error_set(err, STATUS_IO, "cannot watch libmicrohttpd's descriptor: %s", uv_strerror(r));
    p->poll.data = p->timer.data = p;
    p->mhd = mhd;
    pump_run(p);
    return STATUS_OK;
}

/* A resumed connection needs two rounds for one chunk (read it, send it), and after a close one more round frees its
 * slot: so rounds go on until libmicrohttpd has nothing that is due. */
void pump_run(struct pump *p)
{
    if (!p->mhd || p->running)
        return;
    MHD_UNSIGNED_LONG_LONG timeout = 0;
    enum MHD_Result timed;
    int round = 0;
    p->running = true;
    do {
        p->again = false;
        MHD_run(p->mhd);
        timed = MHD_get_timeout(p->mhd, &timeout);
    } while (++round < PUMP_ROUNDS && (p->again || (timed == MHD_YES && timeout == 0)));
    p->running = false;
    uv_update_time(p->timer.loop);
    if (p->again)
        timeout = 0, timed = MHD_YES;
    if (timed == MHD_YES)
        uv_timer_start(&p->timer, on_timer, timeout, 0);
    else
        uv_timer_stop(&p->timer);
}

void pump_stop(struct pump *p)
{
    assert(p->mhd && !p->running);
    struct MHD_Daemon *mhd = p->mhd;
    p->mhd = NULL;
    uv_timer_stop(&p->timer);
    uv_poll_stop(&p->poll); /* before the descriptor goes with the daemon */
    MHD_stop_daemon(mhd);
}
