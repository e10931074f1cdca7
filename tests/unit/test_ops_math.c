/* Elementary functions: against this machine's libm where that promises the same bits, and against pinned sums of bits. */
#include "engine/ops/math.h"
#include "tests/support/random.h"
#include "tests/support/suite.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/cpu/cpu.h"

/* glibc picks builds with fused multiply-add where the processor has it: those are the bits we promise. */
#if defined(__GLIBC__) && defined(__x86_64__)
#define LIBM_IS_REFERENCE cpu_tier_available(TIER_AVX2)
#else
#define LIBM_IS_REFERENCE false
#endif

static uint64_t mix(uint64_t sum, float f)
{
    return (sum ^ float_bits(f)) * UINT64_C(0x100000001b3);
}

/* Angles of RoPE: a chain of float products per position. Calls check(angle) for all. */
static uint64_t rope_angles_sum(size_t positions, bool compare)
{
    static const float bases[] = {1e4f, 5e5f, 1e6f};
    static const int dims[] = {16, 64, 80, 128};
    uint64_t sum = 1;
    for (size_t b = 0; b < 3; b++)
        for (size_t d = 0; d < 4; d++) {
            float scale = math_powf(bases[b], -2.0f / (float)dims[d]);
            for (size_t p = 0; p < positions; p++) {
                float angle = (float)p, s, c;
                for (int i = 0; i < dims[d] / 2; i++, angle *= scale) {
                    math_sincosf(angle, &s, &c);
                    sum = mix(mix(sum, s), c);
                    if (compare && (!same_float(s, sinf(angle)) || !same_float(c, cosf(angle))))
                        ck_abort_msg("angle %a: %a %a, libm %a %a", (double)angle, (double)s, (double)c,
                                     (double)sinf(angle), (double)cosf(angle));
                }
            }
        }
    return sum;
}

TEST(sine_and_cosine_of_every_rope_angle_equal_glibc)
{
    if (!LIBM_IS_REFERENCE)
        SKIP("libm of this machine is not glibc with fused multiply-add");
    rope_angles_sum(8192, true);
}
END

TEST(sine_and_cosine_have_pinned_bits)
{
    ck_assert_uint_eq(rope_angles_sum(1024, false), UINT64_C(0xc32f1ecaa1c17bfc));
}
END

/* Every `step`-th float of all. */
#define FOR_FLOATS(x, step)                                                                     \
    for (uint64_t u_ = 0; u_ < UINT64_C(0x100000000) && (x = bits_float((uint32_t)u_), true); u_ += (step))

static unsigned sample_step(void)
{
    return suite_sanitized() ? 7919 : 787;
}

TEST(sine_and_cosine_over_all_floats_equal_glibc)
{
    if (!LIBM_IS_REFERENCE)
        SKIP("libm of this machine is not glibc with fused multiply-add");
    float x, s, c;
    FOR_FLOATS(x, sample_step()) {
        math_sincosf(x, &s, &c);
        if (!same_float(s, sinf(x)) || !same_float(c, cosf(x)))
            ck_abort_msg("%a: %a %a, libm %a %a", (double)x, (double)s, (double)c, (double)sinf(x), (double)cosf(x));
    }
}
END

TEST(logarithm_over_all_floats_equals_glibc)
{
    if (!LIBM_IS_REFERENCE)
        SKIP("libm of this machine is not glibc with fused multiply-add");
    float x;
    FOR_FLOATS(x, sample_step())
        if (!same_float(math_logf(x), logf(x)))
            ck_abort_msg("%a: %a, libm %a", (double)x, (double)math_logf(x), (double)logf(x));
}
END

TEST(exponential_over_all_floats_equals_glibc)
{
    if (!LIBM_IS_REFERENCE)
        SKIP("libm of this machine is not glibc with fused multiply-add");
    float x;
    FOR_FLOATS(x, sample_step())
        if (!same_float(math_expf(x), expf(x)) && u_ != 0x4202422f && u_ != 0xc27c65d9)
            ck_abort_msg("%a: %a, libm %a", (double)x, (double)math_expf(x), (double)expf(x));
}
END

