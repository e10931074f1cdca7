/* What the AVX-512 kernels of all formats share: the target, 16-row groups with a guard at the end of the mapping,
 * prefetching, transposes. Everything is under a target attribute: the compiler must not know the machine.
 *
 * Kernels handle 16 rows at a time. A group whose reads could reach the end of the mapping, or that has fewer rows, is
 * copied into scratch first; all other groups are read in place. */
#ifndef GGUFD_QUANT_AVX512_H
#define GGUFD_QUANT_AVX512_H
#include "engine/quant/activation.h"
#include "engine/quant/x86.h"

#if defined(__x86_64__)

#include <string.h>

#define AVX512_TARGET "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512vbmi,gfni,avx2,fma,f16c"
#define AVX512 __attribute__((target(AVX512_TARGET)))
#define AVX512_INLINE static inline __attribute__((always_inline, target(AVX512_TARGET)))

enum { ROWS = 16 };

/* Functions of three bits for _mm512_ternarylogic. */
enum { TERNARY_CHOOSE = 0xe4 /* c ? a : b */, TERNARY_OR_AND = 0xf8 /* a | (b & c) */ };

/* Scratch that row_group may need. */
static inline size_t row_group_bytes(size_t row_bytes, size_t overread)
{
    return round_up(ROWS * row_bytes + overread, 64);
}

/* The 16 rows from `row` on, readable to `overread` bytes behind the last: in place, or a copy in `stage` with zeros
 * where there is nothing. */
static inline const uint8_t *row_group(const struct product *p, size_t row, size_t overread, uint8_t *stage)
{
    const uint8_t *rows = (const uint8_t *)p->weights + row * p->row_bytes;
    size_t available = (size_t)((const uint8_t *)p->weights_end - rows), wanted = ROWS * p->row_bytes + overread;
    if (available >= wanted)
        return rows;
    size_t mine = p->row_end - row < ROWS ? (p->row_end - row) * p->row_bytes : ROWS * p->row_bytes;
    memcpy(stage, rows, mine);
    memset(stage + mine, 0, wanted - mine);
    return stage;
}

/* The lowest n of 16 mask bits; all from 16 on. */
static inline uint16_t mask_of_first(size_t n)
{
    return (uint16_t)(n < 16 ? (1u << n) - 1 : 0xffffu);
}

/* Mask of the rows of a group that belong to the product. */
static inline uint16_t row_mask(const struct product *p, size_t row)
{
    return mask_of_first(p->row_end - row);
}

AVX512_INLINE __m512i load512(const void *p)
{
    return _mm512_loadu_si512(p);
}

/* 32 bytes at p in the lower half; the upper is undefined. */
AVX512_INLINE __m512i load256(const void *p)
{
    return _mm512_castsi256_si512(_mm256_loadu_si256(p));
}

/* 32 bytes at `lower`, 32 at `upper`. */
AVX512_INLINE __m512i load_halves(const void *lower, const void *upper)
{
    return _mm512_inserti64x4(load256(lower), _mm256_loadu_si256(upper), 1);
}

/* F16 values in the lower words of dwords, in the upper ones, to float. */
AVX512_INLINE __m512 low_halves(__m512i dwords)
{
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(dwords));
}

AVX512_INLINE __m512 high_halves(__m512i dwords)
{
    return low_halves(_mm512_srli_epi32(dwords, 16));
}

/* High nibbles of all bytes, in one instruction. */
AVX512_INLINE __m512i high_nibbles(__m512i v)
{
    return _mm512_gf2p8affine_epi64_epi8(v, _mm512_set1_epi64(0x1020408000000000), 0);
}

/* acc + four u8 x s8 products per dword, the s8 quadruple at p for all dwords. gcc does not form the embedded broadcast
 * by itself, and without it the kernel is a fifth slower. */
AVX512_INLINE __m512i dot_u8_broadcast(__m512i acc, __m512i u8, const void *p)
{
    __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(acc) : "v"(u8), "m"(*(const int32_t *)p));
    return acc;
}

/* acc + two s16 x s16 products per dword, the s16 pair at p for all dwords. */
AVX512_INLINE __m512i dot_s16_broadcast(__m512i acc, __m512i s16, const void *p)
{
    __asm__("vpdpwssd %2%{1to16%}, %1, %0" : "+v"(acc) : "v"(s16), "m"(*(const int32_t *)p));
    return acc;
}

AVX512_INLINE __m512i broadcast32(const void *p)
{
    int32_t v;
    memcpy(&v, p, sizeof v);
    return _mm512_set1_epi32(v);
}

/* 16 bytes at p in every 128-bit lane: from memory it costs a load, from a register a shuffle, which compilers prefer. */
AVX512_INLINE __m512i broadcast128(const void *p)
{
    __m512i v;
    __asm__("vbroadcasti32x4 %1, %0" : "=v"(v) : "m"(*(const int8_t(*)[16])p));
    return v;
}

/* 128-bit lanes from p, p + step, p + 2 step, p + 3 step. */
AVX512_INLINE __m512i load_lanes(const void *p, size_t step)
{
    const uint8_t *b = p;
    __m512i v = _mm512_castsi128_si512(_mm_loadu_si128((const void *)b));
    v = _mm512_inserti32x4(v, _mm_loadu_si128((const void *)(b + step)), 1);
    v = _mm512_inserti32x4(v, _mm_loadu_si128((const void *)(b + 2 * step)), 2);
    return _mm512_inserti32x4(v, _mm_loadu_si128((const void *)(b + 3 * step)), 3);
}

