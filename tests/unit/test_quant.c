/* engine/quant, scalar: the table of formats, and every format's bits against the reference's and against own goldens. */
#include "engine/base/f16.h"
#include "engine/base/hash.h"
#include "engine/quant/quant.h"
#include "tests/support/suite.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static void check_format_against_reference(const cJSON *entry, const float *x)
{
    const char *name = cJSON_GetStringValue(cJSON_GetObjectItem(entry, "name"));
    const struct format *f = format_by_name(name);
    ck_assert_ptr_nonnull(f);
    ck_assert_uint_eq(f->id, (unsigned)cJSON_GetObjectItem(entry, "ggml_type")->valueint);
    ck_assert_uint_eq(f->block_elements, (unsigned)cJSON_GetObjectItem(entry, "block_weights")->valueint);
    ck_assert_uint_eq(f->block_bytes, (unsigned)cJSON_GetObjectItem(entry, "block_bytes")->valueint);

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
    cJSON *manifest = cJSON_Parse(text);
    float *x = fixture("activations", ".f32", TOKENS * COLS * sizeof(float));
    const cJSON *entry, *entries = cJSON_GetObjectItem(manifest, "formats");
    cJSON_ArrayForEach(entry, entries) check_format_against_reference(entry, x);
    printf("note: %d formats compared with the reference\n", cJSON_GetArraySize(entries));
    ck_assert_int_eq(cJSON_GetArraySize(entries), 27);
    cJSON_Delete(manifest);
    free(text);
    free(x);
}
END

SUITE(quant, T(formats_are_found_by_id_and_name), T(removed_and_activation_types_are_refused_by_name),
      T(every_tier_has_a_kernel_for_every_format), T(activation_blocks_equal_the_reference),
      T(weights_and_dots_equal_the_reference))
