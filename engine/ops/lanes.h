/* Vectors of the tier that the including file was written for, on the compilers' vector extension.
 *
 * The file defines TIER_NAME (avx512, avx2 or neon) and includes the bodies behind this header, so that one body is
 * compiled per tier. Nothing here fuses a multiplication with an addition except lanes_fma, which is for products that
 * are exact in double (F16 operands), where fusing changes nothing. */
#ifndef GGUFD_OPS_LANES_H
#define GGUFD_OPS_LANES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "engine/base/f16.h"

#if defined(TIER_IS_AVX512)
#include <immintrin.h>
#define LANES 16
#define TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,bmi2")))
#elif defined(TIER_IS_AVX2)
#include <immintrin.h>
#define LANES 8
#define TARGET __attribute__((target("avx2,fma,f16c,bmi2")))
#elif defined(TIER_IS_NEON)
#include <arm_neon.h>
#define LANES 4
#define TARGET
#endif
#define DOUBLES (LANES / 2)
#define INLINE static inline __attribute__((always_inline)) TARGET

#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 64")
#endif

#define TIER_JOIN_(a, b) a##_##b
#define TIER_JOIN(a, b) TIER_JOIN_(a, b)
#define TIER(name) TIER_JOIN(name, TIER_NAME)

typedef float f32v __attribute__((vector_size(LANES * 4)));
typedef int32_t s32v __attribute__((vector_size(LANES * 4)));
typedef uint32_t u32v __attribute__((vector_size(LANES * 4)));
typedef double f64v __attribute__((vector_size(DOUBLES * 8)));
typedef float f32h __attribute__((vector_size(DOUBLES * 4))); /* as many floats as doubles fit */

INLINE f32v lanes_load(const float *p)
{
    f32v v;
    memcpy(&v, p, sizeof v);
    return v;
}

INLINE void lanes_store(float *p, f32v v)
{
    memcpy(p, &v, sizeof v);
}

/* The first n < LANES of a vector; the other lanes are 0. */
INLINE f32v lanes_load_part(const float *p, size_t n)
{
    f32v v = {0};
    memcpy(&v, p, n * sizeof *p);
    return v;
}

INLINE void lanes_store_part(float *p, f32v v, size_t n)
{
    memcpy(p, &v, n * sizeof *p);
}

INLINE f64v lanes_load_doubles(const double *p)
{
    f64v v;
    memcpy(&v, p, sizeof v);
    return v;
}

INLINE void lanes_store_doubles(double *p, f64v v)
{
    memcpy(p, &v, sizeof v);
}

INLINE void lanes_store_narrow(float *p, f64v v)
{
    f32h h = __builtin_convertvector(v, f32h);
    memcpy(p, &h, sizeof h);
}

INLINE f64v lanes_set_double(double x)
{
#if DOUBLES == 8
    return (f64v){x, x, x, x, x, x, x, x};
#elif DOUBLES == 4
    return (f64v){x, x, x, x};
#else
    return (f64v){x, x};
#endif
}

/* Keeps a loaded vector in its register: compilers would rather read memory again at every use, and loads are scarce. */
INLINE f64v lanes_keep(f64v v)
{
#if defined(__x86_64__)
    __asm__("" : "+v"(v));
#else
    __asm__("" : "+w"(v));
#endif
    return v;
}

INLINE f32v lanes_set(float x)
{
#if LANES == 16
    return (f32v){x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x};
#elif LANES == 8
    return (f32v){x, x, x, x, x, x, x, x};
#else
    return (f32v){x, x, x, x};
#endif
}

INLINE f32v lanes_select(s32v mask, f32v a, f32v b)
{
    return (f32v)(((s32v)a & mask) | ((s32v)b & ~mask));
}

/* a where a > b, else b (also where either is NaN), except that NEON prefers a number to NaN on both sides. */
INLINE f32v lanes_max(f32v a, f32v b)
{
#if defined(TIER_IS_AVX512)
    return (f32v)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined(TIER_IS_AVX2)
    return (f32v)_mm256_max_ps((__m256)a, (__m256)b);
#else
    return (f32v)vmaxnmq_f32((float32x4_t)a, (float32x4_t)b);
#endif
}

/* True when any lane of x is above the limit. */
INLINE int lanes_any_above(f32v x, float limit)
{
#if defined(TIER_IS_AVX512)
    return _mm512_cmp_ps_mask((__m512)x, _mm512_set1_ps(limit), _CMP_GT_OQ) != 0;
#elif defined(TIER_IS_AVX2)
    return _mm256_movemask_ps(_mm256_cmp_ps((__m256)x, _mm256_set1_ps(limit), _CMP_GT_OQ)) != 0;
#else
    return vmaxvq_u32((uint32x4_t)(x > limit)) != 0;
#endif
}

/* math_pexp in every lane. *magnitude receives |n|, n the power of two; where it exceeds 126 the result is right only if
 * `wide` is set. That costs time even in lanes that do not need it: their discarded products may be subnormal. */
INLINE f32v lanes_pexp_as(f32v x, f32v *magnitude, const int wide)
{
    f32v z = (x * 0x1.715476p+0f) + 12582912.0f, n = z - 12582912.0f;
    f32v b = (x - (n * 0x1.62e4p-1f)) - (n * 0x1.7f7d1cp-20f), u = b * b;
    u32v e = (u32v)z << 23;
    f32v k = (f32v)(e + 0x3f800000u);
    f32v high = (0x1.0e4020p-7f * b) + 0x1.573e2ep-5f, low = (0x1.555e66p-3f * b) + 0x1.fffdb6p-2f;
    f32v j = (((high * u) + low) * u) + (0x1.ffffecp-1f * b), normal = (k * j) + k;
    *magnitude = (f32v)((u32v)n & 0x7fffffffu);
    if (!wide)
        return normal;
    u32v g = (u32v)(n <= 0.0f) & 0x82000000u;
    f32v s1 = (f32v)(g + 0x7f000000u), s2 = (f32v)(e - g);
    f32v far = lanes_select(*magnitude > 192.0f, s1 * s1, ((s2 * j) + s2) * s1);
    return lanes_select(*magnitude > 126.0f, far, normal);
}

