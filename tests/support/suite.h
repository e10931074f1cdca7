/* One test program = one suite: tests that read as claims, run by Check in forked children, counted with skips.
 *
 *   TEST(every_tier_returns_the_scalar_bits) { ... ck_assert_...; }
 *   SUITE(quant, T(every_tier_returns_the_scalar_bits), T(...))
 *
 * SKIP("reason") inside a test ends it as skipped: printed with its reason, never counted as passed. */
#ifndef GGUFD_TESTS_SUITE_H
#define GGUFD_TESTS_SUITE_H

#include <check.h>
#include <stdbool.h>
#include <stddef.h>

struct suite_test {
    const char *name;
    const TTest *test;
    double timeout_s; /* 0: 900 s; a bound for hangs, of no meaning for speed */
};

#define TEST(name) START_TEST(name)
#define END END_TEST
#define T(name) {#name, name, 0}
#define T_SLOW(name, seconds) {#name, name, seconds}

#define SKIP(reason)                   \
    do {                               \
        suite_skip(__func__, reason);  \
        return;                        \
    } while (0)

void suite_skip(const char *test, const char *reason);
int suite_main(const char *name, const struct suite_test *tests, size_t n);

#define SUITE(name, ...)                                                        \
    int main(void)                                                              \
    {                                                                           \
        const struct suite_test tests_[] = {__VA_ARGS__};                \
        return suite_main(#name, tests_, sizeof tests_ / sizeof tests_[0]);     \
    }

/* Path of a file below ../shared (GGUFD_SHARED), or NULL when it is not there. Static storage, four in turn. */
const char *suite_shared(const char *relative);
/* Path below the repository's root (GGUFD_ROOT). Static storage, four in turn. */
const char *suite_root(const char *relative);
/* Whole file, malloc'ed and terminated; NULL when unreadable. */
char *suite_read(const char *path, size_t *size);
/* A fresh temporary directory, removed when the process that made it exits. */
const char *suite_tmp(void);
/* True under ASan or TSan and when coverage is counted: for sizes of random tests. */
bool suite_sanitized(void);
/* True under TSan, whose own threads take processor time and come before the program's. */
bool suite_tsan(void);
/* True only under ASan or TSan: for what their allocator and their wrapped functions do differently. */
bool suite_has_sanitizer(void);

#endif
