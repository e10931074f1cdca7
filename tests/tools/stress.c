/* stress [EVENTS [SEED [RUN]]]: random events against the daemon; see tests/support/stress.h. RUN: most events of one
 * daemon's life. Exit status 1: the daemon did something that its contract does not allow. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "tests/support/stress.h"

static unsigned long argument(int argc, char **argv, int i, unsigned long otherwise)
{
    return argc > i && argv[i][0] ? strtoul(argv[i], NULL, 10) : otherwise;
}

int main(int argc, char **argv)
{
    struct stress_options options = {.n_events = argument(argc, argv, 1, 100000),
                                     .seed = argument(argc, argv, 2, (unsigned long)time(NULL)),
                                     .run_events = argument(argc, argv, 3, 6000),
                                     .report_every = 5000};
    printf("seed %llu\n", (unsigned long long)options.seed);
    char first[STRESS_TEXT];
    return stress_run(&options, first) != 0;
}
