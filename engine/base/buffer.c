/* Growable byte buffer; see buffer.h. */
#include "engine/base/buffer.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void buffer_init(struct buffer *b)
{
    *b = (struct buffer){0};
}

void buffer_clear(struct buffer *b)
{
    free(b->data);
    buffer_init(b);
}

bool buffer_reserve(struct buffer *b, size_t more)
{
    if (more <= b->capacity - b->size)
        return true;
    if (more > SIZE_MAX / 2 - b->size) {
        b->failed = true;
        return false;
    }
    size_t capacity = b->capacity ? b->capacity : 64;
    while (capacity < b->size + more)
        capacity *= 2;
    char *data = realloc(b->data, capacity);
    if (!data) {
        b->failed = true;
        return false;
    }
    b->data = data;
    b->capacity = capacity;
    return true;
}

void buffer_append(struct buffer *b, const void *data, size_t size)
{
    if (size == 0 || !buffer_reserve(b, size))
        return;
    memcpy(b->data + b->size, data, size);
    b->size += size;
}

void buffer_text(struct buffer *b, const char *text)
{
    buffer_append(b, text, strlen(text));
}

void buffer_byte(struct buffer *b, char c)
{
    buffer_append(b, &c, 1);
}

void buffer_printf(struct buffer *b, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (n < 0 || !buffer_reserve(b, (size_t)n + 1)) {
        b->failed = true;
        return;
    }
    va_start(args, format);
    vsnprintf(b->data + b->size, (size_t)n + 1, format, args);
    va_end(args);
    b->size += (size_t)n;
}
