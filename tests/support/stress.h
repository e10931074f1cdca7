/* Random events against the real daemon: cancel, queue, timeouts, shutdown, at any moment and in any order. */
#ifndef GGUFD_TESTS_STRESS_H
#define GGUFD_TESTS_STRESS_H

#include <stdint.h>

struct stress_options {
    unsigned long n_events, run_events; /* in all; most of one daemon's life */
    uint64_t seed;
    unsigned long report_every;         /* events between lines of progress; 0: none */
};

enum { STRESS_TEXT = 1200 };

/* Prints each violation of the contract and, at the end, counts per event and per result. Returns the number of
 * violations, and the first of them in `first`.
 * What is chosen follows from seed and event number alone; what comes of it also from the machine's timing. */
unsigned long stress_run(const struct stress_options *options, char first[STRESS_TEXT]);

#endif
