/* Q5_K: 256 values of 5 bits (nibbles and high bits); eight 6-bit pairs of scale and minimum; F16 scales of both. */
#include "engine/quant/neon.h"
#include "engine/quant/superblock.h"
#include "engine/quant/superblock_avx2.h"
#include "engine/quant/superblock_quads_avx512.h"

struct block_q5_k {
    uint8_t d[2], dmin[2];
    uint8_t scale_min[12];
    uint8_t high[32];
    uint8_t nibbles[128];
};
_Static_assert(sizeof(struct block_q5_k) == 176, "Q5_K block");

static void q5_k_unpack(const void *block, struct superblock *out)
{
    const struct block_q5_k *b = block;
    out->d = f16_to_float(load_u16(b->d));
    out->dmin = f16_to_float(load_u16(b->dmin));
    scale_min_unpack(b->scale_min, out->scale, out->min);
    nibbles_256_unpack(b->nibbles, out->q);
    for (int i = 0; i < 256; i++)
        out->q[i] = (int8_t)(out->q[i] + 16 * (b->high[i % 32] >> i / 32 & 1));
}

static void q5_k_dequantize(const void *row, float *out, size_t n)
{
    superblock_dequantize_min(row, out, n, sizeof(struct block_q5_k), q5_k_unpack);
}

static float q5_k_dot(const void *row, const void *act, size_t n)
{
    return superblock_dot_lanes(row, act, n, sizeof(struct block_q5_k), q5_k_unpack, true);
}

SCALAR_KERNEL(q5_k, ACT_Q8_K)

#if defined(__x86_64__)
AVX2_INLINE void q5_k_load_avx2(const uint8_t *block, struct superblock_avx2 *out)
{
    const struct block_q5_k *b = (const void *)block;
    avx2_nibbles_256(b->nibbles, out->q);
    avx2_add_bits(b->high, 4, out->q);
    avx2_scale_min(b->scale_min, out);
    avx2_scales_two(b->d, out);
}

SUPERBLOCK_AVX2(q5_k, sizeof(struct block_q5_k), SUPERBLOCK_LANES_MIN, 0, 1, 1)
#endif

#if defined(__x86_64__)
/* q with bit `group` and, for the other dwords, group + 2 of the bytes of high as bit 4. */
AVX512_INLINE __m512i q5_k_add_high_avx512(__m512i q, __m512i high, int group)
{
    __m512i turned = rotate_left(high, 4 - group, 2 - group);
    return _mm512_ternarylogic_epi64(q, turned, _mm512_set1_epi8(16), TERNARY_OR_AND);
}

AVX512_INLINE void q5_k_quads_avx512(const uint8_t *x, const struct superblock_activation *a, __m512i out[4])
{
    const __m512i low = _mm512_set1_epi8(15), zero = _mm512_setzero_si512();
    __m512i high = in_turns_twice(x + 16);
    UNROLL
    for (int h = 0; h < 2; h++) {
        __m512i w = in_turns(load512(x + 48 + 64 * h));
        __m512i w0 = q5_k_add_high_avx512(_mm512_and_si512(w, low), high, 4 * h);
        __m512i w1 = q5_k_add_high_avx512(high_nibbles(w), high, 4 * h + 1);
        out[2 * h] = _mm512_dpbusd_epi32(zero, w0, load512(a->wide + 128 * h));
        out[2 * h + 1] = _mm512_dpbusd_epi32(zero, w1, load512(a->wide + 128 * h + 64));
    }
}

/* Bit `group` of every byte of high, moved to bit 4, and q. */
AVX512_INLINE __m512i q5_k_merge_avx512(__m512i q, __m512i high, int group)
{
    __m512i left = _mm512_set1_epi16((short)(4 - group)), right = _mm512_set1_epi16((short)(group - 4));
    __m512i moved = group <= 4 ? _mm512_sllv_epi16(high, left) : _mm512_srlv_epi16(high, right);
    return _mm512_ternarylogic_epi64(q, moved, _mm512_set1_epi8(16), TERNARY_OR_AND);
}

AVX512_INLINE void q5_k_pack_block_avx512(const uint8_t *x, size_t row_bytes, struct superblock_tile *t)
{
    const __m512i low = _mm512_set1_epi8(15);
    struct lane_rows rows[6]; /* nibbles: groups 2 c and 2 c + 1; the high bits */
    for (size_t i = 0; i < ROWS; i++) {
        lane_rows_store(rows, i, by_lanes(load512(x + i * row_bytes + 48)));
        lane_rows_store(rows + 2, i, by_lanes(load512(x + i * row_bytes + 112)));
        lane_rows_store(rows + 4, i, by_lanes_twice(x + i * row_bytes + 16));
    }
    UNROLL
    for (size_t half = 0; half < 2; half++) {
        __m512i high[4];
        lane_rows_load(rows + 4, half, high);
        UNROLL
        for (int c = 0; c < 4; c++) {
            __m512i q[4];
            lane_rows_load(rows + c, half, q);
            UNROLL
            for (size_t k = 0; k < 4; k++) {
                __m512i w0 = _mm512_and_si512(q[k], low), w1 = high_nibbles(q[k]);
                _mm512_store_si512(t->w[4 * half + k][2 * c], q5_k_merge_avx512(w0, high[k], 2 * c));
                _mm512_store_si512(t->w[4 * half + k][2 * c + 1], q5_k_merge_avx512(w1, high[k], 2 * c + 1));
            }
        }
    }
    tile_scales_min(x, row_bytes, t);
}

QUADS_AVX512(q5_k, sizeof(struct block_q5_k))
SUPERBLOCK_TILES_AVX512(q5_k, sizeof(struct block_q5_k), SUPERBLOCK_LANES_MIN, 1, 1)
#endif

#if defined(__aarch64__)
NEON_INLINE void q5_k_unpack_neon(const void *block, struct superblock *out)
{
    const struct block_q5_k *b = block;
    out->d = neon_half(b->d);
    out->dmin = neon_half(b->dmin);
    scale_min_unpack(b->scale_min, out->scale, out->min);
    neon_nibbles_256(b->nibbles, out->q);
    for (size_t i = 0; i < 256; i += 16) {
        uint8x16_t bits = vtstq_u8(vld1q_u8(b->high + i % 32), vdupq_n_u8((uint8_t)(1 << i / 32)));
        int8x16_t high = vreinterpretq_s8_u8(vandq_u8(bits, vdupq_n_u8(16)));
        vst1q_s8(out->q + i, vorrq_s8(vld1q_s8(out->q + i), high));
    }
}

SUPERBLOCK_KERNEL_NEON(q5_k, sizeof(struct block_q5_k), SUPERBLOCK_LANES_MIN, 1, 1, q5_k_unpack_neon)
#endif

const struct format format_q5_k = {
    .id = 13,
    .name = "Q5_K",
    .block_elements = 256,
    .block_bytes = sizeof(struct block_q5_k),
    .activation = ACT_Q8_K,
    .dequantize = q5_k_dequantize,
    .dot = q5_k_dot,
    .decode = {[TIER_SCALAR] = SCALAR(q5_k, ACT_Q8_K),
               SUPERBLOCK_DECODE_AVX2(q5_k)
               SUPERBLOCK_DECODE_AVX512(q5_k)
               NEON_SLOT(q5_k, ACT_Q8_K)},
    .prefill = {[TIER_SCALAR] = SCALAR(q5_k, ACT_Q8_K),
                SUPERBLOCK_PREFILL_AVX2(q5_k)
                SUPERBLOCK_PREFILL_AVX512(q5_k)
                NEON_SLOT(q5_k, ACT_Q8_K)},
};
