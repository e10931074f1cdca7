/* Loading and running on the engine thread; see engine_thread.h. */
#include "daemon/engine_thread.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "daemon/log.h"
#include "daemon/server.h"

enum { JOIN_SECONDS = 3 };

static void on_progress(void *context, const char *stage, double fraction)
{
    (void)stage;
    struct server *s = context;
    atomic_store(&s->engine_thread.load_permille, (unsigned)(fraction * 1000));
    uv_async_send(&s->queue.wake);
}

struct engine_options engine_options_from(const struct config *config)
{
    return (struct engine_options){
        .model = config->model,
        .tier = config->tier,
        .threads = (unsigned)config->threads,
        .context = (unsigned)config->context,
        .batch = (unsigned)config->batch,
        .prefault = config->prefault,
        .lock_memory = config->lock_memory,
        .log = log_sink_for("engine"),
    };
}

static enum status load(struct server *s, struct error *err)
{
    struct engine_thread *t = &s->engine_thread;
    struct engine_options options = engine_options_from(s->config);
    options.progress = on_progress;
    options.progress_context = s;
    enum status status = engine_open(&options, &t->engine, err);
    if (!status && !engine_info(t->engine)->vocabulary_only)
        status = session_new(t->engine, &t->session, err);
    return status;
}

static void run_job(struct job *j, struct session *session)
{
    struct problem problem = {0};
    j->figures.queue_ms = (double)(clock_ns() - j->arrived_ns) / 1e6;
    enum reason reason = j->type->run(j, session, &problem);
    atomic_store(&j->server->engine_thread.context_used, session_length(session));
    job_finish(j, reason, problem.kind != PROBLEM_NONE ? &problem : NULL);
}

static void *engine_main(void *context)
{
    struct server *s = context;
    struct engine_thread *t = &s->engine_thread;
    enum status status = load(s, &t->error);
    atomic_store(&t->state, status ? ENGINE_FAILED : ENGINE_READY);
    uv_async_send(&s->queue.wake);
    for (struct job *j; !status && (j = job_take(&s->queue)) != NULL;)
        run_job(j, t->session);
    pthread_mutex_lock(&s->queue.lock);
    t->ended = true;
    pthread_cond_broadcast(&s->queue.space);
    pthread_mutex_unlock(&s->queue.lock);
    return NULL;
}

enum status engine_thread_start(struct server *s, struct error *err)
{
    struct engine_thread *t = &s->engine_thread;
    int r = pthread_create(&t->thread, NULL, engine_main, s);
    if (r)
        return error_set(err, STATUS_IO, "cannot start the engine's thread: %s", strerror(r));
    pthread_setname_np(t->thread, "engine");
    t->started = true;
    return STATUS_OK;
}

bool engine_thread_stop(struct server *s)
{
    struct engine_thread *t = &s->engine_thread;
    struct job_queue *q = &s->queue;
    struct timespec until;
    if (!t->started)
        return true;
    clock_gettime(CLOCK_MONOTONIC, &until); /* the condition's clock */
    until.tv_sec += JOIN_SECONDS;
    bool loading = atomic_load(&t->state) == ENGINE_LOADING;
    pthread_mutex_lock(&q->lock);
    q->stop = true;
    pthread_cond_broadcast(&q->work);
    pthread_cond_broadcast(&q->space);
    while (!loading && !t->ended)
        if (pthread_cond_timedwait(&q->space, &q->lock, &until) == ETIMEDOUT)
            break;
    bool ended = t->ended;
    pthread_mutex_unlock(&q->lock);
    if (loading || !ended)
        return false;
    pthread_join(t->thread, NULL);
    t->started = false;
    return true;
}

void engine_thread_clear(struct server *s)
{
    session_free(s->engine_thread.session);
    engine_close(s->engine_thread.engine);
    s->engine_thread.session = NULL;
    s->engine_thread.engine = s->engine = NULL;
}
