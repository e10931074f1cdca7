/* Sorted index of names; see names.h. Entries are ordered by hash, then size, then bytes: comparisons rarely leave the
 * array, and colliding names chosen by an attacker cost a comparison each, not a longer chain. Refuses duplicates. */
#include "engine/gguf/names.h"

#include <stdlib.h>

#include "engine/base/hash.h"

static struct name_entry entry_of(struct span name, size_t item)
{
    return (struct name_entry){hash_bytes(HASH_SEED, name.data, name.size), name.data, (uint32_t)name.size,
                               (uint32_t)item};
}

static int compare_names(const struct name_entry *x, const struct name_entry *y)
{
    if (x->hash != y->hash)
        return x->hash < y->hash ? -1 : 1;
    if (x->size != y->size)
        return x->size < y->size ? -1 : 1;
    return memcmp(x->data, y->data, x->size);
}

static int compare_entries(const void *a, const void *b)
{
    const struct name_entry *x = a, *y = b;
    int order = compare_names(x, y);
    return order ? order : (x->item > y->item) - (x->item < y->item);
}

static enum status refuse_duplicates(const struct names *names, const char *what, struct error *err)
{
    for (size_t i = 1; i < names->n; i++) {
        const struct name_entry *x = &names->entries[i - 1], *y = &names->entries[i];
        char quoted[ERROR_QUOTE_BYTES];
        if (compare_names(x, y) == 0)
            return error_set(err, STATUS_INVALID, "%s \"%s\": duplicate name (numbers %u and %u); names must be unique",
                             what, error_quote(x->data, x->size, quoted), x->item, y->item);
    }
    return STATUS_OK;
}

enum status names_build(struct names *names, const char *what, struct span (*name_of)(const void *items, size_t i),
                        const void *items, size_t n, struct error *err)
{
    *names = (struct names){0};
    if (n == 0)
        return STATUS_OK;
    names->entries = malloc(n * sizeof *names->entries);
    if (!names->entries)
        return error_no_memory(err, n * sizeof *names->entries, "the index of names");
    names->n = n;
    for (size_t i = 0; i < n; i++)
        names->entries[i] = entry_of(name_of(items, i), i);
    qsort(names->entries, n, sizeof *names->entries, compare_entries);
    return refuse_duplicates(names, what, err);
}

size_t names_find(const struct names *names, struct span name)
{
    struct name_entry wanted = entry_of(name, 0);
    size_t low = 0, high = names->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = compare_names(&wanted, &names->entries[middle]);
        if (order == 0)
            return names->entries[middle].item;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NAMES_NONE;
}

void names_clear(struct names *names)
{
    free(names->entries);
    *names = (struct names){0};
}
