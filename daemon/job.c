/* The line of jobs; see job.h. */
#include "daemon/job.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/connection.h"
#include "daemon/request.h"
#include "daemon/server.h"

#define NS_PER_MS 1000000ull
enum { PROGRESS_INTERVAL_MS = 500 };
#define RETRY_AFTER_MAX_S 3600 /* no enum: clang 19 wants none beside a double */

uint64_t clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

static struct job_queue *queue_of(const struct job *j)
{
    return &j->server->queue;
}

/* With the lock held. */
static void mark_dirty(struct job *j)
{
    struct job_queue *q = queue_of(j);
    if (j->dirty)
        return;
    j->dirty = true;
    j->next_dirty = q->dirty;
    q->dirty = j;
    uv_async_send(&q->wake);
}

/* ---- loop thread: beginning and end of jobs ---- */

static void job_free(struct job *j)
{
    if (j->plan)
        j->type->clear(j->plan);
    buffer_clear(&j->out);
    buffer_clear(&j->steps);
    free(j);
}

void job_release(struct job *j)
{
    struct job_queue *q = queue_of(j);
    pthread_mutex_lock(&q->lock);
    int left = --j->holders;
    pthread_mutex_unlock(&q->lock);
    if (left == 0)
        job_free(j);
}

static void unlink_live(struct job *j)
{
    struct job **at = &queue_of(j)->live;
    while (*at != j)
        at = &(*at)->next_live;
    *at = j->next_live;
}

static void take_steps(struct job *j, struct buffer *steps)
{
    *steps = j->steps;
    buffer_init(&j->steps);
}

static void observe_steps(struct server *s, struct buffer *steps)
{
    for (size_t i = 0; i + sizeof(float) <= steps->size; i += sizeof(float)) {
        float seconds;
        memcpy(&seconds, steps->data + i, sizeof seconds);
        metrics_observe(s->metrics, METRIC_TOKEN_SECONDS, (double)seconds);
    }
    buffer_clear(steps);
}

void job_settle(struct job *j)
{
    if (j->settled)
        return;
    j->settled = true;
    unlink_live(j);
    server_job_ended(j->server, j);
}

bool jobs_collect(struct server *s)
{
    struct job_queue *q = &s->queue;
    bool any = false;
    for (;;) {
        struct buffer steps = {0};
        pthread_mutex_lock(&q->lock);
        struct job *j = q->dirty;
        bool done = false;
        if (j) {
            q->dirty = j->next_dirty;
            j->dirty = false;
            done = j->state == JOB_DONE;
            take_steps(j, &steps);
        }
        pthread_mutex_unlock(&q->lock);
        if (!j)
            return any;
        observe_steps(s, &steps);
        if (j->request)
            any |= request_resume(j->request);
        if (done) {
            job_settle(j);
            job_release(j);
        }
    }
}

/* The engine thread has marked new output or an end; requests that wait for it go on at the pump. */
static void on_wake(uv_async_t *wake)
{
    struct server *s = wake->data;
    bool any = jobs_collect(s);
    server_engine_event(s);
    if (any)
        pump_run(&s->pump);
    server_check_drained(s);
}

enum status job_queue_init(struct server *s, struct error *err)
{
    struct job_queue *q = &s->queue;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->work, NULL);
    pthread_cond_init(&q->space, &monotonic);
    pthread_condattr_destroy(&monotonic);
    int r = uv_async_init(&s->loop, &q->wake, on_wake);
    q->wake.data = r ? NULL : s; /* NULL: there is nothing to wake or to close */
    return r ? error_set(err, STATUS_IO, "uv_async_init: %s", uv_strerror(r)) : STATUS_OK;
}

void job_queue_clear(struct server *s)
{
    assert(!s->queue.live);
    pthread_mutex_destroy(&s->queue.lock);
    pthread_cond_destroy(&s->queue.work);
    pthread_cond_destroy(&s->queue.space);
}

