/* A borrowed run of bytes: counted, not terminated, may hold NUL. */
#ifndef GGUFD_BASE_SPAN_H
#define GGUFD_BASE_SPAN_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

struct span {
    const char *data;
    size_t size;
};

static inline struct span span_of(const char *text)
{
    return (struct span){text, strlen(text)};
}

static inline bool span_equal(struct span a, struct span b)
{
    return a.size == b.size && (a.size == 0 || memcmp(a.data, b.data, a.size) == 0);
}

static inline bool span_is(struct span a, const char *text)
{
    return span_equal(a, span_of(text));
}

#endif
