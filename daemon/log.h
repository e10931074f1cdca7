/* The log: one line an event, as text (key=value) or JSON, to stderr or a file; journald priorities ("<6>") when stderr
 * is the journal's stream. Lines are bounded (LOG_LINE_MAX; a longer value is cut and marked "..."), written by one
 * write(2), and hold no control characters and no raw terminal escapes. Any thread. Prompt text is the caller's
 * decision (config.log_prompts) and nothing else's. */
#ifndef GGUFD_DAEMON_LOG_H
#define GGUFD_DAEMON_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/base/span.h"

#define LOG_LINE_MAX 4096
#define LOG_VALUE_MAX 1024 /* bytes of one value before escaping */

enum log_format { LOG_FORMAT_TEXT, LOG_FORMAT_JSON };

/* Before the first event and before threads. path NULL or "": stderr. Without a call: stderr, text, info. */
enum status log_open(const char *path, enum log_format format, enum log_level level, struct error *err);
/* Opens the file again (log rotation); a failure keeps the old one. Without a file: nothing. */
enum status log_reopen(struct error *err);
void log_close(void);
bool log_is_on(enum log_level level);
/* From the configuration's choices; the text must be one of them. */
enum log_level log_level_parse(const char *name);
enum log_format log_format_parse(const char *name);

enum log_type { LOG_TYPE_SPAN, LOG_TYPE_INTEGER, LOG_TYPE_NUMBER, LOG_TYPE_BOOLEAN };
struct log_field {
    const char *key; /* [a-z0-9_]+ */
    enum log_type type;
    struct span text; /* data NULL: the field is left out */
    int64_t integer;
    double number; /* printed with three decimals */
};

#define LOG_TEXT(key_, text_) {.key = (key_), .type = LOG_TYPE_SPAN, .text = log_text(text_)}
#define LOG_SPAN(key_, span_) {.key = (key_), .type = LOG_TYPE_SPAN, .text = (span_)}
#define LOG_INTEGER(key_, value_) {.key = (key_), .type = LOG_TYPE_INTEGER, .integer = (int64_t)(value_)}
#define LOG_NUMBER(key_, value_) {.key = (key_), .type = LOG_TYPE_NUMBER, .number = (value_)}
#define LOG_BOOLEAN(key_, value_) {.key = (key_), .type = LOG_TYPE_BOOLEAN, .integer = (value_)}

static inline struct span log_text(const char *text)
{
    return text ? span_of(text) : (struct span){0};
}

/* LOG(LOG_LEVEL_INFO, "listening", LOG_TEXT("address", a), LOG_INTEGER("fd", fd)); at least one field. */
#define LOG(level, event, ...)                                                                   \
    do {                                                                                         \
        if (log_is_on(level)) {                                                                  \
            const struct log_field log_fields_[] = {__VA_ARGS__};                                \
            log_event(level, event, log_fields_, sizeof log_fields_ / sizeof log_fields_[0]);    \
        }                                                                                        \
    } while (0)
/* LOG has asked log_is_on. */
void log_event(enum log_level level, const char *event, const struct log_field *fields, size_t n);

/* A library's notes as events named `event` (static) with one field "text". */
struct log_sink log_sink_for(const char *event);

#endif