struct job *job_new(struct request *r, const struct job_type *type)
{
    struct job *j = calloc(1, sizeof *j);
    if (!j) {
        problem_set(&r->problem, PROBLEM_INTERNAL, "out of memory for a job");
        return NULL;
    }
    j->type = type;
    j->server = r->server;
    j->engine = r->server->engine;
    j->plan = r->plan;
    j->request = r;
    j->arrived_ns = clock_ns();
    strcpy(j->id, r->id);
    r->plan = NULL;
    return j;
}

size_t job_count(struct server *s, size_t *running)
{
    pthread_mutex_lock(&s->queue.lock);
    *running = s->queue.running != NULL;
    size_t waiting = s->queue.n_waiting;
    pthread_mutex_unlock(&s->queue.lock);
    return waiting;
}

/* Seconds until the running job is likely to end and a place in line becomes free, from the speeds measured last. */
static unsigned retry_after_s(struct server *s)
{
    struct job *j = s->queue.running;
    double seconds = 1;
    if (j && s->prefill_speed > 0)
        seconds += (double)(j->figures.prompt_tokens - atomic_load(&j->processed)) / s->prefill_speed;
    if (j && s->decode_speed > 0 && j->max_tokens > atomic_load(&j->generated))
        seconds += (double)(j->max_tokens - atomic_load(&j->generated)) / s->decode_speed;
    return seconds < RETRY_AFTER_MAX_S ? (unsigned)ceil(seconds) : RETRY_AFTER_MAX_S;
}

/* A free engine takes one more than the line holds. With the lock held. */
static bool is_full(const struct server *s)
{
    const struct job_queue *q = &s->queue;
    size_t places = (size_t)s->config->queue + (q->running ? 0 : 1);
    return q->n_waiting >= places;
}

static void refuse_full(struct server *s, struct problem *problem, unsigned seconds)
{
    char text[120];
    snprintf(text, sizeof text, "%lld jobs are waiting, as many as the queue holds", (long long)s->config->queue);
    problem_busy(problem, PROBLEM_QUEUE_FULL, seconds, text);
}

void job_refuse_full(struct server *s, struct problem *problem)
{
    pthread_mutex_lock(&s->queue.lock);
    bool full = is_full(s);
    unsigned seconds = full ? retry_after_s(s) : 0;
    pthread_mutex_unlock(&s->queue.lock);
    if (full)
        refuse_full(s, problem, seconds);
}

struct job *job_find(struct server *s, const char *id)
{
    for (struct job *j = s->queue.live; j; j = j->next_live)
        if (strcmp(j->id, id) == 0)
            return j;
    return NULL;
}

/* False when there is no place. */
static bool enqueue(struct job *j, unsigned *seconds)
{
    struct job_queue *q = queue_of(j);
    pthread_mutex_lock(&q->lock);
    bool full = is_full(j->server);
    if (full) {
        *seconds = retry_after_s(j->server);
    } else {
        j->holders = 2;
        if (q->last)
            q->last->next = j;
        else
            q->first = j;
        q->last = j;
        q->n_waiting++;
        pthread_cond_signal(&q->work);
    }
    pthread_mutex_unlock(&q->lock);
    return !full;
}

void job_submit(struct job *j)
{
    struct server *s = j->server;
    struct request *r = j->request;
    struct connection *c = r->connection;
    unsigned seconds = 1;
    j->read_ns = j->arrived_ns;
    if (c->peer_fin && !c->local) {
        r->gone = true; /* left while it was sending: a half-close means abort on TCP */
    } else if (s->draining) {
        problem_busy(&r->problem, PROBLEM_DRAINING, server_drain_seconds(s), "the server is shutting down");
    } else if (job_find(s, j->id)) {
        problem_set(&r->problem, PROBLEM_DUPLICATE_ID, "a job with the id %s is queued or running", j->id);
    } else if (enqueue(j, &seconds)) {
        r->job = j;
        j->next_live = s->queue.live;
        s->queue.live = j;
        server_watch_time(s);
        return;
    } else {
        refuse_full(s, &r->problem, seconds);
    }
    metrics_add(s->metrics, METRIC_JOBS, METRICS_LABELS(j->type->route, "refused"), 1);
    job_free(j);
}

