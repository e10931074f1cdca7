/* Q3_K: 256 values of 3 bits (two and a high one) minus 4; 16 scales of 6 bits minus 32; an F16 scale of these. */
#include "engine/quant/neon.h"
#include "engine/quant/superblock.h"
#include "engine/quant/superblock_avx2.h"
#include "engine/quant/superblock_avx512.h"

struct block_q3_k {
    uint8_t high[32];
    uint8_t packed[64];
    uint8_t scales[12];
    uint8_t d[2];
};
_Static_assert(sizeof(struct block_q3_k) == 110, "Q3_K block");

static void q3_k_unpack(const void *block, struct superblock *out)
{
    const struct block_q3_k *b = block;
    const uint8_t *p = b->scales;
    out->d = f16_to_float(load_u16(b->d));
    for (int j = 0; j < 16; j++) {
        int low = j < 8 ? p[j] & 15 : p[j - 8] >> 4;
        out->scale[j] = (int16_t)(low + 16 * (p[8 + j % 4] >> 2 * (j / 4) & 3) - 32);
    }
    two_bits_unpack(b->packed, out->q);
    for (int i = 0; i < 256; i++)
        out->q[i] = (int8_t)(out->q[i] - (b->high[i % 32] >> i / 32 & 1 ? 0 : 4));
}

static void q3_k_dequantize(const void *row, float *out, size_t n)
{
    superblock_dequantize(row, out, n, sizeof(struct block_q3_k), q3_k_unpack, 1);
}

static float q3_k_dot(const void *row, const void *act, size_t n)
{
    return superblock_dot_lanes(row, act, n, sizeof(struct block_q3_k), q3_k_unpack, false);
}

SCALAR_KERNEL(q3_k, ACT_Q8_K)

#if defined(__x86_64__)
AVX2_INLINE void q3_k_load_avx2(const uint8_t *block, struct superblock_avx2 *out)
{
    const struct block_q3_k *b = (const void *)block;
    avx2_two_bits(b->packed, out->q);
    avx2_add_bits(b->high, 2, out->q);
    uint64_t low = load_u64(b->scales), high = load_u32(b->scales + 8);
    __m128i scale = _mm_set_epi64x((long long)(low >> 4 & 0x0f0f0f0f0f0f0f0full), (long long)(low & 0x0f0f0f0f0f0f0f0full));
    high |= high << 30; /* scales 0..3 in the lower dword, 4..7 in the upper one; 8.. and 12.. 4 bits further up */
    __m128i top = _mm_set_epi64x((long long)(high >> 4 & 0x0303030303030303ull), (long long)(high & 0x0303030303030303ull));
    scale = _mm_or_si128(scale, _mm_slli_epi16(top, 4));
    out->scale = _mm256_sub_epi16(_mm256_cvtepu8_epi16(scale), _mm256_set1_epi16(32));
    avx2_scales(b->d, out);
}

SUPERBLOCK_AVX2(q3_k, sizeof(struct block_q3_k), SUPERBLOCK_LANES, 4, 1, 1)
#endif

#if defined(__x86_64__)
/* The 12 bytes of scales as 16 signed bytes. */
AVX512_INLINE __m128i q3_k_scales_avx512(const uint8_t *p)
{
    const uint64_t nibbles = 0x0f0f0f0f0f0f0f0full, pairs = 0x0303030303030303ull;
    uint64_t first = load_u64(p), last = load_u32(p + 8);
    uint64_t low = (first & nibbles) | ((last | last >> 2 << 32) & pairs) << 4;
    uint64_t high = (first >> 4 & nibbles) | ((last >> 4 | last >> 6 << 32) & pairs) << 4;
    return _mm_sub_epi8(_mm_set_epi64x((long long)high, (long long)low), _mm_set1_epi8(32));
}

/* Values of groups (2 c, 2 c + 1) of a half of the super-block plus 4, as u8; `packed` twice the same 32 bytes. */
AVX512_INLINE __m512i q3_k_values_avx512(__m512i packed, __m512i high, int half, int c)
{
    __m512i q = _mm512_and_si512(_mm512_srlv_epi16(packed, halves16(4 * c, 4 * c + 2)), _mm512_set1_epi8(3));
    int group = 4 * half + 2 * c;
    __m512i bit = _mm512_inserti64x4(_mm512_set1_epi8((char)(1 << group)), _mm256_set1_epi8((char)(2 << group)), 1);
    return _mm512_mask_add_epi8(q, _mm512_test_epi8_mask(high, bit), q, _mm512_set1_epi8(4));
}

