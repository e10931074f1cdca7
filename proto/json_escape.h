/* Escapes of JSON strings. Private to the reader: json_check.c and json.c. */
#ifndef GGUFD_PROTO_JSON_ESCAPE_H
#define GGUFD_PROTO_JSON_ESCAPE_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "engine/base/error.h"
#include "engine/base/span.h"
#include "engine/base/utf8.h"

/* json_check.c: true when text (at least one byte) is one JSON value; otherwise err is set. */
bool json_check_text(struct span text, struct error *err);

/* The value of four hexadecimal digits, or -1. */
static inline int json_hex4(const char *p, const char *end)
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

static inline bool json_is_high_surrogate(int unit)
{
    return unit >= 0xd800 && unit < 0xdc00;
}

static inline bool json_is_low_surrogate(int unit)
{
    return unit >= 0xdc00 && unit < 0xe000;
}

/* The bytes of a checked string, one at a time. */
struct unescape {
    const char *at;
    char bytes[4];
    unsigned n, given;
};

static inline struct unescape unescape_start(struct span raw)
{
    return (struct unescape){.at = raw.data + 1};
}

static inline void unescape_unit(struct unescape *u)
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
    uint32_t unit = (uint32_t)json_hex4(u->at, u->at + 4);
    u->at += 4;
    if (json_is_high_surrogate((int)unit)) {
        unit = 0x10000 + ((unit - 0xd800) << 10) + ((uint32_t)json_hex4(u->at + 2, u->at + 6) - 0xdc00);
        u->at += 6;
    }
    u->n = (unsigned)utf8_encode(unit, u->bytes);
}

/* The next byte, or -1 at the closing quote. */
static inline int unescape_byte(struct unescape *u)
{
    if (u->given == u->n) {
        if (*u->at == '"')
            return -1;
        unescape_unit(u);
    }
    return (unsigned char)u->bytes[u->given++];
}

#endif