static void unlink_waiting(struct job_queue *q, struct job *j)
{
    struct job **at = &q->first, *previous = NULL;
    while (*at != j) {
        previous = *at;
        at = &previous->next;
    }
    *at = j->next;
    if (q->last == j)
        q->last = previous;
    q->n_waiting--;
}

/* A job that never ran: what its reply says. */
static void end_waiting(struct job *j, enum reason reason)
{
    struct problem problem = {0};
    if (reason == REASON_DEADLINE)
        problem_busy(&problem, PROBLEM_QUEUE_TIMEOUT, server_queue_seconds(j->server),
                     "the job's time was over before the engine was free");
    else if (reason == REASON_SHUTDOWN)
        problem_busy(&problem, PROBLEM_DRAINING, server_drain_seconds(j->server), "the server is shutting down");
    j->figures.queue_ms = (double)(clock_ns() - j->arrived_ns) / 1e6;
    j->refused = problem.kind != PROBLEM_NONE && !job_has_committed(j); /* after progress lines the last one says why */
    job_finish(j, reason, problem.kind != PROBLEM_NONE ? &problem : NULL);
}

void job_cancel(struct job *j, enum reason reason)
{
    struct job_queue *q = queue_of(j);
    pthread_mutex_lock(&q->lock);
    bool waiting = j->state == JOB_QUEUED;
    if (waiting) {
        unlink_waiting(q, j);
        j->state = JOB_RUNNING; /* ours to end: nobody else sees it any more */
    } else if (j->state == JOB_RUNNING && !atomic_load(&j->cancel)) {
        j->cancel_reason = reason;
        atomic_store(&j->cancel, true);
        pthread_cond_broadcast(&q->space);
    }
    pthread_mutex_unlock(&q->lock);
    if (waiting)
        end_waiting(j, reason);
}

void jobs_cancel_all(struct server *s, enum reason reason)
{
    for (struct job *j = s->queue.live; j; j = j->next_live)
        job_cancel(j, reason);
}

size_t job_read(struct job *j, char *data, size_t size, bool *ended, bool *broken)
{
    struct job_queue *q = queue_of(j);
    pthread_mutex_lock(&q->lock);
    size_t held = j->reply_bytes && j->state != JOB_DONE && j->out.size > j->out_at; /* its last byte ends the reply */
    size_t n = j->out.size - j->out_at - held;
    n = n < size ? n : size;
    if (n) {
        memcpy(data, j->out.data + j->out_at, n);
        j->out_at += n;
        j->read_ns = clock_ns();
        pthread_cond_broadcast(&q->space);
    }
    if (j->out_at == j->out.size)
        j->out.size = j->out_at = 0;
    *ended = j->state == JOB_DONE && j->out.size == 0;
    *broken = j->broken;
    pthread_mutex_unlock(&q->lock);
    return n;
}

/* ---- loop thread: time ---- */

/* A progress line at least once a second, while no token has been sent. */
static void tell_progress(struct job *j, uint64_t now_ms)
{
    if (!j->progress || now_ms - j->progress_ms < PROGRESS_INTERVAL_MS)
        return;
    struct job_queue *q = queue_of(j);
    j->progress_ms = now_ms;
    pthread_mutex_lock(&q->lock);
    if (j->state != JOB_DONE && !j->spoke) {
        reply_progress_line(&j->out, j->figures.prompt_tokens, atomic_load(&j->processed));
        j->committed = true;
        mark_dirty(j);
    }
    pthread_mutex_unlock(&q->lock);
}

void jobs_tick(struct server *s)
{
    uint64_t now = clock_ns(), now_ms = uv_now(&s->loop);
    for (struct job *j = s->queue.live; j; j = j->next_live) {
        pthread_mutex_lock(&s->queue.lock);
        bool waiting = j->state == JOB_QUEUED;
        pthread_mutex_unlock(&s->queue.lock);
        bool waited = waiting && now - j->arrived_ns > (uint64_t)s->config->max_queue_wait_ms * NS_PER_MS;
        if (waited || (j->deadline_ns && now >= j->deadline_ns))
            job_cancel(j, REASON_DEADLINE);
        else
            tell_progress(j, now_ms);
    }
}

