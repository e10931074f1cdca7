/* Log lines: built on the stack, written whole; see log.h. */
#include "daemon/log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "engine/base/utf8.h"

static const char *const level_names[] = {"error", "warn", "info", "debug"};
static const int journal_priorities[] = {3, 4, 6, 7};

/* Set by log_open before threads exist; afterwards only fd changes, under dup2, so that the number stays. */
static struct {
    int fd;
    char *path;
    enum log_format format;
    enum log_level level;
    bool journal;
} log_state = {.fd = STDERR_FILENO, .level = LOG_LEVEL_INFO};

/* ---- a line ---- */

struct line {
    char text[LOG_LINE_MAX];
    size_t size;
    bool cut;
};
#define LINE_END 8 /* kept free for "...\"" and the end of the line */

static bool put(struct line *l, const char *data, size_t size)
{
    if (l->cut || l->size + size > sizeof l->text - LINE_END) {
        l->cut = true;
        return false;
    }
    memcpy(l->text + l->size, data, size);
    l->size += size;
    return true;
}

/* Into the space that is kept free. */
static void put_last(struct line *l, const char *text)
{
    size_t size = strlen(text);
    memcpy(l->text + l->size, text, size);
    l->size += size;
}

static bool put_text(struct line *l, const char *text)
{
    return put(l, text, strlen(text));
}

/* Printable as it is in both forms: no control character (C0, DEL, C1), line separator, or direction mark. */
static bool is_plain(uint32_t c)
{
    if (c < 0x20 || c == '"' || c == '\\' || (c >= 0x7f && c < 0xa0))
        return false;
    return !(c >= 0x2028 && c <= 0x202e) && !(c >= 0x2066 && c <= 0x2069) && c != 0x200e && c != 0x200f && c != 0x061c;
}

static bool put_escaped(struct line *l, uint32_t c)
{
    char text[16];
    if (c == '"' || c == '\\')
        snprintf(text, sizeof text, "\\%c", (int)c);
    else if (c == '\n')
        snprintf(text, sizeof text, "\\n");
    else
        snprintf(text, sizeof text, "\\u%04x", (unsigned)c); /* below U+10000: is_plain lets the others through */
    return put_text(l, text);
}

static bool put_character(struct line *l, const char *bytes, size_t n, uint32_t c)
{
    if (c == UTF8_INVALID || c == UTF8_INCOMPLETE)
        return put_text(l, "\\ufffd");
    return is_plain(c) ? put(l, bytes, n) : put_escaped(l, c);
}

/* A quoted string that is also a JSON string; cut after LOG_VALUE_MAX bytes, or where the line is full. */
static void put_quoted(struct line *l, struct span value)
{
    size_t size = value.size < LOG_VALUE_MAX ? value.size : LOG_VALUE_MAX, at = 0;
    if (!put_text(l, "\""))
        return;
    while (at < size) {
        uint32_t c;
        size_t n = utf8_decode(value.data + at, size - at, &c);
        if ((c == UTF8_INCOMPLETE && size < value.size) || !put_character(l, value.data + at, n, c))
            break;
        at += n;
    }
    put_last(l, at < value.size ? "...\"" : "\"");
}

static bool is_bare(struct span value)
{
    for (size_t i = 0; i < value.size; i++) {
        char c = value.data[i];
        if (c <= ' ' || c >= 0x7f || c == '"' || c == '=' || c == '\\')
            return false;
    }
    return value.size > 0 && value.size <= LOG_VALUE_MAX;
}

static void put_value(struct line *l, const struct log_field *f)
{
    char text[352];
    switch (f->type) {
    case LOG_TYPE_SPAN:
        if (log_state.format == LOG_FORMAT_TEXT && is_bare(f->text))
            put(l, f->text.data, f->text.size);
        else
            put_quoted(l, f->text);
        return;
    case LOG_TYPE_INTEGER:
        snprintf(text, sizeof text, "%" PRId64, f->integer);
        break;
    case LOG_TYPE_NUMBER: {
        if (!isfinite(f->number)) {
            put_text(l, "null");
            return;
        }
        snprintf(text, sizeof text, "%.3f", f->number);
        for (char *p = text; *p; p++)
            if (*p == ',') /* the locale's decimal comma */
                *p = '.';
        break;
    }
    case LOG_TYPE_BOOLEAN:
        snprintf(text, sizeof text, "%s", f->integer ? "true" : "false");
        break;
    }
    put_text(l, text);
}

static void put_time(struct line *l)
{
    struct timespec now;
    struct tm utc;
    char text[64];
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    size_t n = strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(text + n, sizeof text - n, ".%03ldZ", now.tv_nsec / 1000000);
    put_text(l, text);
}

