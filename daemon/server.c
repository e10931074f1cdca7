/* Start, time keeping and events of the serving process; see server.h. */
#include "daemon/server.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

#include "daemon/connection.h"
#include "daemon/framing.h"
#include "daemon/request.h"

enum {
    TICK_MS = 100,             /* resolution of deadlines; runs only while there is something to watch */
    LATE_TICK_MS = 1000,
    MODEL_CHECK_MS = 5000,
    CONNECTION_MEMORY = 16384, /* of libmicrohttpd, for each: bounds a request's header */
    RESERVED_CONNECTIONS = 3,  /* besides those that wait: the running job's, and two for /health and /metrics */
    OWN_FILES = 29,            /* descriptors that are no connection's: the model's, listeners', libraries' */
    SPARE_CONNECTIONS = 16     /* libmicrohttpd's own limit lies above ours */
};

/* ---- time ---- */

void server_update_time(struct server *s)
{
    uv_update_time(&s->loop);
}

static void watch_steps(struct server *s)
{
    pthread_mutex_lock(&s->queue.lock);
    const struct job *running = s->queue.running;
    pthread_mutex_unlock(&s->queue.lock);
    /* s->engine is set by this thread once the load is over; before that the session belongs to the engine's thread. */
    uint64_t steps = s->engine && s->engine_thread.session ? session_steps(s->engine_thread.session) : 0;
    if (!running || running != s->stepping || steps != s->steps_seen)
        s->steps_ms = uv_now(&s->loop);
    s->stepping = running;
    s->steps_seen = steps;
}

bool server_is_stalled(struct server *s)
{
    uv_update_time(&s->loop);
    watch_steps(s);
    return s->stepping && uv_now(&s->loop) - s->steps_ms > (uint64_t)s->config->stall_timeout_ms;
}

static void on_tick(uv_timer_t *timer)
{
    struct server *s = timer->data;
    uint64_t now = uv_now(&s->loop), late = now - s->tick_ms;
    s->tick_ms = now;
    if (late > LATE_TICK_MS) /* stopped, suspended or starved: what clients sent meanwhile is not read yet */
        connections_forgive(s, late);
    jobs_tick(s);
    watch_steps(s);
    if (connections_expire(s, uv_now(&s->loop)))
        pump_run(&s->pump);
    if (!s->connections && !s->queue.live)
        uv_timer_stop(timer);
}

void server_watch_time(struct server *s)
{
    if (uv_is_active((uv_handle_t *)&s->tick_timer))
        return;
    uv_update_time(&s->loop);
    s->tick_ms = uv_now(&s->loop);
    uv_timer_start(&s->tick_timer, on_tick, TICK_MS, TICK_MS);
}

static void on_model_check(uv_timer_t *timer)
{
    server_model_changed(timer->data, NULL);
}

static void on_watchdog(uv_timer_t *timer)
{
    struct server *s = timer->data;
    if (!server_is_stalled(s))
        notify_watchdog(&s->notify);
}

static unsigned whole_seconds(double seconds)
{
    return seconds < 1 ? 1 : seconds > 3600 ? 3600 : (unsigned)ceil(seconds);
}

unsigned server_load_seconds(struct server *s)
{
    double fraction = atomic_load(&s->engine_thread.load_permille) / 1000.0;
    double elapsed = (double)(uv_now(&s->loop) - s->started_ms) / 1000;
    return whole_seconds(fraction > 0.02 ? elapsed * (1 - fraction) / fraction : 1);
}

unsigned server_drain_seconds(struct server *s)
{
    uint64_t now = uv_now(&s->loop);
    return whole_seconds(now < s->drain_until_ms ? (double)(s->drain_until_ms - now) / 1000 : 1);
}

/* What one job took of late stands for the wait until the line has moved. */
unsigned server_queue_seconds(struct server *s)
{
    size_t running, waiting = job_count(s, &running);
    double one = s->decode_speed > 0 ? (double)s->config->max_tokens / s->decode_speed : 1;
    return whole_seconds((double)(waiting + running) * one);
}

