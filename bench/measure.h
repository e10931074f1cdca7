/* Clocks and order statistics of the benchmarks. */
#ifndef GGUFD_BENCH_MEASURE_H
#define GGUFD_BENCH_MEASURE_H

#include <stdlib.h>
#include <time.h>

static inline double seconds_of(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* CPU time of this thread: another process on the core does not count, its use of caches and memory does. */
static inline double cpu_seconds(void)
{
    return seconds_of(CLOCK_THREAD_CPUTIME_ID);
}

static inline double wall_seconds(void)
{
    return seconds_of(CLOCK_MONOTONIC);
}

static inline int compare_doubles(const void *a, const void *b)
{
    const double *x = (const double *)a, *y = (const double *)b;
    return (*x > *y) - (*x < *y);
}

/* Sorts; n >= 1. */
static inline double median(double *values, size_t n)
{
    qsort(values, n, sizeof *values, compare_doubles);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

#endif
