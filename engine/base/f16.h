/* Scalar half-precision encodings, bit for bit as docs/numerics.md section "Scalar encodings" states. */
#ifndef GGUFD_BASE_F16_H
#define GGUFD_BASE_F16_H

#include <stdint.h>
#include <string.h>

static inline uint32_t float_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static inline float bits_float(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

/* Exact, subnormals included. */
static inline float f16_to_float(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16;
    uint32_t exponent = (h >> 10) & 31, mantissa = h & 0x3ff;
    if (exponent == 31)
        return bits_float(sign | 0x7f800000 | mantissa << 13);
    if (exponent == 0) {
        float f = (float)mantissa * 0x1p-24f;
        return bits_float(float_bits(f) | sign);
    }
    return bits_float(sign | (exponent + 112) << 23 | mantissa << 13);
}

/* Nearest, ties to even; subnormal results produced; |x| >= 65520 gives infinity; any NaN becomes sign|0x7E00. */
static inline uint16_t f16_from_float(float f)
{
    uint32_t u = float_bits(f), sign = (u >> 16) & 0x8000, a = u & 0x7fffffff;
    if (a > 0x7f800000)
        return (uint16_t)(sign | 0x7e00);
    if (a >= 0x477ff000)
        return (uint16_t)(sign | 0x7c00);
    if (a < 0x38800000) { /* below 2^-14: adding 0.5 aligns the last kept bit with the float's unit in the last place */
        float aligned = bits_float(a) + 0.5f;
        return (uint16_t)(sign | (float_bits(aligned) - 0x3f000000));
    }
    a += 0xfff + ((a >> 13) & 1);
    return (uint16_t)(sign | ((a - 0x38000000) >> 13));
}

static inline float bf16_to_float(uint16_t h)
{
    return bits_float((uint32_t)h << 16);
}

/* Nearest, ties to even; NaN keeps its upper bits and becomes quiet. */
static inline uint16_t bf16_from_float(float f)
{
    uint32_t u = float_bits(f);
    if ((u & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}

static inline uint16_t load_u16(const void *p)
{
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline uint32_t load_u32(const void *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline uint64_t load_u64(const void *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

#endif
