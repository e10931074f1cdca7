/* Workers that wait help those that still compute attention: who sees that somebody waits gives a piece of its work away,
 * and takes it back when it is done itself and nobody came. Whoever computes a piece, the bits are the same. */
#ifndef GGUFD_EXEC_HELP_H
#define GGUFD_EXEC_HELP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "engine/ops/attention.h"

/* What one worker has given away. */
struct help_slot {
    _Alignas(64) _Atomic unsigned state;
    struct attention_piece piece;
};

struct help {
    struct help_slot *slots;        /* [n_workers] */
    atomic_uint *n_idle;            /* workers that look for pieces */
    unsigned n_workers;
};

size_t help_bytes(unsigned n_workers); /* a multiple of 64 */

/* In `memory` of help_bytes(), aligned to 64. */
struct help help_init(void *memory, unsigned n_workers);

/* A worker's side of giving; valid as long as h. */
struct help_giver {
    const struct help *h;
    unsigned worker;
};

/* The functions of struct attention_help, for a context of struct help_giver. */
bool help_wanted(void *giver);
void help_give(void *giver, const struct attention_piece *piece);
bool help_take_back(void *giver);

/* A waiting worker's side: between the two calls of help_idle it must look for pieces now and then. */
void help_idle(const struct help *h, bool idle);

/* Computes one piece that somebody gave away; false when there is none. scratch as for attention_item. */
bool help_one(const struct help *h, unsigned worker, enum cpu_tier tier, void *scratch);

#endif
