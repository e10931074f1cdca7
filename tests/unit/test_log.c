/* daemon/log: one bounded line an event in both forms, nothing raw, priorities for the journal, rotation. */
#include "daemon/log.h"

#include <cjson/cJSON.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include "tests/support/comma_locale.h"
#include "tests/support/suite.h"

static const char *log_path(void)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/log", suite_tmp());
    return path;
}

/* The log so far; emptied. */
static char *take(void)
{
    char *text = suite_read(log_path(), NULL);
    ck_assert_ptr_nonnull(text);
    ck_assert_int_eq(truncate(log_path(), 0), 0);
    return text;
}

static void open_log(enum log_format format, enum log_level level)
{
    struct error err;
    ck_assert_int_eq(log_open(log_path(), format, level, &err), STATUS_OK);
}

/* The line without its time ("2026-01-02T03:04:05.678Z "), which is checked. */
static const char *behind_time(const char *line)
{
    static const char form[] = "dddd-dd-ddTdd:dd:dd.dddZ ";
    for (size_t i = 0; i < sizeof form - 1; i++)
        if (form[i] == 'd' ? line[i] < '0' || line[i] > '9' : line[i] != form[i])
            ck_abort_msg("%s", line);
    return line + sizeof form - 1;
}

TEST(an_event_is_one_line_of_text)
{
    open_log(LOG_FORMAT_TEXT, LOG_LEVEL_INFO);
    LOG(LOG_LEVEL_INFO, "request", LOG_TEXT("route", "/generate"), LOG_INTEGER("status", 200), LOG_NUMBER("ms", 1.25),
        LOG_BOOLEAN("stream", true), LOG_TEXT("peer", NULL), LOG_TEXT("empty", ""), LOG_TEXT("say", "a b=\"c\""),
        LOG_NUMBER("nan", (double)NAN), LOG_INTEGER("least", INT64_MIN));
    char *text = take();
    ck_assert_str_eq(behind_time(text), "info request route=/generate status=200 ms=1.250 stream=true empty=\"\" "
                                        "say=\"a b=\\\"c\\\"\" nan=null least=-9223372036854775808\n");
    free(text);
    log_close();
}
END

TEST(an_event_is_one_object_of_json)
{
    open_log(LOG_FORMAT_JSON, LOG_LEVEL_DEBUG);
    LOG(LOG_LEVEL_WARN, "request", LOG_TEXT("route", "/x\n\033[2J\"\\"), LOG_INTEGER("status", 200), LOG_NUMBER("ms", 0.5),
        LOG_BOOLEAN("stream", false), LOG_TEXT("peer", NULL), LOG_SPAN("nul", ((struct span){"a\0b", 3})));
    char *text = take();
    cJSON *root = cJSON_Parse(text);
    ck_assert_ptr_nonnull(root);
    ck_assert_str_eq(cJSON_GetObjectItem(root, "level")->valuestring, "warn");
    ck_assert_str_eq(cJSON_GetObjectItem(root, "event")->valuestring, "request");
    ck_assert_str_eq(cJSON_GetObjectItem(root, "route")->valuestring, "/x\n\033[2J\"\\");
    ck_assert_ptr_nonnull(strstr(text, "\"status\":200,\"ms\":0.500,\"stream\":false,\"nul\":\"a\\u0000b\"}\n"));
    ck_assert_ptr_null(cJSON_GetObjectItem(root, "peer"));
    ck_assert_ptr_null(strchr(text, '\033'));
    cJSON_Delete(root);
    free(text);
    log_close();
}
END

TEST(levels_below_the_least_are_dropped)
{
    static const char *const names[] = {"error", "warn", "info", "debug"};
    for (int least = LOG_LEVEL_ERROR; least <= LOG_LEVEL_DEBUG; least++) {
        ck_assert_int_eq(log_level_parse(names[least]), least);
        open_log(LOG_FORMAT_TEXT, (enum log_level)least);
        size_t lines = 0;
        for (int level = LOG_LEVEL_ERROR; level <= LOG_LEVEL_DEBUG; level++)
            LOG((enum log_level)level, "x", LOG_INTEGER("n", level));
        char *text = take();
        for (const char *p = text; (p = strchr(p, '\n')); p++)
            lines++;
        ck_assert_uint_eq(lines, (size_t)least + 1);
        free(text);
    }
    ck_assert_int_eq(log_format_parse("json"), LOG_FORMAT_JSON);
    ck_assert_int_eq(log_format_parse("text"), LOG_FORMAT_TEXT);
    log_close();
}
END

