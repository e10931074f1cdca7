/* Which sets a character belongs to, as far as word splitting asks. Data: unicode.txt (Unicode 15.1). */
#ifndef GGUFD_TOKENIZER_UNICODE_H
#define GGUFD_TOKENIZER_UNICODE_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/base/arena.h"

/* Atoms of sets: general categories, white space, single characters, ASCII ranges, everything, and literal ranges that
 * some reference expressions spell out. */
enum {
    ATOM_L = 1 << 0, ATOM_N = 1 << 1, ATOM_M = 1 << 2, ATOM_P = 1 << 3, ATOM_S = 1 << 4, ATOM_WS = 1 << 5,
    ATOM_NL = 1 << 6, ATOM_CR = 1 << 7, ATOM_SP = 1 << 8, ATOM_SLASH = 1 << 9, ATOM_BT = 1 << 10, /* backtick */
    ATOM_AU = 1 << 11, ATOM_AL = 1 << 12, ATOM_AD = 1 << 13, ATOM_AP = 1 << 14, /* A-Z a-z 0-9, ASCII punctuation */
    ATOM_ALL = 1 << 15,
    ATOM_HAN = 1 << 16, ATOM_CJK_KANA = 1 << 17, ATOM_CJK_WIDE = 1 << 18, ATOM_DS_LETTER = 1 << 19,
    ATOM_DS_PUNCT = 1 << 20, ATOM_Y_HANGUL = 1 << 21, ATOM_Y_PUNCT = 1 << 22, ATOM_Y_BOPO = 1 << 23,
    ATOM_AF_ASIA = 1 << 24, ATOM_BLOOM_P = 1 << 25
};

enum { UNICODE_LAST = 0x10ffff, UNICODE_PAGES = (UNICODE_LAST + 1) / 256, UNICODE_CLASSES = 128 };

/* Character -> class (characters of one class belong to the same sets), by pages of 256. */
struct unicode_map {
    uint8_t (*page)[256];
    uint16_t page_of[UNICODE_PAGES];
};

/* Expands the table into the arena; false: no memory. */
bool unicode_map_init(struct unicode_map *m, struct arena *a);
/* Atoms of each class; *n_classes is at most UNICODE_CLASSES. */
const uint32_t *unicode_class_atoms(unsigned *n_classes);

static inline unsigned unicode_class(const struct unicode_map *m, uint32_t c)
{
    return m->page[m->page_of[c >> 8]][c & 0xff];
}

#endif