/* ---- engine thread ---- */

struct job *job_take(struct job_queue *q)
{
    pthread_mutex_lock(&q->lock);
    while (!q->first && !q->stop)
        pthread_cond_wait(&q->work, &q->lock);
    struct job *j = q->first;
    if (j) {
        q->first = j->next;
        if (!q->first)
            q->last = NULL;
        q->n_waiting--;
        j->state = JOB_RUNNING;
        q->running = j;
    }
    pthread_mutex_unlock(&q->lock);
    return j;
}

void job_finish(struct job *j, enum reason reason, const struct problem *problem)
{
    struct job_queue *q = queue_of(j);
    j->reason = reason;
    if (problem)
        j->problem = *problem;
    j->type->end(j, reason, problem);
    pthread_mutex_lock(&q->lock);
    j->state = JOB_DONE;
    if (q->running == j)
        q->running = NULL;
    mark_dirty(j);
    pthread_mutex_unlock(&q->lock);
}

bool job_is_cancelled(const struct job *j)
{
    return atomic_load_explicit(&j->cancel, memory_order_relaxed);
}

enum reason job_cancel_reason(struct job *j)
{
    struct job_queue *q = queue_of(j);
    pthread_mutex_lock(&q->lock);
    enum reason reason = j->cancel_reason;
    pthread_mutex_unlock(&q->lock);
    return reason;
}

/* With the lock held. A client that takes nothing for write_timeout ends its job. */
static bool wait_for_window(struct job *j)
{
    struct job_queue *q = queue_of(j);
    while (j->out.size - j->out_at > j->window_bytes) {
        uint64_t until = j->read_ns + (uint64_t)j->server->config->write_timeout_ms * NS_PER_MS;
        struct timespec t = {(time_t)(until / 1000000000ull), (long)(until % 1000000000ull)};
        if (atomic_load(&j->cancel))
            return false;
        if (pthread_cond_timedwait(&q->space, &q->lock, &t) == ETIMEDOUT && clock_ns() >= until) {
            j->cancel_reason = REASON_CANCELLED;
            atomic_store(&j->cancel, true);
            return false;
        }
    }
    return true;
}

bool job_emit(struct job *j, const void *data, size_t size)
{
    struct job_queue *q = queue_of(j);
    pthread_mutex_lock(&q->lock);
    if (j->out.size == j->out_at)
        j->read_ns = clock_ns(); /* nothing was waiting: the client's time starts now */
    bool fits = wait_for_window(j);
    if (fits) {
        if (j->out_at > j->out.size / 2) { /* move the unread rest to the front now and then */
            memmove(j->out.data, j->out.data + j->out_at, j->out.size - j->out_at);
            j->out.size -= j->out_at;
            j->out_at = 0;
        }
        buffer_append(&j->out, data, size);
        j->committed = true;
        mark_dirty(j);
        fits = !j->out.failed;
    }
    pthread_mutex_unlock(&q->lock);
    return fits;
}

void job_put(struct job *j, const struct buffer *b, bool commit)
{
    struct job_queue *q = queue_of(j);
    pthread_mutex_lock(&q->lock);
    buffer_append(&j->out, b->data, b->size);
    j->broken |= b->failed || j->out.failed;
    j->committed |= commit;
    pthread_mutex_unlock(&q->lock);
}

bool job_has_committed(struct job *j)
{
    struct job_queue *q = queue_of(j);
    pthread_mutex_lock(&q->lock);
    bool committed = j->committed;
    pthread_mutex_unlock(&q->lock);
    return committed;
}

void job_break(struct job *j)
{
    struct job_queue *q = queue_of(j);
    pthread_mutex_lock(&q->lock);
    j->broken = true;
    pthread_mutex_unlock(&q->lock);
}
