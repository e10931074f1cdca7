/* An index of unique names: sorted, so that neither building nor finding depends on how names were chosen. */
#ifndef GGUFD_GGUF_NAMES_H
#define GGUFD_GGUF_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/error.h"
#include "engine/base/span.h"

struct name_entry {
    uint64_t hash;
    const char *data; /* borrowed */
    uint32_t size, item;
};

struct names {
    struct name_entry *entries;
    size_t n;
};

#define NAMES_NONE SIZE_MAX

/* Builds the index over n names, name_of(items, i) for i < n; O(n log n). Two equal names are refused: the message
 * says "`what` NAME: duplicate (numbers i and j)". names_clear frees in every case. */
enum status names_build(struct names *names, const char *what, struct span (*name_of)(const void *items, size_t i),
                        const void *items, size_t n, struct error *err);
size_t names_find(const struct names *names, struct span name); /* item number or NAMES_NONE */
void names_clear(struct names *names);

#endif
