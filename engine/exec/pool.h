/* Persistent worker threads that run one function together, with a barrier inside.
 *
 * The caller is worker 0. Waiting threads spin for a bounded time, then sleep on a futex: an idle pool uses no CPU.
 * With more workers than usable cores, or after spinning proved useless, they sleep at once.
 * Run from one thread at a time; the function must not call pool_run. */
#ifndef GGUFD_EXEC_POOL_H
#define GGUFD_EXEC_POOL_H

#include <stdbool.h>

#include "engine/base/error.h"

struct pool;

typedef void pool_function(void *context, unsigned worker, unsigned n_workers);

/* n_workers >= 1, the caller included; usable_cores as cpu_cores_find says. A thread that cannot be created is an
 * error. */
enum status pool_new(unsigned n_workers, unsigned usable_cores, struct pool **out, struct error *err);
void pool_free(struct pool *pool); /* NULL is fine; joins the threads */

unsigned pool_workers(const struct pool *pool);

/* Runs function(context, w, n) for w = 0..n-1 on all workers; returns when all have. What the workers wrote is visible
 * afterwards. */
void pool_run(struct pool *pool, pool_function *function, void *context);

/* What a worker that waits does until it returns false or the wait is over: something short and useful. */
typedef bool pool_idle_function(void *context);

/* Inside the function: waits until all workers arrived. Every worker must call it equally often. idle may be NULL; it is
 * not called by workers that do not spin. */
void pool_barrier(struct pool *pool, pool_idle_function *idle, void *context);

#endif
