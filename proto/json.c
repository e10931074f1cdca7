/* The JSON reader: json_check walks the text once with a stack of at most JSON_DEPTH_MAX frames; the views read checked
 * text and so need no bounds of their own. Refusals as json.h says. */
#include "proto/json.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/utf8.h"

struct frame {
    bool object;
    struct span key;  /* raw, with its quotes; data NULL before the first */
    size_t index;     /* arrays */
    size_t first_key; /* objects: where this object's keys begin in checker.keys */
};

struct checker {
    const char *begin, *at, *end;
    struct frame frames[JSON_DEPTH_MAX];
    size_t depth;
    struct span *keys; /* raw keys of every open object, innermost last */
    size_t n_keys, keys_capacity;
    struct error *err;
};

/* ---- messages ---- */

static void describe_path(const struct checker *c, char *out, size_t size)
{
    size_t n = 0;
    *out = 0;
    for (size_t i = 0; i < c->depth && n < size; i++) {
        const struct frame *f = &c->frames[i];
        char quoted[ERROR_QUOTE_BYTES];
        int wrote = 0;
        if (!f->object)
            wrote = snprintf(out + n, size - n, "[%zu]", f->index);
        else if (f->key.data)
            wrote = snprintf(out + n, size - n, "%s%s", n ? "." : "",
                             error_quote(f->key.data + 1, f->key.size - 2, quoted));
        n += (size_t)wrote;
    }
}

static bool refuse(struct checker *c, const char *at, const char *format, ...) __attribute__((format(printf, 3, 4)));
static bool refuse(struct checker *c, const char *at, const char *format, ...)
{
    char text[192], path[160];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    describe_path(c, path, sizeof path);
    error_set(c->err, STATUS_INVALID, "%s%s%s at byte %zu", path, *path ? ": " : "", text, (size_t)(at - c->begin));
    return false;
}

static bool refuse_here(struct checker *c, const char *expected)
{
    if (c->at == c->end)
        return refuse(c, c->at, "the text ends where %s is expected", expected);
    char quoted[ERROR_QUOTE_BYTES];
    return refuse(c, c->at, "\"%s\" where %s is expected", error_quote(c->at, 1, quoted), expected);
}

/* ---- scalars ---- */

