/* The characters that stand for bytes in byte-level BPE vocabularies: the printable ones of Latin-1 stand for
 * themselves, the other 68 bytes are U+0100, U+0101, ... in ascending order. */
#ifndef GGUFD_TOKENIZER_BYTE_ALPHABET_H
#define GGUFD_TOKENIZER_BYTE_ALPHABET_H

#include <stdbool.h>
#include <stdint.h>

static inline bool byte_alphabet_is_itself(uint32_t c)
{
    return (c >= 0x21 && c <= 0x7e) || (c >= 0xa1 && c <= 0xac) || (c >= 0xae && c <= 0xff);
}

/* The others are 00-20, 7F-A0, AD: 33, 34 and 1 of them. */
static inline uint32_t byte_alphabet_character(unsigned char byte)
{
    if (byte_alphabet_is_itself(byte))
        return byte;
    return byte <= 0x20 ? 0x100u + byte : byte <= 0xa0 ? 0x121u + (byte - 0x7fu) : 0x143u;
}

/* -1 for a character outside the alphabet. */
static inline int byte_alphabet_inverse(uint32_t c)
{
    if (byte_alphabet_is_itself(c))
        return (int)c;
    if (c < 0x100 || c > 0x143)
        return -1;
    return c <= 0x120 ? (int)(c - 0x100) : c <= 0x142 ? (int)(c - 0x121 + 0x7f) : 0xad;
}

#endif
