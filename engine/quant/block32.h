/* What the formats with 32 weights per block share: integers and a scale per block, a few ways to combine them. */
#ifndef GGUFD_QUANT_BLOCK32_H
#define GGUFD_QUANT_BLOCK32_H

#include "engine/quant/activation.h"

#define QUANT_INLINE static inline __attribute__((always_inline))

/* One weight block, decoded: w = q * d, or q * d + m. */
struct block32 {
    int8_t q[32];
    float d, m;
};

/* How a block's integer sum I meets the scales. */
enum block32_rule {
    BLOCK32_PRODUCT,    /* (D * dx) * I */
    BLOCK32_CHAIN,      /* (I * D) * dx */
    BLOCK32_MINIMUM,    /* (D * dx) * I + M * s */
    BLOCK32_SCALED,     /* ((D * dx) * c) * I, c an integer scale of the block */
    BLOCK32_HALVES,     /* (D * dx) * I for every 16 weights, which have a D each */
    BLOCK32_NESTED      /* D * (dx * I + dx * I + ...) over the parts of a block of more than 32 weights */
};

QUANT_INLINE int block32_sum(const int8_t *q, const int8_t *a)
{
    int sum = 0;
    for (int i = 0; i < 32; i++)
        sum += q[i] * a[i];
    return sum;
}

/* 16 bytes of nibbles: element k low, element k + 16 high. */
QUANT_INLINE void nibbles_unpack(const uint8_t *nibbles, int8_t *q)
{
    for (int k = 0; k < 16; k++) {
        q[k] = (int8_t)(nibbles[k] & 15);
        q[k + 16] = (int8_t)(nibbles[k] >> 4);
    }
}

QUANT_INLINE void block32_dequantize(const void *row, float *out, size_t n, size_t block_bytes,
                                     void (*unpack)(const void *, struct block32 *))
{
    struct block32 w;
    for (size_t b = 0; b < n / 32; b++) {
        unpack((const char *)row + b * block_bytes, &w);
        for (int i = 0; i < 32; i++)
            out[b * 32 + (size_t)i] = (float)w.q[i] * w.d;
    }
}

QUANT_INLINE void block32_dequantize_min(const void *row, float *out, size_t n, size_t block_bytes,
                                         void (*unpack)(const void *, struct block32 *))
{
    struct block32 w;
    for (size_t b = 0; b < n / 32; b++) {
        unpack((const char *)row + b * block_bytes, &w);
        for (int i = 0; i < 32; i++)
            out[b * 32 + (size_t)i] = (float)w.q[i] * w.d + w.m;
    }
}

/* R += (D * dx) * I */
QUANT_INLINE float block32_dot(const void *row, const void *act, size_t n, size_t block_bytes,
                              void (*unpack)(const void *, struct block32 *))
{
    const struct act_q8_0 *a = act;
    struct block32 w;
    float r = 0;
    for (size_t b = 0; b < n / 32; b++) {
        unpack((const char *)row + b * block_bytes, &w);
        r += (w.d * f16_to_float(a[b].d)) * (float)block32_sum(w.q, a[b].q);
    }
    return r;
}

/* R += (D * dx) * I + M * s */
QUANT_INLINE float block32_dot_min(const void *row, const void *act, size_t n, size_t block_bytes,
                                   void (*unpack)(const void *, struct block32 *))
{
    const struct act_q8_1 *a = act;
    struct block32 w;
    float r = 0;
    for (size_t b = 0; b < n / 32; b++) {
        unpack((const char *)row + b * block_bytes, &w);
        float scaled = (w.d * f16_to_float(a[b].d)) * (float)block32_sum(w.q, a[b].q);
        r += scaled + w.m * f16_to_float(a[b].s);
    }
    return r;
}

#endif
