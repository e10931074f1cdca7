/* Activation layouts of the float formats on AVX-512: widened values, for many tokens column by column. */
#include "engine/quant/float_avx512.h"

#if defined(__x86_64__)

static double rounded_f16(float x)
{
    return (double)f16_to_float(f16_from_float(x));
}

static float rounded_bf16(float x)
{
    return bf16_to_float(bf16_from_float(x));
}

static float unrounded_f32(float x)
{
    return x;
}

/* out[k * step] = x[k] as the kernels want it; zeros from n to n_padded. x == NULL: zeros only. */
#define WIDEN(name, type, convert)                                                                                  \
    static void name##_widen(const float *x, size_t n, size_t n_padded, type *out, size_t step)                     \
    {                                                                                                               \
        for (size_t k = 0; k < n_padded; k++)                                                                       \
            out[k * step] = x && k < n ? convert(x[k]) : 0;                                                         \
    }                                                                                                               \
    static size_t name##_decode_bytes(size_t n_cols, size_t n_tokens)                                               \
    {                                                                                                               \
        (void)n_tokens;                                                                                             \
        return round_up(n_cols, 8) * sizeof(type);                                                                  \
    }                                                                                                               \
    static void name##_decode_encode(const float *x, size_t x_stride, size_t n_cols, size_t token_begin,            \
                                     size_t token_end, size_t n_tokens, void *out)                                  \
    {                                                                                                               \
        (void)x_stride, (void)n_tokens;                                                                             \
        if (token_begin < token_end)                                                                                \
            name##_widen(x, n_cols, round_up(n_cols, 8), out, 1);                                                   \
    }                                                                                                               \
    static size_t name##_panels_bytes(size_t n_cols, size_t n_tokens)                                               \
    {                                                                                                               \
        return round_up(n_tokens, TOKENS) * n_cols * sizeof(type);                                                  \
    }                                                                                                               \
    static void name##_panels_encode(const float *x, size_t x_stride, size_t n_cols, size_t token_begin,            \
                                     size_t token_end, size_t n_tokens, void *out)                                  \
    {                                                                                                               \
        (void)n_tokens;                                                                                             \
        for (size_t t = token_begin; t < round_up(token_end, TOKENS); t++)                                          \
            name##_widen(t < token_end ? x + t * x_stride : NULL, n_cols, n_cols,                                   \
                         (type *)out + t / TOKENS * TOKENS * n_cols + t % TOKENS, TOKENS);                          \
    }

#define LAYOUTS(name, act)                                                                                          \
    const struct activation_layout layout_avx512_decode_##name = {"AVX-512 decode " #name, act, 1,                  \
                                                                  name##_decode_bytes, name##_decode_encode};       \
    const struct activation_layout layout_avx512_panels_##name = {"AVX-512 panels " #name, act, TOKENS,             \
                                                                  name##_panels_bytes, name##_panels_encode};

WIDEN(f16, double, rounded_f16)
WIDEN(bf16, float, rounded_bf16)
WIDEN(f32, float, unrounded_f32)
LAYOUTS(f16, ACT_F16)
LAYOUTS(bf16, ACT_BF16)
LAYOUTS(f32, ACT_F32)

#endif
