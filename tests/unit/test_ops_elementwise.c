/* Row operations: every tier against a plain reference written from the numerics specification, bit for bit. */
#include "engine/ops/elementwise.h"
#include "engine/ops/math.h"
#include "tests/support/random.h"
#include "tests/support/suite.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N_MAX = 600, ROWS_MAX = 40 };

static float *floats(size_t n)
{
    float *p = malloc((n ? n : 1) * sizeof *p);
    ck_assert_ptr_nonnull(p);
    return p;
}

/* Exactly n floats behind an address aligned to 4 bytes only, so that ASan sees a step too far. */
static float *random_floats(uint64_t *seed, size_t n, float scale)
{
    float *x = floats(n);
    random_fill(seed, x, n, scale);
    return x;
}

static void expect(const char *what, enum cpu_tier tier, size_t n, const float *got, const float *want)
{
    for (size_t i = 0; i < n; i++)
        if (!same_float(got[i], want[i]))
            ck_abort_msg("%s, tier %s, n %zu: [%zu] = %a, expected %a", what, cpu_tier_name(tier), n, i,
                         (double)got[i], (double)want[i]);
}

#define FOR_TIERS(tier)                                                                     \
    for (enum cpu_tier tier = TIER_SCALAR; tier < TIER_COUNT; tier = (enum cpu_tier)(tier + 1)) \
        if (cpu_tier_available(tier))

/* Sizes around every lane count, then some real ones. */
static size_t size_of_case(size_t i)
{
    static const size_t real[] = {64, 80, 96, 128, 203, 256, 257, 258, 300, 512, 599};
    return i < 70 ? i : real[i - 70];
}
enum { N_CASES = 81 };

static void reference_norm(const struct rms_norm *m, float *out)
{
    for (size_t r = 0; r < m->n_rows; r++) {
        const float *x = m->x + r * m->x_stride;
        double sum = 0;
        for (size_t i = 0; i < m->n; i++) {
            volatile float square = x[i] * x[i];
            sum = sum + (double)square;
        }
        volatile float mean = (float)(sum / (double)m->n), c = 1.0f / sqrtf(mean + m->epsilon);
        for (size_t i = 0; i < m->n; i++) {
            volatile float y = x[i] * c;
            out[r * m->out_stride + i] = y * m->weight[i];
        }
    }
}

TEST(rms_norm_sums_in_order_on_every_tier)
{
    uint64_t seed = 1;
    static const size_t rows[] = {1, 2, 3, 7, 8, 9, 16, 17, ROWS_MAX};
    for (size_t i = 1; i < N_CASES; i += 2)
        for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
            size_t n = size_of_case(i), stride = n + random_below(&seed, 3);
            float *x = random_floats(&seed, stride * rows[k], 8), *w = random_floats(&seed, n, 2);
            float *want = floats(stride * rows[k]);
            memcpy(want, x, stride * rows[k] * sizeof *x);
            struct rms_norm m = {.x = x, .weight = w, .n = n, .n_rows = rows[k], .x_stride = stride,
                                 .out_stride = stride, .epsilon = 1e-5f};
            reference_norm(&m, want);
            FOR_TIERS(tier) {
                float *out = floats(stride * rows[k]);
                memcpy(out, x, stride * rows[k] * sizeof *x);
                struct rms_norm in_place = m;
                in_place.x = out;
                in_place.out = out;
                ops_rms_norm(tier, &in_place);
                expect("rms norm", tier, stride * rows[k], out, want);
                free(out);
            }
            free(x);
            free(w);
            free(want);
        }
}
END

static float reference_silu(float x, size_t i, size_t n)
{
    volatile float e = i < 4 * (n / 4) ? math_pexp(0.0f - x) : math_expf(-x), d = 1.0f + e;
    return x / d;
}

