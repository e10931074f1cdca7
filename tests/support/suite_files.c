/* Files of a suite: below ../shared, below the repository's root, in a temporary directory. No part of Check is needed. */
#include "tests/support/suite.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

static char tmp_dir[96];
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
    const char *base = getenv("TMPDIR");
    if (!base || !*base || strlen(base) > 40) /* sockets are made below: their paths are short */
        base = "/tmp";
    snprintf(tmp_dir, sizeof tmp_dir, "%s/ggufd-test-XXXXXX", base);
    if (!mkdtemp(tmp_dir))
        abort();
    tmp_owner = getpid();
    atexit(remove_tmp);
    return tmp_dir;
}
