/* See patience.h. */
#include "tests/support/patience.h"

#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#include "tests/support/suite.h"

static double clock_ms(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

double now_ms(void)
{
    return clock_ms(CLOCK_MONOTONIC);
}

double thread_cpu_ms(void)
{
    return clock_ms(CLOCK_THREAD_CPUTIME_ID);
}

void sleep_ms(double ms)
{
    struct timespec t = {(time_t)(ms / 1000), (long)((ms - 1000 * (double)(time_t)(ms / 1000)) * 1e6)};
    nanosleep(&t, NULL);
}

/* A chain of multiplications, which no compiler shortens: about 10 ms. */
static void work(void)
{
    volatile uint64_t out;
    uint64_t x = 1;
    for (int i = 0; i < 7000000; i++)
        x = x * 6364136223846793005u + 1442695040888963407u;
    out = x;
    (void)out;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

double slowness(void)
{
    enum { N = 7 };
    const double nominal_ms = 10;
    double times[N];
    for (int i = 0; i < N; i++) {
        double before = now_ms();
        work();
        times[i] = now_ms() - before;
    }
    qsort(times, N, sizeof times[0], compare);
    double factor = times[N / 2] / nominal_ms;
    return (factor > 1 ? factor : 1) * (suite_sanitized() ? 4 : 1);
}

bool in_time(double took_ms, double limit_ms)
{
    return took_ms < limit_ms || took_ms < limit_ms * slowness();
}
