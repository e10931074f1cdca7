/* What the vector encoders of all tiers share: one encoded block of 32, when the fast path may take it, and the way back to
 * the canonical encoder of engine/quant/activation.c when it may not. */
#ifndef GGUFD_QUANT_ENCODE32_H
#define GGUFD_QUANT_ENCODE32_H

#include <string.h>

#include "engine/base/f16.h"
#include "engine/quant/activation.h"

/* Magnitudes for which no reciprocal overflows, as float bits: [2^-100, 2^100], or exactly 0. */
enum { ENCODE_BITS_MIN = (127 - 100) << 23, ENCODE_BITS_MAX = (127 + 100) << 23 };

static inline bool encode_is_ordinary(uint32_t magnitude_bits)
{
    return magnitude_bits == 0 || (magnitude_bits >= ENCODE_BITS_MIN && magnitude_bits <= ENCODE_BITS_MAX);
}

/* 32 values as act_q8_1 stores them, scales as floats (rounded to F16), and the sum of the integers. */
struct encoded32 {
    int8_t q[32];
    int32_t sum;
    float d, s;
};

static inline void encode32_slow(const float *x, struct encoded32 *out)
{
    struct act_q8_1 block;
    activation_format(ACT_Q8_1)->encode(x, &block, 32);
    memcpy(out->q, block.q, sizeof out->q);
    out->d = f16_to_float(block.d);
    out->s = f16_to_float(block.s);
    out->sum = 0;
    for (int i = 0; i < 32; i++)
        out->sum += out->q[i];
}

#endif
