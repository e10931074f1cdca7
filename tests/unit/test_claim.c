/* engine/exec/claim: every unit is taken exactly once, whoever comes late, and through many nodes without a barrier. */
#include "engine/exec/claim.h"
#include "engine/exec/pool.h"
#include "tests/support/suite.h"

#include <stdlib.h>

enum { WORKERS_MAX = 5, NODES = 400 };

struct job {
    struct pool *pool;
    struct claims claims;
    uint64_t first;         /* generation of node 0 */
    size_t n_units[NODES];
    _Atomic unsigned char *taken[NODES];
};

static void walk(void *context, unsigned worker, unsigned n_workers)
{
    struct job *job = context;
    (void)n_workers;
    for (size_t node = 0; node < NODES; node++) {
        struct claim claim;
        if (node % (CLAIM_SETS - 1) == 0)
            pool_barrier(job->pool, NULL, NULL);
        while (claim_next(&job->claims, job->first + node, worker, job->n_units[node], 1 + node % 40, &claim))
            for (size_t i = 0; i < claim.count; i++)
                atomic_fetch_add(&job->taken[node][claim.first + i], 1);
    }
}

static struct claims new_claims(unsigned n_workers)
{
    struct claims c = {aligned_alloc(64, claims_bytes(n_workers)), n_workers};
    ck_assert_ptr_nonnull(c.words);
    memset(c.words, 0, claims_bytes(n_workers));
    return c;
}

static void check(unsigned n_workers, uint64_t first)
{
    struct job job = {.first = first, .claims = new_claims(n_workers)};
    struct error err;
    ck_assert_int_eq(pool_new(n_workers, 2, &job.pool, &err), STATUS_OK);
    uint64_t x = first + n_workers;
    for (size_t i = 0; i < NODES; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        job.n_units[i] = i % 7 == 0 ? i % 3 : i % 11 == 0 ? CLAIM_UNITS_MAX : (x >> 40) % 100;
        job.taken[i] = calloc(CLAIM_UNITS_MAX, 1);
    }
    pool_run(job.pool, walk, &job);
    for (size_t i = 0; i < NODES; i++)
        for (size_t u = 0; u < CLAIM_UNITS_MAX; u++)
            if (job.taken[i][u] != (u < job.n_units[i]))
                ck_abort_msg("%u workers, node %zu: unit %zu of %zu taken %d times", n_workers, i, u, job.n_units[i],
                             job.taken[i][u]);
    for (size_t i = 0; i < NODES; i++)
        free((void *)job.taken[i]);
    pool_free(job.pool);
    free(job.claims.words);
}

TEST(every_unit_is_taken_exactly_once)
{
    for (unsigned n_workers = 1; n_workers <= WORKERS_MAX; n_workers++) {
        check(n_workers, 1);
        check(n_workers, ((uint64_t)1 << 40) - 50); /* generations wrap within the word */
    }
}
END

TEST(a_worker_alone_takes_the_shares_of_those_who_never_come)
{
    struct claims c = new_claims(3);
    struct claim claim;
    size_t seen[40] = {0}, last = SIZE_MAX;
    while (claim_next(&c, 9, 1, 40, 3, &claim)) {
        if (last == SIZE_MAX)
            ck_assert_uint_eq(claim.first, 13); /* the front of its own share */
        ck_assert(claim.count >= 1 && claim.count <= 3);
        last = claim.first;
        for (size_t i = 0; i < claim.count; i++)
            seen[claim.first + i]++;
    }
    for (size_t i = 0; i < 40; i++)
        ck_assert_uint_eq(seen[i], 1);
    free(c.words);
}
END

TEST(claims_are_large_at_first_and_single_units_in_the_end)
{
    struct claims c = new_claims(1);
    struct claim claim;
    size_t left = 1000;
    for (size_t before = 100; claim_next(&c, 1, 0, 1000, 100, &claim); before = claim.count) {
        ck_assert_uint_eq(claim.first, 1000 - left);
        ck_assert_uint_le(claim.count, before);
        ck_assert_uint_le(claim.count, left < 8 ? 1 : left / 4);
        left -= claim.count;
    }
    ck_assert_uint_eq(left, 0);
    free(c.words);
}
END

SUITE(claim, T(every_unit_is_taken_exactly_once), T(a_worker_alone_takes_the_shares_of_those_who_never_come),
      T(claims_are_large_at_first_and_single_units_in_the_end))