/* ---- the engine ---- */

bool server_model_changed(struct server *s, const char **why)
{
    const char *reason = NULL;
    if (!s->engine || !engine_model_changed(s->engine, &reason))
        return false;
    if (!s->model_change_logged) {
        LOG(LOG_LEVEL_ERROR, "model-changed", LOG_TEXT("model", s->config->model), LOG_TEXT("why", reason));
        notify_status(&s->notify, "the model's file was changed; restart needed");
    }
    s->model_change_logged = true;
    if (why)
        *why = reason;
    return true;
}

static void tell_serving(struct server *s)
{
    char status[200];
    const struct engine_info *i = engine_info(s->engine);
    snprintf(status, sizeof status, "serving %s, context %u, %u threads, %s", i->name[0] ? i->name : i->architecture,
             i->context, i->threads, i->tier);
    notify_ready(&s->notify, status);
}

static void model_loaded(struct server *s)
{
    s->engine = s->engine_thread.engine;
    const struct engine_info *i = engine_info(s->engine);
    metrics_set(s->metrics, METRIC_BUILD_INFO, METRICS_LABELS(GGUFD_VERSION, ENGINE_NUMERICS_VERSION, i->tier), 1);
    metrics_set(s->metrics, METRIC_MODEL_INFO, METRICS_LABELS(i->name, i->architecture, i->fingerprint), 1);
    metrics_set(s->metrics, METRIC_CONTEXT, NULL, i->context);
    LOG(LOG_LEVEL_INFO, "model-loaded", LOG_TEXT("model", s->config->model), LOG_TEXT("name", i->name),
        LOG_TEXT("architecture", i->architecture), LOG_INTEGER("context", i->context),
        LOG_INTEGER("vocabulary", i->n_vocab), LOG_INTEGER("file_bytes", i->memory.file_bytes),
        LOG_INTEGER("anonymous_bytes", i->memory.anonymous_bytes), LOG_TEXT("tier", i->tier),
        LOG_INTEGER("threads", i->threads), LOG_TEXT("threads_reason", i->threads_reason),
        LOG_INTEGER("load_ms", uv_now(&s->loop) - s->started_ms));
    uv_timer_start(&s->model_timer, on_model_check, MODEL_CHECK_MS, MODEL_CHECK_MS);
    if (!s->draining)
        tell_serving(s);
}

static void tell_loading(struct server *s)
{
    char status[64];
    unsigned permille = atomic_load(&s->engine_thread.load_permille);
    snprintf(status, sizeof status, "loading the model, %u %%", permille / 10);
    notify_status(&s->notify, status);
    notify_extend(&s->notify, 60000);
}

void server_engine_event(struct server *s)
{
    if (s->engine || s->exit_status)
        return;
    switch ((enum engine_state)atomic_load(&s->engine_thread.state)) {
    case ENGINE_LOADING:
        tell_loading(s);
        break;
    case ENGINE_READY:
        model_loaded(s);
        break;
    case ENGINE_FAILED:
        LOG(LOG_LEVEL_ERROR, "model-refused", LOG_TEXT("model", s->config->model),
            LOG_TEXT("why", s->engine_thread.error.text));
        notify_status(&s->notify, s->engine_thread.error.text);
        s->exit_status = EXIT_REFUSED;
        uv_stop(&s->loop);
        break;
    }
}

static void follow_speed(double *speed, size_t tokens, double ms)
{
    if (tokens == 0 || ms <= 0)
        return;
    double now = (double)tokens * 1000 / ms;
    *speed = *speed > 0 ? *speed * 0.7 + now * 0.3 : now;
}

