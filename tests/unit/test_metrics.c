/* daemon/metrics: what is written is valid exposition text (checked by a reader of its own grammar here), counts are
 * exact, outside input cannot make it grow. */
#include "daemon/metrics.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "tests/support/comma_locale.h"
#include "tests/support/suite.h"

/* The text, terminated; freed with the process. */
static char *text_of(const struct metrics *m)
{
    struct buffer b = {0};
    metrics_write(m, &b);
    buffer_byte(&b, 0);
    ck_assert(!b.failed);
    return b.data;
}

/* The value behind `series` at a line's start, as text; NULL when there is no such line. */
static const char *value_text(const char *text, const char *series)
{
    static char value[64];
    size_t n = strlen(series);
    for (const char *line = text; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
        if (strncmp(line, series, n) == 0 && line[n] == ' ') {
            snprintf(value, sizeof value, "%.*s", (int)strcspn(line + n + 1, "\n"), line + n + 1);
            return value;
        }
    return NULL;
}

static void expect(const char *text, const char *series, const char *value)
{
    const char *got = value_text(text, series);
    if (!got || strcmp(got, value) != 0)
        ck_abort_msg("%s is %s, not %s", series, got ? got : "missing", value);
}

static size_t name_length(const char *p, bool colon)
{
    size_t n = 0;
    while ((p[n] >= 'a' && p[n] <= 'z') || (p[n] >= 'A' && p[n] <= 'Z') || p[n] == '_' || (colon && p[n] == ':') ||
           (n > 0 && p[n] >= '0' && p[n] <= '9'))
        n++;
    return n;
}

/* {name="value",...}; returns the end, or NULL. */
static const char *skip_labels(const char *p)
{
    do {
        size_t n = name_length(++p, false);
        if (n == 0 || p[n] != '=' || p[n + 1] != '"')
            return NULL;
        for (p += n + 2; *p != '"'; p++) {
            if (*p == '\n' || !*p)
                return NULL;
            if (*p == '\\' && !strchr("\\\"n", *++p))
                return NULL;
        }
        p++;
    } while (*p == ',');
    return *p == '}' ? p + 1 : NULL;
}

/* Every line is HELP, TYPE or a sample of the family whose TYPE came last; a family comes once. */
static void check_grammar(const char *text)
{
    char family[128] = "", seen[64][128];
    size_t n_seen = 0;
    for (const char *line = text; *line; line = strchr(line, '\n') + 1) {
        if (!strchr(line, '\n'))
            ck_abort_msg("the last line has no end");
        if (strncmp(line, "# HELP ", 7) == 0)
            continue;
        if (strncmp(line, "# TYPE ", 7) == 0) {
            size_t n = name_length(line + 7, true);
            snprintf(family, sizeof family, "%.*s", (int)n, line + 7);
            const char *type = line + 7 + n + 1;
            if (strncmp(type, "counter\n", 8) && strncmp(type, "gauge\n", 6) && strncmp(type, "histogram\n", 10))
                ck_abort_msg("%.40s", line);
            for (size_t i = 0; i < n_seen; i++)
                ck_assert_str_ne(seen[i], family);
            strcpy(seen[n_seen++], family);
            continue;
        }
        size_t n = name_length(line, true);
        if (n < strlen(family) || strncmp(line, family, strlen(family)) != 0)
            ck_abort_msg("%.60s stands in family %s", line, family);
        const char *p = line + n;
        if (*p == '{' && !(p = skip_labels(p)))
            ck_abort_msg("labels of %.60s", line);
        char *end;
        if (*p != ' ' || (strtod(p + 1, &end), *end != '\n') || end == p + 1)
            ck_abort_msg("value of %.60s", line);
    }
}

TEST(every_metric_of_the_contract_is_there_from_the_start)
{
    static const char *const names[] = {
        "ggufd_requests_total counter", "ggufd_jobs_running gauge", "ggufd_jobs_queued gauge", "ggufd_jobs_total counter",
        "ggufd_tokens_prefilled_total counter", "ggufd_tokens_reused_total counter", "ggufd_tokens_generated_total counter",
        "ggufd_queue_seconds histogram", "ggufd_time_to_first_token_seconds histogram", "ggufd_time_per_token_seconds histogram",
        "ggufd_prefill_seconds histogram", "ggufd_context_used_tokens gauge", "ggufd_context_tokens gauge",
        "ggufd_connections gauge", "process_resident_memory_bytes gauge", "process_start_time_seconds gauge",
        "process_cpu_seconds_total counter", "process_open_fds gauge", "process_max_fds gauge", "ggufd_build_info gauge",
        "ggufd_model_info gauge"};
    struct metrics *m = metrics_new();
    char *text = text_of(m);
    check_grammar(text);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char line[128];
        snprintf(line, sizeof line, "# TYPE %s\n", names[i]);
        if (!strstr(text, line))
            ck_abort_msg("%s", names[i]);
    }
    expect(text, "ggufd_jobs_running", "0");
    expect(text, "ggufd_tokens_generated_total", "0");
    expect(text, "ggufd_queue_seconds_count", "0");
    expect(text, "ggufd_queue_seconds_bucket{le=\"+Inf\"}", "0");
    ck_assert_str_eq(METRICS_CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8");
    free(text);
    metrics_free(m);
    metrics_free(NULL);
}
END

TEST(counters_are_exact_and_kept_apart_by_label)
{
    struct metrics *m = metrics_new();
    metrics_add(m, METRIC_REQUESTS, METRICS_LABELS("/generate", "200"), 2);
    metrics_add(m, METRIC_REQUESTS, METRICS_LABELS("/generate", "503"), 1);
    metrics_add(m, METRIC_REQUESTS, METRICS_LABELS("/generate", "200"), 1);
    metrics_add(m, METRIC_TOKENS_PREFILLED, NULL, UINT64_C(9007199254740993)); /* 2^53 + 1 */
    metrics_add(m, METRIC_TOKENS_PREFILLED, NULL, 1);
    metrics_set(m, METRIC_JOBS_QUEUED, NULL, 16);
    metrics_set(m, METRIC_JOBS_QUEUED, NULL, 3);
    metrics_set(m, METRIC_CONTEXT, NULL, 16777217);
    char *text = text_of(m);
    check_grammar(text);
    expect(text, "ggufd_requests_total{route=\"/generate\",status=\"200\"}", "3");
    expect(text, "ggufd_requests_total{route=\"/generate\",status=\"503\"}", "1");
    expect(text, "ggufd_tokens_prefilled_total", "9007199254740994");
    expect(text, "ggufd_jobs_queued", "3");
    expect(text, "ggufd_context_tokens", "16777217");
    free(text);
    metrics_free(m);
}
END

TEST(histograms_count_up_to_and_including_their_bounds)
{
    struct metrics *m = metrics_new();
    const double seconds[] = {0, 0.001, 0.0011, 0.25, 0.2500001, 300, 300.5};
    for (size_t i = 0; i < sizeof seconds / sizeof seconds[0]; i++)
        metrics_observe(m, METRIC_FIRST_TOKEN_SECONDS, seconds[i]);
    metrics_observe(m, METRIC_FIRST_TOKEN_SECONDS, (double)NAN);
    char *text = text_of(m);
    check_grammar(text);
    expect(text, "ggufd_time_to_first_token_seconds_bucket{le=\"0.001\"}", "2");
    expect(text, "ggufd_time_to_first_token_seconds_bucket{le=\"0.0025\"}", "3");
    expect(text, "ggufd_time_to_first_token_seconds_bucket{le=\"0.1\"}", "3");
    expect(text, "ggufd_time_to_first_token_seconds_bucket{le=\"0.25\"}", "4");
    expect(text, "ggufd_time_to_first_token_seconds_bucket{le=\"0.5\"}", "5");
    expect(text, "ggufd_time_to_first_token_seconds_bucket{le=\"300\"}", "6");
    expect(text, "ggufd_time_to_first_token_seconds_bucket{le=\"+Inf\"}", "7");
    expect(text, "ggufd_time_to_first_token_seconds_count", "7");
    expect(text, "ggufd_time_to_first_token_seconds_sum", "601.002100");
    expect(text, "ggufd_queue_seconds_count", "0");
    free(text);
    metrics_free(m);
}
END

TEST(label_values_are_escaped)
{
    struct metrics *m = metrics_new();
    metrics_set(m, METRIC_MODEL_INFO, METRICS_LABELS("a\"b\\c\nd\xff\xc3\xa9", "llama", "00ff"), 1);
    char *text = text_of(m);
    check_grammar(text);
    expect(text, "ggufd_model_info{name=\"a\\\"b\\\\c\\nd\xef\xbf\xbd\xc3\xa9\",architecture=\"llama\",fingerprint=\"00ff\"}", "1");
    free(text);
    metrics_free(m);
}
END

TEST(numbers_have_the_words_of_the_format)
{
    static const struct {
        double value;
        const char *text;
    } rows[] = {{(double)NAN, "NaN"}, {(double)INFINITY, "+Inf"}, {-(double)INFINITY, "-Inf"}, {0.25, "0.250000"},
                {-3, "-3"}, {9007199254740992, "9007199254740992.000000"}};
    struct metrics *m = metrics_new();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        metrics_set(m, METRIC_CONTEXT, NULL, rows[i].value);
        char *text = text_of(m);
        expect(text, "ggufd_context_tokens", rows[i].text);
        check_grammar(text);
        free(text);
    }
    metrics_set(m, METRIC_MODEL_INFO, METRICS_LABELS("cut \xe6\xad", "llama", "00ff"), 1);
    char *text = text_of(m);
    expect(text, "ggufd_model_info{name=\"cut \xef\xbf\xbd\",architecture=\"llama\",fingerprint=\"00ff\"}", "1");
    free(text);
    metrics_free(m);
    metrics_free(NULL);
}
END