/* Every byte, alone and inside ill-formed and odd sequences: a line stays printable and one line. */
TEST(nothing_raw_reaches_the_log)
{
    static const char *const odd[] = {"\xe2\x80\xae", "\xe2\x80\xa8", "\xc2\x9b[m", "\xff\xfe", "\xe6\xad", "\xf0\x9f\x98\x80", "\xef\xbb\xbf",
                                      "\xe2\x81\xa7", "\xe2\x80\x8e", "\xe2\x80\x8f", "\xd8\x9c", "\xe2\x81\xaa"};
    for (int format = LOG_FORMAT_TEXT; format <= LOG_FORMAT_JSON; format++) {
        open_log((enum log_format)format, LOG_LEVEL_INFO);
        for (int c = 0; c < 256 + (int)(sizeof odd / sizeof odd[0]); c++) {
            char one[3] = {'x', (char)c, 'y'};
            struct span value = c < 256 ? (struct span){one, 3} : span_of(odd[c - 256]);
            LOG(LOG_LEVEL_INFO, "e", LOG_SPAN("v", value));
            char *text = take();
            size_t n = strlen(text);
            if (n == 0 || text[n - 1] != '\n')
                ck_abort_msg("no line for %d", c);
            for (size_t i = 0; i + 1 < n; i++) {
                unsigned char byte = (unsigned char)text[i];
                if (byte < 0x20 || byte == 0x7f || (byte == 0xc2 && (unsigned char)text[i + 1] < 0xa0))
                    ck_abort_msg("raw byte %02x for value %d: %s", byte, c, text);
            }
            if (strstr(text, "\xe2\x80\xae") || strstr(text, "\xe2\x80\xa8") || strchr(text, '\xff') ||
                strstr(text, "\xe2\x80\x8e") || strstr(text, "\xe2\x80\x8f") || strstr(text, "\xd8\x9c") ||
                strstr(text, "\xe2\x81\xa7"))
                ck_abort_msg("%s", text);
            if (format == LOG_FORMAT_JSON) {
                cJSON *root = cJSON_Parse(text);
                ck_assert_ptr_nonnull(root);
                cJSON_Delete(root);
            }
            free(text);
        }
        log_close();
    }
}
END

TEST(lines_and_values_are_bounded)
{
    char *large = malloc(100000);
    memset(large, 'x', 100000);
    for (int format = LOG_FORMAT_TEXT; format <= LOG_FORMAT_JSON; format++) {
        open_log((enum log_format)format, LOG_LEVEL_INFO);
        for (size_t n = LOG_VALUE_MAX; n <= LOG_VALUE_MAX + 1; n++) {
            LOG(LOG_LEVEL_INFO, "e", LOG_SPAN("v", ((struct span){large, n})));
            char *text = take();
            ck_assert_int_eq(strstr(text, "...\"") != NULL, n > LOG_VALUE_MAX);
            free(text);
        }
        for (size_t fill = 900; fill <= 1024; fill++) { /* every place where the fifth value may be cut */
            struct span part = {large, fill};
            LOG(LOG_LEVEL_INFO, "e", LOG_SPAN("a", part), LOG_SPAN("b", part), LOG_SPAN("c", part), LOG_SPAN("d", part),
                LOG_SPAN("f", part), LOG_INTEGER("g", 5), LOG_TEXT("h", "a b"));
            char *text = take();
            size_t n = strlen(text);
            if (n > LOG_LINE_MAX || text[n - 1] != '\n' || strchr(text, '\n') != text + n - 1)
                ck_abort_msg("%zu bytes for %zu", n, fill);
            if (format == LOG_FORMAT_JSON) {
                cJSON *root = cJSON_Parse(text);
                if (!root)
                    ck_abort_msg("fill %zu: %s", fill, text);
                cJSON_Delete(root);
            }
            free(text);
        }
        memset(large, '\n', 1024); /* escapes make it longer */
        LOG(LOG_LEVEL_INFO, "e", LOG_SPAN("a", ((struct span){large, 1024})), LOG_SPAN("b", ((struct span){large, 1024})),
            LOG_SPAN("c", ((struct span){large, 1024})));
        char *text = take();
        ck_assert_uint_le(strlen(text), LOG_LINE_MAX);
        free(text);
        memset(large, 'x', 1024);
        log_close();
    }
    free(large);
}
END

