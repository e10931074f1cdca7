/* As much of Check's interface as the suites that run under qemu-aarch64 need: no arm64 build of the library is at hand
 * on the machines that cross-compile. Tests run in forked children, one after the other, as Check runs them. */
#ifndef GGUFD_TESTS_ARM_CHECK_H
#define GGUFD_TESTS_ARM_CHECK_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct {
    const char *name;
    void (*run)(int i);
} TTest;

typedef struct TCase {
    const TTest *test;
} TCase;

typedef struct Suite {
    TCase cases[64];
    int n;
} Suite;

typedef struct SRunner {
    Suite *suite;
    int failed;
} SRunner;

enum { CK_NORMAL, CK_VERBOSE };

#define START_TEST(test)                                                \
    static void test##_fn(int i_);                                      \
    static const TTest test##_ttest = {#test, test##_fn};               \
    static const TTest *const test = &test##_ttest;                     \
    static void test##_fn(int i_)                                       \
    {                                                                   \
        (void)i_;
#define END_TEST }

#define ck_abort_msg(...)                                   \
    do {                                                    \
        printf("%s:%d:E: ", __FILE__, __LINE__);            \
        printf(__VA_ARGS__);                                \
        printf("\n");                                       \
        fflush(stdout);                                     \
        abort();                                            \
    } while (0)
#define ck_assert(condition)                                \
    do {                                                    \
        if (!(condition))                                   \
            ck_abort_msg("assertion failed: %s", #condition); \
    } while (0)
#define ck_assert_msg(condition, ...)    \
    do {                                 \
        if (!(condition))                \
            ck_abort_msg(__VA_ARGS__);   \
    } while (0)
#define ck_fail_unless(condition, ...) ck_assert(condition)
#define ck_assert_int_eq(a, b) ck_assert((intmax_t)(a) == (intmax_t)(b))
#define ck_assert_int_ne(a, b) ck_assert((intmax_t)(a) != (intmax_t)(b))
#define ck_assert_int_lt(a, b) ck_assert((intmax_t)(a) < (intmax_t)(b))
#define ck_assert_int_le(a, b) ck_assert((intmax_t)(a) <= (intmax_t)(b))
#define ck_assert_int_gt(a, b) ck_assert((intmax_t)(a) > (intmax_t)(b))
#define ck_assert_int_ge(a, b) ck_assert((intmax_t)(a) >= (intmax_t)(b))
#define ck_assert_uint_eq(a, b) ck_assert((uintmax_t)(a) == (uintmax_t)(b))
#define ck_assert_uint_ne(a, b) ck_assert((uintmax_t)(a) != (uintmax_t)(b))
#define ck_assert_uint_lt(a, b) ck_assert((uintmax_t)(a) < (uintmax_t)(b))
#define ck_assert_uint_le(a, b) ck_assert((uintmax_t)(a) <= (uintmax_t)(b))
#define ck_assert_uint_gt(a, b) ck_assert((uintmax_t)(a) > (uintmax_t)(b))
#define ck_assert_uint_ge(a, b) ck_assert((uintmax_t)(a) >= (uintmax_t)(b))
#define ck_assert_str_eq(a, b) ck_assert(strcmp(a, b) == 0)
#define ck_assert_str_ne(a, b) ck_assert(strcmp(a, b) != 0)
#define ck_assert_mem_eq(a, b, n) ck_assert(memcmp(a, b, n) == 0)
#define ck_assert_ptr_eq(a, b) ck_assert((const void *)(a) == (const void *)(b))
#define ck_assert_ptr_ne(a, b) ck_assert((const void *)(a) != (const void *)(b))
#define ck_assert_ptr_null(a) ck_assert((a) == NULL)
#define ck_assert_ptr_nonnull(a) ck_assert((a) != NULL)
#define ck_assert_float_eq(a, b) ck_assert((float)(a) == (float)(b))
#define ck_assert_double_eq(a, b) ck_assert((double)(a) == (double)(b))

static inline Suite *suite_create(const char *name)
{
    (void)name;
    return calloc(1, sizeof(Suite));
}

static inline TCase *tcase_create(const char *name)
{
    (void)name;
    return calloc(1, sizeof(TCase));
}

static inline void tcase_set_timeout(TCase *c, double seconds)
{
    (void)c, (void)seconds;
}

static inline void tcase_add_test(TCase *c, const TTest *test)
{
    c->test = test;
}

static inline void suite_add_tcase(Suite *s, TCase *c)
{
    if (s->n == (int)(sizeof s->cases / sizeof s->cases[0]))
        abort();
    s->cases[s->n++] = *c;
    free(c);
}

static inline SRunner *srunner_create(Suite *s)
{
    SRunner *r = calloc(1, sizeof *r);
    r->suite = s;
    return r;
}

static inline void srunner_run_all(SRunner *r, int mode)
{
    (void)mode;
    for (int i = 0; i < r->suite->n; i++) {
        int status = 1;
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            r->suite->cases[i].test->run(0);
            fflush(stdout);
            _exit(0);
        }
        if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
            printf("%s:E: status %d\n", r->suite->cases[i].test->name, status);
            r->failed++;
        }
    }
}

static inline int srunner_ntests_failed(const SRunner *r)
{
    return r->failed;
}

static inline int srunner_ntests_run(const SRunner *r)
{
    return r->suite->n;
}

static inline void srunner_free(SRunner *r)
{
    free(r->suite);
    free(r);
}

#endif
