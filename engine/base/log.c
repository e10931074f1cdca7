/* Passes notes to the caller's sink; see log.h. */
#include "engine/base/log.h"

#include <stdarg.h>
#include <stdio.h>

void log_note(const struct log_sink *sink, enum log_level level, const char *format, ...)
{
    if (!sink || !sink->write)
        return;
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    sink->write(sink->context, level, text);
}