TEST(the_journal_gets_priorities_and_no_time)
{
    struct stat st;
    char stream[64];
    int fd = open(log_path(), O_RDWR | O_CREAT | O_APPEND, 0600), saved = dup(2);
    ck_assert_int_eq(fstat(fd, &st), 0);
    dup2(fd, 2);
    snprintf(stream, sizeof stream, "%ju:%ju", (uintmax_t)st.st_dev, (uintmax_t)st.st_ino);
    setenv("JOURNAL_STREAM", stream, 1);
    log_open(NULL, LOG_FORMAT_TEXT, LOG_LEVEL_DEBUG, NULL);
    for (int level = LOG_LEVEL_ERROR; level <= LOG_LEVEL_DEBUG; level++)
        LOG((enum log_level)level, "x", LOG_INTEGER("n", 1));
    char *text = take();
    ck_assert_str_eq(text, "<3>error x n=1\n<4>warn x n=1\n<6>info x n=1\n<7>debug x n=1\n");
    free(text);
    setenv("JOURNAL_STREAM", "1:1", 1); /* of somebody else: a time, no priority */
    log_open("", LOG_FORMAT_TEXT, LOG_LEVEL_INFO, NULL);
    LOG(LOG_LEVEL_INFO, "x", LOG_INTEGER("n", 1));
    text = take();
    ck_assert_str_eq(behind_time(text), "info x n=1\n");
    free(text);
    dup2(saved, 2);
    log_close();
}
END

TEST(a_rotated_file_is_opened_again)
{
    struct error err;
    char old[300];
    snprintf(old, sizeof old, "%s.1", log_path());
    open_log(LOG_FORMAT_TEXT, LOG_LEVEL_INFO);
    LOG(LOG_LEVEL_INFO, "before", LOG_INTEGER("n", 1));
    ck_assert_int_eq(rename(log_path(), old), 0);
    LOG(LOG_LEVEL_INFO, "between", LOG_INTEGER("n", 1));
    ck_assert_int_eq(log_reopen(&err), STATUS_OK);
    LOG(LOG_LEVEL_INFO, "after", LOG_INTEGER("n", 1));
    char *first = suite_read(old, NULL), *second = suite_read(log_path(), NULL);
    ck_assert(strstr(first, "before") && strstr(first, "between") && !strstr(first, "after") && strstr(second, "after"));
    free(first);
    free(second);
    char fd_path[64];
    snprintf(fd_path, sizeof fd_path, "%s/missing/log", suite_tmp());
    ck_assert_int_eq(log_open(fd_path, LOG_FORMAT_TEXT, LOG_LEVEL_INFO, &err), STATUS_IO);
    ck_assert_ptr_nonnull(strstr(err.text, "log_file: "));
    LOG(LOG_LEVEL_INFO, "still", LOG_INTEGER("n", 1)); /* a failure keeps the old one */
    second = suite_read(log_path(), NULL);
    ck_assert_ptr_nonnull(strstr(second, "still"));
    free(second);
    log_close();
    ck_assert_int_eq(log_reopen(&err), STATUS_OK);
}
END

TEST(a_library_note_becomes_an_event)
{
    open_log(LOG_FORMAT_TEXT, LOG_LEVEL_INFO);
    struct log_sink sink = log_sink_for("engine");
    log_note(&sink, LOG_LEVEL_WARN, "two %s", "words");
    log_note(&sink, LOG_LEVEL_DEBUG, "dropped");
    char *text = take();
    ck_assert_str_eq(behind_time(text), "warn engine text=\"two words\"\n");
    free(text);
    log_close();
}
END

static void *write_many(void *context)
{
    for (int i = 0; i < 2000; i++)
        LOG(LOG_LEVEL_INFO, "thread", LOG_TEXT("name", context), LOG_INTEGER("i", i));
    return NULL;
}

TEST(lines_of_threads_stay_whole)
{
    pthread_t threads[4];
    static char names[4][2] = {"a", "b", "c", "d"};
    open_log(LOG_FORMAT_TEXT, LOG_LEVEL_INFO);
    for (size_t i = 0; i < 4; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, write_many, names[i]), 0);
    for (size_t i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    char *text = take();
    int next[4] = {0};
    size_t lines = 0;
    for (const char *line = text; *line; line = strchr(line, '\n') + 1, lines++) {
        char name;
        int i;
        if (sscanf(behind_time(line), "info thread name=%c i=%d\n", &name, &i) != 2 || next[name - 'a']++ != i)
            ck_abort_msg("%.80s", line);
    }
    ck_assert_uint_eq(lines, 8000);
    free(text);
    log_close();
}
END

