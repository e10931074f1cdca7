/* The JSON checker: one walk over the text with a stack of at most JSON_DEPTH_MAX frames. Refusals as json.h says. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/utf8.h"
#include "proto/json.h"
#include "proto/json_escape.h"

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
    int unit = json_hex4(c->at + 1, c->end);
    if (unit < 0)
        return refuse(c, start, "\\u without four hexadecimal digits");
    c->at += 5;
    if (json_is_low_surrogate(unit))
        return refuse(c, start, "a lone surrogate");
    if (json_is_high_surrogate(unit)) {
        bool escape = c->end - c->at >= 6 && c->at[0] == '\\' && c->at[1] == 'u';
        if (!escape || !json_is_low_surrogate(json_hex4(c->at + 2, c->end)))
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
    size_t n = c->n_keys - f->first_key;
    c->n_keys = f->first_key;
    if (n < 2)
        return true;
    struct span *keys = c->keys + f->first_key;
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
        bool empty = false;
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

bool json_check_text(struct span text, struct error *err)
{
    struct checker c = {.begin = text.data, .at = text.data, .end = text.data + text.size, .err = err};
    bool good = check_text(&c);
    free(c.keys);
    return good;
}