/* Groups 2 pair and 2 pair + 1. The values are 4 too large; the offsets in the activation are made for 32. */
AVX512_INLINE __m512i q3_k_dots_avx512(__m512i packed, __m512i high, int pair,
                                       const struct superblock_activation *a)
{
    __m512i w = two_bits_in_turns(packed, pair % 2), bit = rotate_left(high, 2 - 2 * pair, 1 - 2 * pair);
    w = _mm512_ternarylogic_epi64(w, bit, _mm512_set1_epi8(4), TERNARY_OR_AND);
    __m512i offset = _mm512_srai_epi16(load512(a->offsets + 32 * pair), 3);
    return _mm512_add_epi16(_mm512_maddubs_epi16(w, load512(a->near + 64 * pair)), offset);
}

AVX512_INLINE __m512i q3_k_lanes_avx512(const uint8_t *x, const struct superblock_activation *a, uint16_t *d)
{
    int16_t scales[16] ALIGNED;
    scales_widen(q3_k_scales_avx512(x + 96), scales);
    memcpy(d, x + 108, sizeof *d);
    __m512i high = in_turns_twice(x), dots[4];
    UNROLL
    for (int half = 0; half < 2; half++) {
        __m512i packed = in_turns_twice(x + 32 + 32 * half);
        UNROLL
        for (int pair = 2 * half; pair < 2 * half + 2; pair++)
            dots[pair] = q3_k_dots_avx512(packed, high, pair, a);
    }
    return dot_scales(dots, scales);
}

AVX512_INLINE void q3_k_pack_block_avx512(const uint8_t *x, size_t row_bytes, struct superblock_tile *t)
{
    const __m512i offset = _mm512_set1_epi8(4);
    struct lane_rows rows[8];
    uint8_t scales[ROWS][16] ALIGNED;
    for (size_t i = 0; i < ROWS; i++) {
        const uint8_t *b = x + i * row_bytes;
        __m512i high = by_lanes_twice(b);
        UNROLL
        for (int half = 0; half < 2; half++) {
            __m512i packed = by_lanes_twice(b + 32 + 32 * half);
            UNROLL
            for (int c = 0; c < 2; c++)
                lane_rows_store(rows + 4 * half + 2 * c, i,
                                _mm512_sub_epi8(q3_k_values_avx512(packed, high, half, c), offset));
        }
        _mm_store_si128((void *)scales[i], q3_k_scales_avx512(b + 96));
    }
    tile_weights(rows, t);
    tile_scales_s8(scales[0], sizeof scales[0], t);
    tile_start(t, true);
    _mm512_store_ps(t->d, halves_strided(x + 108, row_bytes));
}

SUPERBLOCK_LANES_AVX512(q3_k, sizeof(struct block_q3_k))
SUPERBLOCK_TILES_AVX512(q3_k, sizeof(struct block_q3_k), SUPERBLOCK_LANES, 1, 1)
#endif

#if defined(__aarch64__)
SUPERBLOCK_KERNEL_NEON(q3_k, sizeof(struct block_q3_k), SUPERBLOCK_LANES, 1, 1, q3_k_unpack)
#endif

const struct format format_q3_k = {
    .id = 11,
    .name = "Q3_K",
    .block_elements = 256,
    .block_bytes = sizeof(struct block_q3_k),
    .activation = ACT_Q8_K,
    .dequantize = q3_k_dequantize,
    .dot = q3_k_dot,
    .decode = {[TIER_SCALAR] = SCALAR(q3_k, ACT_Q8_K),
               SUPERBLOCK_DECODE_AVX2(q3_k)
               SUPERBLOCK_DECODE_AVX512(q3_k)
               NEON_SLOT(q3_k, ACT_Q8_K)},
    .prefill = {[TIER_SCALAR] = SCALAR(q3_k, ACT_Q8_K),
                SUPERBLOCK_PREFILL_AVX2(q3_k)
                SUPERBLOCK_PREFILL_AVX512(q3_k)
                NEON_SLOT(q3_k, ACT_Q8_K)},
};
