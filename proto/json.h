/* JSON in and out (RFC 8259), stricter than the usual readers: text is checked once as a whole, then read in place.
 *
 * json_check refuses ill-formed UTF-8 and lone surrogate escapes, numbers and escapes outside the grammar, control
 * characters in strings, a byte order mark, duplicate keys (compared after unescaping), nesting deeper than
 * JSON_DEPTH_MAX and anything behind the value; its message names the byte offset and the path ("prompt[3].text").
 * A checked value is a view into the text: reading allocates nothing but what the caller unescapes. No recursion. */
#ifndef GGUFD_PROTO_JSON_H
#define GGUFD_PROTO_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/buffer.h"
#include "engine/base/error.h"
#include "engine/base/span.h"

#define JSON_DEPTH_MAX 32

enum json_type { JSON_NULL, JSON_FALSE, JSON_TRUE, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT };

struct json_value {
    enum json_type type;
    struct span raw; /* from the value's first byte to its last, inside the checked text */
};

/* Checks all of text and gives its one value, which borrows text. STATUS_INVALID or STATUS_NO_MEMORY. Memory: at most
 * 16 bytes for each key of the objects that are open at one time. */
enum status json_check(struct span text, struct json_value *root, struct error *err);

/* "null", "a boolean", "a number", "a string", "an array", "an object". */
const char *json_type_text(enum json_type type);

/* Walks the members of a checked array or object (any other type has none). */
struct json_walk {
    const char *at;
    bool object;
    size_t index; /* of the value that json_next gave last */
};
struct json_walk json_walk(struct json_value container);
/* False at the end. key (objects; may be NULL for arrays) is the string value in front of the colon. */
bool json_next(struct json_walk *walk, struct json_value *key, struct json_value *value);

/* A string's bytes, unescaped, appended to out; they may hold U+0000. */
void json_unescape(struct json_value string, struct buffer *out);
/* True when the unescaped string equals text. */
bool json_string_is(struct json_value string, struct span text);

/* True when the number is integral (128.0 and 1e2 are) and fits; exact. */
bool json_integer(struct json_value number, int64_t *out);

/* ---- writing: to a struct buffer, checked by the caller once through buffer.failed ---- */

/* Quoted and escaped; each maximal ill-formed subsequence becomes U+FFFD, so output is always valid UTF-8. */
void json_write_string(struct buffer *b, struct span text);
/* The shortest of %.9g: reads back as the same float32 in any locale; null when not finite. */
void json_write_float(struct buffer *b, float value);
/* Fixed point with `decimals` digits (0..9), any locale; null when not finite. */
void json_write_fixed(struct buffer *b, double value, int decimals);
void json_write_integer(struct buffer *b, int64_t value);
void json_write_unsigned(struct buffer *b, uint64_t value);
void json_write_boolean(struct buffer *b, bool value);

/* `"key":`, with a comma in front unless the last byte written is { or [. The key is written as it is. */
void json_write_key(struct buffer *b, const char *key);
/* A comma unless the last byte written is { or [. */
void json_write_comma(struct buffer *b);

#endif
