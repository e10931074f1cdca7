/* The metrics' table, their series, and the text format; see metrics.h. */
#include "daemon/metrics.h"

#include <assert.h>
#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "engine/base/utf8.h"
#include "proto/json.h"

enum metric_type { TYPE_counter, TYPE_gauge, TYPE_histogram };

static const struct {
    enum metric_type type;
    const char *type_name, *name, *labels, *help;
} rows[METRIC_COUNT] = {
#define METRIC(identifier, type, name, labels, help) {TYPE_##type, #type, name, labels, help},
#include "daemon/metrics.def"
#undef METRIC
};

/* Upper bounds of the histograms' buckets in seconds: a decode step of a small model to a long prefill. */
#define BUCKETS(X)                                                                                              \
    X(0.001) X(0.0025) X(0.005) X(0.01) X(0.025) X(0.05) X(0.1) X(0.25) X(0.5) X(1) X(2.5) X(5) X(10) X(30) X(60) \
    X(120) X(300)
static const struct {
    double bound;
    const char *text;
} buckets[] = {
#define X(bound) {bound, #bound},
    BUCKETS(X)
#undef X
};
#define N_BUCKETS (sizeof buckets / sizeof buckets[0])

struct series {
    char *labels[METRICS_LABELS_MAX];
    double value;                 /* gauge, or a histogram's sum */
    uint64_t count;               /* counter, or a histogram's observations */
    uint64_t in_bucket[N_BUCKETS];
};

struct metrics {
    struct {
        struct series *series;
        size_t n, capacity;
    } metrics[METRIC_COUNT];
    double start_time_s; /* 0: unknown */
};

/* ---- series ---- */

static size_t n_labels(enum metric metric)
{
    const char *labels = rows[metric].labels;
    size_t n = *labels ? 1 : 0;
    for (; *labels; labels++)
        n += *labels == ',';
    return n;
}

static bool has_labels(const struct series *s, const char *const *labels, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(s->labels[i], labels[i]) != 0)
            return false;
    return true;
}

static void free_series(struct series *s)
{
    for (size_t i = 0; i < METRICS_LABELS_MAX; i++)
        free(s->labels[i]);
}

static struct series *add_series(struct metrics *m, enum metric metric, const char *const *labels, size_t n)
{
    size_t count = m->metrics[metric].n;
    if (count == m->metrics[metric].capacity) {
        size_t capacity = count ? count * 2 : 1;
        struct series *series = realloc(m->metrics[metric].series, capacity * sizeof *series);
        if (!series)
            return NULL;
        m->metrics[metric].series = series;
        m->metrics[metric].capacity = capacity;
    }
    struct series *s = &m->metrics[metric].series[count];
    *s = (struct series){0};
    for (size_t i = 0; i < n; i++)
        if (!(s->labels[i] = strdup(labels[i]))) {
            free_series(s);
            return NULL;
        }
    m->metrics[metric].n++;
    return s;
}

/* NULL: no memory; the sample is lost, which a metric may. */
static struct series *find_series(struct metrics *m, enum metric metric, const char *const *labels)
{
    static const char *const other[METRICS_LABELS_MAX] = {"other", "other", "other"};
    size_t n = n_labels(metric), count = m->metrics[metric].n;
    assert(n == 0 || labels);
    for (size_t i = 0; i < count; i++)
        if (has_labels(&m->metrics[metric].series[i], labels, n))
            return &m->metrics[metric].series[i];
    if (count < METRICS_SERIES_MAX)
        return add_series(m, metric, labels, n);
    return labels == other ? add_series(m, metric, other, n) : find_series(m, metric, other);
}

void metrics_add(struct metrics *m, enum metric metric, const char *const *labels, uint64_t amount)
{
    assert(rows[metric].type == TYPE_counter);
    struct series *s = find_series(m, metric, labels);
    if (s)
        s->count += amount;
}

void metrics_set(struct metrics *m, enum metric metric, const char *const *labels, double value)
{
    assert(rows[metric].type == TYPE_gauge);
    struct series *s = find_series(m, metric, labels);
    if (s)
        s->value = value;
}

void metrics_observe(struct metrics *m, enum metric metric, double seconds)
{
    assert(rows[metric].type == TYPE_histogram);
    struct series *s = find_series(m, metric, NULL); /* there from the start: it has no labels */
    if (!isfinite(seconds))
        return;
    size_t i = 0;
    while (i < N_BUCKETS && seconds > buckets[i].bound)
        i++;
    if (i < N_BUCKETS)
        s->in_bucket[i]++;
    s->count++;
    s->value += seconds;
}

/* ---- the process, as /proc tells; what it does not tell is left out ---- */

static bool read_proc(const char *path, char *out, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t n = read(fd, out, size - 1);
    close(fd);
    out[n > 0 ? n : 0] = 0;
    return n > 0;
}

