/* Activation layouts of the 32-weight formats on AVX2. */
#include "engine/quant/block32_avx2.h"

#if defined(__x86_64__)
#include "engine/quant/encode_avx2.h"

/* ---- sources of encoded blocks: plain ones of 32, or a Q8_K super-block cut in eight ---- */

AVX2 static void encode_plain(const float *x, size_t n_blocks, struct encoded32 *out)
{
    for (size_t b = 0; b < n_blocks; b++)
        avx2_encode32(x + 32 * b, &out[b]);
}

AVX2 static void encode_super(const float *x, size_t n_blocks, struct encoded32 *out)
{
    struct act_q8_k block;
    for (size_t b = 0; b < n_blocks; b++) {
        if (b % 8 == 0)
            avx2_encode256(x + 32 * b, &block);
        memcpy(out[b].q, block.q + b % 8 * 32, 32);
        out[b].sum = block.sums[b % 8 * 2] + block.sums[b % 8 * 2 + 1];
        out[b].d = block.d;
        out[b].s = 0;
    }
}

typedef void encode_blocks(const float *x, size_t n_blocks, struct encoded32 *out);

/* ---- one token ---- */

static size_t decode_bytes(size_t n_cols, size_t n_tokens)
{
    return n_tokens * round_up(n_cols / 32, 8) * (32 + 4 + 4 + 4);
}

static void decode_encode(const float *x, size_t n_cols, size_t token_begin, size_t token_end, void *out,
                          encode_blocks *encode)
{
    if (token_begin == token_end)
        return;
    size_t n = n_cols / 32, padded = round_up(n, 8);
    char *q = out, *sums = q + 32 * padded, *d = sums + 4 * padded, *s = d + 4 * padded;
    for (size_t b = 0; b < padded; b++) {
        struct encoded32 e = {.sum = 0}, group[8];
        if (b % 8 == 0 && b < n)
            encode(x + 32 * b, n - b < 8 ? n - b : 8, group);
        if (b < n)
            e = group[b % 8];
        memcpy(q + 32 * b, e.q, 32);
        memcpy(sums + 4 * b, &e.sum, 4);
        memcpy(d + 4 * b, &e.d, 4);
        memcpy(s + 4 * b, &e.s, 4);
    }
}

/* ---- panels of 4 tokens ---- */

static size_t panels_bytes(size_t n_cols, size_t n_tokens)
{
    return round_up(n_tokens, AVX2_TOKENS) / AVX2_TOKENS * (n_cols / 32) * sizeof(struct block32_avx2_panel);
}

/* Sum of 16 integers. */
AVX2 static int32_t sum_of_16(const int8_t *q)
{
    __m128i pairs = _mm_maddubs_epi16(_mm_set1_epi8(1), avx2_load128(q));
    return avx2_total(_mm256_zextsi128_si256(_mm_madd_epi16(pairs, _mm_set1_epi16(1))));
}

/* Column `token` of a panel; x == NULL: a token behind the last, zeros. */
static void panel_token(const float *x, size_t n_blocks, size_t token, struct block32_avx2_panel *panel,
                        encode_blocks *encode)
{
    struct encoded32 e[8] = {{.sum = 0}};
    for (size_t b = 0; b < n_blocks; b++) {
        if (x && b % 8 == 0)
            encode(x + 32 * b, n_blocks - b < 8 ? n_blocks - b : 8, e);
        memcpy(panel[b].q[token], e[b % 8].q, 32);
        panel[b].sum[token] = e[b % 8].sum;
        panel[b].first[token] = sum_of_16(e[b % 8].q);
        panel[b].d[token] = e[b % 8].d;
        panel[b].s[token] = e[b % 8].s;
    }
}

static void panels_encode(const float *x, size_t x_stride, size_t n_cols, size_t token_begin, size_t token_end, void *out,
                          encode_blocks *encode)
{
    struct block32_avx2_panel *panels = out;
    size_t n_blocks = n_cols / 32;
    for (size_t t = token_begin; t < round_up(token_end, AVX2_TOKENS); t++)
        panel_token(t < token_end ? x + t * x_stride : NULL, n_blocks, t % AVX2_TOKENS,
                    panels + t / AVX2_TOKENS * n_blocks, encode);
}

#define LAYOUTS(act, enumerator, encode)                                                                          \
    static void act##_decode_encode(const float *x, size_t x_stride, size_t n_cols, size_t token_begin,             \
                                    size_t token_end, size_t n_tokens, void *out)                                   \
    {                                                                                                               \
        (void)x_stride, (void)n_tokens;                                                                             \
        decode_encode(x, n_cols, token_begin, token_end, out, encode);                                              \
    }                                                                                                               \
    static void act##_panels_encode(const float *x, size_t x_stride, size_t n_cols, size_t token_begin,             \
                                    size_t token_end, size_t n_tokens, void *out)                                   \
    {                                                                                                               \
        (void)n_tokens;                                                                                             \
        panels_encode(x, x_stride, n_cols, token_begin, token_end, out, encode);                                    \
    }                                                                                                               \
    const struct activation_layout layout_avx2_decode_##act = {"AVX2 decode " #act, enumerator, 1, decode_bytes,    \
                                                               act##_decode_encode};                                \
    const struct activation_layout layout_avx2_panels_##act = {"AVX2 panels " #act, enumerator, AVX2_TOKENS,        \
                                                               panels_bytes, act##_panels_encode};
LAYOUTS(q8_0, ACT_Q8_0, encode_plain)
LAYOUTS(q8_1, ACT_Q8_1, encode_plain)
LAYOUTS(q8_k32, ACT_Q8_K, encode_super)

#endif
