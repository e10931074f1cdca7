/* The Q8 encodings of one block on AVX-512: the bits of engine/quant/activation.c, which also takes the rare blocks
 * with extreme or non-finite values. */
#ifndef GGUFD_QUANT_ENCODE_AVX512_H
#define GGUFD_QUANT_ENCODE_AVX512_H
#include "engine/quant/avx512.h"
#include "engine/quant/encode32.h"
#if defined(__x86_64__)

AVX512_INLINE __m512i magnitude_bits(__m512 x)
{
    return _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7fffffff));
}

/* Nearest integer, ties away from zero; |v| < 2^22. */
AVX512_INLINE __m512i round_away(__m512 v)
{
    __m512 whole = _mm512_roundscale_ps(v, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
    __m512 rest = _mm512_abs_ps(_mm512_sub_ps(v, whole));
    __m512i one = _mm512_or_si512(_mm512_srai_epi32(_mm512_castps_si512(v), 31), _mm512_set1_epi32(1));
    __mmask16 away = _mm512_cmp_ps_mask(rest, _mm512_set1_ps(0.5f), _CMP_GE_OQ);
    __m512i q = _mm512_cvttps_epi32(whole);
    return _mm512_mask_add_epi32(q, away, q, one);
}

AVX512_INLINE float round_to_f16(float f)
{
    return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtps_ph(_mm_set_ss(f), _MM_FROUND_TO_NEAREST_INT)));
}

AVX512_INLINE void encode32(const float *x, struct encoded32 *out)
{
    __m512 x0 = _mm512_loadu_ps(x), x1 = _mm512_loadu_ps(x + 16);
    uint32_t largest = (uint32_t)_mm512_reduce_max_epi32(_mm512_max_epi32(magnitude_bits(x0), magnitude_bits(x1)));
    if (!encode_is_ordinary(largest)) {
        encode32_slow(x, out);
        return;
    }
    float d = bits_float(largest) / 127.0f, r = d != 0 ? 1.0f / d : 0.0f;
    __m512i q0 = round_away(_mm512_mul_ps(x0, _mm512_set1_ps(r)));
    __m512i q1 = round_away(_mm512_mul_ps(x1, _mm512_set1_ps(r)));
    _mm_storeu_si128((void *)out->q, _mm512_cvtepi32_epi8(q0));
    _mm_storeu_si128((void *)(out->q + 16), _mm512_cvtepi32_epi8(q1));
    out->sum = _mm512_reduce_add_epi32(_mm512_add_epi32(q0, q1));
    out->d = round_to_f16(d);
    out->s = round_to_f16((float)out->sum * d);
}

/* Sums of 16 bytes each of 256. */
AVX512_INLINE __m256i sums_of_16(const int8_t *q)
{
    const __m512i one = _mm512_set1_epi8(1), ones = _mm512_set1_epi16(1);
    __m512i z[4];
    UNROLL
    for (size_t k = 0; k < 4; k++)
        z[k] = _mm512_madd_epi16(_mm512_maddubs_epi16(one, load512(q + 64 * k)), ones);
    return _mm512_cvtepi32_epi16(add_lanes(z));
}

/* The first of 256 values with this magnitude. */
AVX512_INLINE float first_of_magnitude(const float *x, uint32_t bits)
{
    for (size_t i = 0; i < 256; i += 16) {
        __mmask16 hit = _mm512_cmpeq_epi32_mask(magnitude_bits(_mm512_loadu_ps(x + i)), _mm512_set1_epi32((int)bits));
        if (hit)
            return x[i + (size_t)__builtin_ctz(hit)];
    }
    return 0;
}

/* 256 values -> canonical block. */
AVX512_INLINE void encode256(const float *x, struct act_q8_k *out)
{
    __m512i top = _mm512_setzero_si512();
    for (size_t i = 0; i < 256; i += 16)
        top = _mm512_max_epi32(top, magnitude_bits(_mm512_loadu_ps(x + i)));
    uint32_t largest = (uint32_t)_mm512_reduce_max_epi32(top);
    if (largest == 0 || !encode_is_ordinary(largest)) {
        activation_format(ACT_Q8_K)->encode(x, out, 256);
        return;
    }
    float t = -127.0f / first_of_magnitude(x, largest);
    out->d = 1.0f / t;
    for (size_t i = 0; i < 256; i += 16) {
        __m512 v = _mm512_mul_ps(_mm512_loadu_ps(x + i), _mm512_set1_ps(t));
        __m512i q = _mm512_cvt_roundps_epi32(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        q = _mm512_min_epi32(q, _mm512_set1_epi32(127));
        _mm_storeu_si128((void *)(out->q + i), _mm512_cvtepi32_epi8(q));
    }
    _mm256_storeu_si256((void *)out->sums, sums_of_16(out->q));
}

#endif
#endif
