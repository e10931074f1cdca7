/* Random values for tests: reproducible, covering more than a uniform distribution does. */
#ifndef GGUFD_TESTS_RANDOM_H
#define GGUFD_TESTS_RANDOM_H

#include <stddef.h>
#include <stdbool.h>
#include <stdint.h>

#include "engine/base/f16.h"

/* splitmix64. */
static inline uint64_t random_u64(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static inline size_t random_below(uint64_t *state, size_t n)
{
    return (size_t)(random_u64(state) % n);
}

/* Any bit pattern: infinities, NaN and subnormals included. */
static inline float random_bits(uint64_t *state)
{
    return bits_float((uint32_t)(random_u64(state) >> 32));
}

/* Within +-scale, a quarter of them a thousand times smaller: activations as layers see them. */
static inline float random_value(uint64_t *state, float scale)
{
    uint64_t u = random_u64(state);
    float f = ((float)(u >> 40) * 0x1p-23f - 1.0f) * scale;
    return u & 3 ? f : f * 1e-3f;
}

static inline void random_fill(uint64_t *state, float *x, size_t n, float scale)
{
    for (size_t i = 0; i < n; i++)
        x[i] = random_value(state, scale);
}

/* Equal bits, or both NaN: payloads and signs of NaN are not promised. */
static inline bool same_float(float a, float b)
{
    return float_bits(a) == float_bits(b) || (a != a && b != b);
}

#endif