/* math_pexp in every lane of `count` <= 4 vectors. */
INLINE void lanes_pexp(f32v *v, const int count)
{
    f32v result[4], magnitude, most = {0};
    UNROLL for (int i = 0; i < count; i++) {
        result[i] = lanes_pexp_as(v[i], &magnitude, 0);
        most = lanes_max(magnitude, most);
    }
    if (__builtin_expect(lanes_any_above(most, 126.0f), 0)) {
        UNROLL for (int i = 0; i < count; i++)
            v[i] = lanes_pexp_as(v[i], &magnitude, 1);
    } else {
        UNROLL for (int i = 0; i < count; i++)
            v[i] = result[i];
    }
}

#if defined(TIER_IS_AVX512)

INLINE f64v lanes_fma(f64v a, f64v b, f64v sum)
{
    return (f64v)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)sum);
}

/* Written out, because gcc converts a vector of eight in two halves. */
INLINE f64v lanes_widen(const float *p)
{
    return (f64v)_mm512_cvtps_pd(_mm256_loadu_ps(p));
}

INLINE f64v lanes_load_f16(const uint16_t *p)
{
    return (f64v)_mm512_cvtps_pd(_mm256_cvtph_ps(_mm_loadu_si128((const void *)p)));
}

INLINE f32v lanes_round_f16(f32v v)
{
    return (f32v)_mm512_cvtph_ps(_mm512_cvtps_ph((__m512)v, _MM_FROUND_TO_NEAREST_INT));
}

/* NaN stays some NaN. */
INLINE void lanes_store_f16_fast(uint16_t *p, f32v v)
{
    _mm256_storeu_si256((void *)p, _mm512_cvtps_ph((__m512)v, _MM_FROUND_TO_NEAREST_INT));
}

INLINE void lanes_store_f16(uint16_t *p, f32v v)
{
    __mmask16 nan = _mm512_cmp_ps_mask((__m512)v, (__m512)v, _CMP_UNORD_Q);
    __m512i sign = _mm512_and_si512(_mm512_castps_si512((__m512)v), _mm512_set1_epi32((int)0x80000000));
    __m512i quiet = _mm512_or_si512(sign, _mm512_set1_epi32(0x7fc00000)); /* converts to sign|0x7e00 */
    lanes_store_f16_fast(p, (f32v)_mm512_mask_mov_ps((__m512)v, nan, _mm512_castsi512_ps(quiet)));
}

#elif defined(TIER_IS_AVX2)

INLINE f64v lanes_fma(f64v a, f64v b, f64v sum)
{
    return (f64v)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)sum);
}

INLINE f64v lanes_widen(const float *p)
{
    return (f64v)_mm256_cvtps_pd(_mm_loadu_ps(p));
}

INLINE f64v lanes_load_f16(const uint16_t *p)
{
    return (f64v)_mm256_cvtps_pd(_mm_cvtph_ps(_mm_loadl_epi64((const void *)p)));
}

INLINE f32v lanes_round_f16(f32v v)
{
    return (f32v)_mm256_cvtph_ps(_mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT));
}

INLINE void lanes_store_f16_fast(uint16_t *p, f32v v)
{
    _mm_storeu_si128((void *)p, _mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT));
}

INLINE void lanes_store_f16(uint16_t *p, f32v v)
{
    __m256 nan = _mm256_cmp_ps((__m256)v, (__m256)v, _CMP_UNORD_Q);
    __m256 sign = _mm256_and_ps((__m256)v, _mm256_set1_ps(-0.0f));
    __m256 quiet = _mm256_or_ps(sign, _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000))); /* to sign|0x7e00 */
    lanes_store_f16_fast(p, (f32v)_mm256_blendv_ps((__m256)v, quiet, nan));
}

#elif defined(TIER_IS_NEON)

INLINE f64v lanes_fma(f64v a, f64v b, f64v sum)
{
    return (f64v)vfmaq_f64((float64x2_t)sum, (float64x2_t)a, (float64x2_t)b);
}

INLINE f64v lanes_widen(const float *p)
{
    return (f64v)vcvt_f64_f32(vld1_f32(p));
}

INLINE f64v lanes_load_f16(const uint16_t *p)
{
    uint32_t two = load_u32(p);
    float16x4_t h = vreinterpret_f16_u32(vdup_n_u32(two));
    return (f64v)vcvt_f64_f32(vget_low_f32(vcvt_f32_f16(h)));
}

INLINE f32v lanes_round_f16(f32v v)
{
    return (f32v)vcvt_f32_f16(vcvt_f16_f32((float32x4_t)v));
}

INLINE void lanes_store_f16_fast(uint16_t *p, f32v v)
{
    vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32((float32x4_t)v)));
}

INLINE void lanes_store_f16(uint16_t *p, f32v v)
{
    u32v quiet = ((u32v)v & 0x80000000u) | 0x7fc00000u; /* converts to sign|0x7e00 */
    lanes_store_f16_fast(p, lanes_select(v == v, v, (f32v)quiet));
}

#endif

#endif
