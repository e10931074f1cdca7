/* What IQ1_S and IQ1_M share: signed grid entries of 8 weights, each entry shifted by an eighth up or down. */
#ifndef GGUFD_QUANT_IQ1_H
#define GGUFD_QUANT_IQ1_H

#include "engine/quant/superblock.h"
#include "engine/quant/tables.h"

/* w = (d * scale) * (q + delta / 8), scale and delta per 8 weights. */
struct iq1_block {
    int8_t q[256];
    int8_t scale[32], delta[32];
    float d;
};

QUANT_INLINE void iq1_dequantize(const void *row, float *out, size_t n, size_t block_bytes,
                                 void (*unpack)(const void *, struct iq1_block *))
{
    struct iq1_block w;
    for (size_t b = 0; b < n / 256; b++) {
        unpack((const char *)row + b * block_bytes, &w);
        for (int i = 0; i < 256; i++)
            out[b * 256 + (size_t)i] =
                (w.d * (float)w.scale[i / 8]) * ((float)w.q[i] + 0.125f * (float)w.delta[i / 8]);
    }
}

/* As a super-block in eighths, 8 * q + delta. A + A1 / 8 has less than 24 bits: the same bits in one piece. */
QUANT_INLINE void iq1_unpack_eighths(const void *block, struct superblock *out,
                                     void (*unpack)(const void *, struct iq1_block *))
{
    struct iq1_block w;
    unpack(block, &w);
    out->d = w.d;
    for (int j = 0; j < 16; j++)
        out->scale[j] = w.scale[2 * j];
    for (int i = 0; i < 256; i++)
        out->q[i] = (int8_t)(8 * w.q[i] + w.delta[i / 8]);
}

/* R += (D * dx) * (A + A1 / 8), A over the grid entries, A1 over the shifts. */
QUANT_INLINE float iq1_dot(const void *row, const void *act, size_t n, size_t block_bytes,
                           void (*unpack)(const void *, struct iq1_block *))
{
    const struct act_q8_k *a = act;
    struct iq1_block w;
    float r = 0;
    for (size_t b = 0; b < n / 256; b++) {
        int entries = 0, shifts = 0;
        unpack((const char *)row + b * block_bytes, &w);
        for (int i = 0; i < 256; i++) {
            entries += w.scale[i / 8] * (w.q[i] * a[b].q[i]);
            shifts += w.scale[i / 8] * (w.delta[i / 8] * a[b].q[i]);
        }
        r += (w.d * a[b].d) * ((float)entries + 0.125f * (float)shifts);
    }
    return r;
}

#endif
