/* Where a library's notes go. The caller decides what happens to them; text is printable and short. */
#ifndef GGUFD_BASE_LOG_H
#define GGUFD_BASE_LOG_H

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARN, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

struct log_sink {
    void (*write)(void *context, enum log_level level, const char *text);
    void *context;
};

/* Formats and passes on one note; a NULL sink, or one without write, drops it. */
void log_note(const struct log_sink *sink, enum log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
