/* Blocks of 64 KiB; what is larger than a quarter of that gets a block of its own. See arena.h. */
#include "engine/base/arena.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK_BYTES = 1 << 16, ALIGNMENT = 16 };

struct arena_block {
    struct arena_block *next;
    size_t used, capacity;
    _Alignas(ALIGNMENT) char data[];
};

static struct arena_block *block_new(struct arena *a, size_t capacity)
{
    struct arena_block *b = calloc(1, sizeof *b + capacity);
    if (!b)
        return NULL;
    b->capacity = capacity;
    a->bytes += sizeof *b + capacity;
    return b;
}

void *arena_alloc(struct arena *a, size_t size)
{
    if (size > SIZE_MAX / 2)
        return NULL;
    size = (size + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
    struct arena_block *b = a->blocks;
    if (b && size <= b->capacity - b->used) {
        b->used += size;
        return b->data + b->used - size;
    }
    if (size > BLOCK_BYTES / 4) { /* behind the first block, whose rest stays usable */
        struct arena_block *own = block_new(a, size);
        if (!own)
            return NULL;
        own->used = size;
        own->next = b ? b->next : NULL;
        *(b ? &b->next : &a->blocks) = own;
        return own->data;
    }
    b = block_new(a, BLOCK_BYTES);
    if (!b)
        return NULL;
    b->next = a->blocks;
    a->blocks = b;
    b->used = size;
    return b->data;
}

void *arena_array(struct arena *a, size_t count, size_t size)
{
    return size && count > SIZE_MAX / 2 / size ? NULL : arena_alloc(a, count * size);
}

char *arena_copy(struct arena *a, const void *data, size_t size)
{
    char *copy = arena_alloc(a, size);
    if (copy && size)
        memcpy(copy, data, size);
    return copy;
}

void arena_clear(struct arena *a)
{
    while (a->blocks) {
        struct arena_block *next = a->blocks->next;
        free(a->blocks);
        a->blocks = next;
    }
    a->bytes = 0;
}
