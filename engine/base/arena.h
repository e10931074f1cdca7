/* Many allocations, one release: for objects that are built once and stay as they are. */
#ifndef GGUFD_BASE_ARENA_H
#define GGUFD_BASE_ARENA_H

#include <stddef.h>

struct arena_block;

/* Zero-initialise. `bytes` is what the blocks take together. */
struct arena {
    struct arena_block *blocks;
    size_t bytes;
};

/* Zeroed, aligned to 16; size 0 gives a valid pointer. NULL: no memory. */
void *arena_alloc(struct arena *a, size_t size);
/* The same for count elements of `size` bytes; NULL as well if the product overflows. */
void *arena_array(struct arena *a, size_t count, size_t size);
/* A copy of data[0..size). */
char *arena_copy(struct arena *a, const void *data, size_t size);
void arena_clear(struct arena *a);

#endif
