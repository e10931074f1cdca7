/* UTF-8 decoding by well-formed byte ranges; see utf8.h. */
#include "engine/base/utf8.h"

/* Allowed range of the second byte, and length, for each lead byte. */
static size_t lead_length(unsigned char c, unsigned char *low, unsigned char *high)
{
    *low = 0x80;
    *high = 0xbf;
    if (c < 0x80)
        return 1;
    if (c >= 0xc2 && c <= 0xdf)
        return 2;
    if (c >= 0xe0 && c <= 0xef) {
        if (c == 0xe0)
            *low = 0xa0;
        if (c == 0xed)
            *high = 0x9f;
        return 3;
    }
    if (c >= 0xf0 && c <= 0xf4) {
        if (c == 0xf0)
            *low = 0x90;
        if (c == 0xf4)
            *high = 0x8f;
        return 4;
    }
    return 0;
}

size_t utf8_decode(const char *data, size_t size, uint32_t *code_point)
{
    const unsigned char *p = (const unsigned char *)data;
    unsigned char low, high;
    size_t length = lead_length(p[0], &low, &high);
    if (length == 0) {
        *code_point = UTF8_INVALID;
        return 1;
    }
    uint32_t c = length == 1 ? p[0] : p[0] & (0x7fu >> length);
    for (size_t i = 1; i < length; i++) {
        if (i == size) {
            *code_point = UTF8_INCOMPLETE;
            return i;
        }
        if (p[i] < low || p[i] > high) {
            *code_point = UTF8_INVALID;
            return i;
        }
        c = c << 6 | (p[i] & 0x3f);
        low = 0x80;
        high = 0xbf;
    }
    *code_point = c;
    return length;
}

size_t utf8_encode(uint32_t c, char out[4])
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (char)(0xc0 | c >> 6);
        out[1] = (char)(0x80 | (c & 0x3f));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (char)(0xe0 | c >> 12);
        out[1] = (char)(0x80 | (c >> 6 & 0x3f));
        out[2] = (char)(0x80 | (c & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | c >> 18);
    out[1] = (char)(0x80 | (c >> 12 & 0x3f));
    out[2] = (char)(0x80 | (c >> 6 & 0x3f));
    out[3] = (char)(0x80 | (c & 0x3f));
    return 4;
}

bool utf8_is_valid(const char *data, size_t size, size_t *bad)
{
    for (size_t at = 0; at < size;) {
        uint32_t c;
        size_t n = utf8_decode(data + at, size - at, &c);
        if (c == UTF8_INVALID || c == UTF8_INCOMPLETE) {
            if (bad)
                *bad = at;
            return false;
        }
        at += n;
    }
    return true;
}