TEST(silu_and_swiglu_choose_the_exponential_by_index_in_the_row)
{
    uint64_t seed = 2;
    for (size_t i = 0; i < N_CASES; i++)
        for (int share = 0; share < 3; share++) {
            size_t n = size_of_case(i);
            size_t begin = share && n ? random_below(&seed, n) : 0, end = share ? begin + random_below(&seed, n - begin + 1) : n;
            float *gate = random_floats(&seed, n, share == 2 ? 120 : 12), *up = random_floats(&seed, n, 4);
            float *silu = floats(n), *swiglu = floats(n);
            random_fill(&seed, silu, n, 1);
            memcpy(swiglu, silu, n * sizeof *silu);
            float *canvas = floats(n);
            memcpy(canvas, silu, n * sizeof *silu);
            for (size_t k = begin; k < end; k++) {
                silu[k] = reference_silu(gate[k], k, n);
                swiglu[k] = reference_silu(gate[k], k, n) * up[k];
            }
            FOR_TIERS(tier) {
                float *out = floats(n);
                memcpy(out, canvas, n * sizeof *out);
                ops_silu(tier, gate, out, n, begin, end);
                expect("silu", tier, n, out, silu);
                memcpy(out, canvas, n * sizeof *out);
                ops_swiglu(tier, gate, up, out, n, begin, end);
                expect("swiglu", tier, n, out, swiglu);
                free(out);
            }
            free(gate);
            free(up);
            free(silu);
            free(swiglu);
            free(canvas);
        }
}
END

TEST(sums_and_products_round_each_step)
{
    uint64_t seed = 3;
    for (size_t i = 0; i < N_CASES; i++) {
        size_t n = size_of_case(i);
        float *a = floats(n), *b = random_floats(&seed, n, 1), *add = floats(n), *scale = floats(n), *both = floats(n);
        for (size_t k = 0; k < n; k++) {
            a[k] = i % 3 ? random_value(&seed, 3) : random_bits(&seed);
            volatile float product = a[k] * 0.37f;
            add[k] = a[k] + b[k];
            scale[k] = product;
            both[k] = b[k] + product;
        }
        FOR_TIERS(tier) {
            float *out = floats(n);
            ops_add(tier, a, b, out, n);
            expect("add", tier, n, out, add);
            memcpy(out, b, n * sizeof *b);
            ops_add(tier, a, out, out, n);
            expect("add in place", tier, n, out, add);
            ops_scale(tier, a, 0.37f, out, n);
            expect("scale", tier, n, out, scale);
            memcpy(out, b, n * sizeof *b);
            ops_add_scaled(tier, a, 0.37f, out, n);
            expect("add scaled", tier, n, out, both);
            free(out);
        }
        free(a);
        free(b);
        free(add);
        free(scale);
        free(both);
    }
}
END

static void reference_softmax(float *x, size_t n)
{
    float max = -INFINITY;
    for (size_t i = 0; i < n; i++)
        max = fmaxf(max, x[i]);
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        x[i] = i < 4 * (n / 4) ? math_pexp(x[i] - max) : math_expf(x[i] - max);
        if (i % 4 == 3 && i < 4 * (n / 4)) {
            volatile float left = x[i - 3] + x[i - 2], right = x[i - 1] + x[i];
            volatile float group = left + right;
            sum = sum + (double)group;
        } else if (i >= 4 * (n / 4)) {
            sum = sum + (double)x[i];
        }
    }
    float f = (float)(1.0 / sum);
    for (size_t i = 0; i < n; i++)
        x[i] = x[i] * f;
}

TEST(softmax_adds_groups_of_four)
{
    uint64_t seed = 4;
    for (size_t i = 1; i < N_CASES; i++)
        for (int kind = 0; kind < 4; kind++) {
            size_t n = size_of_case(i);
            float *x = random_floats(&seed, n, kind == 1 ? 200 : 10), *want = floats(n);
            if (kind == 2)
                x[random_below(&seed, n)] = -INFINITY;
            if (kind == 3)
                x[random_below(&seed, n)] = NAN;
            memcpy(want, x, n * sizeof *x);
            reference_softmax(want, n);
            FOR_TIERS(tier) {
                float *out = floats(n);
                memcpy(out, x, n * sizeof *x);
                ops_softmax(tier, out, n);
                expect("softmax", tier, n, out, want);
                free(out);
            }
            free(x);
            free(want);
        }
}
END

