/* The canonical activation encodings, bit for bit (docs/numerics.md, "Activation encodings").
 *
 * A block that holds a non-finite value gets a NaN scale and zeros, so that the NaN reaches the logits. Where a scale
 * is so small that its reciprocal overflows, all integers are 0 as in the reference. */
#include "engine/quant/activation.h"

#include <math.h>

static bool all_finite(const float *x, size_t n)
{
    uint32_t non_finite = 0;
    for (size_t i = 0; i < n; i++)
        non_finite |= (float_bits(x[i]) & 0x7f800000) == 0x7f800000;
    return non_finite == 0;
}

/* Nearest integer of |v| < 2^22, ties to even. */
static int round_to_even(float v)
{
    return (int)(float_bits(v + 12582912.0f) & 0x7fffff) - 0x400000;
}

/* Nearest integer of |v| < 2^23, ties away from zero. v - whole is exact. */
static int round_away(float v)
{
    int whole = (int)v;
    float rest = v - (float)whole;
    return whole + (rest >= 0.5f) - (rest <= -0.5f);
}

/* 32 values -> integers; returns the scale before its rounding to F16, *sum the sum of the integers. */
static float encode_32(const float *x, int8_t *q, int *sum)
{
    float largest = 0;
    *sum = 0;
    memset(q, 0, 32);
    if (!all_finite(x, 32))
        return NAN;
    for (int i = 0; i < 32; i++)
        largest = fabsf(x[i]) > largest ? fabsf(x[i]) : largest;
    float d = largest / 127.0f, r = d != 0 ? 1.0f / d : 0.0f;
    if (isinf(r))
        return d;
    for (int i = 0; i < 32; i++) {
        q[i] = (int8_t)round_away(x[i] * r);
        *sum += q[i];
    }
    return d;
}

static void encode_f32(const float *x, void *blocks, size_t n)
{
    memcpy(blocks, x, n * sizeof *x);
}

static void encode_f16(const float *x, void *blocks, size_t n)
{
    uint16_t *out = blocks;
    for (size_t i = 0; i < n; i++)
        out[i] = f16_from_float(x[i]);
}

static void encode_bf16(const float *x, void *blocks, size_t n)
{
    uint16_t *out = blocks;
    for (size_t i = 0; i < n; i++)
        out[i] = bf16_from_float(x[i]);
}

static void encode_q8_0(const float *x, void *blocks, size_t n)
{
    struct act_q8_0 *out = blocks;
    for (size_t b = 0; b < n / 32; b++) {
        int sum;
        out[b].d = f16_from_float(encode_32(x + b * 32, out[b].q, &sum));
    }
}

static void encode_q8_1(const float *x, void *blocks, size_t n)
{
    struct act_q8_1 *out = blocks;
    for (size_t b = 0; b < n / 32; b++) {
        int sum;
        float d = encode_32(x + b * 32, out[b].q, &sum);
        out[b].d = f16_from_float(d);
        out[b].s = f16_from_float((float)sum * d);
    }
}

static void encode_q8_k_block(const float *x, struct act_q8_k *out)
{
    float extreme = 0; /* the value of largest magnitude, the first of equals */
    memset(out, 0, sizeof *out);
    if (!all_finite(x, 256)) {
        out->d = NAN;
        return;
    }
    for (int i = 0; i < 256; i++)
        extreme = fabsf(x[i]) > fabsf(extreme) ? x[i] : extreme;
    if (extreme == 0)
        return;
    float t = -127.0f / extreme;
    out->d = 1.0f / t;
    if (isinf(t))
        return;
    for (int i = 0; i < 256; i++) {
        int q = round_to_even(t * x[i]);
        out->q[i] = (int8_t)(q < 127 ? q : 127);
        out->sums[i / 16] = (int16_t)(out->sums[i / 16] + out->q[i]);
    }
}

static void encode_q8_k(const float *x, void *blocks, size_t n)
{
    for (size_t b = 0; b < n / 256; b++)
        encode_q8_k_block(x + b * 256, (struct act_q8_k *)blocks + b);
}

#define ACTIVATION_TABLE(X)                                 \
    X(ACT_F32, "F32", 1, sizeof(float), f32)                \
    X(ACT_F16, "F16", 1, sizeof(uint16_t), f16)             \
    X(ACT_BF16, "BF16", 1, sizeof(uint16_t), bf16)          \
    X(ACT_Q8_0, "Q8_0", 32, sizeof(struct act_q8_0), q8_0)  \
    X(ACT_Q8_1, "Q8_1", 32, sizeof(struct act_q8_1), q8_1)  \
    X(ACT_Q8_K, "Q8_K", 256, sizeof(struct act_q8_k), q8_k)

static const struct activation_format encodings[ACT_COUNT] = {
#define X(id, name, elements, bytes, function) [id] = {name, elements, bytes, encode_##function},
    ACTIVATION_TABLE(X)
#undef X
};

const struct activation_format *activation_format(enum activation a)
{
    return &encodings[a];
}

static void encode_tokens(enum activation a, const float *x, size_t x_stride, size_t n_cols, size_t token_begin,
                          size_t token_end, char *out)
{
    size_t bytes = activation_row_bytes(a, n_cols);
    for (size_t t = token_begin; t < token_end; t++)
        encodings[a].encode(x + t * x_stride, out + t * bytes, n_cols);
}

#define X(id, name, elements, bytes, function)                                                                      \
    static size_t canonical_bytes_##function(size_t n_cols, size_t n_tokens)                                        \
    {                                                                                                               \
        return activation_row_bytes(id, n_cols) * n_tokens;                                                         \
    }                                                                                                               \
    static void canonical_encode_##function(const float *x, size_t x_stride, size_t n_cols, size_t token_begin,     \
                                            size_t token_end, size_t n_tokens, void *out)                           \
    {                                                                                                               \
        (void)n_tokens;                                                                                             \
        encode_tokens(id, x, x_stride, n_cols, token_begin, token_end, out);                                        \
    }
ACTIVATION_TABLE(X)
#undef X

const struct activation_layout layout_canonical[ACT_COUNT] = {
#define X(id, name, elements, bytes, function) \
    [id] = {"canonical " name, id, 1, canonical_bytes_##function, canonical_encode_##function},
    ACTIVATION_TABLE(X)
#undef X
};
