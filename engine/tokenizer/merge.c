/* Storage of merge.h. */
#include "engine/tokenizer/merge.h"

#include <stdlib.h>

bool merge_reserve(struct merge_scratch *m, size_t n)
{
    if (n + 2 <= m->capacity)
        return true;
    size_t capacity = m->capacity ? m->capacity : 64;
    while (capacity < n + 2)
        capacity *= 2;
    struct symbol *symbols = realloc(m->symbols, capacity * sizeof *symbols);
    if (!symbols)
        return false;
    m->symbols = symbols;
    m->capacity = capacity;
    return true;
}

/* Exactly as many as the word has symbols: giant words are rare and their size is final. */
bool merge_reserve_links(struct merge_scratch *m)
{
    if (m->n >= m->links_capacity) {
        free(m->next);
        m->links_capacity = 0;
        m->next = malloc((m->n + 1) * 2 * sizeof *m->next);
        if (!m->next)
            return false;
        m->links_capacity = m->n + 1;
    }
    m->previous = m->next + m->n + 1;
    return true;
}

void merge_clear(struct merge_scratch *m)
{
    free(m->symbols);
    free(m->next);
    free(m->heap.data);
    *m = (struct merge_scratch){0};
}
