/* Claims by compare and exchange on one word a worker; see claim.h. */
#include "engine/exec/claim.h"

#include <assert.h>

enum { UNIT_BITS = 12, UNIT_MASK = (1 << UNIT_BITS) - 1, GENERATION_SHIFT = 2 * UNIT_BITS };

static uint64_t word_of(uint64_t generation, size_t begin, size_t end)
{
    return generation << GENERATION_SHIFT | (uint64_t)begin << UNIT_BITS | (uint64_t)end;
}

/* Takes units of `owner`'s share, from the front or the back; false if it is used up. */
static bool take(const struct claims *c, uint64_t generation, unsigned owner, size_t n_units, bool front, size_t most,
                 struct claim *claim)
{
    _Atomic uint64_t *word = &c->words[generation % CLAIM_SETS * c->n_workers + owner].value;
    uint64_t old = atomic_load_explicit(word, memory_order_relaxed), fresh;
    bool some;
    do {
        size_t begin = (old >> UNIT_BITS) & UNIT_MASK, end = old & UNIT_MASK;
        if (old >> GENERATION_SHIFT != (generation << GENERATION_SHIFT) >> GENERATION_SHIFT)
            claim_share(n_units, owner, c->n_workers, &begin, &end);
        some = begin < end;
        if (some) {
            size_t count = claim_size(end - begin, most);
            *claim = (struct claim){front ? begin : end - count, count};
            begin += front ? count : 0;
            end -= front ? 0 : count;
        }
        fresh = word_of(generation, begin, end);
        /* Also written when nothing was left: a word never keeps an old generation behind a node its owner took part in. */
    } while (fresh != old && !atomic_compare_exchange_weak_explicit(word, &old, fresh, memory_order_relaxed,
                                                                    memory_order_relaxed));
    return some;
}

bool claim_next(const struct claims *c, uint64_t generation, unsigned worker, size_t n_units, size_t most,
                struct claim *claim)
{
    assert(n_units <= CLAIM_UNITS_MAX);
    if (take(c, generation, worker, n_units, true, most, claim))
        return true;
    for (unsigned i = 1; i < c->n_workers; i++)
        if (take(c, generation, (worker + i) % c->n_workers, n_units, false, most, claim))
            return true;
    return false;
}
