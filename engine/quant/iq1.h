/* What IQ1_S and IQ1_M share: signed grid entries of 8 weights, each entry shifted by an eighth up or down. */
#ifndef GGUFD_QUANT_IQ1_H
#define GGUFD_QUANT_IQ1_H

#include "engine/quant/grid_avx512.h"
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

#if defined(__aarch64__)
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
#endif

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

#if defined(__x86_64__)

/* On AVX-512 a super-block counts in eighths, 8 * q + delta. A + A1 / 8 has less than 24 bits: the same bits in one
 * piece. */
struct iq1_avx512 {
    __m512i q[4];       /* 1 too large: 0..2 */
    __mmask32 minus;    /* 8 weights each: delta is -1 */
    __m256i scale;      /* of 16 weights */
    float d;
};

AVX512_INLINE void iq1_entries_avx512(__m256i index, size_t k, struct iq1_avx512 *out)
{
    out->q[k] = _mm512_add_epi8(gather_entries_8(index, grid_iq1), _mm512_set1_epi8(1));
}

/* Dwords that add up to the sum of scale * (8 * q + delta) * a. */
AVX512_INLINE __m512i iq1_dot_avx512(const struct iq1_avx512 *w, const struct superblock_activation *a)
{
    const __m512i twice = _mm512_set_epi64(0x000f000f000e000e, 0x000d000d000c000c, 0x000b000b000a000a,
                                           0x0009000900080008, 0x0007000700060006, 0x0005000500040004,
                                           0x0003000300020002, 0x0001000100000000);
    __m512i scale = _mm512_permutexvar_epi16(twice, _mm512_castsi256_si512(w->scale));
    __m512i shift = _mm512_mask_sub_epi16(scale, w->minus, _mm512_setzero_si512(), scale);
    __m512i per_sum = _mm512_sub_epi16(shift, _mm512_slli_epi16(scale, 3));
    __m512i sum = _mm512_madd_epi16(per_sum, load512(a->sums8));
    __m256i eighths = _mm256_slli_epi16(w->scale, 3);
    UNROLL
    for (int k = 0; k < 4; k++)
        sum = _mm512_dpwssd_epi32(sum, _mm512_maddubs_epi16(w->q[k], load512(a->plain + 64 * k)),
                                  scales_of_pairs(eighths, k));
    return sum;
}

AVX512_INLINE void iq1_bytes_of_avx512(const struct iq1_avx512 *w, struct superblock_bytes *out)
{
    UNROLL
    for (size_t k = 0; k < 4; k++) {
        __mmask8 minus = (__mmask8)(w->minus >> 8 * k);
        __m512i excess = _mm512_mask_blend_epi64(minus, _mm512_set1_epi8(7), _mm512_set1_epi8(9));
        out->q[k] = _mm512_sub_epi8(_mm512_slli_epi16(w->q[k], 3), excess);
    }
    out->scale = w->scale;
    out->d = w->d;
}

/* Behind NAME_load_avx512: both kernels. */
#define IQ1_AVX512(name, bytes)                                                                                     \
    AVX512_INLINE void name##_parts_avx512(const uint8_t *x, const struct superblock_activation *a,                 \
                                           struct superblock_parts *out, size_t k)                                  \
    {                                                                                                               \
        struct iq1_avx512 w;                                                                                        \
        name##_load_avx512(x, &w);                                                                                  \
        out->d[k] = w.d;                                                                                            \
        _mm512_store_si512(out->sum[k], iq1_dot_avx512(&w, a));                                                     \
    }                                                                                                               \
    AVX512_INLINE void name##_bytes_avx512(const uint8_t *x, struct superblock_bytes *out)                          \
    {                                                                                                               \
        struct iq1_avx512 w;                                                                                        \
        name##_load_avx512(x, &w);                                                                                  \
        iq1_bytes_of_avx512(&w, out);                                                                               \
    }                                                                                                               \
    SUPERBLOCK_SUMS_AVX512(name, bytes, false, 0.125f, 1)                                                           \
    SUPERBLOCK_BYTES_AVX512(name, bytes, 0.125f, 1)

#endif

#endif