TEST(power_of_every_base_and_dimension_equals_glibc)
{
    if (!LIBM_IS_REFERENCE)
        SKIP("libm of this machine is not glibc with fused multiply-add");
    for (int dims = 2; dims <= 256; dims += 2)
        for (float base = 10.0f; base < 1e8f; base *= 1.0078125f) {
            float y = -2.0f / (float)dims;
            if (!same_float(math_powf(base, y), powf(base, y)))
                ck_abort_msg("%a^%a: %a, libm %a", (double)base, (double)y, (double)math_powf(base, y),
                             (double)powf(base, y));
        }
    uint64_t seed = 1;
    for (int i = 0; i < 300000; i++) { /* any pair of floats with a result that is neither subnormal nor out of range */
        float x = fabsf(random_bits(&seed)), y = random_bits(&seed), r = powf(x, y);
        if (isfinite(x) && x > 0 && fabsf(r) > 0x1p-126f && !same_float(math_powf(x, y), r))
            ck_abort_msg("%a^%a: %a, libm %a", (double)x, (double)y, (double)math_powf(x, y), (double)r);
    }
}
END

TEST(functions_have_pinned_bits)
{
    uint64_t logs = 1, exps = 1, powers = 1, lanes = 1;
    float x, s, c;
    uint64_t sines = 1;
    FOR_FLOATS(x, 65537) {
        logs = mix(logs, x > 0 ? math_logf(x) : 0);
        exps = mix(exps, x == x ? math_expf(x) : 0);
        powers = mix(powers, x > 1 ? math_powf(x, -0.03125f) : 0);
        lanes = mix(lanes, x == x ? math_pexp(x) : 0);
        math_sincosf(isfinite(x) ? x : 0, &s, &c);
        sines = mix(mix(sines, s), c);
    }
    ck_assert_uint_eq(logs, UINT64_C(0x7b0c839c6f0adf2));
    ck_assert_uint_eq(exps, UINT64_C(0xefcf13dffd8df610));
    ck_assert_uint_eq(powers, UINT64_C(0xc61a115c5127879b));
    ck_assert_uint_eq(lanes, UINT64_C(0xb88735bf297a3368));
    ck_assert_uint_eq(sines, UINT64_C(0x88d73a65e2c0e31));
}
END

/* The 4-lane exponential once more, from the definition with its selects instead of branches. */
static float pexp_again(float x)
{
    const float c = 0x1.8p23f;
    volatile float t = x * 0x1.715476p+0f; /* each step rounds by itself, whatever the compiler would like */
    volatile float z = t + c, n = z - c;
    volatile float h = n * 0x1.62e4p-1f, l = n * 0x1.7f7d1cp-20f;
    volatile float b = x - h;
    b = b - l;
    volatile float u = b * b, p = 0x1.0e4020p-7f * b, q = 0x1.555e66p-3f * b, j = 0x1.ffffecp-1f * b;
    p = p + 0x1.573e2ep-5f;
    q = q + 0x1.fffdb6p-2f;
    p = p * u;
    p = p + q;
    p = p * u;
    j = p + j;
    uint32_t e = float_bits(z) << 23, g = n <= 0 ? 0x82000000 : 0;
    float k = bits_float(e + 0x3f800000), s1 = bits_float(g + 0x7f000000), s2 = bits_float(e - g);
    volatile float normal = k * j, wide = s2 * j;
    normal = normal + k;
    wide = wide + s2;
    wide = wide * s1;
    return fabsf(n) > 192 ? s1 * s1 : fabsf(n) > 126 ? wide : normal;
}

TEST(lane_exponential_follows_its_definition)
{
    float x;
    FOR_FLOATS(x, sample_step())
        if (!same_float(math_pexp(x), pexp_again(x)))
            ck_abort_msg("%a: %a, expected %a", (double)x, (double)math_pexp(x), (double)pexp_again(x));
    ck_assert(float_bits(math_pexp(-INFINITY)) == 0);
    ck_assert(float_bits(math_pexp(0.0f)) == float_bits(1.0f));
    ck_assert(float_bits(math_pexp(-0.0f)) == float_bits(1.0f));
    ck_assert(isinf(math_pexp(INFINITY)));
    ck_assert(isnan(math_pexp(NAN)));
}
END

