/* BF16: the upper half of a float. Products round to float; the sum is double, in index order. */
#include "engine/quant/activation.h"
#include "engine/quant/float_avx2.h"
#include "engine/quant/float_avx512.h"
#include "engine/quant/neon.h"

static void bf16_dequantize(const void *row, float *out, size_t n)
{
    const char *w = row;
    for (size_t i = 0; i < n; i++)
        out[i] = bf16_to_float(load_u16(w + i * sizeof(uint16_t)));
}

static float bf16_dot(const void *row, const void *act, size_t n)
{
    const char *w = row;
    const uint16_t *x = act;
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)(bf16_to_float(load_u16(w + i * sizeof(uint16_t))) * bf16_to_float(x[i]));
    return (float)sum;
}

SCALAR_KERNEL(bf16, ACT_BF16)

#if defined(__x86_64__)
AVX2_INLINE __m256 bf16_load_avx2(const uint8_t *p)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(avx2_load128(p)), 16));
}

FLOAT_AVX2(bf16, sizeof(uint16_t), float, float_run_avx2)
#endif

#if defined(__x86_64__)
FLOAT_AVX512(bf16, FLOAT_BF16)
#endif

#if defined(__aarch64__)
NEON_INLINE float32x4_t bf16_load_neon(const uint8_t *p)
{
    return vreinterpretq_f32_u32(vshll_n_u16(vreinterpret_u16_u8(vld1_u8(p)), 16));
}

FLOAT_KERNEL_NEON(bf16, sizeof(uint16_t))
#endif

const struct format format_bf16 = {
    .id = 30,
    .name = "BF16",
    .block_elements = 1,
    .block_bytes = sizeof(uint16_t),
    .activation = ACT_BF16,
    .dequantize = bf16_dequantize,
    .dot = bf16_dot,
    .decode = {[TIER_SCALAR] = SCALAR(bf16, ACT_BF16),
               FLOAT_DECODE_AVX2(bf16, layout_avx2_decode_bf16)
               FLOAT_DECODE_AVX512(bf16)
               NEON_SLOT(bf16, ACT_BF16)},
    .prefill = {[TIER_SCALAR] = SCALAR(bf16, ACT_BF16),
                FLOAT_PREFILL_AVX2(bf16)
                FLOAT_PREFILL_AVX512(bf16)
                NEON_SLOT(bf16, ACT_BF16)},
};
