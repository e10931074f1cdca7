/* RoPE: parameters, angle rows and rotation against the specification's formulas written out once more. */
#include "engine/ops/rope.h"
#include "engine/ops/math.h"
#include "tests/support/random.h"
#include "tests/support/suite.h"

#include <math.h>
#include <string.h>

enum { DIMS_MAX = 256 };

struct expected {
    float fs, af, mag, lo, hi, theta_scale;
};

/* docs/numerics.md, "RoPE", "Per model". */
static struct expected derive(const struct rope_options *o)
{
    struct expected e = {.fs = o->factor == 0 ? 1 : 1.0f / o->factor, .af = 1};
    if (o->scaling == ROPE_SCALING_NONE)
        e.fs = 1;
    e.theta_scale = math_powf(o->base, -2.0f / (float)o->n_dims);
    if (o->scaling == ROPE_SCALING_YARN) {
        float f = 1.0f / e.fs, lg = math_logf(f);
        float ms1 = f <= 1 ? 1 : ((0.1f * 1.0f) * lg) + 1.0f;
        float msl = f <= 1 ? 1 : ((0.1f * o->log_multiplier) * lg) + 1.0f;
        e.af = o->log_multiplier == 0 ? ms1 : ms1 / msl;
        volatile float t = 0.1f * lg;
        e.af = e.af * (1.0f / (1.0f + t));
    }
    e.af = e.af * o->attention_factor;
    e.mag = e.af;
    if (o->scaling == ROPE_SCALING_YARN) {
        float c = (float)o->original_context, n = (float)o->n_dims, two_log_base = 2.0f * math_logf(o->base);
        float pif = (float)3.14159265358979323846;
        e.lo = fmaxf(0, floorf((n * math_logf(c / ((o->beta_fast * 2.0f) * pif))) / two_log_base));
        e.hi = fminf(n - 1, ceilf((n * math_logf(c / ((o->beta_slow * 2.0f) * pif))) / two_log_base));
        volatile float t = 0.1f * math_logf(1.0f / e.fs);
        e.mag = e.af * (1.0f + t);
    }
    return e;
}

static void expect_row(const struct rope_options *o, size_t position)
{
    struct rope rope;
    rope_init(&rope, o);
    struct expected e = derive(o);
    float cosines[DIMS_MAX / 2], sines[DIMS_MAX / 2], theta = (float)position;
    rope_angles(&rope, position, cosines, sines);
    for (size_t i = 0; i < o->n_dims / 2; i++, theta *= e.theta_scale) {
        float te = theta / (o->frequency_factors ? o->frequency_factors[i] : 1.0f), a = e.fs * te, s, c;
        if (o->scaling == ROPE_SCALING_YARN) {
            float y = ((float)i - e.lo) / fmaxf(0.001f, e.hi - e.lo), mix = 1.0f - fminf(1, fmaxf(0, y));
            volatile float left = a * (1.0f - mix), right = te * mix;
            a = left + right;
        }
        math_sincosf(a, &s, &c);
        if (!same_float(cosines[i], c * e.mag) || !same_float(sines[i], s * e.mag))
            ck_abort_msg("position %zu pair %zu: %a %a, expected %a %a", position, i, (double)cosines[i],
                         (double)sines[i], (double)(c * e.mag), (double)(s * e.mag));
    }
}

TEST(angle_rows_follow_the_formulas)
{
    float factors[DIMS_MAX / 2];
    for (size_t i = 0; i < DIMS_MAX / 2; i++)
        factors[i] = 1.0f + (float)i / 7;
    static const uint32_t dims[] = {2, 16, 36, 64, 80, 128, 256};
    for (size_t d = 0; d < sizeof dims / sizeof dims[0]; d++)
        for (int kind = 0; kind < 16; kind++) {
            struct rope_options o = ROPE_OPTIONS_DEFAULT;
            o.n_dims = dims[d];
            o.original_context = 2048;
            o.base = kind & 1 ? 1e6f : 1e4f;
            o.scaling = (enum rope_scaling)(kind % 3);
            o.factor = kind & 2 ? 4.0f : kind & 4 ? 0.5f : 0;
            o.log_multiplier = kind & 8 ? 1.0f : 0;
            o.attention_factor = kind == 7 ? 1.25f : 1;
            o.beta_fast = kind == 5 ? 16 : 32;
            o.frequency_factors = kind & 4 ? factors : NULL;
            static const size_t positions[] = {0, 1, 2, 7, 100, 2047, 2048, 8191, 131071};
            for (size_t p = 0; p < sizeof positions / sizeof positions[0]; p++)
                expect_row(&o, positions[p]);
        }
}
END