/* In every 128-bit lane: the 4 dwords of a, b, c, d added up each, in this order. */
AVX512_INLINE __m512i add_across(__m512i a, __m512i b, __m512i c, __m512i d)
{
    __m512i ab = _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    __m512i cd = _mm512_add_epi32(_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
    return _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
}

/* The 4 dwords of every 128-bit lane of v[0], then of v[1] ... added up. */
AVX512_INLINE __m512i add_lanes(const __m512i v[4])
{
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    return _mm512_permutexvar_epi32(order, add_across(v[0], v[1], v[2], v[3]));
}

/* 16 rows of 16 bytes, `step` apart -> out[k] = dword k of every row. */
AVX512_INLINE void transpose_16x4(const void *p, size_t step, __m512i out[4])
{
    const uint8_t *x = p;
    __m512i a = load_lanes(x, 4 * step), b = load_lanes(x + step, 4 * step);
    __m512i c = load_lanes(x + 2 * step, 4 * step), d = load_lanes(x + 3 * step, 4 * step);
    __m512i t0 = _mm512_unpacklo_epi32(a, b), t1 = _mm512_unpackhi_epi32(a, b);
    __m512i t2 = _mm512_unpacklo_epi32(c, d), t3 = _mm512_unpackhi_epi32(c, d);
    out[0] = _mm512_unpacklo_epi64(t0, t2);
    out[1] = _mm512_unpackhi_epi64(t0, t2);
    out[2] = _mm512_unpacklo_epi64(t1, t3);
    out[3] = _mm512_unpackhi_epi64(t1, t3);
}

/* 16 F16 values, `step` bytes apart. Scalar copies: in the tile packers they hide behind vector work. */
AVX512_INLINE __m512 halves_strided(const uint8_t *p, size_t step)
{
    uint16_t h[16] ALIGNED;
    UNROLL
    for (size_t i = 0; i < 16; i++)
        memcpy(h + i, p + i * step, sizeof *h);
    __asm__ volatile("" ::: "memory"); /* keeps gcc from building the vector element by element */
    return _mm512_cvtph_ps(_mm256_load_si256((const void *)h));
}

/* s + columns 0..n-1 of 16 rows in order; terms[row * stride + column], readable to the next multiple of 4. */
AVX512_INLINE __m512 add_columns(__m512 s, const float *terms, size_t stride, size_t n)
{
    for (size_t c = 0; c < n; c += 4) {
        __m512i t[4];
        transpose_16x4(terms + c, stride * sizeof *terms, t);
        UNROLL
        for (size_t k = 0; k < 4; k++)
            if (c + k < n)
                s = _mm512_add_ps(s, _mm512_castsi512_ps(t[k]));
    }
    return s;
}

/* The decode kernel of a format from a call with the product p and the scratch it needs for n_cols columns. */
#define DECODE_RUN_AVX512(name, call, bytes)                                        \
    AVX512 static void name##_decode_avx512(const struct product *p)                \
    {                                                                               \
        call;                                                                       \
    }                                                                               \
    static size_t name##_decode_scratch_avx512(size_t n_cols, size_t n_tokens)      \
    {                                                                               \
        (void)n_tokens;                                                             \
        return bytes;                                                               \
    }

/* ---- products over many tokens: tiles of 16 rows, unpacked once and used for all tokens ---- */

enum { TOKENS = 8 }; /* of one panel of activations */

/* One tile against one panel. */
struct tile_job {
    const uint8_t *tile, *panel;
    size_t n_blocks;
    float *y;                       /* of row 0 and token 0 of the tile and panel */
    size_t y_stride, n_tokens;      /* 1..TOKENS */
    uint16_t rows;                  /* mask of rows to store */
    const uint8_t *prefetch;        /* weights of a later tile: prefetch_step bytes a block */
    size_t prefetch_step;
};

struct tile_family {
    size_t block_elements, block_bytes;
    size_t tile_block_bytes, panel_block_bytes;
    size_t panel_offset;            /* of panel 0, in bytes per panel and block: layouts with several sections */
    size_t overread;
    /* 16 rows, n_blocks each -> tile. */
    void (*pack)(const uint8_t *rows, size_t row_bytes, size_t n_blocks, uint8_t *tile);
    void (*run)(const struct tile_job *job);        /* up to 8 tokens */
    void (*run_few)(const struct tile_job *job);    /* up to 4 tokens */
};

void tiles_run(const struct product *p, const struct tile_family *f);
size_t tiles_scratch_bytes(const struct tile_family *f, size_t n_cols, size_t n_tokens);

#define TILES_PREFILL_AVX512(name)                                                     \
    static void name##_prefill_avx512(const struct product *p)                         \
    {                                                                                  \
        tiles_run(p, &name##_family_avx512);                                           \
    }                                                                                  \
    static size_t name##_prefill_scratch_avx512(size_t n_cols, size_t n_tokens)        \
    {                                                                                  \
        return tiles_scratch_bytes(&name##_family_avx512, n_cols, n_tokens);           \
    }
#define TILES_KERNEL_AVX512(name, activations)          \
    [TIER_AVX512] = {                                   \
        .layout = &activations,                         \
        .run = name##_prefill_avx512,                   \
        .row_tile = ROWS,                               \
        .scratch_bytes = name##_prefill_scratch_avx512, \
    },

AVX512_INLINE void prefetch_tile(const uint8_t *p, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 64)
        _mm_prefetch((const char *)p + i, _MM_HINT_T1);
}

AVX512_INLINE void store_tokens(const struct tile_job *job, const __m512 *sums, size_t n_max)
{
    UNROLL
    for (size_t i = 0; i < n_max; i++)
        if (i < job->n_tokens)
            _mm512_mask_storeu_ps(job->y + i * job->y_stride, job->rows, sums[i]);
}

#endif
#endif
