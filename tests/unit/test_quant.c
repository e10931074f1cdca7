/* engine/quant, scalar: the table of formats, and every format's bits against the reference's and against own goldens. */
#include "engine/base/f16.h"
#include "engine/base/hash.h"
#include "engine/quant/activation.h"
#include "engine/quant/quant.h"
#include "tests/support/encode.h"
#include "tests/support/suite.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

TEST(formats_are_found_by_id_and_name)
{
    size_t n;
    const struct format *const *all = format_all(&n);
    ck_assert_uint_eq(n, 28);
    for (size_t i = 0; i < n; i++) {
        ck_assert_ptr_eq(format_find(all[i]->id), all[i]);
        ck_assert_ptr_eq(format_by_name(all[i]->name), all[i]);
        ck_assert_ptr_null(format_refused_name(all[i]->id));
        ck_assert_uint_eq(format_row_bytes(all[i], 3 * all[i]->block_elements), 3 * all[i]->block_bytes);
        ck_assert_uint_eq(all[i]->block_elements % activation_format(all[i]->activation)->block_elements, 0);
    }
    ck_assert_ptr_null(format_find(43));
    ck_assert_ptr_null(format_by_name("Q9_9"));
}
END

TEST(removed_and_activation_types_are_refused_by_name)
{
    static const unsigned ids[] = {4, 5, 9, 15, 24, 25, 26, 27, 28, 31, 32, 33, 36, 37, 38};
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++) {
        ck_assert_ptr_nonnull(format_refused_name(ids[i]));
        ck_assert_ptr_null(format_find(ids[i]));
    }
    ck_assert_str_eq(format_refused_name(9), "Q8_1");
    for (unsigned id = 0; id < 43; id++)
        ck_assert((format_find(id) != NULL) != (format_refused_name(id) != NULL));
}
END

TEST(every_tier_has_a_kernel_for_every_format)
{
    size_t n;
    const struct format *const *all = format_all(&n);
    for (size_t i = 0; i < n; i++)
        for (int tier = 0; tier < TIER_COUNT; tier++)
            for (size_t n_tokens = 1; n_tokens < 3; n_tokens++) {
                const struct kernel *k = format_kernel(all[i], (enum cpu_tier)tier, n_tokens);
                ck_assert(k->run != NULL);
                ck_assert_ptr_nonnull(k->layout);
                ck_assert_uint_ge(k->row_tile, 1);
                ck_assert_int_eq(k->layout->activation, all[i]->activation);
            }
}
END

/* One file of fixtures/quant; ends the test as failed when it is missing or of the wrong size. */
static void *fixture(const char *name, const char *suffix, size_t expected)
{
    char path[128];
    size_t size = 0;
    snprintf(path, sizeof path, "fixtures/quant/%s%s", name, suffix);
    const char *full = suite_shared(path);
    void *data = full ? suite_read(full, &size) : NULL;
    if (!data || size != expected)
        ck_abort_msg("%s: %zu bytes, expected %zu", path, size, expected);
    return data;
}

static size_t differing(const void *a, const void *b, size_t n, size_t bytes)
{
    size_t different = 0;
    for (size_t i = 0; i < n; i++)
        different += memcmp((const char *)a + i * bytes, (const char *)b + i * bytes, bytes) != 0;
    return different;
}

enum { ROWS = 8, COLS = 1024, TOKENS = 4 };

