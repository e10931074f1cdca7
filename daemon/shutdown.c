/* The orderly end: stop accepting, finish what runs, cut what takes too long. */
#include <assert.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "daemon/connection.h"
#include "daemon/request.h"
#include "daemon/server.h"

/* Streams that are cut get this long to take their last line. */
enum { LAST_LINE_MS = 500, RESUME_ROUNDS = 64 };

static bool is_idle(const struct server *s)
{
    if (s->queue.live || s->n_working)
        return false;
    for (const struct connection *c = s->connections; c; c = c->next)
        if (c->request)
            return false;
    return true;
}

void server_check_drained(struct server *s)
{
    if (s->draining && is_idle(s))
        uv_stop(&s->loop);
}

static void on_cut(uv_timer_t *timer)
{
    uv_stop(timer->loop);
}

/* Running jobs end with a last line that says so; queued ones with 503. */
static void on_drain_timeout(uv_timer_t *timer)
{
    struct server *s = timer->data;
    s->cutting = true;
    LOG(LOG_LEVEL_WARN, "cutting", LOG_INTEGER("connections", s->n_connections));
    jobs_cancel_all(s, REASON_SHUTDOWN);
    uv_timer_start(timer, on_cut, LAST_LINE_MS, 0);
}

void server_drain(struct server *s, const char *why)
{
    size_t running;
    if (s->draining) {
        LOG(LOG_LEVEL_WARN, "stopping-at-once", LOG_TEXT("why", why));
        uv_stop(&s->loop);
        return;
    }
    pump_run(&s->pump);
    s->draining = true;
    uv_update_time(&s->loop);
    s->drain_until_ms = uv_now(&s->loop) + (uint64_t)s->config->drain_timeout_ms;
    size_t waiting = job_count(s, &running);
    LOG(LOG_LEVEL_INFO, "draining", LOG_TEXT("why", why), LOG_INTEGER("running", running),
        LOG_INTEGER("waiting", waiting), LOG_INTEGER("connections", s->n_connections));
    notify_stopping(&s->notify, "finishing what runs");
    listeners_close(s);
    uv_timer_start(&s->drain_timer, on_drain_timeout, (uint64_t)s->config->drain_timeout_ms, 0);
    server_check_drained(s);
}

/* libmicrohttpd aborts the process if a connection is suspended when it is stopped. */
static void cut_connections(struct server *s)
{
    for (int round = 0; round < RESUME_ROUNDS && s->connections; round++) {
        for (struct connection *c = s->connections; c; c = c->next)
            connection_cut(c);
        pump_run(&s->pump);
    }
}

void server_hold_signals(sigset_t *old)
{
    sigset_t ours;
    sigemptyset(&ours);
    sigaddset(&ours, SIGTERM);
    sigaddset(&ours, SIGINT);
    sigaddset(&ours, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &ours, old);
}

static void close_handle(uv_handle_t *handle, void *context)
{
    (void)context;
    if (!uv_is_closing(handle))
        uv_close(handle, NULL);
}

/* The engine hangs, or reads a model that nobody waits for: it cannot be interrupted, and what it uses dies with the
 * process. */
static void leave_at_once(struct server *s)
{
    bool loading = atomic_load(&s->engine_thread.state) == ENGINE_LOADING;
    LOG(loading ? LOG_LEVEL_INFO : LOG_LEVEL_ERROR, "stopped", LOG_BOOLEAN("loading", loading),
        LOG_BOOLEAN("engine_hangs", !loading));
    pthread_detach(s->engine_thread.thread);
    log_close();
    _exit(loading && !s->exit_status ? EXIT_ORDERLY : EXIT_RUNTIME);
}

void server_stop(struct server *s)
{
    listeners_close(s);
    if (s->pump.mhd) {
        jobs_cancel_all(s, REASON_SHUTDOWN);
        cut_connections(s);
        pump_stop(&s->pump);
    }
    if (!engine_thread_stop(s))
        leave_at_once(s);
    if (s->queue.wake.data) {
        s->draining = true;
        jobs_collect(s); /* what the engine has let go */
        while (s->n_working)
            uv_run(&s->loop, UV_RUN_ONCE);
    }
    server_hold_signals(NULL); /* without its handle each would end the process with another status than ours */
    uv_walk(&s->loop, close_handle, NULL);
    while (uv_run(&s->loop, UV_RUN_DEFAULT))
        continue;
    int r = uv_loop_close(&s->loop);
    assert(r == 0);
    (void)r;
    if (s->queue.wake.data)
        job_queue_clear(s);
    engine_thread_clear(s);
    auth_keys_free(s->keys);
    metrics_free(s->metrics);
    notify_close(&s->notify);
    free(s->listeners);
    LOG(LOG_LEVEL_INFO, "stopped", LOG_INTEGER("status", s->exit_status));
}
