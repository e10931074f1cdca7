/* engine/ops/matmul: every format and tier gives the bits of the scalar dot, whatever the tokens, rows, columns and
 * workers, and never reads behind the weights. */
#include "engine/base/f16.h"
#include "engine/ops/matmul.h"
#include "tests/support/suite.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MAX_ROWS = 53, MAX_TOKENS = 40, MAX_WORKERS = 5 };

static uint64_t random_bits(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Weights that end where the readable memory ends: the next page faults. */
struct guarded {
    char *map, *data;
    size_t map_bytes, size;
};

static struct guarded guarded_new(size_t size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), pages = (size + page - 1) / page * page;
    struct guarded g = {.map_bytes = pages + page, .size = size};
    g.map = mmap(NULL, g.map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(g.map, MAP_FAILED);
    ck_assert_int_eq(mprotect(g.map + pages, page, PROT_NONE), 0);
    g.data = g.map + pages - size;
    return g;
}

static void guarded_free(struct guarded *g)
{
    munmap(g->map, g->map_bytes);
}

/* Random blocks; sane: until all their values are finite and of moderate size. */
static void fill_blocks(const struct format *f, char *data, size_t size, bool sane, uint64_t *seed)
{
    float values[256];
    for (size_t at = 0; at < size; at += f->block_bytes) {
        bool again;
        do {
            again = false;
            for (size_t i = 0; i < f->block_bytes; i++)
                data[at + i] = (char)(random_bits(seed) >> 24);
            if (!sane)
                break;
            f->dequantize(data + at, values, f->block_elements);
            for (size_t i = 0; i < f->block_elements; i++)
                again |= !(fabsf(values[i]) < 1000.0f);
        } while (again);
    }
}

static void fill_activations(float *x, size_t n, uint64_t *seed)
{
    for (size_t i = 0; i < n; i++)
        x[i] = (float)((int)(random_bits(seed) >> 16 & 0xffff) - 32768) * (i % 97 == 0 ? 0x1p-8f : 0x1p-13f);
}

struct problem {
    const struct format *format;
    struct guarded weights;
    size_t n_rows, n_cols;
    float *x;           /* [MAX_TOKENS][x_stride] */
    size_t x_stride;
    float *expected;    /* [MAX_TOKENS][n_rows] */
};

static void expect(struct problem *p)
{
    const struct activation_format *a = activation_format(p->format->activation);
    size_t x_bytes = p->n_cols / a->block_elements * a->block_bytes, row_bytes = format_row_bytes(p->format, p->n_cols);
    char *encoded = malloc(x_bytes);
    for (size_t t = 0; t < MAX_TOKENS; t++) {
        a->encode(p->x + t * p->x_stride, encoded, p->n_cols);
        for (size_t r = 0; r < p->n_rows; r++)
            p->expected[t * p->n_rows + r] = p->format->dot(p->weights.data + r * row_bytes, encoded, p->n_cols);
    }
    free(encoded);
}

static struct problem problem_new(const struct format *f, size_t n_rows, size_t n_cols, bool sane, uint64_t *seed)
{
    struct problem p = {.format = f, .n_rows = n_rows, .n_cols = n_cols, .x_stride = n_cols + 3};
    p.weights = guarded_new(n_rows * format_row_bytes(f, n_cols));
    p.x = malloc(MAX_TOKENS * p.x_stride * sizeof(float));
    p.expected = malloc(MAX_TOKENS * n_rows * sizeof(float));
    fill_blocks(f, p.weights.data, p.weights.size, sane, seed);
    fill_activations(p.x, MAX_TOKENS * p.x_stride, seed);
    if (!sane) {
        p.x[5] = INFINITY;
        memset(p.x + p.x_stride, 0, n_cols * sizeof(float));
        p.x[2 * p.x_stride + 1] = 1e-41f;
        for (size_t i = 0; i < n_cols; i++)
            p.x[3 * p.x_stride + i] *= 1e-38f;
        p.x[4 * p.x_stride + n_cols - 1] = 1e36f;
    }
    expect(&p);
    return p;
}

static void problem_free(struct problem *p)
{
    guarded_free(&p->weights);
    free(p->x);
    free(p->expected);
}

static void *aligned(size_t size)
{
    void *p = NULL;
    ck_assert_int_eq(posix_memalign(&p, 64, size + 64), 0);
    memset(p, 0xa5, size + 64);
    return p;
}

static bool same(float a, float b)
{
    return float_bits(a) == float_bits(b) || (isnan(a) && isnan(b));
}

/* About an n_workers-th of n, a multiple of `tile`. */
static size_t unit_of(size_t n, size_t tile, unsigned n_workers)
{
    size_t part = (n + n_workers - 1) / n_workers;
    return (part + tile - 1) / tile * tile;
}

/* As workers claim it: encoding first, then rows, the last ones first; then compares, and looks for writes outside. */
static void check(const struct problem *p, enum cpu_tier tier, size_t n_tokens, unsigned n_workers)
{
    const struct matrix w = {p->format, p->weights.data, p->weights.data + p->weights.size, p->n_cols, p->n_rows};
    const struct activation_layout *layout = matmul_layout(&w, tier, n_tokens);
    size_t scratch_bytes = matmul_scratch_bytes(&w, tier, n_tokens), x_bytes = layout->bytes(p->n_cols, n_tokens);
    char *x = aligned(x_bytes), *scratch = aligned(scratch_bytes);
    size_t y_stride = p->n_rows + 2;
    float *y = malloc((n_tokens * y_stride) * sizeof(float));
    for (size_t i = 0; i < n_tokens * y_stride; i++)
        y[i] = -12345.5f;
    size_t tokens = unit_of(n_tokens, layout->token_tile, n_workers);
    for (size_t begin = 0; begin < n_tokens; begin += tokens) {
        size_t end = begin + tokens < n_tokens ? begin + tokens : n_tokens;
        layout->encode(p->x, p->x_stride, p->n_cols, begin, end, n_tokens, x);
    }
    size_t rows = unit_of(p->n_rows, format_kernel(p->format, tier, n_tokens)->row_tile, n_workers);
    for (size_t n = (p->n_rows + rows - 1) / rows; n > 0; n--) {
        size_t begin = (n - 1) * rows, end = n * rows < p->n_rows ? n * rows : p->n_rows;
        matmul(&w, tier, x, n_tokens, begin, end, y, y_stride, scratch);
    }
    for (size_t t = 0; t < n_tokens; t++) {
        for (size_t r = 0; r < p->n_rows; r++)
            if (!same(y[t * y_stride + r], p->expected[t * p->n_rows + r]))
                ck_abort_msg("%s %s rows %zu cols %zu tokens %zu workers %u: row %zu token %zu is %a, not %a",
                             p->format->name, cpu_tier_name(tier), p->n_rows, p->n_cols, n_tokens, n_workers, r, t,
                             (double)y[t * y_stride + r], (double)p->expected[t * p->n_rows + r]);
        if (y[t * y_stride + p->n_rows] != -12345.5f || y[t * y_stride + p->n_rows + 1] != -12345.5f)
            ck_abort_msg("%s %s tokens %zu: wrote behind the last row", p->format->name, cpu_tier_name(tier), n_tokens);
    }
    for (size_t i = 0; i < 64; i++)
        if ((unsigned char)x[x_bytes + i] != 0xa5 || (unsigned char)scratch[scratch_bytes + i] != 0xa5)
            ck_abort_msg("%s %s tokens %zu: wrote behind its buffers", p->format->name, cpu_tier_name(tier), n_tokens);
    free(x);
    free(scratch);
    free(y);
}

static size_t block_of(const struct format *f)
{
    size_t a = activation_format(f->activation)->block_elements;
    return f->block_elements > a ? f->block_elements : a;
}

/* Column counts in blocks: none a multiple of what a kernel likes, and some that are. */
static const size_t block_counts[] = {1, 2, 3, 5, 9, 16, 17, 33, 37};

static bool fits(const struct format *f, size_t n_blocks)
{
    return block_of(f) == 1 || n_blocks * block_of(f) <= 9 * 256;
}

static size_t cols_of(const struct format *f, size_t n_blocks)
{
    return n_blocks * block_of(f);
}

static void check_tier(enum cpu_tier tier, bool sane)
{
    static const size_t tokens[] = {1, 2, 3, 4, 5, 7, 8, 9, 11, 12, 13, 16, 17, 24, 31, 33, 40};
    static const size_t row_counts[] = {1, 7, 16, 17, MAX_ROWS};
    uint64_t seed = 88172645463325252ull;
    size_t n_formats, step = suite_sanitized() ? 4 : 1, n = 0;
    const struct format *const *all = format_all(&n_formats);
    for (size_t i = 0; i < n_formats; i++)
        for (size_t c = 0; c < sizeof block_counts / sizeof block_counts[0]; c++) {
            if (!fits(all[i], block_counts[c]))
                continue;
            struct problem p = problem_new(all[i], row_counts[(c + i) % 5], cols_of(all[i], block_counts[c]), sane, &seed);
            for (size_t t = c % step; t < sizeof tokens / sizeof tokens[0]; t += step, n++)
                check(&p, tier, tokens[t], (unsigned)(1 + n % MAX_WORKERS));
            problem_free(&p);
        }
    printf("note: %s: %zu products\n", cpu_tier_name(tier), n);
}

TEST(avx2_gives_the_scalar_bits)
{
    if (!cpu_tier_available(TIER_AVX2))
        SKIP("this machine lacks AVX2");
    check_tier(TIER_AVX2, true);
}
END

TEST(avx512_gives_the_scalar_bits)
{
    if (!cpu_tier_available(TIER_AVX512))
        SKIP("this machine lacks AVX-512 VNNI and VBMI");
    check_tier(TIER_AVX512, true);
}
END

TEST(neon_gives_the_scalar_bits)
{
    if (!cpu_tier_available(TIER_NEON))
        SKIP("this machine is not arm64 with the dot product extension");
    check_tier(TIER_NEON, true);
}
END

TEST(the_best_tier_gives_the_scalar_bits_on_wild_bytes)
{
    check_tier(cpu_tier_best(), false);
}
END

TEST(the_scalar_tier_takes_any_share)
{
    uint64_t seed = 1234567;
    size_t n_formats;
    const struct format *const *all = format_all(&n_formats);
    for (size_t i = 0; i < n_formats; i++) {
        struct problem p = problem_new(all[i], 7, cols_of(all[i], 2), true, &seed);
        for (unsigned workers = 1; workers <= MAX_WORKERS; workers++)
            check(&p, TIER_SCALAR, workers, workers);
        problem_free(&p);
    }
}
END

/* More columns than a super tile holds, more rows, columns and tokens than the float formats take at once. */
TEST(large_products_give_the_scalar_bits)
{
    static const char *const names[] = {"Q8_0", "Q4_1", "Q1_0", "NVFP4", "Q4_K", "Q6_K", "IQ2_XS", "F16", "BF16"};
    uint64_t seed = 99;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const struct format *f = format_by_name(names[i]);
        size_t n_rows = 150, n_cols = f->block_elements == 1 ? 1021 : 1024, n_tokens = 141;
        size_t x_bytes = activation_format(f->activation)->block_bytes;
        x_bytes *= n_cols / activation_format(f->activation)->block_elements;
        struct guarded g = guarded_new(n_rows * format_row_bytes(f, n_cols));
        fill_blocks(f, g.data, g.size, true, &seed);
        float *x = malloc(n_tokens * n_cols * sizeof(float)), *y = malloc(n_tokens * n_rows * sizeof(float));
        fill_activations(x, n_tokens * n_cols, &seed);
        const struct matrix w = {f, g.data, g.data + g.size, n_cols, n_rows};
        enum cpu_tier tier = cpu_tier_best();
        const struct activation_layout *layout = matmul_layout(&w, tier, n_tokens);
        void *encoded = aligned(layout->bytes(n_cols, n_tokens)), *canonical = malloc(x_bytes);
        void *scratch = aligned(matmul_scratch_bytes(&w, tier, n_tokens));
        layout->encode(x, n_cols, n_cols, 0, n_tokens, n_tokens, encoded);
        matmul(&w, tier, encoded, n_tokens, 0, n_rows, y, n_rows, scratch);
        for (size_t t = 0; t < n_tokens; t++) {
            activation_format(f->activation)->encode(x + t * n_cols, canonical, n_cols);
            for (size_t r = 0; r < n_rows; r++) {
                float expected = f->dot(g.data + r * format_row_bytes(f, n_cols), canonical, n_cols);
                if (!same(expected, y[t * n_rows + r]))
                    ck_abort_msg("%s: row %zu token %zu differs", f->name, r, t);
            }
        }
        guarded_free(&g);
        free(x);
        free(y);
        free(encoded);
        free(canonical);
        free(scratch);
    }
}
END

SUITE(matmul, T(avx2_gives_the_scalar_bits), T(avx512_gives_the_scalar_bits), T(neon_gives_the_scalar_bits),
      T(the_best_tier_gives_the_scalar_bits_on_wild_bytes), T(the_scalar_tier_takes_any_share),
      T(large_products_give_the_scalar_bits))
