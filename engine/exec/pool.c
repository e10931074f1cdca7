/* Workers, the run/finish handshake and the barrier, all on one primitive: wait until a word changes. See pool.h. */
#include "engine/exec/pool.h"

#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "engine/cpu/cpu.h"

enum {
    SPIN_NS = 50000,    /* longest spin of one wait: some wake-ups' worth */
    SPIN_BATCH = 32,    /* pauses between looks at the clock */
    SKIP_MAX = 32       /* after fruitless spins, at most so many waits sleep at once before the next try */
};

/* A counter that threads wait on. */
struct word {
    _Alignas(64) _Atomic uint32_t value;
    _Atomic uint32_t sleepers;
};

struct worker {
    _Alignas(64) struct pool *pool;
    unsigned index;
    unsigned skip, skipped; /* waits to sleep through before spinning again; its own thread's only */
    pthread_t thread;
};

struct pool {
    struct word start, phase; /* run number; barrier number */
    _Alignas(64) _Atomic uint32_t arrived;
    _Alignas(64) pool_function *function;
    void *context;
    bool stop, spin;
    unsigned n_workers, n_threads;
    struct worker workers[];
};

static _Thread_local struct worker *self;

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void futex(struct word *w, int operation, uint32_t value)
{
    syscall(SYS_futex, &w->value, operation, value, NULL, NULL, 0);
}

/* True if the value changed within SPIN_NS. */
static bool word_spin(struct word *w, uint32_t old)
{
    uint64_t end = 0;
    do {
        for (int i = 0; i < SPIN_BATCH; i++) {
            if (atomic_load_explicit(&w->value, memory_order_acquire) != old)
                return true;
            cpu_pause();
        }
        if (!end)
            end = now_ns() + SPIN_NS;
    } while (now_ns() < end);
    return false;
}

static void word_sleep(struct word *w, uint32_t old)
{
    /* Either we see the new value, or the writer sees a sleeper: both sides are sequentially consistent. */
    atomic_fetch_add(&w->sleepers, 1);
    while (atomic_load(&w->value) == old)
        futex(w, FUTEX_WAIT_PRIVATE, old);
    atomic_fetch_sub(&w->sleepers, 1);
}

/* A spin that ends in sleep was wasted, probably because the other thread has no core: skip the next ones, up to
 * SKIP_MAX; a successful spin restores trust. */
static void word_wait(struct word *w, uint32_t old, struct worker *me)
{
    if (atomic_load_explicit(&w->value, memory_order_acquire) != old)
        return;
    if (me->pool->spin && me->skipped++ >= me->skip) {
        me->skipped = 0;
        if (word_spin(w, old)) {
            me->skip = 0;
            return;
        }
        me->skip = me->skip * 2 + 1 < SKIP_MAX ? me->skip * 2 + 1 : SKIP_MAX;
    }
    word_sleep(w, old);
}

static void word_advance(struct word *w)
{
    atomic_fetch_add(&w->value, 1);
    if (atomic_load(&w->sleepers))
        futex(w, FUTEX_WAKE_PRIVATE, INT32_MAX);
}

/* Counts an arrival; the last one opens the barrier. Returns the barrier number to wait on. */
static uint32_t barrier_arrive(struct pool *pool)
{
    uint32_t phase = atomic_load_explicit(&pool->phase.value, memory_order_relaxed);
    if (atomic_fetch_add_explicit(&pool->arrived, 1, memory_order_acq_rel) + 1 == pool->n_workers) {
        atomic_store_explicit(&pool->arrived, 0, memory_order_relaxed);
        word_advance(&pool->phase);
    }
    return phase;
}

void pool_barrier(struct pool *pool, pool_idle_function *idle, void *context)
{
    uint32_t phase = barrier_arrive(pool);
    if (idle && pool->spin)
        while (atomic_load_explicit(&pool->phase.value, memory_order_acquire) == phase && idle(context))
            ;
    word_wait(&pool->phase, phase, self);
}

static void *worker_main(void *argument)
{
    struct worker *me = argument;
    struct pool *pool = me->pool;
    self = me;
    for (uint32_t run = 0;; run++) {
        word_wait(&pool->start, run, me);
        if (pool->stop)
            return NULL;
        pool->function(pool->context, me->index, pool->n_workers);
        barrier_arrive(pool); /* the caller waits for this barrier; a worker goes on to wait for the next run */
    }
}

void pool_run(struct pool *pool, pool_function *function, void *context)
{
    struct worker *before = self;
    self = &pool->workers[0];
    pool->function = function;
    pool->context = context;
    word_advance(&pool->start);
    function(context, 0, pool->n_workers);
    pool_barrier(pool, NULL, NULL);
    self = before;
}

/* Threads take no signals that are meant for the process; faults of their own still reach them. */
static int start_thread(struct worker *w)
{
    sigset_t all, old;
    sigfillset(&all);
    sigdelset(&all, SIGBUS);
    sigdelset(&all, SIGSEGV);
    sigdelset(&all, SIGFPE);
    sigdelset(&all, SIGILL);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int code = pthread_create(&w->thread, NULL, worker_main, w);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return code;
}

enum status pool_new(unsigned n_workers, unsigned usable_cores, struct pool **out, struct error *err)
{
    size_t bytes = sizeof(struct pool) + n_workers * sizeof(struct worker);
    bytes = (bytes + 63) / 64 * 64;
    struct pool *pool = aligned_alloc(64, bytes);
    if (!pool)
        return error_no_memory(err, bytes, "worker pool");
    memset(pool, 0, bytes);
    pool->n_workers = n_workers;
    pool->spin = n_workers <= usable_cores;
    for (unsigned i = 0; i < n_workers; i++) {
        pool->workers[i].pool = pool;
        pool->workers[i].index = i;
    }
    for (unsigned i = 1; i < n_workers; i++) {
        int code = start_thread(&pool->workers[i]);
        if (code) {
            pool_free(pool);
            return error_set(err, STATUS_NO_MEMORY, "cannot create worker thread %u of %u: %s", i + 1, n_workers,
                             strerror(code));
        }
        pool->n_threads++;
    }
    *out = pool;
    return STATUS_OK;
}

void pool_free(struct pool *pool)
{
    if (!pool)
        return;
    pool->stop = true;
    word_advance(&pool->start);
    for (unsigned i = 1; i <= pool->n_threads; i++)
        pthread_join(pool->workers[i].thread, NULL);
    free(pool);
}

unsigned pool_workers(const struct pool *pool)
{
    return pool->n_workers;
}
