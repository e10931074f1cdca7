/* Q6_K: 256 values of 6 bits (nibbles and two high bits) minus 32; 16 signed byte scales; an F16 scale of these. */
#include "engine/quant/neon.h"
#include "engine/quant/superblock.h"
#include "engine/quant/superblock_avx2.h"
#include "engine/quant/superblock_avx512.h"

struct block_q6_k {
    uint8_t low[128];
    uint8_t high[64];
    int8_t scales[16];
    uint8_t d[2];
};
_Static_assert(sizeof(struct block_q6_k) == 210, "Q6_K block");

static void q6_k_unpack(const void *block, struct superblock *out)
{
    const struct block_q6_k *b = block;
    out->d = f16_to_float(load_u16(b->d));
    for (int j = 0; j < 16; j++)
        out->scale[j] = b->scales[j];
    for (int i = 0; i < 256; i++) {
        int half = i / 128, quarter = i / 32 % 4, l = i % 32;
        int low = b->low[64 * half + 32 * (quarter % 2) + l] >> 4 * (quarter / 2) & 15;
        int high = b->high[32 * half + l] >> 2 * quarter & 3;
        out->q[i] = (int8_t)(low + 16 * high - 32);
    }
}

static void q6_k_dequantize(const void *row, float *out, size_t n)
{
    superblock_dequantize(row, out, n, sizeof(struct block_q6_k), q6_k_unpack, 1);
}

static float q6_k_dot(const void *row, const void *act, size_t n)
{
    return superblock_dot_lanes(row, act, n, sizeof(struct block_q6_k), q6_k_unpack, false);
}

SCALAR_KERNEL(q6_k, ACT_Q8_K)

#if defined(__x86_64__)
AVX2_INLINE void q6_k_load_avx2(const uint8_t *block, struct superblock_avx2 *out)
{
    const struct block_q6_k *b = (const void *)block;
    const __m256i low = _mm256_set1_epi8(15), bits = _mm256_set1_epi8(0x30);
    UNROLL
    for (size_t n = 0; n < 2; n++) {
        __m256i l0 = avx2_by_lanes(avx2_load(b->low + 64 * n)), l1 = avx2_by_lanes(avx2_load(b->low + 64 * n + 32));
        __m256i h = avx2_by_lanes(avx2_load(b->high + 32 * n)), *q = out->q + 4 * n;
        q[0] = _mm256_or_si256(_mm256_and_si256(l0, low), _mm256_and_si256(_mm256_slli_epi16(h, 4), bits));
        q[1] = _mm256_or_si256(_mm256_and_si256(l1, low), _mm256_and_si256(_mm256_slli_epi16(h, 2), bits));
        l0 = _mm256_and_si256(_mm256_srli_epi16(l0, 4), low);
        l1 = _mm256_and_si256(_mm256_srli_epi16(l1, 4), low);
        q[2] = _mm256_or_si256(l0, _mm256_and_si256(h, bits));
        q[3] = _mm256_or_si256(l1, _mm256_and_si256(_mm256_srli_epi16(h, 2), bits));
    }
    out->scale = _mm256_cvtepi8_epi16(avx2_load128(b->scales));
    avx2_scales(b->d, out);
}

SUPERBLOCK_AVX2(q6_k, sizeof(struct block_q6_k), SUPERBLOCK_LANES, 32, 1, 1)
#endif

#if defined(__x86_64__)
/* Nibbles and bits 4 and 5 of high. */
AVX512_INLINE __m512i q6_k_merge_avx512(__m512i nibbles, __m512i high)
{
    return _mm512_ternarylogic_epi64(nibbles, high, _mm512_set1_epi8(0x30), TERNARY_OR_AND);
}

AVX512_INLINE __m512i q6_k_lanes_avx512(const uint8_t *x, const struct superblock_activation *a, uint16_t *d)
{
    /* bits 0, 1 to 4, 5, bits 4, 5 to 0, 1, no others; nibbles exchanged */
    const __m512i apart = _mm512_set1_epi64(0x1020000001020000), swap = _mm512_set1_epi64(0x1020408001020408);
    const __m512i low = _mm512_set1_epi8(15);
    int16_t scales[16] ALIGNED;
    scales_widen(_mm_loadu_si128((const void *)(x + 192)), scales);
    memcpy(d, x + 208, sizeof *d);
    __m512i dots[4]; /* of groups 2 k and 2 k + 1 */
    UNROLL
    for (size_t h = 0; h < 2; h++) {
        __m512i w = in_turns(load512(x + 64 * h)), high = rotate_left(in_turns_twice(x + 128 + 32 * h), 0, -2);
        high = _mm512_gf2p8affine_epi64_epi8(high, apart, 0);
        __m512i w0 = _mm512_ternarylogic_epi64(w, high, low, TERNARY_CHOOSE);
        __m512i w1 = _mm512_gf2p8affine_epi64_epi8(_mm512_ternarylogic_epi64(high, w, low, TERNARY_CHOOSE), swap, 0);
        dots[2 * h] = dots_offset(w0, a->near + 128 * h, a->offsets + 64 * h);
        dots[2 * h + 1] = dots_offset(w1, a->near + 128 * h + 64, a->offsets + 64 * h + 32);
    }
    return dot_scales(dots, scales);
}