static void put_head(struct line *l, enum log_level level, const char *event)
{
    bool json = log_state.format == LOG_FORMAT_JSON;
    if (log_state.journal) {
        char priority[8];
        snprintf(priority, sizeof priority, "<%d>", journal_priorities[level]);
        put_text(l, priority);
    }
    if (json)
        put_text(l, "{\"time\":\"");
    if (json || !log_state.journal) /* the journal has its own time */
        put_time(l);
    put_text(l, json ? "\",\"level\":\"" : log_state.journal ? "" : " ");
    put_text(l, level_names[level]);
    put_text(l, json ? "\",\"event\":\"" : " ");
    put_text(l, event);
    if (json)
        put_text(l, "\"");
}

/* A field is in the line whole, cut inside its value, or not at all. */
static void put_field(struct line *l, const struct log_field *f)
{
    bool json = log_state.format == LOG_FORMAT_JSON;
    size_t before = l->size;
    if (l->cut || (f->type == LOG_TYPE_SPAN && !f->text.data))
        return;
    put_text(l, json ? ",\"" : " ");
    put_text(l, f->key);
    put_text(l, json ? "\":" : "=");
    size_t value = l->size;
    put_value(l, f);
    if (l->cut && l->size == value)
        l->size = before;
}

static void write_line(const struct line *l)
{
    for (size_t at = 0; at < l->size;) {
        ssize_t n = write(log_state.fd, l->text + at, l->size - at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return; /* a full disk or a reader that is gone must not stop the daemon */
        at += (size_t)n;
    }
}

void log_event(enum log_level level, const char *event, const struct log_field *fields, size_t n)
{
    struct line l;
    int saved = errno;
    l.size = 0;
    l.cut = false;
    put_head(&l, level, event);
    for (size_t i = 0; i < n; i++)
        put_field(&l, &fields[i]);
    put_last(&l, log_state.format == LOG_FORMAT_JSON ? "}\n" : "\n");
    write_line(&l);
    errno = saved;
}

bool log_is_on(enum log_level level)
{
    return level <= log_state.level;
}

/* ---- where to ---- */

/* True when stderr is the stream that systemd connected to the journal: JOURNAL_STREAM is its "device:inode". */
static bool is_journal(int fd)
{
    const char *stream = getenv("JOURNAL_STREAM");
    struct stat st;
    char own[48];
    if (!stream || fstat(fd, &st) != 0)
        return false;
    snprintf(own, sizeof own, "%ju:%ju", (uintmax_t)st.st_dev, (uintmax_t)st.st_ino);
    return strcmp(own, stream) == 0;
}

static enum status open_file(const char *path, int *fd, struct error *err)
{
    char quoted[ERROR_QUOTE_BYTES];
    *fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0640);
    if (*fd >= 0)
        return STATUS_OK;
    return error_set(err, STATUS_IO, "log_file: %s cannot be opened: %s", error_quote(path, strlen(path), quoted),
                     strerror(errno));
}

enum status log_open(const char *path, enum log_format format, enum log_level level, struct error *err)
{
    int fd = STDERR_FILENO;
    char *copy = NULL;
    if (path && *path) {
        enum status status = open_file(path, &fd, err);
        if (status != STATUS_OK)
            return status;
        copy = strdup(path);
        if (!copy) {
            close(fd);
            return error_no_memory(err, strlen(path) + 1, "the log's path");
        }
    }
    log_close();
    log_state.fd = fd;
    log_state.path = copy;
    log_state.format = format;
    log_state.level = level;
    log_state.journal = fd == STDERR_FILENO && is_journal(fd);
    return STATUS_OK;
}

enum status log_reopen(struct error *err)
{
    int fd;
    if (!log_state.path)
        return STATUS_OK;
    enum status status = open_file(log_state.path, &fd, err);
    if (status != STATUS_OK)
        return status;
    /* Replaces the file behind the same number, so that a thread in the middle of a line needs no lock. */
    if (dup3(fd, log_state.fd, O_CLOEXEC) < 0)
        status = error_set(err, STATUS_IO, "log_file: %s", strerror(errno));
    close(fd);
    return status;
}

void log_close(void)
{
    if (log_state.path)
        close(log_state.fd);
    free(log_state.path);
    log_state.path = NULL;
    log_state.fd = STDERR_FILENO;
    log_state.journal = false;
}

enum log_level log_level_parse(const char *name)
{
    enum log_level level = LOG_LEVEL_ERROR;
    while (level < LOG_LEVEL_DEBUG && strcmp(level_names[level], name) != 0)
        level++;
    return level;
}

enum log_format log_format_parse(const char *name)
{
    return strcmp(name, "json") == 0 ? LOG_FORMAT_JSON : LOG_FORMAT_TEXT;
}

static void write_note(void *context, enum log_level level, const char *text)
{
    LOG(level, (const char *)context, LOG_TEXT("text", text));
}

struct log_sink log_sink_for(const char *event)
{
    return (struct log_sink){write_note, (void *)(uintptr_t)event};
}