void server_job_ended(struct server *s, const struct job *j)
{
    const struct job_figures *f = &j->figures;
    struct metrics *m = s->metrics;
    metrics_add(m, METRIC_JOBS, METRICS_LABELS(j->type->route, j->refused ? "refused" : reason_name(j->reason)), 1);
    metrics_observe(m, METRIC_QUEUE_SECONDS, f->queue_ms / 1000);
    if (s->stepping == j)
        s->stepping = NULL;
    if (j->refused || f->prefill_ms <= 0)
        return;
    metrics_add(m, METRIC_TOKENS_PREFILLED, NULL, f->prefill_tokens);
    metrics_add(m, METRIC_TOKENS_REUSED, NULL, f->cached_tokens);
    metrics_add(m, METRIC_TOKENS_GENERATED, NULL, f->generated_tokens);
    metrics_observe(m, METRIC_PREFILL_SECONDS, f->prefill_ms / 1000);
    if (f->first_token_ms > 0)
        metrics_observe(m, METRIC_FIRST_TOKEN_SECONDS, f->first_token_ms / 1000);
    follow_speed(&s->prefill_speed, f->prefill_tokens, f->prefill_ms);
    follow_speed(&s->decode_speed, f->decode_tokens, f->decode_ms);
}

/* ---- signals ---- */

static void on_terminate(uv_signal_t *handle, int number)
{
    server_drain(handle->data, number == SIGINT ? "SIGINT" : "SIGTERM");
}

/* Keys are read again, and the log file opened again. Whatever fails keeps what there was. */
static void on_hangup(uv_signal_t *handle, int number)
{
    (void)number;
    struct server *s = handle->data;
    struct auth_keys *keys = NULL;
    struct error err;
    bool serves = s->engine && !s->draining; /* READY=1 of a reload must not stand for the one of the start */
    if (serves)
        notify_reloading(&s->notify);
    if (log_reopen(&err))
        LOG(LOG_LEVEL_ERROR, "reload-failed", LOG_TEXT("why", err.text));
    if (auth_keys_load(s->config->api_key_file, &keys, &err)) {
        LOG(LOG_LEVEL_ERROR, "reload-failed", LOG_TEXT("why", err.text));
    } else {
        auth_keys_free(s->keys);
        s->keys = keys;
        LOG(LOG_LEVEL_INFO, "reloaded", LOG_TEXT("api_key_file", s->config->api_key_file));
    }
    if (serves)
        tell_serving(s);
}

/* ---- start ---- */

static void on_mhd_log(void *context, const char *format, va_list args)
{
    char text[256];
    (void)context;
    int n = vsnprintf(text, sizeof text, format, args);
    while (n > 0 && (n >= (int)sizeof text || text[n - 1] == '\n'))
        n = n >= (int)sizeof text ? (int)sizeof text - 1 : n - 1;
    LOG(LOG_LEVEL_DEBUG, "libmicrohttpd", LOG_SPAN("text", ((struct span){text, (size_t)(n > 0 ? n : 0)})));
}

static enum status start_http(struct server *s, struct error *err)
{
    unsigned limit = (unsigned)s->config->max_connections + SPARE_CONNECTIONS;
    unsigned flags = MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG | MHD_USE_NO_LISTEN_SOCKET;
    struct MHD_Daemon *mhd = MHD_start_daemon(
        flags, 0, NULL, NULL, request_handle, s, MHD_OPTION_EXTERNAL_LOGGER, on_mhd_log, NULL,
        MHD_OPTION_NOTIFY_CONNECTION, connection_notify, s, MHD_OPTION_NOTIFY_COMPLETED, request_completed, s,
        MHD_OPTION_URI_LOG_CALLBACK, request_begin, s, MHD_OPTION_CONNECTION_LIMIT, limit,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_MEMORY,
        MHD_OPTION_STRICT_FOR_CLIENT, framing_strictness(), MHD_OPTION_END);
    if (!mhd)
        return error_set(err, STATUS_IO, "libmicrohttpd does not start");
    enum status status = pump_start(&s->pump, &s->loop, mhd, err);
    if (status)
        MHD_stop_daemon(mhd);
    return status ? status : listeners_start(s, err);
}