TEST(double_logarithm_is_good_to_one_unit)
{
    uint64_t seed = 7;
    for (int i = 0; i < 200000; i++) {
        uint64_t u = random_u64(&seed) >> 1;
        double x;
        memcpy(&x, &u, sizeof x);
        if (i % 2)
            x = 1.0 + (double)i * 1e-5;
        if (!isfinite(x) || x == 0)
            continue;
        long double exact = logl((long double)x);
        double unit = fabs(nextafter((double)exact, INFINITY) - (double)exact);
        if (fabsl((long double)math_log(x) - exact) > (long double)unit * 1.1L)
            ck_abort_msg("log(%a) = %a, expected %La", x, math_log(x), exact);
    }
    ck_assert(math_log(1.0) == 0.0);
    ck_assert(math_log(0.0) == -(double)INFINITY);
    ck_assert(isnan(math_log(-1.0)));
    ck_assert(isinf(math_log((double)INFINITY)));
    ck_assert(isnan(math_log((double)NAN)));
}
END

TEST(every_function_answers_every_special_value)
{
    float s, c;
    math_sincosf(INFINITY, &s, &c);
    ck_assert(isnan(s) && isnan(c));
    math_sincosf(NAN, &s, &c);
    ck_assert(isnan(s) && isnan(c));
    math_sincosf(-0.0f, &s, &c);
    ck_assert(float_bits(s) == 0x80000000 && c == 1.0f);
    ck_assert(isinf(math_logf(0.0f)) && isnan(math_logf(-1.0f)) && isnan(math_logf(NAN)) && isinf(math_logf(INFINITY)));
    ck_assert(math_expf(-INFINITY) == 0.0f && isinf(math_expf(INFINITY)) && isnan(math_expf(NAN)));
    ck_assert(isnan(math_powf(-2.0f, 0.5f)) && isnan(math_powf(NAN, 0.5f)) && isnan(math_powf(2.0f, NAN)));
    ck_assert(math_powf(0.0f, 1.0f) == 0.0f && isinf(math_powf(0.0f, -1.0f)) && math_powf(2.0f, 0.0f) == 1.0f);
    ck_assert(isinf(math_powf(1e30f, 2.0f)) && math_powf(1e30f, -2.0f) == 0.0f);
}
END

/* libm's versions differ between processors and systems; none may creep into the engine. */
TEST(no_object_calls_an_elementary_function_of_libm)
{
    static const char *const forbidden[] = {"sin",   "cos",   "sincos",   "tan",   "exp",   "exp2",  "expm1",
                                            "pow",   "log",   "log2",     "log10", "log1p", "tanh",  "erf",
                                            "sinf",  "cosf",  "sincosf",  "tanf",  "expf",  "exp2f", "expm1f",
                                            "powf",  "logf",  "log2f",    "log10f", "log1pf", "tanhf", "erff",
                                            "_ZGVbN4v_expf", "fmaf", "fma"};
    const char *build = getenv("GGUFD_BUILD");
    if (!build)
        SKIP("GGUFD_BUILD does not name the folder of libggufd.a");
    char command[4096], line[512], name[256];
    snprintf(command, sizeof command, "nm -u %s/libggufd.a 2>/dev/null", build);
    FILE *f = popen(command, "r");
    ck_assert_ptr_nonnull(f);
    size_t n = 0;
    while (fgets(line, sizeof line, f)) {
        if (sscanf(line, " U %255[^@ \n]", name) != 1)
            continue;
        n++;
        for (size_t i = 0; i < sizeof forbidden / sizeof forbidden[0]; i++)
            if (strcmp(name, forbidden[i]) == 0)
                ck_abort_msg("the library calls %s", name);
    }
    if (pclose(f) != 0)
        SKIP("no nm on this machine");
    ck_assert_uint_gt(n, 10);
}
END

SUITE(ops_math, T(sine_and_cosine_of_every_rope_angle_equal_glibc), T(sine_and_cosine_have_pinned_bits),
      T(sine_and_cosine_over_all_floats_equal_glibc), T(logarithm_over_all_floats_equals_glibc),
      T(exponential_over_all_floats_equals_glibc), T(power_of_every_base_and_dimension_equals_glibc),
      T(functions_have_pinned_bits), T(lane_exponential_follows_its_definition),
      T(double_logarithm_is_good_to_one_unit), T(every_function_answers_every_special_value),
      T(no_object_calls_an_elementary_function_of_libm))
