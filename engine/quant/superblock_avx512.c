/* Activation layouts of the super-block formats on AVX-512: one for decode, one for panels, each serving all formats,
 * so that matrices of different formats that share x share the encoding. */
#include "engine/quant/superblock_avx512.h"

#if defined(__x86_64__)
#include "engine/quant/encode_avx512.h"

#define LANE(l) l, l + 8, l + 16, l + 24
#define LANES(o) LANE(o), LANE(o + 1), LANE(o + 2), LANE(o + 3), LANE(o + 4), LANE(o + 5), LANE(o + 6), LANE(o + 7)
#define TURNS(o)                                                                                                    \
    LANE(0), LANE(o), LANE(1), LANE(o + 1), LANE(2), LANE(o + 2), LANE(3), LANE(o + 3), LANE(4), LANE(o + 4), LANE(5), \
        LANE(o + 5), LANE(6), LANE(o + 6), LANE(7), LANE(o + 7)
const uint8_t lanes_order[64] ALIGNED = {LANES(0), LANES(32)};
const uint8_t lanes_order_twice[64] ALIGNED = {LANES(0), LANES(0)};
const uint8_t turns_order[64] ALIGNED = {TURNS(32)};
const uint8_t turns_order_twice[64] ALIGNED = {TURNS(0)};

/* ---- one token ---- */

static size_t decode_bytes(size_t n_cols, size_t n_tokens)
{
    (void)n_tokens;
    size_t n = n_cols / 256;
    return round_up(SUPERBLOCK_ACTIVATION_BYTES * n, 64) + n * sizeof(float);
}

AVX512_INLINE void place_near_wide(const struct act_q8_k *q, int8_t *near, int8_t *wide, int16_t *offsets)
{
    for (size_t pair = 0; pair < 4; pair++) {
        __m512i v = in_turns(load512(q->q + 64 * pair));
        _mm512_storeu_si512(near + 64 * pair, v);
        __m512i sums = _mm512_maddubs_epi16(_mm512_set1_epi8(1), v);
        _mm512_storeu_si512(offsets + 32 * pair, _mm512_slli_epi16(_mm512_sub_epi16(_mm512_setzero_si512(), sums), 5));
    }
    for (size_t half = 0; half < 2; half++) {
        __m512i a = load512(q->q + 128 * half), b = load512(q->q + 128 * half + 64);
        _mm512_storeu_si512(wide + 128 * half, in_turns(_mm512_shuffle_i64x2(a, b, 0x44)));
        _mm512_storeu_si512(wide + 128 * half + 64, in_turns(_mm512_shuffle_i64x2(a, b, 0xee)));
    }
}

AVX512_INLINE void place_sums8(const struct act_q8_k *q, int16_t *sums8)
{
    for (size_t k = 0; k < 4; k++) {
        __m512i fours = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(1), load512(q->q + 64 * k));
        __m512i eights = _mm512_add_epi32(fours, _mm512_srli_epi64(fours, 32));
        _mm_storeu_si128((void *)(sums8 + 8 * k), _mm512_cvtepi64_epi16(eights));
    }
}

AVX512 static void decode_encode(const float *x, size_t x_stride, size_t n_cols, size_t token_begin, size_t token_end,
                                 size_t n_tokens, void *out)
{
    (void)x_stride;
    (void)n_tokens;
    if (token_begin == token_end)
        return;
    size_t n = n_cols / 256;
    int8_t *near = out, *wide = near + 256 * n, *plain = wide + 256 * n;
    int16_t *offsets = (int16_t *)(void *)(near + 768 * n), *sums8 = offsets + 128 * n;
    int16_t *sums16 = sums8 + 32 * n, *sums32 = sums16 + 16 * n;
    float *d = (float *)(void *)(near + round_up(SUPERBLOCK_ACTIVATION_BYTES * n, 64));
    for (size_t b = 0; b < n; b++) {
        struct act_q8_k q;
        encode256(x + 256 * b, &q);
        place_near_wide(&q, near + 256 * b, wide + 256 * b, offsets + 128 * b);
        memcpy(plain + 256 * b, q.q, sizeof q.q);
        place_sums8(&q, sums8 + 32 * b);
        memcpy(sums16 + 16 * b, q.sums, sizeof q.sums);
        for (size_t j = 0; j < 8; j++)
            sums32[8 * b + j] = act_q8_k_sum32(&q, j);
        d[b] = q.d;
    }
}

const struct activation_layout layout_avx512_decode_q8_k = {"AVX-512 decode Q8_K", ACT_Q8_K, 1, decode_bytes,
                                                            decode_encode};

