/* Byte-level BPE ("gpt2"): a fragment is split into words, each word's symbols are merged by rank; docs/tokenizer.md
 * section 10. */
#ifndef GGUFD_TOKENIZER_BPE_H
#define GGUFD_TOKENIZER_BPE_H

#include "engine/tokenizer/encoder.h"
#include "engine/tokenizer/pretok.h"
#include "engine/tokenizer/vocab.h"

/* Symbols are numbers: below the vocabulary's size a token (the lowest id of its text), above a text that merges know
 * and the vocabulary does not. */
struct bpe_merge {
    uint32_t left, right; /* left SYMBOL_NONE: empty slot */
    uint32_t rank, result;
};

struct byte_pair {
    uint32_t rank, result; /* RANK_NONE: does not merge */
};

struct bpe {
    const struct vocab *vocab;
    const struct pretok *pretok;
    struct bpe_merge *merges; /* open addressing over (left, right) */
    size_t merge_mask;
    uint64_t *merge_filter;   /* bit set over hashed pairs: most pairs do not merge, and this table fits a cache */
    size_t filter_mask;       /* bits - 1 */
    struct byte_pair *byte_pairs; /* [65536] merges of two bytes, by their values; NULL with PRE_RAW */
    uint32_t byte_symbol[256];    /* symbol of each byte's character of the byte alphabet; SYMBOL_NONE */
    uint32_t byte_tokens[256][2]; /* what a byte becomes when its symbol is no token; TEXT_NONE: nothing */
    struct text_table others; /* PRE_RAW: texts that only merges know, numbered from the vocabulary's size; may be empty */
    struct text_table words;  /* whole words that are tokens, as bytes of the text; for PRE_WHOLE_* */
};

static inline size_t bpe_merge_hash(uint32_t left, uint32_t right)
{
    uint64_t h = ((uint64_t)left << 32 | right) * 0x9e3779b97f4a7c15ull;
    return (size_t)(h ^ h >> 32);
}

/* The bit of a hashed pair. */
static inline size_t bpe_filter_bit(const struct bpe *b, size_t hash)
{
    return hash >> 24 & b->filter_mask;
}

/* NULL: the pair does not merge. */
static inline const struct bpe_merge *bpe_merge_find(const struct bpe *b, uint32_t left, uint32_t right)
{
    size_t hash = bpe_merge_hash(left, right), bit = bpe_filter_bit(b, hash);
    if (!(b->merge_filter[bit / 64] >> bit % 64 & 1))
        return NULL;
    for (size_t i = hash & b->merge_mask;; i = (i + 1) & b->merge_mask) {
        const struct bpe_merge *slot = &b->merges[i];
        if (slot->left == left && slot->right == right)
            return slot;
        if (slot->left == SYMBOL_NONE)
            return NULL;
    }
}

enum status bpe_init(struct bpe *b, struct vocab *v, struct error *err);
/* Appends the ids of one raw fragment. */
enum status bpe_encode(const struct bpe *b, struct encoder *e, struct span fragment, struct error *err);

#endif
