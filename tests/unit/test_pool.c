/* Worker pool: every worker runs, barriers order memory, idle costs nothing, and nobody starves when cores are short. */
#include "engine/exec/pool.h"
#include "engine/cpu/cpu.h"
#include "tests/support/patience.h"
#include "tests/support/random.h"
#include "tests/support/suite.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

enum { WORKERS_MAX = 8 };

static struct pool *new_pool(unsigned n_workers, unsigned cores)
{
    struct pool *pool;
    struct error err;
    if (pool_new(n_workers, cores, &pool, &err) != STATUS_OK)
        ck_abort_msg("%s", err.text);
    ck_assert_uint_eq(pool_workers(pool), n_workers);
    return pool;
}

static unsigned usable_cores(void)
{
    struct cpu_cores cores;
    cpu_cores_find(&cores);
    return cores.usable;
}

/* Plain, non-atomic numbers: only the barrier orders the accesses. */
struct relay {
    struct pool *pool;
    unsigned rounds;
    uint64_t cells[2][WORKERS_MAX];
    unsigned wrong;
};

/* Each round every worker adds up what all wrote in the round before. */
static void relay_run(void *context, unsigned worker, unsigned n)
{
    struct relay *r = context;
    for (unsigned round = 0; round < r->rounds; round++) {
        const uint64_t *from = r->cells[round % 2];
        uint64_t sum = worker;
        for (unsigned w = 0; w < n; w++)
            sum = sum * 31 + from[w];
        r->cells[(round + 1) % 2][worker] = sum;
        pool_barrier(r->pool, NULL, NULL);
    }
}

static void relay_expect(const struct relay *r, unsigned n)
{
    uint64_t cells[2][WORKERS_MAX] = {{0}};
    for (unsigned round = 0; round < r->rounds; round++)
        for (unsigned worker = 0; worker < n; worker++) {
            uint64_t sum = worker;
            for (unsigned w = 0; w < n; w++)
                sum = sum * 31 + cells[round % 2][w];
            cells[(round + 1) % 2][worker] = sum;
        }
    ck_assert_mem_eq(cells[r->rounds % 2], r->cells[r->rounds % 2], n * sizeof(uint64_t));
}

static void relay_for(unsigned cores, unsigned rounds)
{
    for (unsigned n = 1; n <= WORKERS_MAX; n++) {
        struct relay r = {.pool = new_pool(n, cores), .rounds = rounds};
        for (int again = 0; again < 3; again++) {
            memset(r.cells, 0, sizeof r.cells);
            pool_run(r.pool, relay_run, &r);
            relay_expect(&r, n);
        }
        pool_free(r.pool);
    }
}

TEST(barriers_order_memory_when_threads_sleep)
{
    relay_for(1, suite_sanitized() ? 300 : 3000);
}
END

TEST(barriers_order_memory_when_threads_spin)
{
    relay_for(usable_cores(), suite_sanitized() ? 300 : 3000);
}
END

static void count_run(void *context, unsigned worker, unsigned n)
{
    (void)n;
    ((unsigned *)context)[worker * 16]++;
}

TEST(every_run_runs_every_worker_once)
{
    for (unsigned n = 1; n <= WORKERS_MAX; n++) {
        unsigned counts[WORKERS_MAX * 16] = {0}, runs = suite_sanitized() ? 500 : 5000;
        struct pool *pool = new_pool(n, usable_cores());
        for (unsigned i = 0; i < runs; i++)
            pool_run(pool, count_run, counts);
        pool_free(pool);
        for (unsigned w = 0; w < n; w++)
            ck_assert_uint_eq(counts[w * 16], runs);
    }
}
END

/* Workers arrive in every order and at every distance. */
static void jitter_run(void *context, unsigned worker, unsigned n)
{
    struct relay *r = context;
    uint64_t seed = worker * 1000 + n;
    for (unsigned round = 0; round < r->rounds; round++) {
        if (random_below(&seed, 8) == 0)
            for (volatile size_t i = random_below(&seed, 40000); i > 0; i = i - 1)
                continue;
        r->cells[round % 2][worker] = round;
        pool_barrier(r->pool, NULL, NULL);
        for (unsigned w = 0; w < n; w++)
            if (r->cells[round % 2][w] != round)
                r->wrong = 1;
    }
}

TEST(late_workers_are_waited_for)
{
    for (unsigned n = 2; n <= 5; n++) {
        struct relay r = {.pool = new_pool(n, usable_cores()), .rounds = suite_sanitized() ? 200 : 2000};
        pool_run(r.pool, jitter_run, &r);
        pool_free(r.pool);
        ck_assert_uint_eq(r.wrong, 0);
    }
}
END

TEST(pools_come_and_go)
{
    for (unsigned i = 0; i < 200; i++) {
        unsigned counts[WORKERS_MAX * 16] = {0};
        struct pool *pool = new_pool(1 + i % WORKERS_MAX, usable_cores());
        if (i % 3)
            pool_run(pool, count_run, counts);
        pool_free(pool);
        ck_assert_uint_eq(counts[0], i % 3 != 0);
    }
    pool_free(NULL);
}
END

