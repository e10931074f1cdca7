/* Open addressing with linear probing, at most half full; see text_table.h. */
#include "engine/tokenizer/text_table.h"

bool text_table_init(struct text_table *t, struct arena *a, const struct span *texts, size_t count)
{
    size_t slots = 16;
    while (slots / 2 < count)
        slots *= 2;
    t->slots = arena_array(a, slots, sizeof *t->slots);
    if (!t->slots)
        return false;
    memset(t->slots, 0xff, slots * sizeof *t->slots);
    t->mask = slots - 1;
    t->texts = texts;
    return true;
}

uint32_t text_table_add(struct text_table *t, uint32_t index)
{
    struct span s = t->texts[index];
    uint32_t hash = text_hash(s);
    for (size_t i = hash & t->mask;; i = (i + 1) & t->mask) {
        struct text_slot *slot = &t->slots[i];
        if (slot->index == TEXT_NONE) {
            *slot = (struct text_slot){hash, index};
            return index;
        }
        if (slot->hash == hash && span_equal(t->texts[slot->index], s))
            return slot->index;
    }
}