AVX512_INLINE void q6_k_pack_block_avx512(const uint8_t *x, size_t row_bytes, struct superblock_tile *t)
{
    const __m512i low = _mm512_set1_epi8(15), offset = _mm512_set1_epi8(32);
    struct lane_rows rows[6]; /* nibbles of groups (0,2) (1,3) (4,6) (5,7); high bits of groups 0..3, 4..7 */
    for (size_t i = 0; i < ROWS; i++)
        for (size_t k = 0; k < 3; k++)
            lane_rows_store(rows + 2 * k, i, by_lanes(load512(x + i * row_bytes + 64 * k)));
    UNROLL
    for (size_t h = 0; h < 2; h++) {
        UNROLL
        for (size_t half = 0; half < 2; half++) {
            __m512i q[4], r[4], high[4];
            lane_rows_load(rows + 2 * h, half, q);
            lane_rows_load(rows + 2 * h + 1, half, r);
            lane_rows_load(rows + 4 + h, half, high);
            UNROLL
            for (size_t k = 0; k < 4; k++) {
                __m512i w[4] = {
                    q6_k_merge_avx512(_mm512_and_si512(q[k], low), _mm512_slli_epi16(high[k], 4)),
                    q6_k_merge_avx512(_mm512_and_si512(r[k], low), _mm512_slli_epi16(high[k], 2)),
                    q6_k_merge_avx512(high_nibbles(q[k]), high[k]),
                    q6_k_merge_avx512(high_nibbles(r[k]), _mm512_srli_epi16(high[k], 2)),
                };
                UNROLL
                for (size_t j = 0; j < 4; j++)
                    _mm512_store_si512(t->w[4 * half + k][4 * h + j], _mm512_sub_epi8(w[j], offset));
            }
        }
    }
    tile_scales_s8(x + 192, row_bytes, t);
    tile_start(t, true);
    _mm512_store_ps(t->d, halves_strided(x + 208, row_bytes));
}

SUPERBLOCK_LANES_AVX512(q6_k, sizeof(struct block_q6_k))
SUPERBLOCK_TILES_AVX512(q6_k, sizeof(struct block_q6_k), SUPERBLOCK_LANES, 1, 1)
#endif

#if defined(__aarch64__)
NEON_INLINE void q6_k_unpack_neon(const void *block, struct superblock *out)
{
    const struct block_q6_k *b = block;
    const uint8x16_t low = vdupq_n_u8(15), top = vdupq_n_u8(0x30);
    out->d = neon_half(b->d);
    for (size_t j = 0; j < 16; j++)
        out->scale[j] = b->scales[j];
    for (size_t k = 0; k < 4; k++) { /* 16 columns of a half: four quarters of it */
        size_t half = k / 2, l = k % 2 * 16;
        uint8x16_t l0 = vld1q_u8(b->low + 64 * half + l), l1 = vld1q_u8(b->low + 64 * half + 32 + l);
        uint8x16_t h = vld1q_u8(b->high + 32 * half + l), q[4];
        q[0] = vorrq_u8(vandq_u8(l0, low), vandq_u8(vshlq_n_u8(h, 4), top));
        q[1] = vorrq_u8(vandq_u8(l1, low), vandq_u8(vshlq_n_u8(h, 2), top));
        q[2] = vorrq_u8(vshrq_n_u8(l0, 4), vandq_u8(h, top));
        q[3] = vorrq_u8(vshrq_n_u8(l1, 4), vandq_u8(vshrq_n_u8(h, 2), top));
        for (size_t i = 0; i < 4; i++)
            vst1q_s8(out->q + 128 * half + 32 * i + l, vsubq_s8(vreinterpretq_s8_u8(q[i]), vdupq_n_s8(32)));
    }
}

SUPERBLOCK_KERNEL_NEON(q6_k, sizeof(struct block_q6_k), SUPERBLOCK_LANES, 1, 1, q6_k_unpack_neon)
#endif

const struct format format_q6_k = {
    .id = 14,
    .name = "Q6_K",
    .block_elements = 256,
    .block_bytes = sizeof(struct block_q6_k),
    .activation = ACT_Q8_K,
    .dequantize = q6_k_dequantize,
    .dot = q6_k_dot,
    .decode = {[TIER_SCALAR] = SCALAR(q6_k, ACT_Q8_K),
               SUPERBLOCK_DECODE_AVX2(q6_k)
               SUPERBLOCK_DECODE_AVX512(q6_k)
               NEON_SLOT(q6_k, ACT_Q8_K)},
    .prefill = {[TIER_SCALAR] = SCALAR(q6_k, ACT_Q8_K),
                SUPERBLOCK_PREFILL_AVX2(q6_k)
                SUPERBLOCK_PREFILL_AVX512(q6_k)
                NEON_SLOT(q6_k, ACT_Q8_K)},
};