TEST(activation_blocks_equal_the_reference)
{
    if (!suite_shared("fixtures/quant/manifest.json"))
        SKIP("no ../shared/fixtures/quant");
    static const char *const names[ACT_COUNT] = {NULL, "f16", "bf16", "q8_0", "q8_1", "q8_K"};
    float *x = fixture("activations", ".f32", TOKENS * COLS * sizeof(float));
    for (int a = ACT_F16; a < ACT_COUNT; a++) {
        const struct activation_format *f = activation_format((enum activation)a);
        size_t n_blocks = TOKENS * COLS / f->block_elements;
        char file[32];
        snprintf(file, sizeof file, "activations.%s", names[a]);
        void *expected = fixture(file, ".blocks", n_blocks * f->block_bytes), *blocks = malloc(n_blocks * f->block_bytes);
        f->encode(x, blocks, TOKENS * COLS);
        size_t different = differing(expected, blocks, n_blocks, f->block_bytes);
        printf("note: %s activations: %zu of %zu blocks differ\n", f->name, different, n_blocks);
        ck_assert_uint_eq(different, 0);
        free(expected);
        free(blocks);
    }
    free(x);
}
END

/* One line of the manifest: {"name": "q4_0", "ggml_type": 2, "block_weights": 32, ...}. */
struct reference_format {
    char name[16], activation[16];
    unsigned id, block_elements, block_bytes;
};

static bool read_reference_format(const char *line, struct reference_format *r)
{
    return sscanf(line, " {\"name\": \"%15[^\"]\", \"ggml_type\": %u, \"block_weights\": %u, \"block_bytes\": %u, "
                        "\"activation_type\": \"%15[^\"]\"", r->name, &r->id, &r->block_elements, &r->block_bytes,
                  r->activation) == 5;
}

static void check_format_against_reference(const struct reference_format *reference, const float *x)
{
    const char *name = reference->name;
    const struct format *f = format_by_name(name);
    ck_assert_ptr_nonnull(f);
    ck_assert_uint_eq(f->id, reference->id);
    ck_assert_uint_eq(f->block_elements, reference->block_elements);
    ck_assert_uint_eq(f->block_bytes, reference->block_bytes);
    ck_assert_int_eq(strcasecmp(activation_format(f->activation)->name, reference->activation), 0);

    const struct activation_format *a = activation_format(f->activation);
    size_t row_bytes = format_row_bytes(f, COLS), x_bytes = COLS / a->block_elements * a->block_bytes;
    char *blocks = fixture(name, ".blocks", ROWS * row_bytes), *encoded = malloc(TOKENS * x_bytes);
    float *weights = fixture(name, ".f32", ROWS * COLS * sizeof(float));
    float *dots = fixture(name, ".dot.f32", ROWS * TOKENS * sizeof(float));
    float *own_weights = malloc(ROWS * COLS * sizeof(float)), own_dots[ROWS * TOKENS];

    a->encode(x, encoded, TOKENS * COLS);
    for (size_t r = 0; r < ROWS; r++) {
        f->dequantize(blocks + r * row_bytes, own_weights + r * COLS, COLS);
        for (size_t t = 0; t < TOKENS; t++)
            own_dots[r * TOKENS + t] = f->dot(blocks + r * row_bytes, encoded + t * x_bytes, COLS);
    }
    size_t weights_differ = differing(weights, own_weights, ROWS * COLS, sizeof(float));
    size_t dots_differ = differing(dots, own_dots, ROWS * TOKENS, sizeof(float));
    printf("note: %s: %zu of %d weights, %zu of %d dots differ\n", f->name, weights_differ, ROWS * COLS, dots_differ,
           ROWS * TOKENS);
    ck_assert_uint_eq(weights_differ, 0);
    ck_assert_uint_eq(dots_differ, 0);
    free(blocks);
    free(encoded);
    free(weights);
    free(dots);
    free(own_weights);
}

TEST(weights_and_dots_equal_the_reference)
{
    const char *path = suite_shared("fixtures/quant/manifest.json");
    if (!path)
        SKIP("no ../shared/fixtures/quant");
    char *text = suite_read(path, NULL);
    float *x = fixture("activations", ".f32", TOKENS * COLS * sizeof(float));
    struct reference_format reference;
    int n = 0;
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
        if (read_reference_format(line, &reference)) {
            check_format_against_reference(&reference, x);
            n++;
        }
    printf("note: %d formats compared with the reference\n", n);
    ck_assert_int_eq(n, 27);
    free(text);
    free(x);
}
END

