/* docs/adding-a-format.md: its example compiles, works, and is what the page shows. */
#include "engine/quant/activation.h"
#include "tests/support/encode.h"
#include "tests/support/suite.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

extern const struct format format_x2_0;

TEST(the_page_shows_the_example_file)
{
    char *page = suite_read(suite_root("docs/adding-a-format.md"), NULL);
    char *file = suite_read(suite_root("tests/support/example_format.c"), NULL);
    ck_assert_ptr_nonnull(page);
    ck_assert_ptr_nonnull(file);
    ck_assert_ptr_nonnull(strstr(page, file));
    free(page);
    free(file);
}
END

TEST(the_example_dequantizes_what_its_bits_say)
{
    const uint8_t block[10] = {0x00, 0x38, 0xe4}; /* 0.5; 0 1 2 3, then zeros */
    float w[32];
    format_x2_0.dequantize(block, w, 32);
    ck_assert(w[0] == -1.0f && w[1] == -0.5f && w[2] == 0.0f && w[3] == 0.5f && w[31] == -1.0f);
}
END

TEST(the_example_multiplies_on_every_tier)
{
    enum { COLS = 64, ROWS = 3, TOKENS = 2 };
    const struct format *f = &format_x2_0;
    uint64_t rng = 1;
    uint8_t weights[ROWS * COLS / 32 * 10];
    float x[TOKENS * COLS], y[TOKENS * ROWS];
    _Alignas(64) char encoded[TOKENS * COLS / 32 * sizeof(struct act_q8_0)];
    random_floats(&rng, x, TOKENS * COLS);
    random_bytes(&rng, weights, sizeof weights);
    for (size_t b = 0; b < sizeof weights; b += 10)
        memcpy(weights + b, "\x00\x38", 2);
    for (int tier = 0; tier < TIER_COUNT; tier++) {
        const struct kernel *k = format_kernel(f, (enum cpu_tier)tier, TOKENS);
        ck_assert_uint_eq(k->layout->bytes(COLS, TOKENS), sizeof encoded);
        k->layout->encode(x, COLS, COLS, 0, TOKENS, TOKENS, encoded);
        struct product p = {.weights = weights, .weights_end = weights + sizeof weights, .row_bytes = COLS / 32 * 10,
                            .n_cols = COLS, .row_end = ROWS, .x = encoded, .n_tokens = TOKENS, .y = y, .y_stride = ROWS};
        k->run(&p);
        for (size_t t = 0; t < TOKENS; t++)
            for (size_t r = 0; r < ROWS; r++) {
                float w[COLS];
                double exact = 0;
                f->dequantize(weights + r * p.row_bytes, w, COLS);
                for (size_t i = 0; i < COLS; i++)
                    exact += (double)w[i] * (double)x[t * COLS + i];
                ck_assert(fabs(exact - (double)y[t * ROWS + r]) < 0.2); /* the activation is rounded to 8 bits */
            }
    }
}
END

SUITE(adding_a_format, T(the_page_shows_the_example_file), T(the_example_dequantizes_what_its_bits_say),
      T(the_example_multiplies_on_every_tier))
