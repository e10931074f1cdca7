/* Activation layouts of the plain floats on AVX2. */
#include "engine/quant/float_avx2.h"

#if defined(__x86_64__)

static float keep(float x)
{
    return x;
}

static float through_f16(float x)
{
    return f16_to_float(f16_from_float(x));
}

static float through_bf16(float x)
{
    return bf16_to_float(bf16_from_float(x));
}

static size_t decode_bytes(size_t n_cols, size_t n_tokens)
{
    return n_tokens * n_cols * sizeof(float);
}

#define DECODE(name, enumerator)                                                                                    \
    static void name##_decode_encode(const float *x, size_t x_stride, size_t n_cols, size_t token_begin,            \
                                     size_t token_end, size_t n_tokens, void *out)                                  \
    {                                                                                                               \
        (void)n_tokens;                                                                                             \
        for (size_t t = token_begin; t < token_end; t++)                                                            \
            for (size_t k = 0; k < n_cols; k++)                                                                     \
                ((float *)out)[t * n_cols + k] = through_##name(x[t * x_stride + k]);                               \
    }                                                                                                               \
    const struct activation_layout layout_avx2_decode_##name = {"AVX2 decode " #name, enumerator, 1, decode_bytes,  \
                                                                name##_decode_encode};
DECODE(f16, ACT_F16)
DECODE(bf16, ACT_BF16)

#define PANELS(name, enumerator, scalar, round)                                                                     \
    static size_t name##_panels_bytes(size_t n_cols, size_t n_tokens)                                               \
    {                                                                                                               \
        return round_up(n_tokens, AVX2_TOKENS) * n_cols * sizeof(scalar);                                      \
    }                                                                                                               \
    static void name##_panels_encode(const float *x, size_t x_stride, size_t n_cols, size_t token_begin,            \
                                     size_t token_end, size_t n_tokens, void *out)                                  \
    {                                                                                                               \
        (void)n_tokens;                                                                                             \
        for (size_t t = token_begin; t < round_up(token_end, AVX2_TOKENS); t++) {                              \
            scalar *panel = (scalar *)out + t / AVX2_TOKENS * n_cols * AVX2_TOKENS + t % AVX2_TOKENS;               \
            for (size_t k = 0; k < n_cols; k++)                                                                     \
                panel[k * AVX2_TOKENS] = t < token_end ? (scalar)round(x[t * x_stride + k]) : 0;                    \
        }                                                                                                           \
    }                                                                                                               \
    const struct activation_layout layout_avx2_panels_##name = {"AVX2 panels " #name, enumerator, AVX2_TOKENS,      \
                                                                name##_panels_bytes, name##_panels_encode};
PANELS(f16, ACT_F16, double, through_f16)
PANELS(bf16, ACT_BF16, float, through_bf16)
PANELS(f32, ACT_F32, float, keep)

#endif
