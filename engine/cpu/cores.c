/* Usable cores: affinity mask, cgroup quota (v1 and v2, along the whole path), physical cores by sibling lists.
 * Works without /proc/cpuinfo and /sys: what cannot be read does not limit. */
#include "engine/cpu/cpu.h"

#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool read_text(const char *path, char *out, size_t size)
{
    FILE *f = fopen(path, "re");
    if (!f)
        return false;
    size_t n = fread(out, 1, size - 1, f);
    fclose(f);
    out[n] = 0;
    return n > 0;
}

/* Cores of a quota of `quota` microseconds in each `period`, rounded down, at least 1. */
static void apply_quota(long long quota, long long period, unsigned *limit)
{
    if (quota <= 0 || period <= 0)
        return;
    long long cores = quota / period;
    unsigned n = cores < 1 ? 1 : cores > 65535 ? 65535 : (unsigned)cores;
    if (*limit == 0 || n < *limit)
        *limit = n;
}

static void quota_of_group_v2(const char *dir, unsigned *limit)
{
    char path[1400], text[64];
    long long quota, period;
    snprintf(path, sizeof path, "%s/cpu.max", dir);
    if (read_text(path, text, sizeof text) && sscanf(text, "%lld %lld", &quota, &period) == 2)
        apply_quota(quota, period, limit);
}

static void quota_of_group_v1(const char *dir, unsigned *limit)
{
    char path[1400], text[64];
    snprintf(path, sizeof path, "%s/cpu.cfs_quota_us", dir);
    if (!read_text(path, text, sizeof text))
        return;
    long long quota = atoll(text);
    snprintf(path, sizeof path, "%s/cpu.cfs_period_us", dir);
    if (read_text(path, text, sizeof text))
        apply_quota(quota, atoll(text), limit);
}

/* Walks from the process's group up to the mount's root; a parent's quota binds too. */
static void walk_groups(const char *mount, char *group, void (*visit)(const char *, unsigned *), unsigned *limit)
{
    char dir[1300];
    for (;;) {
        snprintf(dir, sizeof dir, "%s%s", mount, group);
        visit(dir, limit);
        char *slash = strrchr(group, '/');
        if (!slash)
            return;
        *slash = 0;
    }
}

static unsigned cgroup_quota(void)
{
    unsigned limit = 0;
    char line[1024];
    FILE *f = fopen("/proc/self/cgroup", "re");
    if (!f)
        return 0;
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        char *controllers = strchr(line, ':');
        char *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group)
            continue;
        *group++ = 0;
        controllers++;
        if (*controllers == 0)
            walk_groups("/sys/fs/cgroup", group, quota_of_group_v2, &limit);
        else if (strstr(controllers, "cpu") && !strstr(controllers, "cpuset"))
            walk_groups("/sys/fs/cgroup/cpu", group, quota_of_group_v1, &limit);
    }
    fclose(f);
    return limit;
}

/* A core counts once, at its first allowed hardware thread. */
static unsigned physical_cores(const cpu_set_t *allowed, size_t max)
{
    unsigned cores = 0;
    for (size_t cpu = 0; cpu < max; cpu++) {
        if (!CPU_ISSET_S(cpu, CPU_ALLOC_SIZE(max), allowed))
            continue;
        char path[96], text[256];
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%zu/topology/thread_siblings_list", cpu);
        bool first = true;
        if (read_text(path, text, sizeof text)) {
            for (char *p = text; *p && first;) {
                char *end;
                long low = strtol(p, &end, 10), high = low;
                if (end == p)
                    break;
                if (*end == '-')
                    high = strtol(end + 1, &end, 10);
                for (long i = low; i <= high && i < (long)cpu; i++)
                    if (CPU_ISSET_S((size_t)i, CPU_ALLOC_SIZE(max), allowed))
                        first = false;
                p = *end == ',' ? end + 1 : end + strlen(end);
            }
        }
        cores += first;
    }
    return cores;
}

enum { CPU_MAX = 8192 };

void cpu_cores_find(struct cpu_cores *cores)
{
    *cores = (struct cpu_cores){.quota = cgroup_quota()};
    cpu_set_t *allowed = CPU_ALLOC(CPU_MAX);
    if (allowed && sched_getaffinity(0, CPU_ALLOC_SIZE(CPU_MAX), allowed) == 0) {
        cores->affinity = (unsigned)CPU_COUNT_S(CPU_ALLOC_SIZE(CPU_MAX), allowed);
        cores->physical = physical_cores(allowed, CPU_MAX);
    } else {
        long n = sysconf(_SC_NPROCESSORS_ONLN);
        cores->affinity = cores->physical = n < 1 ? 1 : (unsigned)n;
    }
    CPU_FREE(allowed);
    unsigned usable = cores->affinity < cores->physical ? cores->affinity : cores->physical;
    if (cores->quota && cores->quota < usable)
        usable = cores->quota;
    cores->usable = usable ? usable : 1;
    char quota[16] = "none";
    if (cores->quota)
        snprintf(quota, sizeof quota, "%u", cores->quota);
    snprintf(cores->reason, sizeof cores->reason, "%u = min(affinity %u, quota %s, cores %u)", cores->usable,
             cores->affinity, quota, cores->physical);
}

void cpu_model_name(char *out, size_t size)
{
    snprintf(out, size, "unknown");
    FILE *f = fopen("/proc/cpuinfo", "re");
    if (!f)
        return;
    char line[256];
    while (fgets(line, sizeof line, f)) {
        char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) == 0 && colon) {
            line[strcspn(line, "\n")] = 0;
            snprintf(out, size, "%s", colon + 2);
            break;
        }
    }
    fclose(f);
}
