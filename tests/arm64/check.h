/* Stands in for the library Check in suites that are cross-compiled for arm64 and run under qemu: no forks, the first
 * failure ends the program. Only what those suites use. */
#ifndef GGUFD_TESTS_ARM64_CHECK_H
#define GGUFD_TESTS_ARM64_CHECK_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    void (*function)(void);
} TTest;

#define START_TEST(name)                                \
    static void name##_fn(void);                        \
    static const TTest name##_ttest = {name##_fn};      \
    static const TTest *const name = &name##_ttest;     \
    static void name##_fn(void)                         \
    {
#define END_TEST }

#define ck_abort_msg(...)                                   \
    do {                                                    \
        printf("%s:%d: ", __FILE__, __LINE__);              \
        printf(__VA_ARGS__);                                \
        printf("\n");                                       \
        exit(1);                                            \
    } while (0)
#define ck_assert(condition)                    \
    do {                                        \
        if (!(condition))                       \
            ck_abort_msg("%s", #condition);     \
    } while (0)
#define ck_assert_msg(condition, ...)    \
    do {                                 \
        if (!(condition))                \
            ck_abort_msg(__VA_ARGS__);   \
    } while (0)
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
#define ck_assert_ptr_null(p) ck_assert((p) == NULL)
#define ck_assert_ptr_nonnull(p) ck_assert((p) != NULL)

#endif
