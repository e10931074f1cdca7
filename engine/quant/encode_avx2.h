/* The Q8 encodings of one block on AVX2: the bits of engine/quant/activation.c, which also takes the rare blocks with
 * extreme or non-finite values. */
#ifndef GGUFD_QUANT_ENCODE_AVX2_H
#define GGUFD_QUANT_ENCODE_AVX2_H
#include "engine/quant/avx2.h"
#include "engine/quant/encode32.h"
#if defined(__x86_64__)

AVX2_INLINE __m256i avx2_magnitudes(const float *x)
{
    return _mm256_and_si256(avx2_load(x), _mm256_set1_epi32(0x7fffffff));
}

AVX2_INLINE uint32_t avx2_largest(__m256i v)
{
    __m128i m = _mm_max_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
    return (uint32_t)_mm_cvtsi128_si32(_mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1)));
}

/* Nearest integer, ties away from zero; |v| < 2^22. */
AVX2_INLINE __m256i avx2_round_away(__m256 v)
{
    __m256 whole = _mm256_round_ps(v, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
    __m256 rest = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), _mm256_sub_ps(v, whole));
    __m256i away = _mm256_castps_si256(_mm256_cmp_ps(rest, _mm256_set1_ps(0.5f), _CMP_GE_OQ));
    __m256i one = _mm256_or_si256(_mm256_srai_epi32(_mm256_castps_si256(v), 31), _mm256_set1_epi32(1));
    return _mm256_add_epi32(_mm256_cvttps_epi32(whole), _mm256_and_si256(away, one));
}

/* 32 dwords -> 32 bytes in order. */
AVX2_INLINE __m256i avx2_narrow(const __m256i q[4])
{
    __m256i words = _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
    return _mm256_permutevar8x32_epi32(words, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

AVX2_INLINE float avx2_round_to_f16(float f)
{
    return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtps_ph(_mm_set_ss(f), _MM_FROUND_TO_NEAREST_INT)));
}

AVX2_INLINE void avx2_encode32(const float *x, struct encoded32 *out)
{
    __m256i top = _mm256_max_epi32(avx2_magnitudes(x), avx2_magnitudes(x + 8));
    top = _mm256_max_epi32(top, _mm256_max_epi32(avx2_magnitudes(x + 16), avx2_magnitudes(x + 24)));
    uint32_t largest = avx2_largest(top);
    if (!encode_is_ordinary(largest)) {
        encode32_slow(x, out);
        return;
    }
    float d = bits_float(largest) / 127.0f, r = d != 0 ? 1.0f / d : 0.0f;
    __m256i q[4];
    UNROLL
    for (size_t k = 0; k < 4; k++)
        q[k] = avx2_round_away(_mm256_mul_ps(_mm256_loadu_ps(x + 8 * k), _mm256_set1_ps(r)));
    _mm256_storeu_si256((void *)out->q, avx2_narrow(q));
    out->sum = avx2_total(_mm256_add_epi32(_mm256_add_epi32(q[0], q[1]), _mm256_add_epi32(q[2], q[3])));
    out->d = avx2_round_to_f16(d);
    out->s = avx2_round_to_f16((float)out->sum * d);
}

/* Dwords of 32 values of a Q8_K block. The conversion rounds to even; the default rounding mode is never changed. */
AVX2_INLINE void avx2_encode256_part(const float *x, float t, int8_t *out, int16_t *sums)
{
    __m256i q[4];
    UNROLL
    for (size_t k = 0; k < 4; k++) {
        q[k] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8 * k), _mm256_set1_ps(t)));
        q[k] = _mm256_min_epi32(q[k], _mm256_set1_epi32(127));
    }
    _mm256_storeu_si256((void *)out, avx2_narrow(q));
    sums[0] = (int16_t)avx2_total(_mm256_add_epi32(q[0], q[1]));
    sums[1] = (int16_t)avx2_total(_mm256_add_epi32(q[2], q[3]));
}

/* 256 values -> canonical block. */
AVX2_INLINE void avx2_encode256(const float *x, struct act_q8_k *out)
{
    __m256i top = _mm256_setzero_si256();
    for (size_t i = 0; i < 256; i += 8)
        top = _mm256_max_epi32(top, avx2_magnitudes(x + i));
    uint32_t largest = avx2_largest(top);
    if (largest == 0 || !encode_is_ordinary(largest)) {
        activation_format(ACT_Q8_K)->encode(x, out, 256);
        return;
    }
    size_t first = 0;
    while ((float_bits(x[first]) & 0x7fffffff) != largest)
        first++;
    float t = -127.0f / x[first];
    out->d = 1.0f / t;
    for (size_t i = 0; i < 256; i += 32)
        avx2_encode256_part(x + i, t, out->q + i, out->sums + i / 16);
}

#endif
#endif
