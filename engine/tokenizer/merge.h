/* Merging the symbols of one word: again and again the adjacent pair of the lowest rank, the leftmost of equals.
 *
 * One body for both kinds of vocabulary, instantiated with their pair function. Short words are merged by scanning;
 * long ones over a linked list with a binary heap, n log n, at most 32 bytes a symbol. No recursion. */
#ifndef GGUFD_TOKENIZER_MERGE_H
#define GGUFD_TOKENIZER_MERGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/tokenizer/heap.h"

#define RANK_NONE UINT32_MAX /* the pair does not merge */
#define SYMBOL_NONE UINT32_MAX
#define LINK_GONE 0 /* nothing is in front of the first symbol */

enum { MERGE_SHORT = 32 };

struct symbol {
    uint32_t start; /* offset of its text; it ends where the next symbol starts */
    uint32_t id;
};

struct merge_scratch {
    struct symbol *symbols; /* n symbols and a last one that only holds the end */
    size_t n, capacity;
    uint32_t *next, *previous; /* [n + 1] long words only; next LINK_GONE: merged into one on the left */
    size_t links_capacity;
    struct heap heap; /* rank << 32 | left index */
};

/* Room for n symbols and the end; false: no memory. */
bool merge_reserve(struct merge_scratch *m, size_t n);
bool merge_reserve_links(struct merge_scratch *m);
void merge_clear(struct merge_scratch *m);

/* Rank of merging `left` and `right`, which ends at `end`, and the id of the result; RANK_NONE if they do not merge. */
typedef uint32_t merge_pair(const void *rules, const char *text, struct symbol left, struct symbol right, uint32_t end,
                            uint32_t *result);

#define MERGE_INLINE static inline __attribute__((always_inline))

MERGE_INLINE void merge_short(struct merge_scratch *m, const void *rules, const char *text, merge_pair *pair)
{
    struct symbol *s = m->symbols;
    uint32_t rank[MERGE_SHORT], result[MERGE_SHORT];
    size_t n = m->n;
    for (size_t i = 0; i + 1 < n; i++)
        rank[i] = pair(rules, text, s[i], s[i + 1], s[i + 2].start, &result[i]);
    while (n > 1) {
        uint32_t best = RANK_NONE;
        size_t at = 0;
        for (size_t i = 0; i + 1 < n; i++)
            if (rank[i] < best) {
                best = rank[i];
                at = i;
            }
        if (best == RANK_NONE)
            break;
        s[at].id = result[at];
        n--;
        for (size_t i = at + 1; i <= n; i++)
            s[i] = s[i + 1];
        for (size_t i = at; i + 1 < n; i++) {
            rank[i] = rank[i + 1];
            result[i] = result[i + 1];
        }
        if (at > 0)
            rank[at - 1] = pair(rules, text, s[at - 1], s[at], s[at + 1].start, &result[at - 1]);
        if (at + 1 < n)
            rank[at] = pair(rules, text, s[at], s[at + 1], s[at + 2].start, &result[at]);
    }
    m->n = n;
}

/* Enters the pair of i and its successor if it merges; false: no memory. */
MERGE_INLINE bool merge_enter(struct merge_scratch *m, const void *rules, const char *text, merge_pair *pair, uint32_t i)
{
    uint32_t right = m->next[i], ignored, rank;
    if (right == m->n)
        return true;
    rank = pair(rules, text, m->symbols[i], m->symbols[right], m->symbols[m->next[right]].start, &ignored);
    return rank == RANK_NONE || heap_push(&m->heap, (uint64_t)rank << 32 | i);
}

/* Entries of the heap stay there when their symbols change: one counts if its rank is that of the pair as it is now. */
MERGE_INLINE bool merge_long(struct merge_scratch *m, const void *rules, const char *text, merge_pair *pair)
{
    struct symbol *s = m->symbols;
    if (!merge_reserve_links(m))
        return false;
    uint32_t n = (uint32_t)m->n, result = SYMBOL_NONE;
    m->heap.n = 0;
    for (uint32_t i = 0; i <= n; i++) {
        m->next[i] = i + 1;
        m->previous[i] = i - 1;
    }
    for (uint32_t i = 0; i < n; i++)
        if (!merge_enter(m, rules, text, pair, i))
            return false;
    while (m->heap.n) {
        uint64_t entry = heap_pop(&m->heap);
        uint32_t left = (uint32_t)entry, right = m->next[left];
        if (right == LINK_GONE || right == n)
            continue;
        uint32_t after = m->next[right];
        if (pair(rules, text, s[left], s[right], s[after].start, &result) != entry >> 32)
            continue;
        s[left].id = result;
        m->next[right] = LINK_GONE;
        m->next[left] = after;
        m->previous[after] = left;
        if (!merge_enter(m, rules, text, pair, left) ||
            (left > 0 && !merge_enter(m, rules, text, pair, m->previous[left])))
            return false;
    }
    size_t kept = 0;
    for (uint32_t i = 0; i != n; i = m->next[i])
        s[kept++] = s[i];
    s[kept].start = s[n].start;
    m->n = kept;
    return true;
}

/* Merges m->symbols[0..n) in place; symbols[n].start is the word's end. false: no memory. */
MERGE_INLINE bool merge_word(struct merge_scratch *m, const void *rules, const char *text, merge_pair *pair)
{
    if (m->n <= MERGE_SHORT) {
        merge_short(m, rules, text, pair);
        return true;
    }
    return merge_long(m, rules, text, pair);
}

#endif