static double process_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Nobody computes, and nobody wakes up again and again, for 200 ms. */
static bool is_idle(void)
{
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    double start = process_seconds();
    sleep_ms(200);
    double used_ms = 1e3 * (process_seconds() - start);
    getrusage(RUSAGE_SELF, &after);
    return in_time(used_ms, 2) && after.ru_nvcsw - before.ru_nvcsw <= 20;
}

/* A worker that meets the end of its spin late, on a busy machine, sleeps at the next attempt. */
TEST(an_idle_pool_uses_no_processor_time)
{
    if (suite_tsan())
        SKIP("ThreadSanitizer's own thread wakes up again and again");
    unsigned counts[WORKERS_MAX * 16] = {0};
    struct pool *pool = new_pool(2, 2);
    pool_run(pool, count_run, counts);
    sleep_ms(20); /* longer than any spin; then the workers must be asleep */
    bool idle = is_idle();
    for (int i = 1; i < ATTEMPTS && !idle; i++)
        idle = is_idle();
    ck_assert(idle);
    pool_free(pool);
}
END

TEST(a_thread_that_cannot_be_created_is_an_error)
{
    struct rlimit none = {.rlim_cur = 64u << 20, .rlim_max = 64u << 20};
    if (suite_has_sanitizer())
        SKIP("a sanitizer needs the address space this test takes away");
    struct pool *pool = NULL;
    struct error err;
    ck_assert_int_eq(setrlimit(RLIMIT_AS, &none), 0);
    ck_assert_int_eq(pool_new(64, 64, &pool, &err), STATUS_NO_MEMORY);
    ck_assert_ptr_nonnull(strstr(err.text, "of 64"));
}
END

/* Work of a fixed size between barriers; returns rounds per second of wall time. */
struct grind {
    struct pool *pool;
    unsigned rounds, size;
    uint64_t sums[WORKERS_MAX][8];
};

static void grind_run(void *context, unsigned worker, unsigned n)
{
    struct grind *g = context;
    for (unsigned round = 0; round < g->rounds; round++) {
        uint64_t seed = round;
        for (unsigned i = 0; i < g->size / n; i++)
            g->sums[worker][0] += random_u64(&seed);
        pool_barrier(g->pool, NULL, NULL);
    }
}

static double grind_seconds(unsigned n_workers, unsigned cores)
{
    struct grind g = {.pool = new_pool(n_workers, cores), .rounds = 2000, .size = 100000};
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    pool_run(g.pool, grind_run, &g);
    clock_gettime(CLOCK_MONOTONIC, &b);
    pool_free(g.pool);
    return (double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) * 1e-9;
}

/* Twice as many workers as cores must not collapse: the machine may be busy, so only an order of magnitude counts. */
TEST(more_workers_than_cores_still_move)
{
    unsigned cores = usable_cores() < 4 ? usable_cores() : 4;
    double fitting = 0, crowded = 1e9;
    for (int i = 0; i < ATTEMPTS && crowded > 10 * fitting + 1; i++) {
        fitting = grind_seconds(cores, cores);
        crowded = grind_seconds(2 * cores, cores);
    }
    if (crowded > 10 * fitting + 1)
        ck_abort_msg("%u workers on %u cores: %.3f s, %u workers: %.3f s", 2 * cores, cores, crowded, cores, fitting);
}
END

/* Worker 0 comes to the barrier only after the others have been called while they wait. */
struct idle {
    struct pool *pool;
    _Atomic unsigned calls[WORKERS_MAX];
    unsigned wanted;
};

static _Thread_local unsigned idle_worker;

static bool idle_call(void *context)
{
    struct idle *idle = context;
    return atomic_fetch_add(&idle->calls[idle_worker], 1) + 1 < idle->wanted;
}

static void idle_run(void *context, unsigned worker, unsigned n)
{
    struct idle *idle = context;
    idle_worker = worker;
    for (unsigned w = 1; worker == 0 && w < n; w++)
        while (atomic_load(&idle->calls[w]) < idle->wanted)
            continue;
    pool_barrier(idle->pool, worker ? idle_call : NULL, idle);
}

TEST(a_waiting_worker_is_called_until_it_has_nothing_left_to_do)
{
    for (unsigned n = 1; n <= 4; n++)
        for (unsigned wanted = 1; wanted < 200; wanted += 66) {
            struct idle idle = {.pool = new_pool(n, n), .wanted = wanted};
            pool_run(idle.pool, idle_run, &idle);
            pool_free(idle.pool);
            for (unsigned w = 0; w < n; w++)
                ck_assert_uint_eq(idle.calls[w], w ? wanted : 0);
        }
}
END

TEST(workers_that_do_not_spin_are_not_called)
{
    struct idle idle = {.pool = new_pool(2, 1), .wanted = 0};
    pool_run(idle.pool, idle_run, &idle);
    pool_free(idle.pool);
    ck_assert_uint_eq(idle.calls[1], 0);
}
END

SUITE(pool, T(barriers_order_memory_when_threads_sleep), T(barriers_order_memory_when_threads_spin),
      T(every_run_runs_every_worker_once), T(late_workers_are_waited_for), T(pools_come_and_go),
      T(an_idle_pool_uses_no_processor_time), T(a_thread_that_cannot_be_created_is_an_error),
      T(more_workers_than_cores_still_move), T(a_waiting_worker_is_called_until_it_has_nothing_left_to_do),
      T(workers_that_do_not_spin_are_not_called))
