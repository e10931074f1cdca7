/* A growable priority queue of 64-bit keys, smallest first. */
#ifndef GGUFD_TOKENIZER_HEAP_H
#define GGUFD_TOKENIZER_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Zero-initialise; free() data at the end. */
struct heap {
    uint64_t *data;
    size_t n, capacity;
};

bool heap_push(struct heap *h, uint64_t key); /* false: no memory */
uint64_t heap_pop(struct heap *h);            /* n > 0 */

#endif