/* Rows, columns and tokens of the own goldens; one rng state for everything, in table order. */
enum { GOLDEN_ROWS = 3, GOLDEN_COLS = 2048, GOLDEN_TOKENS = 2 };

/* Hash of the dequantized rows, then of the dots, of plausible random blocks. */
static void format_hashes(const struct format *f, uint64_t *rng, uint64_t *weights_hash, uint64_t *dots_hash)
{
    const struct activation_format *a = activation_format(f->activation);
    size_t row_bytes = format_row_bytes(f, GOLDEN_COLS);
    char *blocks = malloc(GOLDEN_ROWS * row_bytes), *act = malloc(GOLDEN_COLS / a->block_elements * a->block_bytes);
    float *values = malloc(GOLDEN_COLS * sizeof(float));
    random_blocks(f, rng, blocks, GOLDEN_ROWS * GOLDEN_COLS / f->block_elements);
    *weights_hash = *dots_hash = HASH_SEED;
    for (size_t r = 0; r < GOLDEN_ROWS; r++) {
        f->dequantize(blocks + r * row_bytes, values, GOLDEN_COLS);
        *weights_hash = hash_bytes(*weights_hash, values, GOLDEN_COLS * sizeof(float));
    }
    for (size_t t = 0; t < GOLDEN_TOKENS; t++) {
        random_floats(rng, values, GOLDEN_COLS);
        a->encode(values, act, GOLDEN_COLS);
        for (size_t r = 0; r < GOLDEN_ROWS; r++) {
            float dot = f->dot(blocks + r * row_bytes, act, GOLDEN_COLS);
            *dots_hash = hash_bytes(*dots_hash, &dot, sizeof dot);
        }
    }
    free(blocks);
    free(act);
    free(values);
}

TEST(weights_and_dots_equal_the_checked_in_goldens)
{
    static const struct {
        const char *name;
        uint64_t weights, dots;
    } goldens[] = {
#include "tests/unit/quant_goldens.inc"
    };
    size_t n;
    const struct format *const *all = format_all(&n);
    bool print = getenv("GGUFD_PRINT_GOLDENS") != NULL;
    ck_assert(print || n == sizeof goldens / sizeof goldens[0]);
    for (size_t i = 0; i < n; i++) {
        uint64_t rng = all[i]->id, weights, dots;
        format_hashes(all[i], &rng, &weights, &dots);
        if (print)
            printf("{\"%s\", 0x%016llx, 0x%016llx},\n", all[i]->name, (unsigned long long)weights,
                   (unsigned long long)dots);
        else if (strcmp(goldens[i].name, all[i]->name) != 0 || goldens[i].weights != weights || goldens[i].dots != dots)
            ck_abort_msg("%s: weights %016llx, dots %016llx", all[i]->name, (unsigned long long)weights,
                         (unsigned long long)dots);
    }
}
END

/* Section 3 of docs/numerics.md where the reference is undefined or its conversion overflows. */
TEST(activation_blocks_with_special_values_are_defined)
{
    static const float specials[] = {NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < sizeof specials / sizeof specials[0]; i++) {
        float x[256] = {1, 2, 3};
        struct act_q8_0 q8_0[8];
        struct act_q8_1 q8_1[8];
        struct act_q8_k q8_k;
        x[17] = specials[i];
        activation_format(ACT_Q8_0)->encode(x, q8_0, 256);
        activation_format(ACT_Q8_1)->encode(x, q8_1, 256);
        activation_format(ACT_Q8_K)->encode(x, &q8_k, 256);
        ck_assert(isnan(f16_to_float(q8_0[0].d)) && isnan(f16_to_float(q8_1[0].d)) && isnan(f16_to_float(q8_1[0].s)));
        ck_assert(isnan(q8_k.d));
        ck_assert(q8_0[0].q[0] == 0 && q8_1[0].q[2] == 0 && q8_k.q[1] == 0 && q8_k.sums[0] == 0);
        ck_assert_uint_eq(q8_0[1].d, 0);
    }
    float tiny[256] = {0x1p-149f, -0x1p-140f}; /* reciprocals of these scales overflow */
    struct act_q8_k q8_k;
    struct act_q8_0 q8_0[8];
    activation_format(ACT_Q8_K)->encode(tiny, &q8_k, 256);
    activation_format(ACT_Q8_0)->encode(tiny, q8_0, 256);
    ck_assert(q8_k.d == 0 && q8_k.q[0] == 0 && q8_k.q[1] == 0);
    ck_assert(q8_0[0].d == 0 && q8_0[0].q[1] == 0);
}
END

