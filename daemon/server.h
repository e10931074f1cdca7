/* The serving process: one loop thread with everything HTTP, one engine thread. */
#ifndef GGUFD_DAEMON_SERVER_H
#define GGUFD_DAEMON_SERVER_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "daemon/auth.h"
#include "daemon/config.h"
#include "daemon/engine_thread.h"
#include "daemon/job.h"
#include "daemon/listener.h"
#include "daemon/log.h"
#include "daemon/metrics.h"
#include "daemon/notify.h"
#include "daemon/pump.h"
#include "engine/engine.h"

struct connection;

/* A changed file stays changed until an operator restarts the daemon. */
enum { MODEL_CHANGED_RETRY_S = 30 };

struct server {
    const struct config *config;
    uv_loop_t loop;
    struct pump pump;
    struct listener *listeners;
    size_t n_listeners;
    bool paused;               /* not accepting for want of room */
    struct connection *connections;
    size_t n_connections;
    size_t body_bytes;         /* of all requests that hold a body; at most body_memory */
    struct job_queue queue;
    struct engine_thread engine_thread;
    struct engine *engine;     /* NULL until the model is loaded */
    struct auth_keys *keys;
    struct metrics *metrics;
    struct notify notify;
    uv_timer_t accept_timer, tick_timer, model_timer, drain_timer, watchdog_timer;
    uv_signal_t terminate, interrupt, hangup;
    size_t n_working;          /* requests on worker threads */
    uint64_t id_seed, n_requests;
    double prefill_speed, decode_speed; /* tokens a second, of late; 0: not known */
    uint64_t tick_ms;          /* of the last tick, or of the timer's start */
    uint64_t started_ms, steps_seen, steps_ms; /* steps_ms: when steps_seen was last seen to move */
    const struct job *stepping;
    bool model_change_logged;
    bool draining, cutting;
    uint64_t drain_until_ms;
    int exit_status;
};

/* What no single key can say: connections must outnumber the jobs that hold one, or /health would find none. */
enum status server_check_config(const struct config *config, struct error *err);

/* Serves until a signal; returns the exit status. */
int server_run(const struct config *config);

void server_update_time(struct server *s);
/* Connections or jobs exist whose time is limited: keeps the tick alive. */
void server_watch_time(struct server *s);
/* The engine thread came up, failed, or moved on loading. */
void server_engine_event(struct server *s);
/* Numbers of an ended job go to metrics and to the measured speeds. */
void server_job_ended(struct server *s, const struct job *j);
/* A job runs, and no graph node was finished for stall_timeout. */
bool server_is_stalled(struct server *s);
/* True once the model's file changed under the mapping; logs it the first time. */
bool server_model_changed(struct server *s, const char **why);

/* Seconds for Retry-After. */
unsigned server_load_seconds(struct server *s);
unsigned server_drain_seconds(struct server *s);
unsigned server_queue_seconds(struct server *s);

/* shutdown.c: stop accepting, let requests finish, cut them after drain_timeout or at a second call. */
void server_drain(struct server *s, const char *why);
void server_check_drained(struct server *s);
/* The signals that the loop takes stay outside the calling thread and those it starts; *old: the mask before. */
void server_hold_signals(sigset_t *old);
/* After the loop has ended: takes everything down. */
void server_stop(struct server *s);

#endif
