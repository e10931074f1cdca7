/* Status texts and error formatting; see error.h. */
#include "engine/base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *status_text(enum status status)
{
    switch (status) {
#define X(name, text) \
    case name:        \
        return text;
        STATUS_TABLE(X)
#undef X
    }
    return "unknown status";
}

enum status error_set(struct error *err, enum status status, const char *format, ...)
{
    if (err) {
        va_list args;
        va_start(args, format);
        err->status = status;
        vsnprintf(err->text, sizeof err->text, format, args);
        va_end(args);
    }
    return status;
}

enum status error_context(struct error *err, const char *format, ...)
{
    if (!err)
        return STATUS_INVALID;
    char old[sizeof err->text];
    memcpy(old, err->text, sizeof old);
    va_list args;
    va_start(args, format);
    int n = vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    if (n >= 0 && (size_t)n < sizeof err->text - 2)
        snprintf(err->text + n, sizeof err->text - (size_t)n, ": %s", old);
    return err->status;
}

enum status error_no_memory(struct error *err, size_t size, const char *what)
{
    return error_set(err, STATUS_NO_MEMORY, "out of memory: %zu bytes for %s", size, what);
}

const char *error_quote(const char *data, size_t size, char *out)
{
    size_t n = size < ERROR_QUOTE_MAX ? size : ERROR_QUOTE_MAX;
    char *p = out;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)data[i];
        if (c >= 0x20 && c < 0x7f && c != '\\' && c != '"')
            *p++ = (char)c;
        else
            p += sprintf(p, "\\x%02x", c);
    }
    strcpy(p, size > n ? "..." : "");
    return out;
}
