/* F32: plain floats. Products are rounded to float before they enter the double sum. */
#include "engine/quant/activation.h"
#include "engine/quant/float_avx512.h"

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
FLOAT_AVX512(f32, FLOAT_F32)
#endif

const struct format format_f32 = {
    .id = 0,
    .name = "F32",
    .block_elements = 1,
    .block_bytes = sizeof(float),
    .activation = ACT_F32,
    .dequantize = f32_dequantize,
    .dot = f32_dot,
    .decode = {[TIER_SCALAR] = SCALAR(f32, ACT_F32), FLOAT_DECODE_AVX512(f32)},
    .prefill = {[TIER_SCALAR] = SCALAR(f32, ACT_F32), FLOAT_PREFILL_AVX512(f32)},
};