TEST(numbers_keep_their_point_in_a_locale_with_a_comma)
{
    if (!comma_locale_set())
        SKIP("no locale with a decimal comma is installed and localedef cannot build one");
    open_log(LOG_FORMAT_JSON, LOG_LEVEL_INFO);
    LOG(LOG_LEVEL_INFO, "e", LOG_NUMBER("ms", 1.5));
    char *text = take();
    ck_assert_ptr_nonnull(strstr(text, "\"ms\":1.500}"));
    free(text);
    log_close();
}
END

/* stderr is closed and JOURNAL_STREAM set: no journal, and nothing to fail on. */
TEST(a_closed_stderr_is_no_journal)
{
    int saved = dup(2);
    setenv("JOURNAL_STREAM", "1:1", 1);
    close(2);
    enum status status = log_open(NULL, LOG_FORMAT_TEXT, LOG_LEVEL_INFO, NULL);
    LOG(LOG_LEVEL_INFO, "x", LOG_INTEGER("n", 1));
    dup2(saved, 2);
    ck_assert_int_eq(status, STATUS_OK);
    log_close();
}
END

static atomic_int n_alarms;

static void count_alarm(int number)
{
    (void)number;
    atomic_fetch_add(&n_alarms, 1);
}

struct drain {
    int fd;
    size_t lines, broken;
};

/* Begins to read once signals have met a writer that waits for room; then reads to the end. */
static void *drain_late(void *context)
{
    struct drain *d = context;
    char line[4096];
    while (atomic_load(&n_alarms) < 20)
        usleep(1000);
    FILE *f = fdopen(d->fd, "r");
    while (fgets(line, sizeof line, f)) {
        size_t n = strlen(line);
        d->lines++;
        d->broken += n < 1000 || line[n - 1] != '\n' || !strstr(line, " info long v=xxx");
    }
    fclose(f);
    return NULL;
}

TEST(a_signal_in_the_middle_of_a_line_costs_nothing)
{
    enum { LINES = 200 }; /* more than a pipe holds */
    char path[300], value[1001];
    snprintf(path, sizeof path, "%s/fifo", suite_tmp());
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    struct drain d = {.fd = open(path, O_RDONLY | O_NONBLOCK)};
    ck_assert_int_ge(d.fd, 0);
    fcntl(d.fd, F_SETFL, 0);
    ck_assert_int_eq(log_open(path, LOG_FORMAT_TEXT, LOG_LEVEL_INFO, NULL), STATUS_OK);
    sigset_t alarm_only;
    sigemptyset(&alarm_only);
    sigaddset(&alarm_only, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &alarm_only, NULL); /* in the reader, which inherits it */
    pthread_t reader;
    ck_assert_int_eq(pthread_create(&reader, NULL, drain_late, &d), 0);
    struct sigaction action = {.sa_handler = count_alarm}; /* without SA_RESTART */
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &(struct itimerval){{0, 1000}, {0, 1000}}, NULL);
    pthread_sigmask(SIG_UNBLOCK, &alarm_only, NULL);
    memset(value, 'x', sizeof value - 1);
    value[sizeof value - 1] = 0;
    for (int i = 0; i < LINES; i++)
        LOG(LOG_LEVEL_INFO, "long", LOG_TEXT("v", value));
    setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {0, 0}}, NULL);
    log_close();
    pthread_join(reader, NULL);
    ck_assert_uint_eq(d.lines, LINES);
    ck_assert_uint_eq(d.broken, 0);
}
END

SUITE(log, T(an_event_is_one_line_of_text), T(an_event_is_one_object_of_json), T(levels_below_the_least_are_dropped),
      T(nothing_raw_reaches_the_log), T(lines_and_values_are_bounded), T(the_journal_gets_priorities_and_no_time),
      T(a_rotated_file_is_opened_again), T(a_library_note_becomes_an_event), T(lines_of_threads_stay_whole),
      T(numbers_keep_their_point_in_a_locale_with_a_comma), T(a_closed_stderr_is_no_journal),
      T(a_signal_in_the_middle_of_a_line_costs_nothing))
