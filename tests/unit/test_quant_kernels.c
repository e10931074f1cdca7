/* Kernels of every format and tier against the format's scalar dot: equal bits, or NaN on both sides.
 *
 * Weights end at an inaccessible page, scratch and activations have exactly the promised size, results outside the
 * requested rows must stay untouched. New kernels are covered without a change here. */
#include "engine/base/f16.h"
#include "engine/quant/quant.h"
#include "tests/support/encode.h"
#include "tests/support/suite.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MAX_TOKENS = 17, SENTINEL = 0x7fc0dead };

/* Blocks per row; the elements are these times the format's block. */
static const size_t row_blocks[] = {1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 33};
enum { ALL_REMAINDERS = 9 }; /* rows of more blocks are tested with few row remainders only, to save time */
static const size_t token_counts[] = {1, 2, 3, 4, 5, 7, 8, 9, 12, MAX_TOKENS};
#define COUNT(a) (sizeof(a) / sizeof(a)[0])

/* Memory whose last byte is followed by a page that cannot be read. */
struct guarded {
    char *pages, *end;
    size_t bytes;
};

static struct guarded guarded_new(size_t size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), body = (size + page - 1) / page * page;
    struct guarded g = {.bytes = body + page};
    g.pages = mmap(NULL, g.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ck_assert(g.pages != MAP_FAILED);
    g.end = g.pages + body;
    ck_assert_int_eq(mprotect(g.end, page, PROT_NONE), 0);
    return g;
}

/* One matrix with its activations and the scalar results, from which all runs of a format are checked. */
struct subject {
    const struct format *format;
    size_t n_cols, n_rows, row_bytes;
    char *weights;
    float *x, *expected; /* [MAX_TOKENS][n_cols], [MAX_TOKENS][n_rows] */
};

/* A zero token, one of tiny values, one of large ones, one with a NaN or an infinity, the others plain. */
static void make_activations(uint64_t *rng, float *x, size_t n, bool raw)
{
    random_floats(rng, x, n * MAX_TOKENS);
    memset(x + n, 0, n * sizeof *x);
    for (size_t i = 0; i < n; i++) {
        x[2 * n + i] *= 0x1p-130f;
        x[5 * n + i] *= 0x1p+60f;
    }
    if (raw)
        x[3 * n + random_u64(rng) % n] = random_u64(rng) & 1 ? NAN : -INFINITY;
}

static void subject_init(struct subject *s, const struct format *f, size_t n_rows, size_t n_blocks, bool raw,
                         uint64_t *rng)
{
    const struct activation_format *a = activation_format(f->activation);
    s->format = f;
    s->n_rows = n_rows;
    s->n_cols = n_blocks * f->block_elements;
    s->row_bytes = n_blocks * f->block_bytes;
    s->weights = malloc(n_rows * s->row_bytes);
    s->x = malloc(MAX_TOKENS * s->n_cols * sizeof(float));
    s->expected = malloc(MAX_TOKENS * n_rows * sizeof(float));
    if (raw)
        random_bytes(rng, s->weights, n_rows * s->row_bytes);
    else
        random_blocks(f, rng, s->weights, n_rows * n_blocks);
    make_activations(rng, s->x, s->n_cols, raw);
    void *encoded = malloc(s->n_cols / a->block_elements * a->block_bytes);
    for (size_t t = 0; t < MAX_TOKENS; t++) {
        a->encode(s->x + t * s->n_cols, encoded, s->n_cols);
        for (size_t r = 0; r < n_rows; r++)
            s->expected[t * n_rows + r] = f->dot(s->weights + r * s->row_bytes, encoded, s->n_cols);
    }
    free(encoded);
}

static void subject_clear(struct subject *s)
{
    free(s->weights);
    free(s->x);
    free(s->expected);
}

static void *exact_alloc(size_t bytes)
{
    void *p = NULL;
    ck_assert_int_eq(posix_memalign(&p, 64, bytes ? bytes : 1), 0);
    return p;
}