TEST(max_and_lane_exponential_equal_their_definitions)
{
    uint64_t seed = 5;
    for (size_t i = 1; i < N_CASES; i++)
        for (int kind = 0; kind < 3; kind++) {
            size_t n = size_of_case(i);
            float *x = floats(n), *want = floats(n), max = -INFINITY;
            for (size_t k = 0; k < n; k++) {
                x[k] = kind == 0 ? random_value(&seed, 100) : random_bits(&seed);
                if (kind == 1 && isnan(x[k]))
                    x[k] = 1;
                if (x[k] > max)
                    max = x[k];
            }
            for (size_t k = 0; k < n; k++)
                want[k] = math_pexp(x[k] - max);
            FOR_TIERS(tier) {
                float *out = floats(n), got = ops_max(tier, x, n);
                expect("max", tier, 1, &got, &max);
                ops_pexp(tier, x, max, out, n);
                expect("pexp", tier, n, out, want);
                free(out);
            }
            free(x);
            free(want);
        }
    float nothing = NAN;
    FOR_TIERS(tier)
        ck_assert(ops_max(tier, &nothing, 1) == -INFINITY);
}
END

TEST(every_float_has_its_f16_on_every_tier)
{
    float x[64];
    uint16_t out[64];
    size_t step = suite_sanitized() ? 7919 : 251;
    FOR_TIERS(tier)
        for (uint64_t u = 0; u < UINT64_C(0x100000000); u += 64 * step) {
            size_t n = u % 128 ? 64 : 61;
            for (size_t i = 0; i < n; i++)
                x[i] = bits_float((uint32_t)(u + i * step));
            ops_f16_encode(tier, x, out, n);
            for (size_t i = 0; i < n; i++)
                if (out[i] != f16_from_float(x[i]))
                    ck_abort_msg("tier %s: %a -> %04x, expected %04x", cpu_tier_name(tier), (double)x[i], out[i],
                                 f16_from_float(x[i]));
        }
}
END

TEST(router_takes_the_largest_and_normalises)
{
    uint64_t seed = 6;
    for (int round = 0; round < 3000; round++) {
        size_t n = 1 + random_below(&seed, 40), used = 1 + random_below(&seed, n < 8 ? n : 8);
        float scores[40], p[40], weights[8];
        uint32_t chosen[8];
        for (size_t e = 0; e < n; e++)
            scores[e] = round % 3 ? random_value(&seed, 5) : (float)random_below(&seed, 4); /* many ties */
        memcpy(p, scores, sizeof p);
        reference_softmax(p, n);
        ops_router((enum cpu_tier)(round % 2 ? TIER_SCALAR : cpu_tier_best()), scores, n, used, chosen, weights);
        bool taken[40] = {false};
        double sum = 0;
        for (size_t k = 0; k < used; k++) {
            size_t best = SIZE_MAX;
            for (size_t e = 0; e < n; e++)
                if (!taken[e] && (best == SIZE_MAX || p[e] > p[best]))
                    best = e;
            taken[best] = true;
            if (chosen[k] != best)
                ck_abort_msg("round %d: choice %zu is %u, expected %zu", round, k, chosen[k], best);
            sum += (double)p[best];
        }
        float total = (float)sum;
        total = total < 0x1p-14f ? 0x1p-14f : total;
        for (size_t k = 0; k < used; k++)
            if (!same_float(weights[k], p[chosen[k]] / total))
                ck_abort_msg("round %d: weight %zu", round, k);
    }
}
END

TEST(router_keeps_indices_valid_when_scores_are_not_numbers)
{
    float scores[8], weights[3];
    uint32_t chosen[3];
    for (size_t e = 0; e < 8; e++)
        scores[e] = NAN;
    ops_router(TIER_SCALAR, scores, 8, 3, chosen, weights);
    for (size_t k = 0; k < 3; k++) {
        ck_assert_uint_eq(chosen[k], k);
        ck_assert(isnan(weights[k])); /* and so it reaches the logits */
    }
}
END

SUITE(ops_elementwise, T(rms_norm_sums_in_order_on_every_tier),
      T(silu_and_swiglu_choose_the_exponential_by_index_in_the_row), T(sums_and_products_round_each_step),
      T(softmax_adds_groups_of_four), T(max_and_lane_exponential_equal_their_definitions),
      T(every_float_has_its_f16_on_every_tier), T(router_takes_the_largest_and_normalises),
      T(router_keeps_indices_valid_when_scores_are_not_numbers))
