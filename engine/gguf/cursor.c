/* Bounds-checked steps over untrusted bytes; see cursor.h. Refuses what would reach past the end. */
#include "engine/gguf/cursor.h"

#include <inttypes.h>
#include <string.h>

enum status cursor_take(struct cursor *c, const char *what, uint64_t n, const void **out, struct error *err)
{
    if (n > cursor_left(c))
        return error_set(err, STATUS_INVALID, "%s: needs %" PRIu64 " bytes at offset %zu, but only %zu are left", what,
                         n, cursor_offset(c), cursor_left(c));
    *out = c->at;
    c->at += n;
    return STATUS_OK;
}

enum status cursor_u32(struct cursor *c, const char *what, uint32_t *out, struct error *err)
{
    const void *p = NULL;
    enum status s = cursor_take(c, what, sizeof *out, &p, err);
    if (s == STATUS_OK)
        memcpy(out, p, sizeof *out);
    return s;
}

enum status cursor_u64(struct cursor *c, const char *what, uint64_t *out, struct error *err)
{
    const void *p = NULL;
    enum status s = cursor_take(c, what, sizeof *out, &p, err);
    if (s == STATUS_OK)
        memcpy(out, p, sizeof *out);
    return s;
}

enum status cursor_string(struct cursor *c, const char *what, uint64_t min, uint64_t max, struct span *out,
                          struct error *err)
{
    const char *start = c->at;
    uint64_t length;
    const void *p = NULL;
    enum status s = cursor_u64(c, what, &length, err);
    if (s != STATUS_OK)
        return s;
    if (length > cursor_left(c))
        s = error_set(err, STATUS_INVALID, "%s: length %" PRIu64 " at offset %zu exceeds the %zu bytes left", what,
                      length, (size_t)(start - c->begin), cursor_left(c));
    else if (length < min || length > max)
        s = error_set(err, STATUS_INVALID, "%s: length %" PRIu64 " is outside %" PRIu64 "..%" PRIu64, what, length, min,
                      max);
    else
        s = cursor_take(c, what, length, &p, err);
    if (s != STATUS_OK) {
        c->at = start;
        return s;
    }
    *out = (struct span){p, (size_t)length};
    return STATUS_OK;
}
