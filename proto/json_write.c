/* The JSON writer: escapes, numbers that read back the same in any locale, nothing that is not JSON. See json.h. */
#include "proto/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/utf8.h"

static void write_escape(struct buffer *b, unsigned char c)
{
    static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
    const char *found = memchr(from, c, sizeof from - 1);
    char text[8] = {'\\'};
    if (found)
        text[1] = to[found - from];
    else
        snprintf(text, sizeof text, "\\u%04x", c);
    buffer_text(b, text);
}

void json_write_string(struct buffer *b, struct span text)
{
    size_t start = 0, at = 0;
    buffer_reserve(b, text.size + 2);
    buffer_byte(b, '"');
    while (at < text.size) {
        unsigned char c = (unsigned char)text.data[at];
        uint32_t code_point = c;
        size_t n = c < 0x80 ? 1 : utf8_decode(text.data + at, text.size - at, &code_point);
        bool ill_formed = code_point == UTF8_INVALID || code_point == UTF8_INCOMPLETE;
        if (ill_formed || c < 0x20 || c == '"' || c == '\\' || c == 0x7f) {
            buffer_append(b, text.data + start, at - start);
            if (ill_formed)
                buffer_text(b, "\xef\xbf\xbd");
            else
                write_escape(b, c);
            start = at + n;
        }
        at += n;
    }
    if (start < text.size)
        buffer_append(b, text.data + start, text.size - start);
    buffer_byte(b, '"');
}

/* A locale may put other bytes, even several, where JSON has a point; nothing else of these formats varies. */
static void write_number_text(struct buffer *b, const char *text)
{
    bool pointed = false;
    for (; *text; text++)
        if (strchr("0123456789+-e", *text)) {
            buffer_byte(b, *text);
        } else if (!pointed) {
            buffer_byte(b, '.');
            pointed = true;
        }
}

void json_write_float(struct buffer *b, float value)
{
    char text[48];
    if (!isfinite(value)) {
        buffer_text(b, "null");
        return;
    }
    snprintf(text, sizeof text, "%.9g", (double)value);
    write_number_text(b, text);
}

void json_write_fixed(struct buffer *b, double value, int decimals)
{
    char text[352]; /* DBL_MAX has 309 digits in front of the point */
    if (!isfinite(value)) {
        buffer_text(b, "null");
        return;
    }
    snprintf(text, sizeof text, "%.*f", decimals, value);
    write_number_text(b, text);
}

void json_write_integer(struct buffer *b, int64_t value)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRId64, value);
    buffer_text(b, text);
}

void json_write_unsigned(struct buffer *b, uint64_t value)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, value);
    buffer_text(b, text);
}

void json_write_boolean(struct buffer *b, bool value)
{
    buffer_text(b, value ? "true" : "false");
}

void json_write_comma(struct buffer *b)
{
    if (b->size > 0 && b->data[b->size - 1] != '{' && b->data[b->size - 1] != '[')
        buffer_byte(b, ',');
}

void json_write_key(struct buffer *b, const char *key)
{
    json_write_comma(b);
    buffer_byte(b, '"');
    buffer_text(b, key);
    buffer_text(b, "\":");
}
