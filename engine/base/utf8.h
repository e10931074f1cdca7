/* UTF-8 as Unicode defines it (Table 3-7): no surrogates, no overlong forms, nothing above U+10FFFF. */
#ifndef GGUFD_BASE_UTF8_H
#define GGUFD_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One step over data[0..size), size >= 1. Returns the bytes consumed, at least 1.
 * Well-formed: *code_point is the character. Ill-formed: *code_point is UTF8_INVALID and the length is that of the
 * maximal ill-formed subsequence, to be replaced by one U+FFFD. Cut short by the end of the data: UTF8_INCOMPLETE and
 * the length of the unfinished prefix. */
#define UTF8_INVALID 0xffffffffu
#define UTF8_INCOMPLETE 0xfffffffeu
size_t utf8_decode(const char *data, size_t size, uint32_t *code_point);

/* Writes 1..4 bytes of a scalar value; returns how many. */
size_t utf8_encode(uint32_t code_point, char out[4]);

/* True when all of data is well-formed; *bad (may be NULL) is the offset of the first ill-formed byte otherwise. */
bool utf8_is_valid(const char *data, size_t size, size_t *bad);

#endif