TEST(series_beyond_the_limit_are_counted_as_other)
{
    struct metrics *m = metrics_new();
    for (int i = 0; i < METRICS_SERIES_MAX + 44; i++) {
        char route[32];
        snprintf(route, sizeof route, "/r%d", i);
        metrics_add(m, METRIC_REQUESTS, METRICS_LABELS(route, "404"), 1);
    }
    metrics_add(m, METRIC_REQUESTS, METRICS_LABELS("/r0", "404"), 1);
    char *text = text_of(m);
    size_t series = 0;
    for (const char *p = text; (p = strstr(p, "ggufd_requests_total{")); p++)
        series++;
    ck_assert_uint_eq(series, METRICS_SERIES_MAX + 1);
    expect(text, "ggufd_requests_total{route=\"/r0\",status=\"404\"}", "2");
    expect(text, "ggufd_requests_total{route=\"/r255\",status=\"404\"}", "1");
    expect(text, "ggufd_requests_total{route=\"other\",status=\"other\"}", "44");
    ck_assert_ptr_null(value_text(text, "ggufd_requests_total{route=\"/r256\",status=\"404\"}"));
    free(text);
    metrics_free(m);
}
END

TEST(the_process_describes_itself)
{
    struct metrics *m = metrics_new();
    struct rlimit limit;
    char *text = text_of(m);
    double start = atof(value_text(text, "process_start_time_seconds"));
    ck_assert(fabs(difftime(time(NULL), 0) - start) < 300);
    ck_assert(atof(value_text(text, "process_resident_memory_bytes")) > 1e6);
    ck_assert(atof(value_text(text, "process_cpu_seconds_total")) >= 0);
    double open_fds = atof(value_text(text, "process_open_fds"));
    getrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur != RLIM_INFINITY)
        ck_assert(atof(value_text(text, "process_max_fds")) == (double)limit.rlim_cur);
    free(text);
    int fd = dup(1);
    text = text_of(m);
    ck_assert(atof(value_text(text, "process_open_fds")) == open_fds + 1);
    close(fd);
    free(text);
    metrics_free(m);
}
END