TEST(any_bytes_dequantize_without_undefined_behaviour)
{
    size_t n, n_blocks = 1000;
    const struct format *const *all = format_all(&n);
    for (size_t i = 0; i < n; i++) {
        uint64_t rng = i;
        size_t n_elements = n_blocks * all[i]->block_elements;
        char *blocks = malloc(n_blocks * all[i]->block_bytes + 1); /* odd address: a file promises no alignment */
        float *out = malloc(n_elements * sizeof(float));
        random_bytes(&rng, blocks + 1, n_blocks * all[i]->block_bytes);
        all[i]->dequantize(blocks + 1, out, n_elements);
        free(blocks);
        free(out);
    }
}
END

/* Each encoder's error stays below its step; a swapped nibble or a wrong scale would be of the values' size. */
TEST(rounded_rows_dequantize_close_to_their_source)
{
    size_t n, n_encoders = 0;
    const struct format *const *all = format_all(&n);
    float x[1024], back[1024];
    uint64_t rng = 7;
    char blocks[4096];
    random_floats(&rng, x, 1024);
    for (size_t i = 0; i < n; i++) {
        double error = 0;
        if (!encode_row(all[i], x, blocks, 1024))
            continue;
        n_encoders++;
        all[i]->dequantize(blocks, back, 1024);
        for (size_t k = 0; k < 1024; k++)
            error += fabs((double)(x[k] - back[k])) / 1024;
        double bits = 8.0 * all[i]->block_bytes / all[i]->block_elements;
        if (error > (bits < 3 ? 0.25 : bits < 4 ? 0.1 : bits < 5.1 ? 0.06 : 0.03))
            ck_abort_msg("%s: mean error %g", all[i]->name, error);
    }
    ck_assert_uint_eq(n_encoders, 13);
}
END

TEST(random_blocks_are_finite_and_of_sane_size)
{
    size_t n;
    const struct format *const *all = format_all(&n);
    for (size_t i = 0; i < n; i++) {
        enum { BLOCKS = 50 };
        uint64_t rng = i;
        size_t n_elements = BLOCKS * all[i]->block_elements;
        char *blocks = malloc(BLOCKS * all[i]->block_bytes);
        float *out = malloc(n_elements * sizeof(float)), largest = 0;
        random_blocks(all[i], &rng, blocks, BLOCKS);
        all[i]->dequantize(blocks, out, n_elements);
        for (size_t k = 0; k < n_elements; k++)
            largest = isfinite(out[k]) && largest < INFINITY ? fmaxf(largest, fabsf(out[k])) : INFINITY;
        if (!(largest > 0.1f && largest < 50))
            ck_abort_msg("%s: largest weight %g", all[i]->name, (double)largest);
        free(blocks);
        free(out);
    }
}
END

SUITE(quant, T(formats_are_found_by_id_and_name), T(removed_and_activation_types_are_refused_by_name),
      T(every_tier_has_a_kernel_for_every_format), T(activation_blocks_equal_the_reference),
      T(weights_and_dots_equal_the_reference), T(weights_and_dots_equal_the_checked_in_goldens),
      T(activation_blocks_with_special_values_are_defined), T(any_bytes_dequantize_without_undefined_behaviour),
      T(rounded_rows_dequantize_close_to_their_source), T(random_blocks_are_finite_and_of_sane_size))
