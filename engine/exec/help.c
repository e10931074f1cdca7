/* One slot a worker. Only its owner makes EMPTY GIVEN and DONE EMPTY; owner and helpers contend for GIVEN, which becomes
 * EMPTY or TAKEN; only the helper makes TAKEN DONE. See help.h. */
#include "engine/exec/help.h"

#include <sched.h>
#include <string.h>

#include "engine/cpu/cpu.h"

enum { EMPTY, GIVEN, TAKEN, DONE };

enum { LOOKS_BEFORE_YIELD = 1000 }; /* at an unfinished piece: its helper may have lost its core */

static size_t slots_bytes(unsigned n_workers)
{
    return n_workers * sizeof(struct help_slot);
}

size_t help_bytes(unsigned n_workers)
{
    return slots_bytes(n_workers) + _Alignof(struct help_slot);
}

struct help help_init(void *memory, unsigned n_workers)
{
    memset(memory, 0, help_bytes(n_workers));
    return (struct help){memory, (atomic_uint *)(void *)((char *)memory + slots_bytes(n_workers)), n_workers};
}

static struct help_slot *own_slot(void *giver)
{
    const struct help_giver *g = giver;
    return &g->h->slots[g->worker];
}

static bool change(struct help_slot *slot, unsigned from, unsigned to)
{
    return atomic_compare_exchange_strong_explicit(&slot->state, &from, to, memory_order_acquire, memory_order_relaxed);
}

bool help_wanted(void *giver)
{
    return atomic_load_explicit(((const struct help_giver *)giver)->h->n_idle, memory_order_relaxed) != 0;
}

void help_give(void *giver, const struct attention_piece *piece)
{
    struct help_slot *slot = own_slot(giver);
    slot->piece = *piece;
    atomic_store_explicit(&slot->state, GIVEN, memory_order_release);
}

bool help_take_back(void *giver)
{
    struct help_slot *slot = own_slot(giver);
    if (change(slot, GIVEN, EMPTY))
        return true;
    for (unsigned looks = 0; atomic_load_explicit(&slot->state, memory_order_acquire) != DONE; looks++) {
        if (looks < LOOKS_BEFORE_YIELD)
            cpu_pause();
        else
            sched_yield();
    }
    atomic_store_explicit(&slot->state, EMPTY, memory_order_relaxed);
    return false;
}

void help_idle(const struct help *h, bool idle)
{
    if (idle)
        atomic_fetch_add_explicit(h->n_idle, 1, memory_order_relaxed);
    else
        atomic_fetch_sub_explicit(h->n_idle, 1, memory_order_relaxed);
}

bool help_one(const struct help *h, unsigned worker, enum cpu_tier tier, void *scratch)
{
    for (unsigned i = 1; i < h->n_workers; i++) {
        struct help_slot *slot = &h->slots[(worker + i) % h->n_workers];
        if (atomic_load_explicit(&slot->state, memory_order_relaxed) != GIVEN || !change(slot, GIVEN, TAKEN))
            continue;
        attention_piece_run(tier, &slot->piece, scratch);
        atomic_store_explicit(&slot->state, DONE, memory_order_release);
        return true;
    }
    return false;
}