TEST(plain_rope_at_position_0_is_the_identity)
{
    struct rope_options o = ROPE_OPTIONS_DEFAULT;
    o.n_dims = 64;
    struct rope rope;
    rope_init(&rope, &o);
    float cosines[32], sines[32];
    rope_angles(&rope, 0, cosines, sines);
    for (int i = 0; i < 32; i++)
        ck_assert(float_bits(cosines[i]) == float_bits(1.0f) && float_bits(sines[i]) == 0);
    ck_assert(rope_temperature(&rope, 100000) == 1.0f);
}
END

TEST(rotation_pairs_the_right_elements_on_every_tier)
{
    uint64_t seed = 1;
    for (uint32_t dims = 2; dims <= 256; dims += dims < 80 ? 2 : 16)
        for (int kind = ROPE_NORMAL; kind <= ROPE_NEOX; kind++) {
            struct rope_options o = ROPE_OPTIONS_DEFAULT;
            o.n_dims = dims;
            o.kind = (enum rope_kind)kind;
            struct rope rope;
            rope_init(&rope, &o);
            enum { HEADS = 3 };
            float cosines[DIMS_MAX / 2], sines[DIMS_MAX / 2], x[HEADS * DIMS_MAX], want[HEADS * DIMS_MAX];
            rope_angles(&rope, 1234, cosines, sines);
            random_fill(&seed, x, HEADS * dims, 5);
            for (size_t h = 0; h < HEADS; h++)
                for (size_t i = 0; i < dims / 2; i++) {
                    size_t first = h * dims + (kind == ROPE_NEOX ? i : 2 * i);
                    size_t second = first + (kind == ROPE_NEOX ? dims / 2 : 1);
                    volatile float a = x[first] * cosines[i], b = x[second] * sines[i];
                    volatile float c = x[first] * sines[i], d = x[second] * cosines[i];
                    want[first] = a - b;
                    want[second] = c + d;
                }
            for (int tier = 0; tier < TIER_COUNT; tier++) {
                if (!cpu_tier_available((enum cpu_tier)tier))
                    continue;
                float got[HEADS * DIMS_MAX];
                memcpy(got, x, sizeof got);
                rope_apply((enum cpu_tier)tier, &rope, cosines, sines, got, HEADS);
                for (size_t i = 0; i < HEADS * dims; i++)
                    if (!same_float(got[i], want[i]))
                        ck_abort_msg("%s, %u dims, kind %d: [%zu]", cpu_tier_name((enum cpu_tier)tier), dims, kind, i);
            }
        }
}
END

TEST(temperature_grows_with_each_original_context)
{
    struct rope_options o = ROPE_OPTIONS_DEFAULT;
    o.n_dims = 64;
    o.original_context = 128;
    o.temperature_scale = 0.1f;
    struct rope rope;
    rope_init(&rope, &o);
    ck_assert(float_bits(rope_temperature(&rope, 0)) == float_bits(1.0f));
    ck_assert(float_bits(rope_temperature(&rope, 127)) == float_bits(1.0f));
    for (size_t p = 128; p < 5000; p += 37) {
        float want = (float)(log(floor((double)((float)p / 128.0f)) + 1.0) * (double)0.1f + 1.0);
        if (!same_float(rope_temperature(&rope, p), want))
            ck_abort_msg("position %zu: %a, expected %a", p, (double)rope_temperature(&rope, p), (double)want);
    }
}
END

SUITE(ops_rope, T(angle_rows_follow_the_formulas), T(plain_rope_at_position_0_is_the_identity),
      T(rotation_pairs_the_right_elements_on_every_tier), T(temperature_grows_with_each_original_context))