/* Activations of n_tokens tokens in the kernel's layout, encoded in two shares as two threads would. */
static void *encode(const struct subject *s, const struct activation_layout *layout, size_t n_tokens)
{
    void *out = exact_alloc(layout->bytes(s->n_cols, n_tokens));
    size_t middle = (n_tokens + 1) / 2 / layout->token_tile * layout->token_tile;
    layout->encode(s->x, s->n_cols, s->n_cols, middle, n_tokens, n_tokens, out);
    layout->encode(s->x, s->n_cols, s->n_cols, 0, middle, n_tokens, out);
    return out;
}

static bool same_bits(float a, float b)
{
    return float_bits(a) == float_bits(b) || (isnan(a) && isnan(b));
}

static void check_results(const struct subject *s, enum cpu_tier tier, const struct product *p)
{
    for (size_t t = 0; t < p->n_tokens; t++)
        for (size_t r = 0; r < p->y_stride; r++) {
            float got = p->y[t * p->y_stride + r];
            if (r < p->row_begin || r >= p->row_end) {
                if (float_bits(got) != SENTINEL)
                    ck_abort_msg("%s %s: row %zu outside [%zu, %zu) was written, %zu columns, token %zu of %zu",
                                 s->format->name, cpu_tier_name(tier), r, p->row_begin, p->row_end, s->n_cols, t,
                                 p->n_tokens);
            } else if (!same_bits(got, s->expected[t * s->n_rows + r])) {
                ck_abort_msg("%s %s: %a, expected %a: row %zu of [%zu, %zu), %zu columns, token %zu of %zu",
                             s->format->name, cpu_tier_name(tier), (double)got,
                             (double)s->expected[t * s->n_rows + r], r, p->row_begin, p->row_end, s->n_cols, t,
                             p->n_tokens);
            }
        }
}

/* Rows [begin, end) with the matrix ending at the inaccessible page. */
static void check_rows(const struct subject *s, enum cpu_tier tier, const struct guarded *guard, const void *x,
                       size_t n_tokens, size_t begin, size_t end)
{
    const struct kernel *k = format_kernel(s->format, tier, n_tokens);
    struct product p = {.weights_end = guard->end, .row_bytes = s->row_bytes, .n_cols = s->n_cols,
                        .row_begin = begin, .row_end = end, .x = x, .n_tokens = n_tokens, .y_stride = end + 1};
    char *start = guard->end - end * s->row_bytes;
    memcpy(start, s->weights, end * s->row_bytes);
    p.weights = start;
    p.scratch = exact_alloc(k->scratch_bytes ? k->scratch_bytes(s->n_cols, n_tokens) : 0);
    p.y = malloc(n_tokens * p.y_stride * sizeof(float));
    for (size_t i = 0; i < n_tokens * p.y_stride; i++)
        p.y[i] = bits_float(SENTINEL);
    k->run(&p);
    check_results(s, tier, &p);
    free(p.y);
    free(p.scratch);
}

/* Every row remainder of the kernel's tile, alone, behind one tile and behind several. */
static size_t check_kernel(const struct subject *s, enum cpu_tier tier, const struct guarded *guard, size_t n_tokens)
{
    const struct kernel *k = format_kernel(s->format, tier, n_tokens);
    size_t rows = 0, tile = k->row_tile, several = (s->n_rows / tile - 1) * tile;
    void *x = encode(s, k->layout, n_tokens);
    bool all = s->n_cols / s->format->block_elements <= ALL_REMAINDERS;
    for (size_t rest = 0; rest < tile; rest += all ? 1 : tile / 2 + 1) {
        if (rest > 0)
            check_rows(s, tier, guard, x, n_tokens, 0, rest);
        check_rows(s, tier, guard, x, n_tokens, rest ? tile : 0, tile + rest);
        check_rows(s, tier, guard, x, n_tokens, 0, several + rest);
        rows += several + 2 * rest;
    }
    free(x);
    return rows;
}

