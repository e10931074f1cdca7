/* engine/exec/help: attention in pieces, given away and taken back in every way, has the bits of one worker alone. */
#include "engine/exec/help.h"
#include "engine/exec/pool.h"
#include "tests/support/random.h"
#include "tests/support/suite.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

/* What becomes of a piece: as it happens, always computed by another worker, always taken back. */
enum mode { AS_IT_COMES, ALWAYS_HELPED, NEVER_HELPED, MODE_COUNT };

struct problem {
    enum cpu_tier tier;
    enum mode mode;
    struct kv kv;
    struct attention a;
    size_t scratch_bytes;
    unsigned char *scratch; /* [n_workers] */
    struct pool *pool;
    struct help help;
    atomic_uint given, helped;
};

static void *aligned(size_t bytes)
{
    void *p = aligned_alloc(64, (bytes + 63) / 64 * 64);
    ck_assert_ptr_nonnull(p);
    memset(p, 0x7f, bytes);
    return p;
}

struct giver {
    struct help_giver giver;
    struct problem *problem;
};

static bool giver_wanted(void *context)
{
    struct giver *g = context;
    return help_wanted(&g->giver);
}

static void giver_give(void *context, const struct attention_piece *piece)
{
    struct giver *g = context;
    atomic_fetch_add(&g->problem->given, 1);
    help_give(&g->giver, piece);
}

static bool giver_take_back(void *context)
{
    struct giver *g = context;
    while (g->problem->mode == ALWAYS_HELPED && atomic_load(&g->problem->helped) < atomic_load(&g->problem->given))
        sched_yield();
    return help_take_back(&g->giver);
}

struct helper {
    struct problem *problem;
    unsigned worker;
};

static bool helper_idle(void *context)
{
    struct helper *h = context;
    struct problem *p = h->problem;
    if (p->mode != NEVER_HELPED && help_one(&p->help, h->worker, p->tier, p->scratch + h->worker * p->scratch_bytes))
        atomic_fetch_add(&p->helped, 1);
    else
        sched_yield();
    return true;
}

/* Worker 0 computes all items, the others wait. */
static void walk(void *context, unsigned worker, unsigned n_workers)
{
    struct problem *p = context;
    struct helper helper = {p, worker};
    if (worker == 0) {
        struct giver giver = {{&p->help, 0}, p};
        struct attention_help help = {giver_wanted, giver_give, giver_take_back, &giver};
        struct attention a = p->a;
        a.help = &help;
        while (p->mode != AS_IT_COMES && !help_wanted(&giver.giver))
            sched_yield();
        for (size_t item = 0; item < attention_items(&a, n_workers); item++)
            attention_item(p->tier, &a, n_workers, item, p->scratch);
        pool_barrier(p->pool, NULL, NULL);
    } else {
        help_idle(&p->help, true);
        pool_barrier(p->pool, helper_idle, &helper);
        help_idle(&p->help, false);
    }
}

static void fill(struct problem *p, uint64_t *seed)
{
    const struct kv_config *c = &p->kv.config;
    size_t row = c->n_heads * c->head_size, n = c->n_positions * row;
    float *k = malloc(n * sizeof *k), *v = malloc(n * sizeof *v);
    ck_assert(k && v);
    random_fill(seed, k, n, 2);
    random_fill(seed, v, n, 2);
    struct attention_store store = {.kv = &p->kv, .n_tokens = c->n_positions, .k = k, .v = v, .k_stride = row, .v_stride = row};
    attention_store_share(TIER_SCALAR, &store, 0, 1);
    free(k);
    free(v);
}

static void check(uint64_t *seed, size_t head_size, size_t n_heads_kv, size_t group, size_t n_keys, unsigned n_workers)
{
    struct problem p = {0};
    struct kv_config config = {.n_layers = 1, .n_heads = n_heads_kv, .head_size = head_size, .n_positions = n_keys};
    struct error err;
    ck_assert_int_eq(kv_init(&p.kv, &config, &err), STATUS_OK);
    ck_assert_int_eq(pool_new(n_workers, n_workers, &p.pool, &err), STATUS_OK);
    fill(&p, seed);
    size_t n_heads = n_heads_kv * group, row = n_heads * head_size;
    float *q = aligned(row * sizeof *q), *want = aligned(row * sizeof *want), *got = aligned(row * sizeof *got);
    random_fill(seed, q, row, 2);
    p.scratch_bytes = attention_scratch_bytes(&config, n_heads, 1);
    p.scratch = aligned(p.scratch_bytes * n_workers);
    void *board = aligned(help_bytes(n_workers));
    p.help = help_init(board, n_workers);
    p.a = (struct attention){.kv = &p.kv, .n_heads = n_heads, .position = n_keys - 1, .n_tokens = 1, .q = q, .out = want,
                             .q_stride = row, .out_stride = row};
    for (size_t item = 0; item < attention_items(&p.a, 1); item++)
        attention_item(TIER_SCALAR, &p.a, 1, item, p.scratch);
    p.a.out = got;
    for (int tier = 0; tier < TIER_COUNT; tier++)
        for (int mode = 0; mode < MODE_COUNT && cpu_tier_available((enum cpu_tier)tier); mode++) {
            p.tier = (enum cpu_tier)tier;
            p.mode = (enum mode)mode;
            atomic_store(&p.given, 0);
            atomic_store(&p.helped, 0);
            memset(got, 0x7f, row * sizeof *got);
            pool_run(p.pool, walk, &p);
            if (memcmp(got, want, row * sizeof *got) != 0)
                ck_abort_msg("tier %s, mode %d, head size %zu, %zu x %zu heads, %zu keys, %u workers: other bits",
                             cpu_tier_name(p.tier), mode, head_size, n_heads_kv, group, n_keys, n_workers);
            if (mode == ALWAYS_HELPED && tier != TIER_SCALAR && n_keys > 2000)
                ck_assert_uint_ge(p.helped, 1);
            if (mode == NEVER_HELPED)
                ck_assert_uint_eq(p.helped, 0);
        }
    pool_free(p.pool);
    kv_clear(&p.kv);
    free(q);
    free(want);
    free(got);
    free(board);
    free(p.scratch);
}

TEST(pieces_have_the_bits_of_the_whole_whoever_computes_them)
{
    uint64_t seed = 1;
    static const size_t sizes[] = {64, 80, 128, 100, 256, 36};
    static const size_t keys[] = {2600, 1, 511, 1024, 1025, 1537, 4099};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (size_t group = 1; group <= 9; group += suite_sanitized() ? 3 : 1)
            check(&seed, sizes[i], 1 + group % 2, group, keys[(i * 2 + group) % 7], 2 + (unsigned)(group % 3));
}
END

TEST(many_pieces_in_a_row)
{
    uint64_t seed = 2;
    for (int round = 0; round < (suite_sanitized() ? 3 : 20); round++)
        check(&seed, 64, 3, 4, 2048 + (size_t)round * 97, 2 + (unsigned)(round % 3));
}
END

SUITE(help, T(pieces_have_the_bits_of_the_whole_whoever_computes_them), T(many_pieces_in_a_row))