static enum status start_signals(struct server *s, struct error *err)
{
    const struct {
        uv_signal_t *handle;
        uv_signal_cb callback;
        int number;
    } signals[] = {{&s->terminate, on_terminate, SIGTERM}, {&s->interrupt, on_terminate, SIGINT},
                   {&s->hangup, on_hangup, SIGHUP}};
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) {
        signals[i].handle->data = s;
        int r = uv_signal_init(&s->loop, signals[i].handle);
        if (r == 0)
            r = uv_signal_start(signals[i].handle, signals[i].callback, signals[i].number);
        if (r)
            return error_set(err, STATUS_IO, "cannot watch for signal %d: %s", signals[i].number, uv_strerror(r));
    }
    return STATUS_OK;
}

static void start_timers(struct server *s)
{
    uv_timer_t *timers[] = {&s->accept_timer, &s->tick_timer, &s->model_timer, &s->drain_timer, &s->watchdog_timer};
    for (size_t i = 0; i < sizeof timers / sizeof timers[0]; i++) {
        uv_timer_init(&s->loop, timers[i]);
        timers[i]->data = s;
    }
    if (s->notify.watchdog_ms)
        uv_timer_start(&s->watchdog_timer, on_watchdog, 0, s->notify.watchdog_ms);
}

enum status server_check_config(const struct config *config, struct error *err)
{
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    if (files.rlim_cur < OWN_FILES + RESERVED_CONNECTIONS)
        return error_set(err, STATUS_INVALID, "the limit of open files (RLIMIT_NOFILE) is %llu: at least %d are needed",
                         (unsigned long long)files.rlim_cur, OWN_FILES + RESERVED_CONNECTIONS);
    if (config->body_memory < config->max_body)
        return error_set(err, STATUS_INVALID, "body_memory %lld is below max_body, %lld: not one such body could be held",
                         (long long)config->body_memory, (long long)config->max_body);
    if (config->max_connections >= config->queue + RESERVED_CONNECTIONS)
        return STATUS_OK;
    return error_set(err, STATUS_INVALID, "max_connections %lld is too low for a queue of %lld: at least %lld",
                     (long long)config->max_connections, (long long)config->queue,
                     (long long)config->queue + RESERVED_CONNECTIONS);
}

static enum status server_start(struct server *s, struct error *err)
{
    enum status status = listeners_open(s, err);
    if (!status)
        status = auth_keys_load(s->config->api_key_file, &s->keys, err);
    if (!status)
        status = notify_open(&s->notify, err);
    if (status)
        return status;
    s->metrics = metrics_new();
    if (!s->metrics)
        return error_no_memory(err, 0, "metrics");
    start_timers(s);
    status = start_signals(s, err);
    if (!status)
        status = job_queue_init(s, err);
    if (!status)
        status = start_http(s, err);
    if (!status)
        status = engine_thread_start(s, err);
    for (size_t i = 0; !status && i < s->n_listeners; i++)
        LOG(LOG_LEVEL_INFO, "listening", LOG_TEXT("address", s->listeners[i].name));
    return status;
}

int server_run(const struct config *config)
{
    struct server s = {.config = config};
    struct error err;
    if (getrandom(&s.id_seed, sizeof s.id_seed, 0) != sizeof s.id_seed)
        s.id_seed = clock_ns() ^ (uint64_t)getpid() << 40;
    s.notify.fd = -1;
    /* Before libuv, which aborts the process when it finds no descriptors for its pipes. */
    enum status status = server_check_config(config, &err);
    int r = status ? 0 : uv_loop_init(&s.loop);
    if (status || r) {
        LOG(LOG_LEVEL_ERROR, "start-failed", LOG_TEXT("why", status ? err.text : uv_strerror(r)));
        return status ? EXIT_REFUSED : EXIT_RUNTIME;
    }
    s.started_ms = uv_now(&s.loop);
    if (server_start(&s, &err)) {
        LOG(LOG_LEVEL_ERROR, "start-failed", LOG_TEXT("why", err.text));
        s.exit_status = err.status == STATUS_IO || err.status == STATUS_NO_MEMORY ? EXIT_RUNTIME : EXIT_REFUSED;
    } else {
        uv_run(&s.loop, UV_RUN_DEFAULT);
    }
    server_stop(&s);
    return s.exit_status;
}
