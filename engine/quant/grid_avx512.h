/* The grid formats on AVX-512: entries are gathered, signs and scales taken out of their words together. */
#ifndef GGUFD_QUANT_GRID_AVX512_H
#define GGUFD_QUANT_GRID_AVX512_H
#include "engine/quant/superblock_sum_avx512.h"
#include "engine/quant/tables.h"
#if defined(__x86_64__)

/* Entries of a grid. The zeros they replace keep a gather from waiting for what its register held before. */
AVX512_INLINE __m512i gather_entries_8(__m256i index, const void *grid)
{
    return _mm512_mask_i32gather_epi64(_mm512_setzero_si512(), 0xff, index, grid, 8);
}

AVX512_INLINE __m512i gather_entries_4(__m512i index, const void *grid)
{
    return _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), 0xffff, index, grid, 4);
}

/* Eight bytes at p as dwords. */
AVX512_INLINE __m256i index_of_8(const uint8_t *p)
{
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)p));
}

/* The upper bits of eight grid indices: `bits` of the dword at p, from bit shift[i] on, moved to bit 8. */
AVX512_INLINE __m256i index_high(uint32_t word, __m256i shift, int bits)
{
    __m256i all = _mm256_srlv_epi32(_mm256_set1_epi32((int)word), shift);
    return _mm256_and_si256(_mm256_slli_epi32(all, 8), _mm256_set1_epi32(bits << 8));
}

/* Seven stored sign bits in the low bits of every byte -> eight: signs_of_seven(). */
AVX512_INLINE __m256i signs_of_sevens(__m256i z)
{
    const __m256i odd = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, -128, -128, 0, -128, 0, 0, -128, -128, 0, 0, -128, 0, -128, -128, 0));
    z = _mm256_and_si256(z, _mm256_set1_epi8(127));
    __m256i folded = _mm256_and_si256(_mm256_xor_si256(z, _mm256_srli_epi16(z, 4)), _mm256_set1_epi8(15));
    return _mm256_or_si256(z, _mm256_shuffle_epi8(odd, folded));
}

AVX512_INLINE void superblock_signs_of_sevens(__m256i z, struct superblock_signed *out)
{
    uint8_t signs[32] ALIGNED;
    _mm256_store_si256((void *)signs, signs_of_sevens(z));
    superblock_signs(signs, out);
}

/* 2 s + 1 */
AVX512_INLINE __m256i odd_scales(__m256i s)
{
    return _mm256_add_epi16(_mm256_add_epi16(s, s), _mm256_set1_epi16(1));
}

/* Scales of 32 elements in the upper nibble of eight dwords. */
AVX512_INLINE __m256i scales_of_top_nibbles(__m256i words)
{
    __m256i s = _mm256_srli_epi32(words, 28);
    return odd_scales(_mm256_or_si256(s, _mm256_slli_epi32(s, 16)));
}

/* Sixteen nibbles in a row. */
AVX512_INLINE __m128i nibble_shifts(void)
{
    return _mm_setr_epi8(0, 4, 8, 12, 16, 20, 24, 28, 32, 36, 40, 44, 48, 52, 56, 60);
}

/* Scale j: four bits of `nibbles` from bit shift[j] on. */
AVX512_INLINE __m256i scales_of_nibbles(uint64_t nibbles, __m128i shift)
{
    __m128i s = _mm_multishift_epi64_epi8(shift, _mm_set1_epi64x((long long)nibbles));
    return odd_scales(_mm256_cvtepu8_epi16(_mm_and_si128(s, _mm_set1_epi8(15))));
}

#endif
#endif
