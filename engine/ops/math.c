/* Elementary functions; the algorithms and constants are those of docs/numerics.md, section "libm functions that matter". */
#include "engine/ops/math.h"

#include <math.h>
#include <stddef.h>

#include "engine/base/f16.h"

static inline uint64_t double_bits(double d)
{
    uint64_t u;
    memcpy(&u, &d, sizeof u);
    return u;
}

static inline double bits_double(uint64_t u)
{
    double d;
    memcpy(&d, &u, sizeof d);
    return d;
}

/* ---- sine and cosine ---- */

/* Four bytes of 2/pi that end with byte i; bytes in front of the point are 0. */
static uint32_t two_over_pi_word(int i)
{
    static const uint8_t digits[3 + 24] = {0,    0,    0,    0xa2, 0xf9, 0x83, 0x6e, 0x4e, 0x44, 0x15, 0x29, 0xfc, 0x27, 0x57,
                                           0xd1, 0xf5, 0x34, 0xdd, 0xc0, 0xdb, 0x62, 0x95, 0x99, 0x3c, 0x43, 0x90, 0x41};
    const uint8_t *d = digits + i;
    return (uint32_t)d[0] << 24 | (uint32_t)d[1] << 16 | (uint32_t)d[2] << 8 | d[3];
}

/* |y| < 120: returns y - n * pi/2. The two constants add up to the double nearest to pi/2; product and difference with
 * the first are exact, so the result has the one rounding of a fused multiply-add. */
static double reduce_small(double y, int32_t *n)
{
    double r = y * 0x1.45F306DC9C883p+23;
    *n = ((int32_t)r + 0x800000) >> 24;
    return (y - *n * 0x1.921fb5444p0) - *n * 0x1.68cp-39;
}

/* Any finite |y| >= 120, as a 96-bit product of the mantissa with the digits of 2/pi that matter. */
static double reduce_large(uint32_t u, int32_t *n)
{
    int j = (u >> 26) & 15;
    uint32_t m = ((u & 0xffffff) | 0x800000) << ((u >> 23) & 7);
    uint64_t high = (uint64_t)(m * two_over_pi_word(j)) << 32;
    uint64_t middle = (uint64_t)m * two_over_pi_word(j + 4);
    uint64_t low = (uint64_t)m * two_over_pi_word(j + 8);
    uint64_t r = high + (low >> 32) + middle;
    uint64_t turns = (r + (UINT64_C(1) << 61)) >> 62;
    r -= turns << 62;
    *n = (int32_t)turns;
    return (double)(int64_t)r * 0x1.921FB54442D18p-62;
}

void math_sincosf(float y, float *sine, float *cosine)
{
    uint32_t u = float_bits(y), magnitude = u & 0x7fffffff;
    if (magnitude < 0x39800000) { /* 2^-12 */
        *sine = y;
        *cosine = 1.0f;
        return;
    }
    if (magnitude >= 0x7f800000) {
        *sine = *cosine = y - y;
        return;
    }
    double x = (double)y;
    int32_t n = 0, quadrant = 0;
    if (magnitude >= 0x42f00000) { /* 120 */
        x = reduce_large(u, &n);
        quadrant = n + (int32_t)(u >> 31);
    } else if (magnitude >= 0x3f400000) { /* 0.75 */
        x = reduce_small(x, &n);
        quadrant = n;
    }
    double t = ((quadrant & 3) == 1 || (quadrant & 3) == 2) ? -x : x;
    double sign = quadrant & 2 ? -1.0 : 1.0;
    double x2 = x * x, x3 = x2 * t, x4 = x2 * x2, x5 = x3 * x2, x6 = x4 * x2;
    float s = (float)((t + x3 * -0x1.555545995a603p-3) + x5 * (0x1.1107605230bc4p-7 + x2 * -0x1.994eb3774cf24p-13));
    float c = (float)(sign * (((1.0 + x2 * -0x1.ffffffd0c621cp-2) + x4 * 0x1.55553e1068f19p-5) +
                              x6 * (-0x1.6c087e89a359dp-10 + x2 * 0x1.99343027bf8c3p-16)));
    *sine = n & 1 ? c : s;
    *cosine = n & 1 ? s : c;
}

/* ---- logarithms ---- */