static bool has_own_kernel(const struct format *f, enum cpu_tier tier, size_t n_tokens)
{
    return format_kernel(f, tier, n_tokens) == (n_tokens > 1 ? f->prefill : f->decode) + tier;
}

/* Tokens counts worth their time: all of them for kernels, few for the runner of the scalar dot. */
static bool is_wanted(enum cpu_tier tier, size_t n_tokens)
{
    return tier == TIER_SCALAR ? n_tokens == 1 || n_tokens == 3
                               : !suite_sanitized() || n_tokens < 4 || n_tokens == 9;
}

static size_t check_subject(const struct subject *s, enum cpu_tier tier)
{
    size_t blocks = 0;
    struct guarded guard = guarded_new(s->n_rows * s->row_bytes);
    for (size_t i = 0; i < COUNT(token_counts); i++)
        if (is_wanted(tier, token_counts[i]) && has_own_kernel(s->format, tier, token_counts[i]))
            blocks += check_kernel(s, tier, &guard, token_counts[i]) * s->n_cols / s->format->block_elements;
    munmap(guard.pages, guard.bytes);
    return blocks;
}

static size_t largest_tile(const struct format *f)
{
    size_t largest = 1;
    for (int tier = 0; tier < TIER_COUNT; tier++) {
        if (f->decode[tier].run && f->decode[tier].row_tile > largest)
            largest = f->decode[tier].row_tile;
        if (f->prefill[tier].run && f->prefill[tier].row_tile > largest)
            largest = f->prefill[tier].row_tile;
    }
    return largest;
}

static void check_format(const struct format *f, bool raw, size_t blocks[TIER_COUNT])
{
    uint64_t rng = f->id * 1000 + raw;
    size_t tile = largest_tile(f), n_rows = tile < 16 ? 32 + tile : 3 * tile;
    for (size_t i = 0; i < COUNT(row_blocks); i++) {
        if (suite_sanitized() && (i % 2 || row_blocks[i] > 17))
            continue;
        struct subject s;
        subject_init(&s, f, n_rows, row_blocks[i], raw, &rng);
        for (int tier = 0; tier < TIER_COUNT; tier++)
            if (cpu_tier_available((enum cpu_tier)tier))
                blocks[tier] += check_subject(&s, (enum cpu_tier)tier);
        subject_clear(&s);
    }
}

static void check_all_formats(bool raw)
{
    size_t n, formats[TIER_COUNT] = {0}, total[TIER_COUNT] = {0};
    const struct format *const *all = format_all(&n);
    for (size_t i = 0; i < n; i++) {
        size_t blocks[TIER_COUNT] = {0};
        check_format(all[i], raw, blocks);
        for (int tier = 0; tier < TIER_COUNT; tier++) {
            formats[tier] += blocks[tier] > 0;
            total[tier] += blocks[tier];
            if (blocks[tier] > 0 && blocks[tier] < 1000)
                ck_abort_msg("%s %s: only %zu blocks", all[i]->name, cpu_tier_name((enum cpu_tier)tier), blocks[tier]);
        }
    }
    for (int tier = 0; tier < TIER_COUNT; tier++)
        printf("note: %s: %zu formats with own kernels, %zu %s blocks, 0 differing results\n",
               cpu_tier_name((enum cpu_tier)tier), formats[tier], total[tier], raw ? "random-byte" : "plausible");
}

TEST(every_tier_returns_the_scalar_bits_for_any_bytes)
{
    check_all_formats(true);
}
END

/* With scales of one magnitude a wrong order of additions shows; among random scales one block hides the others. */
TEST(every_tier_returns_the_scalar_bits_for_plausible_blocks)
{
    check_all_formats(false);
}
END

SUITE(quant_kernels, T(every_tier_returns_the_scalar_bits_for_any_bytes),
      T(every_tier_returns_the_scalar_bits_for_plausible_blocks))