/* ---- panels of 8 tokens ---- */

static size_t panels_bytes(size_t n_cols, size_t n_tokens)
{
    size_t n = round_up(n_tokens, TOKENS) / TOKENS * (n_cols / 256);
    return n * (sizeof(struct superblock_panel) + sizeof(struct superblock_panel_u8));
}

/* Four dwords of tokens 0..3 in every lane: lane j of out[c] is dword 4 j + c. */
AVX512_INLINE void transpose_tokens(const __m512i r[4], __m512i out[4])
{
    __m512i t0 = _mm512_unpacklo_epi32(r[0], r[1]), t1 = _mm512_unpackhi_epi32(r[0], r[1]);
    __m512i t2 = _mm512_unpacklo_epi32(r[2], r[3]), t3 = _mm512_unpackhi_epi32(r[2], r[3]);
    out[0] = _mm512_unpacklo_epi64(t0, t2);
    out[1] = _mm512_unpackhi_epi64(t0, t2);
    out[2] = _mm512_unpacklo_epi64(t1, t3);
    out[3] = _mm512_unpackhi_epi64(t1, t3);
}

/* Two entries of a panel: lanes l and l + 4 of one group. */
AVX512_INLINE void store_lanes(__m512i v, size_t l, size_t group, struct superblock_panel *s8,
                               struct superblock_panel_u8 *u8)
{
    __m512i flipped = _mm512_xor_si512(v, _mm512_set1_epi8(-128));
    _mm256_storeu_si256((void *)s8->q[l][group], _mm512_castsi512_si256(v));
    _mm256_storeu_si256((void *)s8->q[l + 4][group], _mm512_extracti64x4_epi64(v, 1));
    _mm256_storeu_si256((void *)u8->q[l][group], _mm512_castsi512_si256(flipped));
    _mm256_storeu_si256((void *)u8->q[l + 4][group], _mm512_extracti64x4_epi64(flipped, 1));
}

/* The integers of 8 tokens' blocks. */
AVX512_INLINE void place_values(const struct act_q8_k q[TOKENS], struct superblock_panel *s8,
                                struct superblock_panel_u8 *u8)
{
    const __m512i lower = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
    const __m512i upper = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
    for (size_t pair = 0; pair < 4; pair++) {
        __m512i r[TOKENS], t[TOKENS];
        UNROLL
        for (size_t i = 0; i < TOKENS; i++)
            r[i] = by_lanes(load512(q[i].q + 64 * pair));
        transpose_tokens(r, t);
        transpose_tokens(r + 4, t + 4);
        UNROLL
        for (size_t c = 0; c < 4; c++) {
            store_lanes(_mm512_permutex2var_epi64(t[c], lower, t[c + 4]), c, 2 * pair, s8, u8);
            store_lanes(_mm512_permutex2var_epi64(t[c], upper, t[c + 4]), c, 2 * pair + 1, s8, u8);
        }
    }
}

/* Scale and sums of one token's block. */
AVX512_INLINE void place_sums(const struct act_q8_k *q, size_t token, struct superblock_panel *s8,
                              struct superblock_panel_u8 *u8)
{
    s8->d[token] = u8->d[token] = q->d;
    for (size_t j = 0; j < 8; j++) {
        memcpy(s8->sums16[j][token], q->sums + 2 * j, 4);
        s8->sums32[j / 2][token][j % 2] = act_q8_k_sum32(q, j);
    }
}

AVX512 static void panels_encode(const float *x, size_t x_stride, size_t n_cols, size_t token_begin, size_t token_end,
                                 size_t n_tokens, void *out)
{
    size_t n = n_cols / 256, n_panels = round_up(n_tokens, TOKENS) / TOKENS;
    struct superblock_panel *s8 = out;
    struct superblock_panel_u8 *u8 = (void *)(s8 + n_panels * n);
    for (size_t t = token_begin; t < token_end; t += TOKENS)
        for (size_t b = 0; b < n; b++) {
            struct act_q8_k q[TOKENS];
            size_t at = t / TOKENS * n + b;
            for (size_t i = 0; i < TOKENS; i++) {
                if (t + i < token_end)
                    encode256(x + (t + i) * x_stride + 256 * b, &q[i]);
                else
                    memset(&q[i], 0, sizeof q[i]);
                place_sums(&q[i], i, s8 + at, u8 + at);
            }
            place_values(q, s8 + at, u8 + at);
        }
}

const struct activation_layout layout_avx512_panels_q8_k = {"AVX-512 panels Q8_K", ACT_Q8_K, TOKENS, panels_bytes,
                                                            panels_encode};

#endif