struct log_entry {
    double inverse, ln, lg2; /* about 1/c, ln c, log2 c */
};
static const struct log_entry log_table[16] = {
    {0x1.661ec79f8f3bep+0, -0x1.57bf7808caadep-2, -0x1.efec65b963019p-2},
    {0x1.571ed4aaf883dp+0, -0x1.2bef0a7c06ddbp-2, -0x1.b0b6832d4fca4p-2},
    {0x1.49539f0f010bp+0, -0x1.01eae7f513a67p-2, -0x1.7418b0a1fb77bp-2},
    {0x1.3c995b0b80385p+0, -0x1.b31d8a68224e9p-3, -0x1.39de91a6dcf7bp-2},
    {0x1.30d190c8864a5p+0, -0x1.6574f0ac07758p-3, -0x1.01d9bf3f2b631p-2},
    {0x1.25e227b0b8eap+0, -0x1.1aa2bc79c81p-3, -0x1.97c1d1b3b7afp-3},
    {0x1.1bb4a4a1a343fp+0, -0x1.a4e76ce8c0e5ep-4, -0x1.2f9e393af3c9fp-3},
    {0x1.12358f08ae5bap+0, -0x1.1973c5a611cccp-4, -0x1.960cbbf788d5cp-4},
    {0x1.0953f419900a7p+0, -0x1.252f438e10c1ep-5, -0x1.a6f9db6475fcep-5},
    {1.0, 0.0, 0.0},
    {0x1.e608cfd9a47acp-1, 0x1.aa5aa5df25984p-5, 0x1.338ca9f24f53dp-4},
    {0x1.ca4b31f026aap-1, 0x1.c5e53aa362eb4p-4, 0x1.476a9543891bap-3},
    {0x1.b2036576afce6p-1, 0x1.526e57720db08p-3, 0x1.e840b4ac4e4d2p-3},
    {0x1.9c2d163a1aa2dp-1, 0x1.bc2860d22477p-3, 0x1.40645f0c6651cp-2},
    {0x1.886e6037841edp-1, 0x1.1058bc8a07ee1p-2, 0x1.88e9c2c1b9ff8p-2},
    {0x1.767dcf5534862p-1, 0x1.4043057b6ee09p-2, 0x1.ce0a44eb17bccp-2},
};

/* x = 2^k * z with z near the entry's c; returns z/c - 1. */
static double log_reduce(float x, const struct log_entry **entry, int32_t *k)
{
    uint32_t u = float_bits(x);
    if (u < 0x00800000)
        u = float_bits(x * 0x1p23f) - (23u << 23);
    uint32_t t = u - 0x3f330000;
    *entry = &log_table[(t >> 19) & 15];
    *k = (int32_t)t >> 23;
    return (double)bits_float(u - (t & 0xff800000)) * (*entry)->inverse - 1.0;
}

float math_logf(float x)
{
    if (x == 1.0f)
        return 0.0f;
    if (!(x > 0.0f))
        return x == 0.0f ? -INFINITY : NAN;
    if (x > 0x1.fffffep127f)
        return x;
    const struct log_entry *entry;
    int32_t k;
    double r = log_reduce(x, &entry, &k), r2 = r * r;
    double y = (-0x1.00ea348b88334p-2 * r2) + ((0x1.5575b0be00b6ap-2 * r) + -0x1.ffffef20a4123p-2);
    return (float)((y * r2) + ((entry->ln + k * 0x1.62e42fefa39efp-1) + r));
}

/* log(1 + f) = f - (f*f/2 - s*(f*f/2 + R)), s = f / (2 + f), R = s^2 * (2/3 + 2/5 s^2 + ...): f itself is exact, so the
 * roundings happen in the small part. */
double math_log(double x)
{
    if (!(x > 0.0))
        return x == 0.0 ? -(double)INFINITY : (double)NAN;
    if (x > 0x1.fffffffffffffp1023)
        return x;
    int k = 0;
    if (x < 0x1p-1022) {
        x *= 0x1p54;
        k = -54;
    }
    /* Mantissa in [sqrt(1/2), sqrt(2)). */
    uint64_t u = double_bits(x), t = u - UINT64_C(0x3fe6a09e667f3bcd);
    k += (int)((int64_t)t >> 52);
    double f = bits_double(u - (t & UINT64_C(0xfff0000000000000))) - 1.0;
    double s = f / (2.0 + f), z = s * s, r = 0.0;
    for (int i = 25; i >= 3; i -= 2)
        r = (r + 2.0 / i) * z;
    double half = 0.5 * f * f;
    return k * 0x1.62e42feep-1 - ((half - (s * (half + r) + k * 0x1.a39ef35793c76p-33)) - f);
}

