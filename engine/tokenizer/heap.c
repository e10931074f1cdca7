/* Four children a node, so that a pop touches few cache lines; see heap.h. */
#include "engine/tokenizer/heap.h"

#include <stdlib.h>

bool heap_push(struct heap *h, uint64_t key)
{
    if (h->n == h->capacity) {
        size_t capacity = h->capacity ? h->capacity * 2 : 64;
        uint64_t *data = realloc(h->data, capacity * sizeof *data);
        if (!data)
            return false;
        h->data = data;
        h->capacity = capacity;
    }
    size_t at = h->n++;
    for (; at > 0 && key < h->data[(at - 1) / 4]; at = (at - 1) / 4)
        h->data[at] = h->data[(at - 1) / 4];
    h->data[at] = key;
    return true;
}

uint64_t heap_pop(struct heap *h)
{
    uint64_t *d = h->data, top = d[0], last = d[--h->n];
    size_t n = h->n, at = 0;
    for (size_t child; (child = 4 * at + 1) < n; at = child) {
        size_t end = child + 4 < n ? child + 4 : n;
        for (size_t i = child + 1; i < end; i++)
            if (d[i] < d[child])
                child = i;
        if (d[child] >= last)
            break;
        d[at] = d[child];
    }
    if (n)
        d[at] = last;
    return top;
}
