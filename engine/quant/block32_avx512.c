/* Activation layouts of the 32-weight formats on AVX-512. */
#include "engine/quant/block32_avx512.h"

#if defined(__x86_64__)
#include "engine/quant/encode_avx512.h"

/* ---- one token ---- */

static size_t decode_bytes(size_t n_cols, size_t n_tokens)
{
    (void)n_tokens;
    return block32_padded(n_cols) * BLOCK32_ACTIVATION_BYTES;
}

AVX512_INLINE int32_t sum_of_16(const int8_t *q)
{
    __m128i u8 = _mm_xor_si128(_mm_loadu_si128((const void *)q), _mm_set1_epi8(-128));
    __m128i sums = _mm_sad_epu8(u8, _mm_setzero_si128());
    return _mm_cvtsi128_si32(sums) + _mm_extract_epi32(sums, 2) - 16 * 128;
}

/* Block m of 16 in the two orders of struct block32_activation. */
static void place_block(const int8_t *q, size_t m, int8_t *pairs, int8_t *quads)
{
    size_t pair = (m & 3) + (m >= 8 ? 4 : 0);
    memcpy(pairs + 64 * pair + 32 * (m >> 2 & 1), q, 32);
    memcpy(quads + 128 * (m >> 2) + 16 * (m & 3), q, 16);
    memcpy(quads + 128 * (m >> 2) + 16 * (m & 3) + 64, q + 16, 16);
}

AVX512 static void decode_encode(const float *x, size_t x_stride, size_t n_cols, size_t token_begin, size_t token_end,
                                 size_t n_tokens, void *out)
{
    (void)x_stride;
    (void)n_tokens;
    if (token_begin == token_end)
        return;
    const struct block32_activation a = block32_activation_at(out, n_cols);
    char *base = out;
    int8_t *pairs = (int8_t *)base, *quads = pairs + (a.quads - a.pairs);
    int32_t *sums = (int32_t *)(void *)(base + ((const char *)a.sums - base)), *firsts = sums + (a.firsts - a.sums);
    float *d = (float *)(void *)(base + ((const char *)a.d - base)), *s = d + (a.s - a.d);
    for (size_t b = 0; b < block32_padded(n_cols); b++) {
        struct encoded32 e = {.sum = 0};
        if (b < n_cols / 32)
            encode32(x + 32 * b, &e);
        place_block(e.q, b & 15, pairs + 32 * (b & ~(size_t)15), quads + 32 * (b & ~(size_t)15));
        sums[b] = e.sum;
        firsts[b] = sum_of_16(e.q);
        d[b] = e.d;
        s[b] = e.s;
    }
}

const struct activation_layout layout_avx512_decode_q8_0 = {"AVX-512 decode Q8_0", ACT_Q8_0, 1, decode_bytes,
                                                            decode_encode};
const struct activation_layout layout_avx512_decode_q8_1 = {"AVX-512 decode Q8_1", ACT_Q8_1, 1, decode_bytes,
                                                            decode_encode};

/* ---- panels of 8 tokens ---- */

/* Column `token` of a panel; x == NULL: a token behind the last, zeros. */
AVX512_INLINE void encode_token(const float *x, size_t n_blocks, size_t token, char *panel, size_t panel_bytes,
                                bool halves)
{
    for (size_t b = 0; b < n_blocks; b++, panel += panel_bytes) {
        struct block32_panel *out = (void *)panel;
        struct encoded32 e = {.sum = 0};
        if (x)
            encode32(x + 32 * b, &e);
        memcpy(out->q[token], e.q, 32);
        int32_t second = halves ? sum_of_16(e.q + 16) : 0;
        out->start[token] = -128 * (e.sum - second);
        out->d[token] = e.d;
        if (halves)
            out->start_second[token] = -128 * second;
        else if (panel_bytes == BLOCK32_PANEL_MIN)
            out->s[token] = e.s;
    }
}

AVX512_INLINE void encode_panels(const float *x, size_t x_stride, size_t n_cols, size_t token_begin, size_t token_end,
                                 char *out, size_t panel_bytes, bool halves)
{
    size_t n_blocks = n_cols / 32;
    for (size_t t = token_begin; t < round_up(token_end, TOKENS); t++)
        encode_token(t < token_end ? x + t * x_stride : NULL, n_blocks, t % TOKENS,
                     out + t / TOKENS * n_blocks * panel_bytes, panel_bytes, halves);
}

#define PANELS(act, enumerator, panel_bytes, halves)                                                               \
    static size_t act##_panels_bytes(size_t n_cols, size_t n_tokens)                                                \
    {                                                                                                               \
        return round_up(n_tokens, TOKENS) / TOKENS * (n_cols / 32) * panel_bytes;                                   \
    }                                                                                                               \
    AVX512 static void act##_panels_encode(const float *x, size_t x_stride, size_t n_cols, size_t token_begin,      \
                                           size_t token_end, size_t n_tokens, void *out)                            \
    {                                                                                                               \
        (void)n_tokens;                                                                                             \
        encode_panels(x, x_stride, n_cols, token_begin, token_end, out, panel_bytes, halves);                       \
    }                                                                                                               \
    const struct activation_layout layout_avx512_panels_##act = {"AVX-512 panels " #act, enumerator, TOKENS,        \
                                                                 act##_panels_bytes, act##_panels_encode};
PANELS(q8_0, ACT_Q8_0, BLOCK32_PANEL, false)
PANELS(q8_1, ACT_Q8_1, BLOCK32_PANEL_MIN, false)
PANELS(q8_0_halves, ACT_Q8_0, BLOCK32_PANEL_MIN, true)

#endif
