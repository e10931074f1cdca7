/* The state of one tokenizer_encode call: where ids go, scratch memory, and the words seen so far. */
#ifndef GGUFD_TOKENIZER_ENCODER_H
#define GGUFD_TOKENIZER_ENCODER_H

#include <assert.h>

#include "engine/base/buffer.h"
#include "engine/tokenizer/merge.h"
#include "engine/tokenizer/tokenizer.h"

/* Short words and where in the output their ids stand: copying is cheaper than merging again. Direct-mapped. */
enum { WORD_CACHED_MAX = 16, WORD_CACHE_MIN = 64, WORD_CACHE_MAX = 1 << 13 };

struct word_slot {
    uint64_t low, high; /* the word's bytes, zero-filled */
    uint32_t at;        /* index of its first id in what this call has put out */
    uint8_t size;       /* 0: empty slot */
    uint8_t count;
};

struct encoder {
    struct token_list *out;
    size_t first;  /* out->count when the call began */
    size_t limit;
    struct merge_scratch merge;
    struct buffer side; /* fragments that had to be rewritten */
    struct word_slot *words;
    size_t word_mask; /* 0: no cache */
};

/* Appends one id; false: no memory. */
static inline bool encoder_push(struct encoder *e, uint32_t id)
{
    struct token_list *l = e->out;
    if (l->count == l->capacity)
        return token_list_push(l, (int32_t)id);
    l->data[l->count++] = (int32_t)id;
    return true;
}

/* True once more ids than the limit are certain. */
static inline bool encoder_is_full(const struct encoder *e)
{
    return e->out->count - e->first > e->limit;
}

/* The slot where `word` is or may be entered; NULL if it is too long or there is no cache. `readable` bytes of memory
 * follow word.data. */
static inline struct word_slot *encoder_word_slot(struct encoder *e, struct span word, size_t readable, bool *known)
{
    if (word.size > WORD_CACHED_MAX || !e->word_mask)
        return NULL;
    uint64_t key[2] = {0, 0};
    if (readable >= sizeof key) {
        memcpy(key, word.data, sizeof key);
        if (word.size <= 8) {
            key[1] = 0;
            key[0] &= UINT64_MAX >> (64 - 8 * word.size);
        } else {
            key[1] &= UINT64_MAX >> (128 - 8 * word.size);
        }
    } else {
        memcpy(key, word.data, word.size);
    }
    uint64_t h = (key[0] ^ (key[1] * 0x9e3779b97f4a7c15ull)) * 0xff51afd7ed558ccdull;
    struct word_slot *slot = &e->words[(h >> 40 ^ h >> 20) & e->word_mask];
    *known = slot->low == key[0] && slot->high == key[1] && slot->size == word.size;
    if (!*known) {
        slot->low = key[0];
        slot->high = key[1];
        slot->size = 0; /* until its ids are there */
    }
    return slot;
}

/* Appends the ids that a known slot stands for; false: no memory. */
static inline bool encoder_repeat(struct encoder *e, const struct word_slot *slot)
{
    for (size_t i = 0; i < slot->count; i++)
        if (!encoder_push(e, (uint32_t)e->out->data[e->first + slot->at + i]))
            return false;
    return true;
}

/* The ids from `at` on are those of the slot's word. A byte has three ids at most, so both numbers are small enough. */
static inline void encoder_remember(struct encoder *e, struct word_slot *slot, size_t at, size_t size)
{
    size_t count = e->out->count - at;
    assert(count <= UINT8_MAX && at - e->first <= UINT32_MAX);
    slot->at = (uint32_t)(at - e->first);
    slot->count = (uint8_t)count;
    slot->size = (uint8_t)size;
}

#endif
