/* Runs one suite with Check and prints its counts; see suite.h. */
#include "tests/support/suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static FILE *skips; /* shared with the forked children: one line a skipped test */

void suite_skip(const char *test, const char *reason)
{
    char line[512];
    int n = snprintf(line, sizeof line, "skipped %s: %s\n", test, reason);
    if (n > 0 && write(fileno(skips), line, (size_t)n) != n)
        abort();
}

static int print_skips(void)
{
    char line[600];
    int n = 0;
    rewind(skips);
    while (fgets(line, sizeof line, skips)) {
        fputs(line, stdout);
        n++;
    }
    return n;
}

int suite_main(const char *name, const struct suite_test *tests, size_t n)
{
    skips = tmpfile();
    if (!skips)
        return 1;
    setvbuf(stdout, NULL, _IOLBF, 0); /* notes of a test that fails are not lost */
    Suite *suite = suite_create(name);
    const char *only = getenv("ONLY"); /* part of a test's name */
    for (size_t i = 0; i < n; i++) {
        if (only && !strstr(tests[i].name, only))
            continue;
        TCase *c = tcase_create(tests[i].name);
        tcase_set_timeout(c, tests[i].timeout_s > 0 ? tests[i].timeout_s : 900);
        tcase_add_test(c, tests[i].test);
        suite_add_tcase(suite, c);
    }
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, getenv("VERBOSE") ? CK_VERBOSE : CK_NORMAL);
    int failed = srunner_ntests_failed(runner), run = srunner_ntests_run(runner);
    srunner_free(runner);
    int skipped = print_skips();
    printf("%s: %d passed, %d failed, %d skipped\n", name, run - failed - skipped, failed, skipped);
    return failed != 0;
}

#if defined(__has_feature) /* clang has no macro for it */
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED
#endif
#if __has_feature(thread_sanitizer)
#define TSAN
#endif
#endif

bool suite_tsan(void)
{
#if defined(__SANITIZE_THREAD__) || defined(TSAN)
    return true;
#else
    return false;
#endif
}

bool suite_has_sanitizer(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(SANITIZED)
    return true;
#else
    return false;
#endif
}

bool suite_sanitized(void)
{
#ifdef INSTRUMENTED
    return true;
#else
    return suite_has_sanitizer();
#endif
}