/* ---- exponentials ---- */

/* bits(2^(i/32)) - (i << 47): adding K << 47 for K = 32 * q + i gives the bits of 2^(K/32). */
static const uint64_t exp_table[32] = {
    0x3ff0000000000000, 0x3fefd9b0d3158574, 0x3fefb5586cf9890f, 0x3fef9301d0125b51,
    0x3fef72b83c7d517b, 0x3fef54873168b9aa, 0x3fef387a6e756238, 0x3fef1e9df51fdee1,
    0x3fef06fe0a31b715, 0x3feef1a7373aa9cb, 0x3feedea64c123422, 0x3feece086061892d,
    0x3feebfdad5362a27, 0x3feeb42b569d4f82, 0x3feeab07dd485429, 0x3feea47eb03a5585,
    0x3feea09e667f3bcd, 0x3fee9f75e8ec5f74, 0x3feea11473eb0187, 0x3feea589994cce13,
    0x3feeace5422aa0db, 0x3feeb737b0cdc5e5, 0x3feec49182a3f090, 0x3feed503b23e255d,
    0x3feee89f995ad3ad, 0x3feeff76f2fb5e47, 0x3fef199bdd85529c, 0x3fef3720dcef9069,
    0x3fef5818dcfba487, 0x3fef7c97337b9b5f, 0x3fefa4afa2a490da, 0x3fefd0765b6e4540,
};

static double exp_scale(uint64_t k)
{
    return bits_double(exp_table[k % 32] + (k << 47));
}

float math_expf(float x)
{
    if (x > 0x1.62e42ep6f)
        return INFINITY;
    if (x < -0x1.9fe368p6f)
        return 0.0f;
    double z = (0x1.71547652b82fep+0 * 32) * (double)x;
    double kd = z + 0x1.8p52;
    uint64_t k = double_bits(kd);
    kd -= 0x1.8p52;
    double r = z - kd;
    double high = (0x1.c6af84b912394p-5 / 32768) * r + 0x1.ebfce50fac4f3p-3 / 1024;
    double y = high * (r * r) + ((0x1.62e42ff0c52d6p-1 / 32) * r + 1.0);
    return (float)(y * exp_scale(k));
}

float math_powf(float x, float y)
{
    if (y == 0.0f || x == 1.0f)
        return 1.0f;
    if (!(x > 0.0f) || y != y) {
        if (x == 0.0f && y == y)
            return y > 0.0f ? 0.0f : INFINITY;
        return NAN;
    }
    const struct log_entry *entry;
    int32_t k;
    double r = log_reduce(x, &entry, &k), r2 = r * r, r4 = r2 * r2;
    double a = 0x1.27616c9496e0bp-2 * r + -0x1.71969a075c67ap-2;
    double p = 0x1.ec70a6ca7baddp-2 * r + -0x1.7154748bef6c8p-1;
    double q = (0x1.71547652ab82bp0 * r) + (entry->lg2 + k);
    q = (p * r2) + q;
    double e = (double)y * ((a * r4) + q);
    if (e >= 128.0)
        return INFINITY;
    if (e < -150.0)
        return 0.0f;
    double kd = e + 0x1.8p47;
    uint64_t scale = double_bits(kd);
    kd -= 0x1.8p47;
    r = e - kd;
    double high = 0x1.c6af84b912394p-5 * r + 0x1.ebfce50fac4f3p-3;
    return (float)((high * (r * r) + (0x1.62e42ff0c52d6p-1 * r + 1.0)) * exp_scale(scale));
}

float math_pexp(float x)
{
    float z = (x * 0x1.715476p+0f) + 12582912.0f, n = z - 12582912.0f;
    float b = (x - (n * 0x1.62e4p-1f)) - (n * 0x1.7f7d1cp-20f), u = b * b;
    uint32_t e = float_bits(z) << 23;
    float k = bits_float(e + 0x3f800000);
    float high = (0x1.0e4020p-7f * b) + 0x1.573e2ep-5f, low = (0x1.555e66p-3f * b) + 0x1.fffdb6p-2f;
    float j = (((high * u) + low) * u) + (0x1.ffffecp-1f * b);
    if (!(fabsf(n) > 126.0f))
        return (k * j) + k;
    uint32_t g = n <= 0.0f ? 0x82000000 : 0;
    float s1 = bits_float(g + 0x7f000000), s2 = bits_float(e - g);
    return fabsf(n) > 192.0f ? s1 * s1 : ((s2 * j) + s2) * s1;
}
