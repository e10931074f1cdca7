/* Where a test and the daemon it disturbs meet: a file that both map (GGUFD_FAULTS names it to the daemon).
 *
 * build/MODE/tests/ggufd-faults is the daemon with every call that it makes itself to an allocation, a system call that
 * may fail, a thread's creation, or a fallible function of libuv and libmicrohttpd led through tests/faults/wrap.c. The
 * call with number fail_at fails as the function does when the system has no more to give; all others are as ever.
 * Of the calls that libraries make among themselves only those of sockets, epoll and eventfd are counted: what they do
 * without memory is not ours. */
#ifndef GGUFD_TESTS_FAULTS_H
#define GGUFD_TESTS_FAULTS_H

#include <stdatomic.h>
#include <stdbool.h>

struct faults {
    atomic_ulong calls;   /* counted since the test last set it to 0 */
    atomic_ulong fail_at; /* 0: none fails */
    atomic_ulong failed;  /* how many have */
    char function[40];    /* the one that failed last */
    atomic_long clock_step_s; /* added to the time of day */
    unsigned long caller; /* its caller, as an offset into the program */
    atomic_bool gate_closed; /* libuv's workers wait in front of their work */
    atomic_uint at_gate;     /* how many have come there */
};

#endif
