/* Views into checked JSON text: nothing here needs bounds of its own but the text's end. See json.h. */
#include "proto/json.h"

#include <assert.h>
#include <string.h>

#include "proto/json_escape.h"

static enum json_type type_of(char first)
{
    switch (first) {
    case '{': return JSON_OBJECT;
    case '[': return JSON_ARRAY;
    case '"': return JSON_STRING;
    case 't': return JSON_TRUE;
    case 'f': return JSON_FALSE;
    case 'n': return JSON_NULL;
    default: return JSON_NUMBER;
    }
}

static const char *end_of_string(const char *p)
{
    for (p++; *p != '"'; p++)
        if (*p == '\\')
            p++;
    return p + 1;
}

static const char *end_of_container(const char *p)
{
    size_t depth = 0;
    do {
        if (*p == '"') {
            p = end_of_string(p);
            continue;
        }
        if (*p == '{' || *p == '[')
            depth++;
        else if (*p == '}' || *p == ']')
            depth--;
        p++;
    } while (depth > 0);
    return p;
}

/* end: of the checked text, which may end with a number; NULL inside a container, whose bracket ends every scalar. */
static struct json_value view(const char *p, const char *end)
{
    enum json_type type = type_of(*p);
    const char *after = p;
    if (type == JSON_STRING)
        after = end_of_string(p);
    else if (type == JSON_ARRAY || type == JSON_OBJECT)
        after = end_of_container(p);
    else
        while (after != end && !memchr(" \t\r\n,]}", *after, 7))
            after++;
    return (struct json_value){type, {p, (size_t)(after - p)}};
}

/* Inside checked text every run of blanks ends before the text does. */
static const char *inner_space(const char *p)
{
    while (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t')
        p++;
    return p;
}

enum status json_check(struct span text, struct json_value *root, struct error *err)
{
    struct error local;
    struct error *e = err ? err : &local;
    if (text.size == 0) /* data may be NULL */
        return error_set(e, STATUS_INVALID, "no value: the text is empty at byte 0");
    if (!json_check_text(text, e))
        return e->status;
    *root = view(inner_space(text.data), text.data + text.size);
    return STATUS_OK;
}

const char *json_type_text(enum json_type type)
{
    static const char *const text[] = {"null",     "a boolean", "a boolean", "a number",
                                       "a string", "an array",  "an object"};
    return text[type];
}

struct json_walk json_walk(struct json_value container)
{
    struct json_walk walk = {.index = SIZE_MAX};
    if (container.type == JSON_ARRAY || container.type == JSON_OBJECT) {
        walk.at = container.raw.data + 1;
        walk.object = container.type == JSON_OBJECT;
    }
    return walk;
}

bool json_next(struct json_walk *walk, struct json_value *key, struct json_value *value)
{
    if (!walk->at)
        return false;
    const char *p = inner_space(walk->at);
    if (*p == ',')
        p = inner_space(p + 1);
    else if (*p == ']' || *p == '}')
        return false;
    if (walk->object) {
        struct json_value name = {JSON_STRING, {p, (size_t)(end_of_string(p) - p)}};
        if (key)
            *key = name;
        p = inner_space(inner_space(p + name.raw.size) + 1);
    }
    *value = view(p, NULL);
    walk->at = value->raw.data + value->raw.size;
    walk->index++;
    return true;
}

void json_unescape(struct json_value string, struct buffer *out)
{
    assert(string.type == JSON_STRING);
    const char *p = string.raw.data + 1, *end = string.raw.data + string.raw.size - 1;
    buffer_reserve(out, (size_t)(end - p)); /* never longer than the raw form */
    while (p < end) {
        const char *escape = memchr(p, '\\', (size_t)(end - p));
        const char *stop = escape ? escape : end;
        buffer_append(out, p, (size_t)(stop - p));
        p = stop;
        if (escape) {
            struct unescape u = {.at = p};
            unescape_unit(&u);
            buffer_append(out, u.bytes, u.n);
            p = u.at;
        }
    }
}

bool json_string_is(struct json_value string, struct span text)
{
    if (string.type != JSON_STRING)
        return false;
    struct unescape u = unescape_start(string.raw);
    for (size_t i = 0; i < text.size; i++)
        if (unescape_byte(&u) != (unsigned char)text.data[i])
            return false;
    return unescape_byte(&u) < 0;
}

/* ---- integers ---- */

/* A decimal number as digits x 10^scale, the digits without trailing zeros. */
struct decimal {
    uint64_t digits;
    unsigned n_digits; /* of `digits`; more than 19 do not fit anyway */
    int64_t scale;
};

static void decimal_digit(struct decimal *d, int64_t *zeros, char c)
{
    if (c == '0') {
        *zeros += d->n_digits > 0;
        return;
    }
    for (; *zeros > 0 && d->n_digits < 20; --*zeros, d->n_digits++)
        d->digits *= 10;
    if (d->n_digits < 20) {
        d->digits = d->digits * 10 + (uint64_t)(c - '0');
        d->n_digits++;
    }
    *zeros = 0;
}

/* Saturates far outside what any text in memory can balance. */
static int64_t parse_exponent(const char *p, const char *end)
{
    int64_t sign = *p == '-' ? -1 : 1, value = 0;
    if (*p == '-' || *p == '+')
        p++;
    for (; p < end; p++)
        if (value < INT64_C(1000000000000000))
            value = value * 10 + (*p - '0');
    return sign * value;
}

static struct decimal parse_decimal(struct span raw)
{
    struct decimal d = {0};
    const char *end = raw.data + raw.size;
    int64_t zeros = 0, fraction = 0;
    bool in_fraction = false;
    for (const char *p = raw.data + (*raw.data == '-'); p < end; p++) {
        if (*p == 'e' || *p == 'E') {
            d.scale = parse_exponent(p + 1, end);
            break;
        }
        if (*p == '.') {
            in_fraction = true;
            continue;
        }
        fraction += in_fraction;
        decimal_digit(&d, &zeros, *p);
    }
    d.scale += zeros - fraction;
    return d;
}

bool json_integer(struct json_value number, int64_t *out)
{
    if (number.type != JSON_NUMBER)
        return false;
    struct decimal d = parse_decimal(number.raw);
    bool negative = *number.raw.data == '-';
    if (d.n_digits == 0) {
        *out = 0;
        return true;
    }
    if (d.scale < 0 || d.n_digits > 19 || d.scale > 19 - (int64_t)d.n_digits)
        return false;
    for (; d.scale > 0; d.scale--)
        d.digits *= 10; /* at most 19 digits: below 2^64 */
    if (d.digits > (uint64_t)INT64_MAX + negative)
        return false;
    *out = negative ? (int64_t)(0 - d.digits) : (int64_t)d.digits;
    return true;
}