TEST(without_proc_the_rest_is_still_told)
{
    int root = open("/", O_RDONLY | O_DIRECTORY); /* the way back: LeakSanitizer wants /proc at the end */
    if (chroot(suite_tmp()) != 0)
        SKIP("chroot is not allowed here");
    struct metrics *m = metrics_new();
    char *text = text_of(m);
    check_grammar(text);
    ck_assert_ptr_null(value_text(text, "process_resident_memory_bytes"));
    ck_assert_ptr_null(value_text(text, "process_start_time_seconds"));
    ck_assert_ptr_null(value_text(text, "process_open_fds"));
    ck_assert_ptr_nonnull(value_text(text, "process_cpu_seconds_total"));
    expect(text, "ggufd_jobs_running", "0");
    ck_assert(fchdir(root) == 0 && chroot(".") == 0);
    close(root);
    free(text);
    metrics_free(m);
}
END

TEST(numbers_keep_their_point_in_a_locale_with_a_comma)
{
    if (!comma_locale_set())
        SKIP("no locale with a decimal comma is installed and localedef cannot build one");
    struct metrics *m = metrics_new();
    metrics_observe(m, METRIC_QUEUE_SECONDS, 0.5);
    char *text = text_of(m);
    expect(text, "ggufd_queue_seconds_sum", "0.500000");
    ck_assert_ptr_nonnull(strstr(text, "le=\"0.0025\""));
    free(text);
    metrics_free(m);
}
END

SUITE(metrics, T(every_metric_of_the_contract_is_there_from_the_start), T(counters_are_exact_and_kept_apart_by_label),
      T(histograms_count_up_to_and_including_their_bounds), T(label_values_are_escaped), T(numbers_have_the_words_of_the_format),
      T(series_beyond_the_limit_are_counted_as_other), T(the_process_describes_itself),
      T(without_proc_the_rest_is_still_told), T(numbers_keep_their_point_in_a_locale_with_a_comma))
