/* MemAvailable of /proc/meminfo, and the limits of cgroup v2 and v1 along the whole path of this process. A file that
 * is missing or unreadable sets no limit. */
#include "engine/memory.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Number behind `label` at the start of a line; "" takes the first line. False: no such line or no number ("max"). */
static bool file_number(const char *path, const char *label, uint64_t *out)
{
    FILE *f = fopen(path, "re");
    char line[256];
    bool found = false;
    while (f && !found && fgets(line, sizeof line, f)) {
        size_t n = strlen(label);
        if (strncmp(line, label, n) != 0)
            continue;
        char *end;
        errno = 0;
        unsigned long long value = strtoull(line + n, &end, 10);
        found = end != line + n && errno == 0;
        if (found)
            *out = value;
        else if (n == 0)
            break;
    }
    if (f)
        fclose(f);
    return found;
}

static void lower(uint64_t *limit, uint64_t value)
{
    if (*limit == 0 || value < *limit)
        *limit = value ? value : 1;
}

/* File names of the two versions: the same three facts. */
struct group_files {
    const char *limit, *usage, *cache;
};

/* One group's remainder: limit - (usage - page cache). */
static void group_limit(const char *directory, const struct group_files *files, uint64_t *available)
{
    char path[PATH_MAX];
    uint64_t limit, usage = 0, cache = 0;
    snprintf(path, sizeof path, "%s/%s", directory, files->limit);
    if (!file_number(path, "", &limit) || limit >= (uint64_t)1 << 60) /* v1 writes "no limit" as a huge number */
        return;
    snprintf(path, sizeof path, "%s/%s", directory, files->usage);
    file_number(path, "", &usage);
    snprintf(path, sizeof path, "%s/memory.stat", directory);
    file_number(path, files->cache, &cache);
    uint64_t used = usage > cache ? usage - cache : 0;
    lower(available, limit > used ? limit - used : 0);
}

/* The group and all above it, up to the mount point. */
static void group_path(const char *mount, char *group, const struct group_files *files, uint64_t *available)
{
    for (;;) {
        char directory[PATH_MAX];
        snprintf(directory, sizeof directory, "%s%s", mount, group);
        group_limit(directory, files, available);
        char *slash = strrchr(group, '/');
        if (!slash || group[0] == '\0')
            return;
        *slash = '\0';
    }
}

uint64_t memory_available(const char *root)
{
    static const struct group_files v2 = {"memory.max", "memory.current", "file "};
    static const struct group_files v1 = {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_cache "};
    char path[PATH_MAX], line[PATH_MAX];
    uint64_t available = 0, kib;
    snprintf(path, sizeof path, "%s/proc/meminfo", root);
    if (file_number(path, "MemAvailable:", &kib))
        lower(&available, kib * 1024);
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':'), *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group)
            continue;
        *group++ = '\0';
        bool is_v2 = strcmp(controllers + 1, "") == 0;
        if (!is_v2 && !strstr(controllers + 1, "memory"))
            continue;
        snprintf(path, sizeof path, "%s/sys/fs/cgroup%s", root, is_v2 ? "" : "/memory");
        group_path(path, group, is_v2 ? &v2 : &v1, &available);
    }
    if (f)
        fclose(f);
    return available;
}