static const char *skip_space(const char *p, const char *end)
{
    while (p < end && (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t'))
        p++;
    return p;
}

static bool is_digit(const char *p, const char *end)
{
    return p < end && *p >= '0' && *p <= '9';
}

static bool check_digits(struct checker *c)
{
    if (!is_digit(c->at, c->end))
        return refuse_here(c, "a digit");
    while (is_digit(c->at, c->end))
        c->at++;
    return true;
}

static bool check_number(struct checker *c)
{
    const char *start = c->at;
    if (*c->at == '-')
        c->at++;
    if (c->at < c->end && *c->at == '0') {
        c->at++;
        if (is_digit(c->at, c->end))
            return refuse(c, start, "a number with a leading zero");
    } else if (!check_digits(c)) {
        return false;
    }
    if (c->at < c->end && *c->at == '.') {
        c->at++;
        if (!check_digits(c))
            return false;
    }
    if (c->at < c->end && (*c->at == 'e' || *c->at == 'E')) {
        c->at++;
        if (c->at < c->end && (*c->at == '+' || *c->at == '-'))
            c->at++;
        return check_digits(c);
    }
    return true;
}

static bool check_word(struct checker *c, const char *word)
{
    size_t n = strlen(word);
    if ((size_t)(c->end - c->at) < n || memcmp(c->at, word, n) != 0)
        return refuse(c, c->at, "an unknown word where a value is expected");
    c->at += n;
    return true;
}

/* The value of four hexadecimal digits, or -1. */
static int hex4(const char *p, const char *end)
{
    if (end - p < 4)
        return -1;
    int value = 0;
    for (int i = 0; i < 4; i++) {
        char d = p[i];
        int v = d >= '0' && d <= '9' ? d - '0' : d >= 'a' && d <= 'f' ? d - 'a' + 10
              : d >= 'A' && d <= 'F' ? d - 'A' + 10 : -1;
        if (v < 0)
            return -1;
        value = value << 4 | v;
    }
    return value;
}

static bool is_high_surrogate(int unit)
{
    return unit >= 0xd800 && unit < 0xdc00;
}

static bool is_low_surrogate(int unit)
{
    return unit >= 0xdc00 && unit < 0xe000;
}

/* c->at is on the backslash. */
static bool check_escape(struct checker *c)
{
    const char *start = c->at++;
    if (c->at == c->end)
        return refuse_here(c, "an escape");
    if (*c->at != 'u') {
        if (!memchr("\"\\/bfnrt", *c->at, 8))
            return refuse(c, start, "an unknown escape");
        c->at++;
        return true;
    }
    int unit = hex4(c->at + 1, c->end);
    if (unit < 0)
        return refuse(c, start, "\\u without four hexadecimal digits");
    c->at += 5;
    if (is_low_surrogate(unit))
        return refuse(c, start, "a lone surrogate");
    if (is_high_surrogate(unit)) {
        if (c->end - c->at < 6 || c->at[0] != '\\' || c->at[1] != 'u' || !is_low_surrogate(hex4(c->at + 2, c->end)))
            return refuse(c, start, "a lone surrogate");
        c->at += 6;
    }
    return true;
}

/* c->at is on the opening quote. */
static bool check_string(struct checker *c)
{
    const char *start = c->at++;
    while (c->at < c->end && *c->at != '"') {
        unsigned char byte = (unsigned char)*c->at;
        if (byte == '\\') {
            if (!check_escape(c))
                return false;
        } else if (byte < 0x20) {
            return refuse(c, c->at, "control character 0x%02x in a string", byte);
        } else if (byte < 0x80) {
            c->at++;
        } else {
            uint32_t code_point;
            size_t n = utf8_decode(c->at, (size_t)(c->end - c->at), &code_point);
            if (code_point == UTF8_INVALID || code_point == UTF8_INCOMPLETE)
                return refuse(c, c->at, "ill-formed UTF-8");
            c->at += n;
        }
    }
    if (c->at == c->end)
        return refuse(c, start, "a string without end");
    c->at++;
    return true;
}

/* ---- duplicate keys ---- */

/* The bytes of a checked string, one at a time. */
struct unescape {
    const char *at;
    char bytes[4];
    unsigned n, given;
};

static struct unescape unescape_start(struct span raw)
{
    return (struct unescape){.at = raw.data + 1};
}

static void unescape_unit(struct unescape *u)
{
    char c = *u->at++;
    u->given = 0;
    u->n = 1;
    if (c != '\\') {
        u->bytes[0] = c;
        return;
    }
    c = *u->at++;
    if (c != 'u') {
        static const char from[] = "bfnrt", to[] = "\b\f\n\r\t";
        const char *found = strchr(from, c);
        u->bytes[0] = found ? to[found - from] : c;
        return;
    }
    uint32_t unit = (uint32_t)hex4(u->at, u->at + 4);
    u->at += 4;
    if (is_high_surrogate((int)unit)) {
        unit = 0x10000 + ((unit - 0xd800) << 10) + ((uint32_t)hex4(u->at + 2, u->at + 6) - 0xdc00);
        u->at += 6;
    }
    u->n = (unsigned)utf8_encode(unit, u->bytes);
}

/* The next byte, or -1 at the closing quote. */
static int unescape_byte(struct unescape *u)
{
    if (u->given == u->n) {
        if (*u->at == '"')
            return -1;
        unescape_unit(u);
    }
    return (unsigned char)u->bytes[u->given++];
}

static int compare_keys(const void *left, const void *right)
{
    struct unescape a = unescape_start(*(const struct span *)left), b = unescape_start(*(const struct span *)right);
    for (;;) {
        int x = unescape_byte(&a), y = unescape_byte(&b);
        if (x != y)
            return x < y ? -1 : 1;
        if (x < 0)
            return 0;
    }
}

static bool remember_key(struct checker *c, struct span raw)
{
    if (c->n_keys == c->keys_capacity) {
        size_t capacity = c->keys_capacity ? c->keys_capacity * 2 : 32;
        struct span *keys = realloc(c->keys, capacity * sizeof *keys);
        if (!keys) {
            error_no_memory(c->err, capacity * sizeof *keys, "the keys of an object");
            return false;
        }
        c->keys = keys;
        c->keys_capacity = capacity;
    }
    c->keys[c->n_keys++] = raw;
    return true;
}

static bool check_duplicates(struct checker *c)
{
    struct frame *f = &c->frames[c->depth - 1];
    struct span *keys = c->keys + f->first_key;
    size_t n = c->n_keys - f->first_key;
    c->n_keys = f->first_key;
    if (n < 2)
        return true;
    qsort(keys, n, sizeof *keys, compare_keys);
    for (size_t i = 1; i < n; i++)
        if (compare_keys(&keys[i - 1], &keys[i]) == 0) {
            f->key = keys[i];
            const char *second = keys[i].data > keys[i - 1].data ? keys[i].data : keys[i - 1].data;
            return refuse(c, second, "a duplicate key");
        }
    return true;
}

/* ---- structure ---- */

static bool check_key(struct checker *c)
{
    const char *start = c->at = skip_space(c->at, c->end);
    if (c->at == c->end || *c->at != '"')
        return refuse_here(c, "a key in double quotes");
    if (!check_string(c))
        return false;
    struct span raw = {start, (size_t)(c->at - start)};
    if (!remember_key(c, raw))
        return false;
    c->frames[c->depth - 1].key = raw;
    c->at = skip_space(c->at, c->end);
    if (c->at == c->end || *c->at != ':')
        return refuse_here(c, "a colon");
    c->at++;
    return true;
}

/* c->at is on { or [. *empty: it was closed at once. */
static bool check_open(struct checker *c, bool *empty)
{
    if (c->depth == JSON_DEPTH_MAX)
        return refuse(c, c->at, "nesting deeper than %d", JSON_DEPTH_MAX);
    bool object = *c->at == '{';
    c->frames[c->depth++] = (struct frame){.object = object, .first_key = c->n_keys};
    c->at = skip_space(c->at + 1, c->end);
    *empty = c->at < c->end && *c->at == (object ? '}' : ']');
    return *empty || !object || check_key(c);
}

/* One scalar, or the opening of a container; *complete: the value ended here. */
static bool check_value(struct checker *c, bool *complete)
{
    *complete = true;
    c->at = skip_space(c->at, c->end);
    if (c->at == c->end)
        return refuse_here(c, "a value");
    switch (*c->at) {
    case '{':
    case '[': {
        bool empty;
        if (!check_open(c, &empty))
            return false;
        *complete = empty; /* the closing bracket is still ahead */
        return true;
    }
    case '"':
        return check_string(c);
    case 't':
        return check_word(c, "true");
    case 'f':
        return check_word(c, "false");
    case 'n':
        return check_word(c, "null");
    default:
        if (*c->at != '-' && !is_digit(c->at, c->end))
            return refuse_here(c, "a value");
        return check_number(c);
    }
}

/* Behind a complete value: closes containers until a comma asks for the next value, or the outermost is closed. */
static bool check_behind(struct checker *c)
{
    while (c->depth > 0) {
        struct frame *f = &c->frames[c->depth - 1];
        c->at = skip_space(c->at, c->end);
        if (c->at < c->end && *c->at == ',') {
            c->at++;
            f->index++;
            return f->object ? check_key(c) : true;
        }
        if (c->at == c->end || *c->at != (f->object ? '}' : ']'))
            return refuse_here(c, f->object ? "a comma or }" : "a comma or ]");
        c->at++;
        if (f->object && !check_duplicates(c))
            return false;
        c->depth--;
    }
    return true;
}

static bool check_text(struct checker *c)
{
    if (c->end - c->at >= 3 && memcmp(c->at, "\xef\xbb\xbf", 3) == 0)
        return refuse(c, c->at, "a byte order mark");
    if (skip_space(c->at, c->end) == c->end)
        return refuse(c, c->end, "no value: the text is empty");
    do {
        bool complete;
        if (!check_value(c, &complete) || (complete && !check_behind(c)))
            return false;
    } while (c->depth > 0);
    c->at = skip_space(c->at, c->end);
    return c->at == c->end || refuse(c, c->at, "bytes behind the value");
}

/* ---- views ---- */

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

enum status json_check(struct span text, struct json_value *root, struct error *err)
{
    struct checker c = {.begin = text.data, .at = text.data, .end = text.data + text.size};
    struct error local;
    c.err = err ? err : &local;
    if (text.size == 0) /* data may be NULL */
        return error_set(c.err, STATUS_INVALID, "no value: the text is empty at byte 0");
    bool good = check_text(&c);
    free(c.keys);
    if (!good)
        return c.err->status;
    *root = view(skip_space(c.begin, c.end), c.end);
    return STATUS_OK;
}

const char *json_type_text(enum json_type type)
{
    static const char *const text[] = {"null", "a boolean", "a boolean", "a number", "a string", "an array", "an object"};
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

/* Inside a container every step ends before its closing bracket, so nothing here needs the text's end. */
static const char *inner_space(const char *p)
{
    while (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t')
        p++;
    return p;
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
