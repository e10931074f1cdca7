/* F32: plain floats. Products are rounded to float before they enter the double sum. */
#include "engine/quant/activation.h"
#include "engine/quant/float_avx2.h"
#include "engine/quant/float_avx512.h"
#include "engine/quant/neon.h"

static void f32_dequantize(const void *row, float *out, size_t n)
{
    memcpy(out, row, n * sizeof *out);
}

static float f32_dot(const void *row, const void *act, size_t n)
{
    const char *w = row;
    const float *x = act;
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)(bits_float(load_u32(w + i * sizeof(float))) * x[i]);
    return (float)sum;
}

SCALAR_KERNEL(f32, ACT_F32)

#if defined(__x86_64__)
AVX2_INLINE __m256 f32_load_avx2(const uint8_t *p)
{
    return _mm256_loadu_ps((const void *)p);
}

FLOAT_AVX2(f32, sizeof(float), float, float_run_avx2)
#endif

#if defined(__x86_64__)
FLOAT_AVX512(f32, FLOAT_F32)
#endif

#if defined(__aarch64__)
NEON_INLINE float32x4_t f32_load_neon(const uint8_t *p)
{
    return vreinterpretq_f32_u8(vld1q_u8(p));
}

FLOAT_KERNEL_NEON(f32, sizeof(float))
#endif

const struct format format_f32 = {
    .id = 0,
    .name = "F32",
    .block_elements = 1,
    .block_bytes = sizeof(float),
    .activation = ACT_F32,
    .dequantize = f32_dequantize,
    .dot = f32_dot,
    .decode = {[TIER_SCALAR] = SCALAR(f32, ACT_F32),
               FLOAT_DECODE_AVX2(f32, layout_canonical[ACT_F32])
               FLOAT_DECODE_AVX512(f32)
               NEON_SLOT(f32, ACT_F32)},
    .prefill = {[TIER_SCALAR] = SCALAR(f32, ACT_F32),
                FLOAT_PREFILL_AVX2(f32)
                FLOAT_PREFILL_AVX512(f32)
                NEON_SLOT(f32, ACT_F32)},
};
