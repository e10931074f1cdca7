/* What the AVX2 kernels of all formats share: the target, row pointers, transposes, the loop around tile kernels.
 *
 * Kernels load exactly the bytes of blocks, so they need no guard at the end of a mapping. Where fewer rows are left than
 * a kernel handles at once, the last row stands in for the missing ones and only the real ones are stored. */
#ifndef GGUFD_QUANT_AVX2_H
#define GGUFD_QUANT_AVX2_H
#include "engine/quant/activation.h"
#include "engine/quant/x86.h"

#if defined(__x86_64__)

#define AVX2_TARGET "avx2,fma,f16c"
#define AVX2 __attribute__((target(AVX2_TARGET)))
#define AVX2_INLINE static inline __attribute__((always_inline, target(AVX2_TARGET)))

enum { AVX2_ROWS = 8, AVX2_TOKENS = 4 }; /* of one tile, of one panel of activations */

/* Pointers to n rows from `row` on; rows at or behind row_end are the last one again. Returns how many are real. */
static inline size_t avx2_rows(const struct product *p, size_t row, size_t n, const uint8_t **rows)
{
    size_t left = p->row_end - row;
    for (size_t i = 0; i < n; i++)
        rows[i] = (const uint8_t *)p->weights + (row + (i < left ? i : left - 1)) * p->row_bytes;
    return left < n ? left : n;
}

AVX2_INLINE __m256i avx2_load(const void *p)
{
    return _mm256_loadu_si256(p);
}

AVX2_INLINE __m128i avx2_load128(const void *p)
{
    return _mm_loadu_si128(p);
}

AVX2_INLINE __m256i avx2_broadcast32(const void *p)
{
    int32_t v;
    memcpy(&v, p, sizeof v);
    return _mm256_set1_epi32(v);
}

/* v, added up so far: gcc regroups long integer sums, which needs more registers than there are. */
AVX2_INLINE __m256i avx2_running(__m256i v)
{
    __asm__("" : "+x"(v));
    return v;
}

/* Bit i of 32 -> all bits of byte i. */
AVX2_INLINE __m256i avx2_bit_mask(uint32_t bits)
{
    const __m256i spread = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3,
                                            3, 3, 3, 3, 3, 3);
    const __m256i bit = _mm256_set1_epi64x((long long)0x8040201008040201);
    __m256i bytes = _mm256_shuffle_epi8(_mm256_set1_epi32((int)bits), spread);
    return _mm256_cmpeq_epi8(_mm256_and_si256(bytes, bit), bit);
}

/* Four u8 x s8 products added up per dword; pairs of products must fit 16 bits. */
AVX2_INLINE __m256i avx2_dot_u8(__m256i u8, __m256i s8)
{
    return _mm256_madd_epi16(_mm256_maddubs_epi16(u8, s8), _mm256_set1_epi16(1));
}

/* Four s8 x s8 products added up per dword; a is never -128. */
AVX2_INLINE __m256i avx2_dot_s8(__m256i w, __m256i a)
{
    return avx2_dot_u8(_mm256_abs_epi8(w), _mm256_sign_epi8(a, w));
}

/* v[i] = dwords of row i -> v[k] = dword k of every row. */
AVX2_INLINE void avx2_transpose(__m256i v[8])
{
    __m256i a[8], b[8];
    UNROLL
    for (size_t i = 0; i < 8; i += 2) {
        a[i] = _mm256_unpacklo_epi32(v[i], v[i + 1]);
        a[i + 1] = _mm256_unpackhi_epi32(v[i], v[i + 1]);
    }
    UNROLL
    for (size_t i = 0; i < 8; i += 4) {
        b[i] = _mm256_unpacklo_epi64(a[i], a[i + 2]);
        b[i + 1] = _mm256_unpackhi_epi64(a[i], a[i + 2]);
        b[i + 2] = _mm256_unpacklo_epi64(a[i + 1], a[i + 3]);
        b[i + 3] = _mm256_unpackhi_epi64(a[i + 1], a[i + 3]);
    }
    UNROLL
    for (size_t i = 0; i < 4; i++) {
        v[i] = _mm256_permute2x128_si256(b[i], b[i + 4], 0x20);
        v[i + 4] = _mm256_permute2x128_si256(b[i], b[i + 4], 0x31);
    }
}

