/* F16: IEEE half precision. Products of two such values are exact in float; the sum is double, in index order. */
#include "engine/quant/activation.h"
#include "engine/quant/float_avx2.h"
#include "engine/quant/float_avx512.h"
#include "engine/quant/neon.h"

static void f16_dequantize(const void *row, float *out, size_t n)
{
    const char *w = row;
    for (size_t i = 0; i < n; i++)
        out[i] = f16_to_float(load_u16(w + i * sizeof(uint16_t)));
}

static float f16_dot(const void *row, const void *act, size_t n)
{
    const char *w = row;
    const uint16_t *x = act;
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)(f16_to_float(load_u16(w + i * sizeof(uint16_t))) * f16_to_float(x[i]));
    return (float)sum;
}

SCALAR_KERNEL(f16, ACT_F16)

#if defined(__x86_64__)
AVX2_INLINE __m256 f16_load_avx2(const uint8_t *p)
{
    return _mm256_cvtph_ps(avx2_load128(p));
}

FLOAT_AVX2(f16, sizeof(uint16_t), double, float_run_exact_avx2)
#endif

#if defined(__x86_64__)
FLOAT_AVX512(f16, FLOAT_F16)
#endif

#if defined(__aarch64__)
NEON_INLINE float32x4_t f16_load_neon(const uint8_t *p)
{
    return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p)));
}

FLOAT_KERNEL_NEON(f16, sizeof(uint16_t))
#endif

const struct format format_f16 = {
    .id = 1,
    .name = "F16",
    .block_elements = 1,
    .block_bytes = sizeof(uint16_t),
    .activation = ACT_F16,
    .dequantize = f16_dequantize,
    .dot = f16_dot,
    .decode = {[TIER_SCALAR] = SCALAR(f16, ACT_F16),
               FLOAT_DECODE_AVX2(f16, layout_avx2_decode_f16)
               FLOAT_DECODE_AVX512(f16)
               NEON_SLOT(f16, ACT_F16)},
    .prefill = {[TIER_SCALAR] = SCALAR(f16, ACT_F16),
                FLOAT_PREFILL_AVX2(f16)
                FLOAT_PREFILL_AVX512(f16)
                NEON_SLOT(f16, ACT_F16)},
};
