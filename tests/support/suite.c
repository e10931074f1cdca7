/* Runs one suite with Check and prints its counts; see suite.h. */
#include "tests/support/suite.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
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
        tcase_set_timeout(c, tests[i].timeout_s > 0 ? tests[i].timeout_s : 300);
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

static char *slot(void)
{
    static char paths[4][4096];
    static unsigned next;
    return paths[next++ % 4];
}

const char *suite_shared(const char *relative)
{
    const char *base = getenv("GGUFD_SHARED");
    char *path = slot();
    snprintf(path, 4096, "%s/%s", base ? base : "../shared", relative);
    return access(path, R_OK) == 0 ? path : NULL;
}

const char *suite_root(const char *relative)
{
    const char *base = getenv("GGUFD_ROOT");
    char *path = slot();
    snprintf(path, 4096, "%s/%s", base ? base : ".", relative);
    return path;
}

char *suite_read(const char *path, size_t *size)
{
    FILE *f = path ? fopen(path, "rb") : NULL;
    struct stat st;
    if (!f)
        return NULL;
    char *data = NULL;
    if (fstat(fileno(f), &st) == 0 && (data = malloc((size_t)st.st_size + 1)) != NULL) {
        size_t n = fread(data, 1, (size_t)st.st_size, f);
        data[n] = 0;
        if (size)
            *size = n;
    }
    fclose(f);
    return data;
}

static char tmp_dir[64];
static pid_t tmp_owner;

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

static void remove_tmp(void)
{
    if (tmp_owner == getpid())
        nftw(tmp_dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

const char *suite_tmp(void)
{
    if (tmp_owner == getpid())
        return tmp_dir;
    strcpy(tmp_dir, "/tmp/ggufd-test-XXXXXX");
    if (!mkdtemp(tmp_dir))
        abort();
    tmp_owner = getpid();
    atexit(remove_tmp);
    return tmp_dir;
}

#if defined(__has_feature) /* clang has no macro for it */
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED
#endif
#endif

bool suite_sanitized(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(SANITIZED)
    return true;
#else
    return false;
#endif
}
