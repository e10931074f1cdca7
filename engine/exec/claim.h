/* Dividing one node's work while it runs. Work is a row of units; every worker begins with a contiguous share, takes its
 * units from the front, so that it reads memory in one stream, and when it has none left takes units from the back of
 * another's share. A core that is slower, shared or taken away then costs its own part and not everybody's time. Which
 * worker computes a unit changes no bit. */
#ifndef GGUFD_EXEC_CLAIM_H
#define GGUFD_EXEC_CLAIM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    CLAIM_SETS = 32,        /* more nodes than may lie between two barriers */
    CLAIM_UNITS_MAX = 4095  /* units of one node */
};

/* What is left of a worker's share: generation << 24 | begin << 12 | end. A word of another generation stands for the whole
 * share: nobody has touched it yet. */
struct claim_word {
    _Alignas(64) _Atomic uint64_t value;
};

struct claims {
    struct claim_word *words; /* [CLAIM_SETS][n_workers] */
    unsigned n_workers;
};

static inline size_t claims_bytes(unsigned n_workers)
{
    return sizeof(struct claim_word) * CLAIM_SETS * n_workers;
}

struct claim {
    size_t first, count; /* units */
};

/* Units of a worker's share of n_units. */
static inline void claim_share(size_t n_units, unsigned worker, unsigned n_workers, size_t *begin, size_t *end)
{
    *begin = n_units * worker / n_workers;
    *end = n_units * (worker + 1) / n_workers;
}

/* Units that a claim takes where `left` are left of a share: a part of them, at least 1, at most `most`. Claims are few
 * while much is left, and small in the end, when the workers should finish together. */
static inline size_t claim_size(size_t left, size_t most)
{
    size_t size = left / 4;
    size = size < most ? size : most;
    return size ? size : 1;
}

/* The next of n_units units for this worker; false when none is left to take. All workers call it for a generation with
 * the same n_units (at most CLAIM_UNITS_MAX) until it says false. Two generations that are in use at once differ by less
 * than CLAIM_SETS. Lock-free. */
bool claim_next(const struct claims *c, uint64_t generation, unsigned worker, size_t n_units, size_t most,
                struct claim *claim);

#endif
