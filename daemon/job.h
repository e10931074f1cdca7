/* A piece of work for the engine, and the line it waits in.
 *
 * The loop owns HTTP, the engine thread owns the session, and struct job is the only thing both touch. Fields are
 * marked: [fixed] set before submission; [lock] under the queue's mutex; [loop], [engine] that thread only; results
 * belong to the engine until the state is JOB_DONE and to the loop from then on. */
#ifndef GGUFD_DAEMON_JOB_H
#define GGUFD_DAEMON_JOB_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "engine/base/buffer.h"
#include "engine/engine.h"
#include "proto/problem.h"
#include "proto/replies.h"
#include "proto/requests.h"

struct request;
struct server;
struct job;

enum job_state { JOB_QUEUED, JOB_RUNNING, JOB_DONE };

struct job_type {
    const char *route; /* metric label */
    /* Engine thread. Fills *problem and returns REASON_ERROR on failure. */
    enum reason (*run)(struct job *j, struct session *s, struct problem *problem);
    /* Writes the end of the output, or leaves it to j->problem; whichever thread ends the job. problem: NULL if none. */
    void (*end)(struct job *j, enum reason reason, const struct problem *problem);
    void (*clear)(void *plan);
};

/* What happened, for replies, metrics and the log. Milliseconds of the monotonic clock. */
struct job_figures {
    size_t prompt_tokens, cached_tokens, generated_tokens;
    double queue_ms, prefill_ms, decode_ms, first_token_ms; /* first_token_ms 0: there was none */
    size_t prefill_tokens, decode_tokens;
};

struct job {
    const struct job_type *type; /* [fixed] */
    struct server *server;       /* [fixed] */
    const struct engine *engine; /* [fixed] */
    void *plan;                  /* [fixed] the type's own; the running thread's to change */
    char id[REQUEST_ID_BYTES_MAX + 1]; /* [fixed] */
    const char *content_type;    /* [fixed] of a streamed reply */
    uint64_t reply_bytes;        /* [fixed] of a streamed reply; 0: unknown, chunked */
    size_t window_bytes;         /* [fixed] output that may wait for the client */
    bool progress;               /* [fixed] progress lines until the first token */
    size_t max_tokens;           /* [fixed] for estimates */
    uint64_t arrived_ns, deadline_ns; /* [fixed] 0: none */

    struct request *request;     /* [loop] NULL once libmicrohttpd is done with it */
    struct job *next_live;       /* [loop] */
    uint64_t progress_ms;        /* [loop] of the last progress line */
    bool settled;                /* [loop] counted in metrics, and off the live list */

    struct job *next;            /* [lock] in line */
    struct job *next_dirty;      /* [lock] */
    bool dirty;                  /* [lock] */
    int holders;                 /* [lock] request and live list */
    enum job_state state;        /* [lock] */
    enum reason cancel_reason;   /* [lock] set before cancel */
    struct buffer out;           /* [lock] */
    size_t out_at;               /* [lock] read so far */
    uint64_t read_ns;            /* [lock] last time the client took something */
    bool committed;              /* [lock] a streamed reply has begun */
    bool broken;                 /* [lock] the streamed reply is to be cut */
    bool spoke;                  /* [lock] a token went out: no progress lines any more */
    struct buffer steps;         /* [lock] float seconds of decode steps not yet observed */

    atomic_bool cancel;
    atomic_size_t processed;     /* prompt tokens evaluated */
    atomic_size_t generated;

    struct job_figures figures;  /* results */
    enum reason reason;
    struct problem problem;
    bool refused;                /* ended without having run */
};

struct job_queue {
    pthread_mutex_t lock;
    pthread_cond_t work;  /* a job, or stop */
    pthread_cond_t space; /* output was read, or a job cancelled */
    struct job *first, *last, *running, *dirty;
    size_t n_waiting;
    bool stop;
    uv_async_t wake;
    struct job *live;     /* [loop] */
};

uint64_t clock_ns(void); /* monotonic */

/* ---- loop thread ---- */

enum status job_queue_init(struct server *s, struct error *err);
void job_queue_clear(struct server *s); /* no job may be left */

/* A job for r with the plan that r holds: the caller fills the other [fixed] fields and submits. NULL: no memory, and
 * r->problem says so. */
struct job *job_new(struct request *r, const struct job_type *type);
/* Puts it in line, or fills r->problem and frees it: draining, a live id, a full line. */
void job_submit(struct job *j);
/* Fills problem if one more job would find no place. */
void job_refuse_full(struct server *s, struct problem *problem);
/* Once; a job in line ends at once, a running one at its next look at the flag. */
void job_cancel(struct job *j, enum reason reason);
struct job *job_find(struct server *s, const char *id);
void job_release(struct job *j); /* the request's hold */
size_t job_count(struct server *s, size_t *running);

/* Up to `size` bytes of output, of a reply of known length all but the last while the job runs. 0: none now. *ended: the
 * job is done and nothing is left; *broken: the reply is to be cut. */
size_t job_read(struct job *j, char *data, size_t size, bool *ended, bool *broken);
/* Counts a job that is done, once: before its reply, so that a scrape behind the reply finds it. */
void job_settle(struct job *j);
/* Settles and lets go what the engine thread is done with; true if a request goes on at the next pump. */
bool jobs_collect(struct server *s);
/* Deadlines and progress lines. */
void jobs_tick(struct server *s);
void jobs_cancel_all(struct server *s, enum reason reason);

/* ---- engine thread ---- */

struct job *job_take(struct job_queue *q); /* waits; NULL: stop */
void job_finish(struct job *j, enum reason reason, const struct problem *problem);
/* Output that commits the reply to 200; waits while the window is full. False: cancelled, or no memory. */
bool job_emit(struct job *j, const void *data, size_t size);
bool job_is_cancelled(const struct job *j);
enum reason job_cancel_reason(struct job *j); /* of a cancelled one */

/* ---- either: whoever ends the job ---- */

/* The last output, which waits for no window. commit: as part of a streamed reply; else the whole body of a fixed one. */
void job_put(struct job *j, const struct buffer *b, bool commit);
bool job_has_committed(struct job *j);
/* A reply that has begun is cut short of its length: nothing else can tell its reader that it failed. */
void job_break(struct job *j);

#endif
