/* libstdc++'s introsort and unordered_map as far as they decide ties; see text_order.h. */
#include "engine/tokenizer/text_order.h"

#include <stdlib.h>
#include <string.h>

enum { SMALL = 16 }; /* ranges up to this length are left to the final insertion sort */

static bool before(const struct span *texts, uint32_t a, uint32_t b)
{
    return texts[a].size > texts[b].size;
}

static void swap(uint32_t *a, uint32_t *b)
{
    uint32_t t = *a;
    *a = *b;
    *b = t;
}

static uint32_t *median(uint32_t *a, uint32_t *b, uint32_t *c, const struct span *texts)
{
    if (before(texts, *a, *b))
        return before(texts, *b, *c) ? b : before(texts, *a, *c) ? c : a;
    return before(texts, *a, *c) ? a : before(texts, *b, *c) ? c : b;
}

/* Hoare partition around *first, which holds the median of three: no bounds are needed. */
static uint32_t *partition(uint32_t *first, uint32_t *end, const struct span *texts)
{
    uint32_t *low = first + 1, *high = end;
    for (;;) {
        while (before(texts, *low, *first))
            low++;
        do
            high--;
        while (before(texts, *first, *high));
        if (low >= high)
            return low;
        swap(low++, high);
    }
}

/* Lets the hole at `at` sink to a leaf, then lets x rise from there. */
static void heap_place(uint32_t *v, size_t at, size_t n, uint32_t x, const struct span *texts)
{
    size_t top = at, child = at;
    while (child < (n - 1) / 2) {
        child = 2 * (child + 1);
        if (before(texts, v[child], v[child - 1]))
            child--;
        v[at] = v[child];
        at = child;
    }
    if (n % 2 == 0 && child == (n - 2) / 2) {
        child = 2 * (child + 1);
        v[at] = v[child - 1];
        at = child - 1;
    }
    for (; at > top && before(texts, v[(at - 1) / 2], x); at = (at - 1) / 2)
        v[at] = v[(at - 1) / 2];
    v[at] = x;
}

static void heap_sort(uint32_t *v, size_t n, const struct span *texts)
{
    for (size_t parent = (n - 2) / 2 + 1; parent-- > 0;)
        heap_place(v, parent, n, v[parent], texts);
    for (size_t last = n - 1; last > 0; last--) {
        uint32_t x = v[last];
        v[last] = v[0];
        heap_place(v, 0, last, x, texts);
    }
}

static void introsort(uint32_t *first, uint32_t *end, unsigned depth, const struct span *texts)
{
    while (end - first > SMALL) {
        if (depth-- == 0) {
            heap_sort(first, (size_t)(end - first), texts);
            return;
        }
        swap(first, median(first + 1, first + (end - first) / 2, end - 1, texts));
        uint32_t *cut = partition(first, end, texts);
        introsort(cut, end, depth, texts);
        end = cut;
    }
}

void text_order_by_length(uint32_t *ids, size_t n, const struct span *texts)
{
    unsigned depth = 0;
    for (size_t k = n; k > 1; k /= 2)
        depth += 2;
    introsort(ids, ids + n, depth, texts);
    for (size_t i = 1; i < n; i++) {
        uint32_t x = ids[i];
        size_t at = i;
        for (; at > 0 && before(texts, x, ids[at - 1]); at--)
            ids[at] = ids[at - 1];
        ids[at] = x;
    }
}

/* ---- the order of an unordered_map ---- */

/* libstdc++'s _Hash_bytes (a 64-bit MurmurHash2) with its fixed seed. */
static uint64_t standard_hash(struct span s)
{
    const uint64_t mul = 0xc6a4a7935bd1e995ull;
    uint64_t h = 0xc70f6907ull ^ s.size * mul, word;
    const char *p = s.data;
    size_t left = s.size;
    for (; left >= 8; p += 8, left -= 8) {
        memcpy(&word, p, 8);
        word *= mul;
        h = (h ^ (word ^ word >> 47) * mul) * mul;
    }
    if (left) {
        word = 0;
        memcpy(&word, p, left);
        h = (h ^ word) * mul;
    }
    h = (h ^ h >> 47) * mul;
    return h ^ h >> 47;
}

#define NIL UINT32_MAX

/* One singly linked list of all entries; a bucket names the entry before its first one (n stands for the list's head). */
struct order_map {
    uint64_t *hash; /* [n] */
    uint32_t *next; /* [n + 1], next[n] is the head */
    uint32_t *bucket;
    size_t n, n_buckets;
};

static void order_insert(struct order_map *m, uint32_t i)
{
    uint32_t *bucket = &m->bucket[m->hash[i] % m->n_buckets];
    if (*bucket != NIL) {
        m->next[i] = m->next[*bucket];
        m->next[*bucket] = i;
        return;
    }
    m->next[i] = m->next[m->n];
    m->next[m->n] = i;
    if (m->next[i] != NIL)
        m->bucket[m->hash[m->next[i]] % m->n_buckets] = i;
    *bucket = (uint32_t)m->n;
}

/* Walks the list in order and enters each entry again; unlike an insertion an entry of a known bucket goes behind the
 * entry before the bucket, which is the same place. */
static void order_grow(struct order_map *m, size_t n_buckets)
{
    uint32_t i = m->next[m->n];
    m->next[m->n] = NIL;
    m->n_buckets = n_buckets;
    memset(m->bucket, 0xff, n_buckets * sizeof *m->bucket);
    while (i != NIL) {
        uint32_t next = m->next[i];
        order_insert(m, i);
        i = next;
    }
}

static const uint32_t bucket_counts[] = {
    13, 29, 59, 127, 257, 541, 1109, 2357, 5087, 10273, 20753, 42043, 85229, 172933, 351061, 712697, 1447153, 2938679,
    5967347, 12117689, 24607243, 49969847, 101473717, 206062531, 418451333, 849749479, 1725587117};

static size_t last_bucket_count(size_t n)
{
    size_t i = 0;
    while (i + 1 < sizeof bucket_counts / sizeof bucket_counts[0] && bucket_counts[i] < n)
        i++;
    return bucket_counts[i];
}

bool text_order_first_hashed(const struct span *texts, size_t n, const uint32_t *candidates, size_t n_candidates,
                             uint32_t *first)
{
    struct order_map m = {malloc(n * sizeof *m.hash), malloc((n + 1) * sizeof *m.next),
                          malloc(last_bucket_count(n) * sizeof *m.bucket), n, 0};
    bool ok = m.hash && m.next && m.bucket;
    if (ok) {
        m.next[n] = NIL;
        const uint32_t *count = bucket_counts;
        for (uint32_t i = 0; i < n; i++) {
            m.hash[i] = standard_hash(texts[i]);
            if (i == m.n_buckets)
                order_grow(&m, *count++);
            order_insert(&m, i);
        }
        bool found = false;
        for (uint32_t i = m.next[n]; i != NIL && !found; i = m.next[i])
            for (size_t c = 0; c < n_candidates && !found; c++)
                if ((found = candidates[c] == i))
                    *first = i;
    }
    free(m.hash);
    free(m.next);
    free(m.bucket);
    return ok;
}