static double seconds_of(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Field 22 of /proc/self/stat is the start in ticks since boot; the name in field 2 may hold anything but ends at the
 * last ")". */
static double read_start_time(void)
{
    char text[1024];
    if (!read_proc("/proc/self/stat", text, sizeof text))
        return 0;
    const char *p = strrchr(text, ')');
    for (int field = 2; p && field < 22; field++)
        p = strchr(p + 1, ' ');
    if (!p)
        return 0;
    double ticks = (double)strtoull(p + 1, NULL, 10);
    return seconds_of(CLOCK_REALTIME) - seconds_of(CLOCK_BOOTTIME) + ticks / (double)sysconf(_SC_CLK_TCK);
}

static bool read_resident_bytes(double *out)
{
    char text[256];
    if (!read_proc("/proc/self/statm", text, sizeof text))
        return false;
    const char *second = strchr(text, ' ');
    *out = second ? (double)strtoull(second + 1, NULL, 10) * (double)sysconf(_SC_PAGESIZE) : 0;
    return second;
}

static bool count_open_fds(double *out)
{
    DIR *d = opendir("/proc/self/fd");
    if (!d)
        return false;
    double n = 0;
    for (const struct dirent *entry; (entry = readdir(d));)
        n += entry->d_name[0] != '.';
    closedir(d);
    *out = n - 1; /* the directory itself */
    return true;
}

/* ---- text ---- */

static void write_number(struct buffer *out, double value)
{
    if (value == floor(value) && fabs(value) < 9e15)
        json_write_integer(out, (int64_t)value);
    else if (isfinite(value))
        json_write_fixed(out, value, 6);
    else
        buffer_text(out, isnan(value) ? "NaN" : value > 0 ? "+Inf" : "-Inf");
}

static void write_head(struct buffer *out, const char *name, const char *type, const char *help)
{
    buffer_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void write_label_value(struct buffer *out, const char *text)
{
    for (size_t size = strlen(text); size > 0;) {
        uint32_t c;
        size_t n = utf8_decode(text, size, &c);
        if (c == UTF8_INVALID || c == UTF8_INCOMPLETE)
            buffer_text(out, "\xef\xbf\xbd");
        else if (c == '\n')
            buffer_text(out, "\\n");
        else {
            if (c == '"' || c == '\\')
                buffer_byte(out, '\\');
            buffer_append(out, text, n);
        }
        text += n;
        size -= n;
    }
}

static void write_labels(struct buffer *out, enum metric metric, const struct series *s)
{
    const char *name = rows[metric].labels;
    if (!*name)
        return;
    for (size_t i = 0; *name; i++) {
        size_t n = strcspn(name, ",");
        buffer_byte(out, i ? ',' : '{');
        buffer_append(out, name, n);
        buffer_text(out, "=\"");
        write_label_value(out, s->labels[i]);
        buffer_byte(out, '"');
        name += n + (name[n] == ',');
    }
    buffer_byte(out, '}');
}

static void write_histogram(struct buffer *out, const char *name, const struct series *s)
{
    uint64_t below = 0;
    for (size_t i = 0; i < N_BUCKETS; i++) {
        below += s->in_bucket[i];
        buffer_printf(out, "%s_bucket{le=\"%s\"} %llu\n", name, buckets[i].text, (unsigned long long)below);
    }
    buffer_printf(out, "%s_bucket{le=\"+Inf\"} %llu\n%s_sum ", name, (unsigned long long)s->count, name);
    write_number(out, s->value);
    buffer_printf(out, "\n%s_count %llu\n", name, (unsigned long long)s->count);
}

static void write_series(struct buffer *out, enum metric metric, const struct series *s)
{
    if (rows[metric].type == TYPE_histogram) {
        write_histogram(out, rows[metric].name, s);
        return;
    }
    buffer_text(out, rows[metric].name);
    write_labels(out, metric, s);
    buffer_byte(out, ' ');
    if (rows[metric].type == TYPE_counter)
        json_write_unsigned(out, s->count);
    else
        write_number(out, s->value);
    buffer_byte(out, '\n');
}

static void write_process_metric(struct buffer *out, const char *name, const char *type, const char *help, double value)
{
    write_head(out, name, type, help);
    buffer_printf(out, "%s ", name);
    write_number(out, value);
    buffer_byte(out, '\n');
}

static void write_process(const struct metrics *m, struct buffer *out)
{
    struct rusage usage;
    struct rlimit limit;
    double value;
    if (read_resident_bytes(&value))
        write_process_metric(out, "process_resident_memory_bytes", "gauge", "Resident memory.", value);
    if (m->start_time_s > 0)
        write_process_metric(out, "process_start_time_seconds", "gauge", "Start, in seconds since 1970.",
                             m->start_time_s);
    getrusage(RUSAGE_SELF, &usage);
    write_process_metric(out, "process_cpu_seconds_total", "counter", "User and system CPU time.",
                         (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                             (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6);
    if (count_open_fds(&value))
        write_process_metric(out, "process_open_fds", "gauge", "Open descriptors.", value);
    getrlimit(RLIMIT_NOFILE, &limit); /* never infinite: the kernel has a limit of its own */
    write_process_metric(out, "process_max_fds", "gauge", "Most descriptors.", (double)limit.rlim_cur);
}

void metrics_write(const struct metrics *m, struct buffer *out)
{
    for (size_t i = 0; i < METRIC_COUNT; i++) {
        write_head(out, rows[i].name, rows[i].type_name, rows[i].help);
        for (size_t k = 0; k < m->metrics[i].n; k++)
            write_series(out, (enum metric)i, &m->metrics[i].series[k]);
    }
    write_process(m, out);
}

/* ---- life ---- */

struct metrics *metrics_new(void)
{
    struct metrics *m = calloc(1, sizeof *m);
    if (!m)
        return NULL;
    m->start_time_s = read_start_time();
    for (size_t i = 0; i < METRIC_COUNT; i++)
        if (n_labels((enum metric)i) == 0 && !find_series(m, (enum metric)i, NULL)) { /* they exist from the start */
            metrics_free(m);
            return NULL;
        }
    return m;
}

void metrics_free(struct metrics *m)
{
    for (size_t i = 0; m && i < METRIC_COUNT; i++) {
        for (size_t k = 0; k < m->metrics[i].n; k++)
            free_series(&m->metrics[i].series[k]);
        free(m->metrics[i].series);
    }
    free(m);
}
