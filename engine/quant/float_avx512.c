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
    }

#define DECODE(name, widen, type, act)                                                                              \
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
            widen(x, n_cols, round_up(n_cols, 8), out, 1);                                                          \
    }                                                                                                               \
    const struct activation_layout layout_avx512_decode_##name = {"AVX-512 decode " #name, act, 1,                  \
                                                                  name##_decode_bytes, name##_decode_encode};

/* range_of: of the values of a panel, stored behind all panels. */
#define PANELS(name, widen, type, act, range_of)                                                                    \
    static size_t name##_panels_bytes(size_t n_cols, size_t n_tokens)                                               \
    {                                                                                                               \
        size_t padded = round_up(n_tokens, TOKENS);                                                                 \
        return padded * n_cols * sizeof(type) + padded / TOKENS * sizeof(struct float_range);                       \
    }                                                                                                               \
    static void name##_panels_encode(const float *x, size_t x_stride, size_t n_cols, size_t token_begin,            \
                                     size_t token_end, size_t n_tokens, void *out)                                  \
    {                                                                                                               \
        struct float_range *ranges = (void *)((type *)out + round_up(n_tokens, TOKENS) * n_cols);                   \
        for (size_t t = token_begin; t < round_up(token_end, TOKENS); t++) {                                        \
            type *panel = (type *)out + t / TOKENS * TOKENS * n_cols;                                               \
            widen(t < token_end ? x + t * x_stride : NULL, n_cols, n_cols, panel + t % TOKENS, TOKENS);             \
            if (t % TOKENS == TOKENS - 1)                                                                           \
                ranges[t / TOKENS] = range_of(panel, TOKENS * n_cols);                                              \
        }                                                                                                           \
    }                                                                                                               \
    const struct activation_layout layout_avx512_panels_##name = {"AVX-512 panels " #name, act, TOKENS,             \
                                                                  name##_panels_bytes, name##_panels_encode};

static struct float_range range_unused(const void *values, size_t n)
{
    (void)values, (void)n;
    return (struct float_range){0, 0};
}

/* Of doubles that are BF16 values. */
static struct float_range range_of_doubles(const double *values, size_t n)
{
    uint64_t low = UINT64_MAX, high = 0; /* magnitudes as bits; 0 is the largest for `low` */
    for (size_t i = 0; i < n; i++) {
        uint64_t magnitude = load_u64(&values[i]) & (UINT64_MAX >> 1);
        low = magnitude - 1 < low ? magnitude - 1 : low;
        high = magnitude > high ? magnitude : high;
    }
    return (struct float_range){(int32_t)(low >> 52) - 1023, (int32_t)(high >> 52) - 1023};
}

WIDEN(f16, double, rounded_f16)
WIDEN(bf16, float, rounded_bf16)
WIDEN(bf16_double, double, rounded_bf16)
WIDEN(f32, float, unrounded_f32)
DECODE(f16, f16_widen, double, ACT_F16)
DECODE(bf16, bf16_widen, float, ACT_BF16)
DECODE(f32, f32_widen, float, ACT_F32)
PANELS(f16, f16_widen, double, ACT_F16, range_unused)
PANELS(bf16, bf16_double_widen, double, ACT_BF16, range_of_doubles)
PANELS(f32, f32_widen, float, ACT_F32, range_unused)

#endif
