/* Time in tests. A machine may be ten times slower than ours, busy, or stand still for seconds, and no test may fail for
 * that:
 * - Wait for a state, at most PATIENCE_MS: reaching that is a hang. Timers of the daemon that a fault would wait for are
 *   set far beyond it, so that "it ended" proves that nobody waited for them.
 * - Where a duration itself is the claim, ATTEMPTS are made and one has to hold it: a fault breaks each of them. */
#ifndef GGUFD_TESTS_PATIENCE_H
#define GGUFD_TESTS_PATIENCE_H

#include <stdbool.h>

#define PATIENCE_MS 120000 /* no enum: clang 19 wants none beside a double */
enum { ATTEMPTS = 12, BEYOND_PATIENCE_S = 600 };

double now_ms(void);
void sleep_ms(double ms);
/* Processor time of the calling thread. */
double thread_cpu_ms(void);

/* How many times longer than on an idle machine of 2020 a piece of work takes right now, at least 1; under a sanitizer
 * multiplied by what it costs. The median of short measurements: a machine that stands still for once does not count. */
double slowness(void);
/* True when a duration, of wall time or of processor time, is below a limit made for such a machine. */
bool in_time(double took_ms, double limit_ms);

#endif