/* Eight dwords of eight rows, `step` bytes apart -> v[k] = dword k of every row. */
AVX2_INLINE void avx2_load_transposed(const void *p, size_t step, __m256i v[8])
{
    const uint8_t *row = p;
    UNROLL
    for (size_t half = 0; half < 2; half++, row += 16) {
        __m256i r[4]; /* rows i and i + 4 */
        UNROLL
        for (size_t i = 0; i < 4; i++)
            r[i] = _mm256_inserti128_si256(_mm256_castsi128_si256(avx2_load128(row + i * step)),
                                           avx2_load128(row + (i + 4) * step), 1);
        __m256i a = _mm256_unpacklo_epi32(r[0], r[1]), b = _mm256_unpackhi_epi32(r[0], r[1]);
        __m256i c = _mm256_unpacklo_epi32(r[2], r[3]), d = _mm256_unpackhi_epi32(r[2], r[3]);
        v[4 * half] = _mm256_unpacklo_epi64(a, c);
        v[4 * half + 1] = _mm256_unpackhi_epi64(a, c);
        v[4 * half + 2] = _mm256_unpacklo_epi64(b, d);
        v[4 * half + 3] = _mm256_unpackhi_epi64(b, d);
    }
}

/* s + columns 0 .. n - 1 of eight rows in order; terms[row * stride + column], n a multiple of 8. */
AVX2_INLINE __m256 avx2_add_columns(__m256 s, const float *terms, size_t stride, size_t n)
{
    for (size_t c = 0; c < n; c += 8) {
        __m256i v[8];
        avx2_load_transposed(terms + c, stride * sizeof *terms, v);
        UNROLL
        for (size_t k = 0; k < 8; k++)
            s = _mm256_add_ps(s, _mm256_castsi256_ps(v[k]));
    }
    return s;
}

/* The first n of eight floats, zeros behind: what may be added without a trace. */
AVX2_INLINE __m256 avx2_first(__m256 v, size_t n)
{
    const __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_and_ps(v, _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), index)));
}

/* The sums of the dwords of v[0] .. v[7], in this order. */
AVX2_INLINE __m256i avx2_add_across(const __m256i v[8])
{
    __m256i low = _mm256_hadd_epi32(_mm256_hadd_epi32(v[0], v[1]), _mm256_hadd_epi32(v[2], v[3]));
    __m256i high = _mm256_hadd_epi32(_mm256_hadd_epi32(v[4], v[5]), _mm256_hadd_epi32(v[6], v[7]));
    return _mm256_add_epi32(_mm256_permute2x128_si256(low, high, 0x20), _mm256_permute2x128_si256(low, high, 0x31));
}

/* Sum of eight dwords. */
AVX2_INLINE int32_t avx2_total(__m256i v)
{
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1)));
}

/* The first n of eight results. */
AVX2_INLINE void avx2_store_rows(float *y, __m256 v, size_t n)
{
    float all[8];
    if (n == 8) {
        _mm256_storeu_ps(y, v);
        return;
    }
    _mm256_storeu_ps(all, v);
    memcpy(y, all, n * sizeof *all);
}

/* ---- products over many tokens: tiles of 8 rows, unpacked once and used for all panels of 4 tokens ---- */

/* One tile against one panel. */
struct avx2_job {
    const uint8_t *tile, *panel;
    size_t n_blocks, n_rows, n_tokens;
    float *y; /* of row 0 and token 0 of tile and panel */
    size_t y_stride;
};

struct avx2_family {
    size_t block_elements, tile_block_bytes, panel_block_bytes;
    void (*pack)(const uint8_t *const rows[AVX2_ROWS], size_t n_blocks, uint8_t *tile);
    void (*run)(const struct avx2_job *job);
};

void avx2_tiles_run(const struct product *p, const struct avx2_family *f);
size_t avx2_tiles_scratch(const struct avx2_family *f, size_t n_cols);

/* In a format's file, behind NAME_family_avx2: its kernel for many tokens. */
#define AVX2_TILES(name)                                                        \
    static void name##_prefill_avx2(const struct product *p)                    \
    {                                                                           \
        avx2_tiles_run(p, &name##_family_avx2);                                 \
    }                                                                           \
    static size_t name##_prefill_scratch_avx2(size_t n_cols, size_t n_tokens)   \
    {                                                                           \
        (void)n_tokens;                                                         \
        return avx2_tiles_scratch(&name##_family_avx2, n_cols);                 \
    }
#define AVX2_TILES_KERNEL(name, activations)            \
    [TIER_AVX2] = {                                     \
        .layout = &activations,                         \
        .run = name##_prefill_avx2,                     \
        .row_tile = AVX2_ROWS,                          \
        .scratch_bytes = name##_prefill_scratch_avx2,   \
    },

#endif
#endif
