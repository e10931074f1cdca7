/* A growable byte buffer. A failed append sets `failed` and leaves the content as it was; check once at the end. */
#ifndef GGUFD_BASE_BUFFER_H
#define GGUFD_BASE_BUFFER_H

#include <stdbool.h>
#include <stddef.h>

#include "engine/base/span.h"

struct buffer {
    char *data;
    size_t size, capacity;
    bool failed; /* an append found no memory */
};

void buffer_init(struct buffer *b);
void buffer_clear(struct buffer *b); /* frees the storage; the buffer may be used again */
bool buffer_reserve(struct buffer *b, size_t more);
void buffer_append(struct buffer *b, const void *data, size_t size);
void buffer_text(struct buffer *b, const char *text);
void buffer_byte(struct buffer *b, char c);
void buffer_printf(struct buffer *b, const char *format, ...) __attribute__((format(printf, 2, 3)));

static inline struct span buffer_span(const struct buffer *b)
{
    return (struct span){b->data, b->size};
}

#endif
