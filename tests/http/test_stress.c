/* A short run of what `make stress` does at length: random events of many clients, and no reply that is not allowed. No
 * step waits for a time: states that must come are awaited, and elapsed times are compared only with times promised as
 * least ones. */
#include "tests/support/patience.h"
#include "tests/support/stress.h"
#include "tests/support/suite.h"

TEST(random_clients_get_only_what_the_contract_allows)
{
    struct stress_options options = {.n_events = suite_sanitized() ? 400 : 2000, .run_events = 400, .seed = 20260101};
    char first[STRESS_TEXT];
    unsigned long violations = stress_run(&options, first);
    ck_assert_msg(violations == 0, "%lu violations; the first: %s", violations, first);
}
END

SUITE(stress, T_SLOW(random_clients_get_only_what_the_contract_allows, BEYOND_PATIENCE_S))
