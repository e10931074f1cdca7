/* What the formats with 256 weights per super-block share: integers, integer scales of 16 weights, F16 scales. */
#ifndef GGUFD_QUANT_SUPERBLOCK_H
#define GGUFD_QUANT_SUPERBLOCK_H

#include "engine/quant/activation.h"
#include "engine/quant/block32.h"

/* One super-block, decoded: w = (d * scale) * q - dmin * min, the latter for formats with minima only. */
struct superblock {
    int8_t q[256];
    int16_t scale[16], min[16];
    float d, dmin;
};

/* How a super-block's integer sums meet the scales. */
enum superblock_rule {
    SUPERBLOCK_LANES_MIN,   /* eight lanes and minima of 32 weights */
    SUPERBLOCK_LANES,       /* eight lanes */
    SUPERBLOCK_SUM,         /* R += (D * dx) * A */
    SUPERBLOCK_SUM_MIN,     /* R += (dx * D) * A - (dx * Dmin) * Bm, minima of 16 weights */
    SUPERBLOCK_GROUPS       /* R += ((D * dx) * c) * I for every 32 weights */
};

/* Sum of scale * q * a; exact in every format. */
QUANT_INLINE int superblock_sum(const struct superblock *w, const int8_t *a)
{
    int total = 0;
    for (int j = 0; j < 16; j++) {
        int sum = 0;
        for (int i = 0; i < 16; i++)
            sum += w->q[16 * j + i] * a[16 * j + i];
        total += w->scale[j] * sum;
    }
    return total;
}

QUANT_INLINE int superblock_min_sum(const struct superblock *w, const int16_t *sums)
{
    int total = 0;
    for (int j = 0; j < 16; j++)
        total += w->min[j] * sums[j];
    return total;
}

/* w = ((D * scale) * factor) * q; factor is a power of two. */
QUANT_INLINE void superblock_dequantize(const void *row, float *out, size_t n, size_t block_bytes,
                                        void (*unpack)(const void *, struct superblock *), float factor)
{
    struct superblock w;
    for (size_t b = 0; b < n / 256; b++) {
        unpack((const char *)row + b * block_bytes, &w);
        for (int i = 0; i < 256; i++)
            out[b * 256 + (size_t)i] = ((w.d * (float)w.scale[i / 16]) * factor) * (float)w.q[i];
    }
}

/* w = (D * scale) * q - Dmin * min */
QUANT_INLINE void superblock_dequantize_min(const void *row, float *out, size_t n, size_t block_bytes,
                                            void (*unpack)(const void *, struct superblock *))
{
    struct superblock w;
    for (size_t b = 0; b < n / 256; b++) {
        unpack((const char *)row + b * block_bytes, &w);
        for (int i = 0; i < 256; i++)
            out[b * 256 + (size_t)i] =
                (w.d * (float)w.scale[i / 16]) * (float)w.q[i] - w.dmin * (float)w.min[i / 16];
    }
}

/* R += (D * dx) * A, one addition a super-block; in the end R *= factor. */
QUANT_INLINE float superblock_dot(const void *row, const void *act, size_t n, size_t block_bytes,
                                  void (*unpack)(const void *, struct superblock *), float factor)
{
    const struct act_q8_k *a = act;
    struct superblock w;
    float r = 0;
    for (size_t b = 0; b < n / 256; b++) {
        unpack((const char *)row + b * block_bytes, &w);
        r += (w.d * a[b].d) * (float)superblock_sum(&w, a[b].q);
    }
    return factor * r;
}

/* The eight-lane rule: element i belongs to float accumulator i mod 8; the lanes are added to the running part of the
 * minima after the last super-block. */
QUANT_INLINE float superblock_dot_lanes(const void *row, const void *act, size_t n, size_t block_bytes,
                                        void (*unpack)(const void *, struct superblock *), bool has_min)
{
    const struct act_q8_k *a = act;
    struct superblock w;
    float lanes[8] = {0}, r = 0;
    for (size_t b = 0; b < n / 256; b++) {
        int sums[8] = {0};
        unpack((const char *)row + b * block_bytes, &w);
        for (int i = 0; i < 256; i++)
            sums[i % 8] += w.scale[i / 16] * (w.q[i] * a[b].q[i]);
        float d = w.d * a[b].d;
        for (int l = 0; l < 8; l++)
            lanes[l] += d * (float)sums[l];
        if (has_min)
            r -= (w.dmin * a[b].d) * (float)superblock_min_sum(&w, a[b].sums);
    }
    for (int l = 0; l < 8; l++)
        r += lanes[l];
    return r;
}

/* 64 bytes of two-bit values: 32 bytes hold 128 elements, element i in bits 2 * (i / 32 mod 4). */
QUANT_INLINE void two_bits_unpack(const uint8_t *packed, int8_t *q)
{
    for (int i = 0; i < 256; i++)
        q[i] = (int8_t)(packed[32 * (i / 128) + i % 32] >> 2 * (i / 32 % 4) & 3);
}

/* 128 bytes of nibbles: 32 bytes hold 64 elements, low nibbles the first 32. */
QUANT_INLINE void nibbles_256_unpack(const uint8_t *packed, int8_t *q)
{
    for (int i = 0; i < 256; i++)
        q[i] = (int8_t)(packed[32 * (i / 64) + i % 32] >> 4 * (i / 32 % 2) & 15);
}

/* Q4_K and Q5_K: 12 bytes hold eight pairs of 6-bit scale and minimum, each for 32 weights. */
QUANT_INLINE void scale_min_unpack(const uint8_t *p, int16_t *scale, int16_t *min)
{
    for (int j = 0; j < 8; j++) {
        int s = j < 4 ? p[j] & 63 : (p[j + 4] & 15) | p[j - 4] >> 6 << 4;
        int m = j < 4 ? p[j + 4] & 63 : p[j + 4] >> 4 | p[j] >> 6 << 4;
        scale[2 * j] = scale[2 * j + 1] = (int16_t)s;
        min[2 * j] = min[2 * j + 1] = (int16_t)m;
    }
}

/* Q4_K and Q5_K: 12 bytes -> scales and minima: low[0..3] scales 0..3, low[4..7] minima 0..3, high: 4..7. */
static inline void scale_min_words(const uint8_t *p, uint64_t *low, uint64_t *high)
{
    uint64_t first = load_u64(p), last = load_u32(p + 8);
    *low = first & 0x3f3f3f3f3f3f3f3full;
    *high = (first >> 2 & 0x3030303030303030ull) | ((last | last << 28) & 0x0f0f0f0f0f0f0f0full);
}

#endif
