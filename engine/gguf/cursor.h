/* A position inside a run of bytes. Every step is checked against the bytes left before anything is touched. */
#ifndef GGUFD_GGUF_CURSOR_H
#define GGUFD_GGUF_CURSOR_H

#include <stddef.h>
#include <stdint.h>

#include "engine/base/error.h"
#include "engine/base/span.h"

struct cursor {
    const char *begin, *at, *end;
};

static inline size_t cursor_left(const struct cursor *c)
{
    return (size_t)(c->end - c->at);
}

static inline size_t cursor_offset(const struct cursor *c)
{
    return (size_t)(c->at - c->begin);
}

/* Each step either moves past what it hands out, or refuses with `what`, the bytes needed, the offset and the bytes
 * left, and stays where it is. */
enum status cursor_take(struct cursor *c, const char *what, uint64_t n, const void **out, struct error *err);
enum status cursor_u32(struct cursor *c, const char *what, uint32_t *out, struct error *err);
enum status cursor_u64(struct cursor *c, const char *what, uint64_t *out, struct error *err);
/* u64 length, then that many bytes; a length outside min..max is refused. */
enum status cursor_string(struct cursor *c, const char *what, uint64_t min, uint64_t max, struct span *out,
                          struct error *err);

#endif
