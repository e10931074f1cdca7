/* Text -> index of the first entry with that text, for texts that stay where they are. Read-only look-ups are
 * thread-safe. The hash is for tables in memory only. */
#ifndef GGUFD_TOKENIZER_TEXT_TABLE_H
#define GGUFD_TOKENIZER_TEXT_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "engine/base/arena.h"
#include "engine/base/span.h"

#define TEXT_NONE UINT32_MAX

struct text_slot {
    uint32_t hash, index; /* index TEXT_NONE: empty */
};

struct text_table {
    struct text_slot *slots;
    size_t mask;
    const struct span *texts; /* what an index means */
};

/* Room for up to `count` entries over texts[]; false: no memory. */
bool text_table_init(struct text_table *t, struct arena *a, const struct span *texts, size_t count);
/* Enters texts[index] unless the text is there already; returns the index that stands for the text. */
uint32_t text_table_add(struct text_table *t, uint32_t index);

static inline uint64_t text_hash_step(uint64_t h, uint64_t word)
{
    h = (h ^ word) * 0x9e3779b97f4a7c15ull;
    return h ^ h >> 32;
}

static inline uint32_t text_hash(struct span s)
{
    uint64_t h = s.size, word = 0;
    const char *p = s.data;
    size_t left = s.size;
    for (; left >= 8; p += 8, left -= 8) {
        memcpy(&word, p, 8);
        h = text_hash_step(h, word);
    }
    for (word = 0; left; left--)
        word = word << 8 | (unsigned char)p[left - 1];
    h = text_hash_step(h, word);
    return (uint32_t)(h ^ h >> 29);
}

/* TEXT_NONE if absent. */
static inline uint32_t text_table_find(const struct text_table *t, struct span s)
{
    uint32_t hash = text_hash(s);
    for (size_t i = hash & t->mask;; i = (i + 1) & t->mask) {
        const struct text_slot *slot = &t->slots[i];
        if (slot->index == TEXT_NONE)
            return TEXT_NONE;
        if (slot->hash == hash && span_equal(t->texts[slot->index], s))
            return slot->index;
    }
}

#endif
