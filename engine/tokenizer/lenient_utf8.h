/* UTF-8 as the reference reads it: overlong forms and surrogates count, anything else ill-formed is U+FFFD byte by byte
 * (docs/tokenizer.md section 14). Not for checking input: that is engine/base/utf8.h. */
#ifndef GGUFD_TOKENIZER_LENIENT_UTF8_H
#define GGUFD_TOKENIZER_LENIENT_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/buffer.h"
#include "engine/base/span.h"
#include "engine/base/utf8.h"

/* Length that a lead byte announces, from its high nibble alone: 80-BF count as characters of one byte. */
static inline size_t lenient_length(unsigned char lead)
{
    return lead < 0xc0 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
}

/* One step over data[0..size), size >= 1: bytes consumed; *code_point is at most U+10FFFF. */
size_t lenient_decode(const char *data, size_t size, uint32_t *code_point);

/* Shortest form of any value up to U+10FFFF, surrogates included; 1..4 bytes. */
static inline size_t lenient_encode(uint32_t code_point, char out[4])
{
    return utf8_encode(code_point, out);
}

/* True if decoding and encoding text again gives the same bytes. */
bool lenient_is_clean(struct span text);
/* Appends the re-encoded text. */
void lenient_clean(struct span text, struct buffer *out);

/* The character at p of a clean text. */
static inline uint32_t lenient_character(const char *p, size_t *length)
{
    const unsigned char *u = (const unsigned char *)p;
    if (u[0] < 0x80) {
        *length = 1;
        return u[0];
    }
    if (u[0] < 0xe0) {
        *length = 2;
        return (u[0] & 0x1fu) << 6 | (u[1] & 0x3f);
    }
    if (u[0] < 0xf0) {
        *length = 3;
        return (u[0] & 0x0fu) << 12 | (u[1] & 0x3fu) << 6 | (u[2] & 0x3f);
    }
    *length = 4;
    return (u[0] & 0x07u) << 18 | (u[1] & 0x3fu) << 12 | (u[2] & 0x3fu) << 6 | (u[3] & 0x3f);
}

#endif
