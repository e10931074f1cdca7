/* MXFP4: 32 E2M1 values and a power-of-two scale (E8M0). */
#include "engine/quant/block32.h"
#include "engine/quant/block32_avx2.h"
#include "engine/quant/block32_avx512.h"
#include "engine/quant/neon.h"
#include "engine/quant/tables.h"

struct block_mxfp4 {
    uint8_t exponent;
    uint8_t nibbles[16];
};
_Static_assert(sizeof(struct block_mxfp4) == 17, "MXFP4 block");

/* 2^(e - 128): half the E8M0 value, because the table holds twice the E2M1 values. Subnormal for 0 and 1. */
static float half_scale(uint8_t e)
{
    return bits_float(e < 2 ? 0x00200000u << e : (uint32_t)(e - 1) << 23);
}

static void mxfp4_unpack(const void *block, struct block32 *out)
{
    const struct block_mxfp4 *b = block;
    out->d = half_scale(b->exponent);
    nibbles_unpack(b->nibbles, out->q);
    for (int i = 0; i < 32; i++)
        out->q[i] = table_fp4[out->q[i]];
}

static void mxfp4_dequantize(const void *row, float *out, size_t n)
{
    block32_dequantize(row, out, n, sizeof(struct block_mxfp4), mxfp4_unpack);
}

static float mxfp4_dot(const void *row, const void *act, size_t n)
{
    return block32_dot(row, act, n, sizeof(struct block_mxfp4), mxfp4_unpack);
}

SCALAR_KERNEL(mxfp4, ACT_Q8_0)

#if defined(__x86_64__)
/* half_scale of the lowest byte of every dword. */
AVX2_INLINE __m256 mxfp4_scales_avx2(__m256i heads)
{
    __m256i e = _mm256_and_si256(heads, _mm256_set1_epi32(255));
    __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
    __m256i subnormal = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e);
    __m256i is_small = _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e);
    return _mm256_castsi256_ps(_mm256_blendv_epi8(normal, subnormal, is_small));
}

AVX2_INLINE __m256i mxfp4_load_avx2(const uint8_t *block)
{
    return avx2_lookup(avx2_nibbles(block + offsetof(struct block_mxfp4, nibbles)), table_fp4);
}

BLOCK32_AVX2(mxfp4, sizeof(struct block_mxfp4), BLOCK32_PRODUCT, 128, false, mxfp4_scales_avx2)
#endif

#if defined(__x86_64__)
/* half_scale of the lowest byte of every dword. */
AVX512_INLINE __m512 mxfp4_scales_avx512(__m512i heads)
{
    __m512i e = _mm512_and_si512(heads, _mm512_set1_epi32(255));
    __m512i normal = _mm512_slli_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23);
    __m512i subnormal = _mm512_sllv_epi32(_mm512_set1_epi32(0x00200000), e);
    __mmask16 small = _mm512_cmplt_epu32_mask(e, _mm512_set1_epi32(2));
    return _mm512_castsi512_ps(_mm512_mask_mov_epi32(normal, small, subnormal));
}

AVX512_INLINE __m512 mxfp4_terms_avx512(const uint8_t *x, const struct block32_activation *a)
{
    __m512i sums = block32_sums_nibbles(x + 1, sizeof(struct block_mxfp4), true, block32_table(table_fp4), a->quads);
    return block32_term(sums, 7, mxfp4_scales_avx512(block32_heads(x, sizeof(struct block_mxfp4))), a);
}

AVX512_INLINE void mxfp4_pack_block_avx512(const uint8_t *x, size_t row_bytes, struct block32_tile *t)
{
    block32_pack_nibbles(x + 1, row_bytes, block32_table(table_fp4), t);
    _mm512_store_ps(t->d, mxfp4_scales_avx512(dwords_strided(x, row_bytes)));
}

BLOCK32_AVX512(mxfp4, sizeof(struct block_mxfp4), BLOCK32_PRODUCT, BLOCK32_TILE, BLOCK32_PANEL)
#endif

#if defined(__aarch64__)
NEON_INLINE float32x4_t mxfp4_scales_neon(const uint8_t *const rows[NEON_ROWS], size_t at)
{
    float d[4] = {half_scale(rows[0][at]), half_scale(rows[1][at]), half_scale(rows[2][at]), half_scale(rows[3][at])};
    return vld1q_f32(d);
}

NEON_INLINE int8x16x2_t mxfp4_load_neon(const uint8_t *block)
{
    return neon_lookup(neon_nibbles(block + offsetof(struct block_mxfp4, nibbles)), table_fp4);
}

BLOCK32_SCALED_KERNEL_NEON(mxfp4, sizeof(struct block_mxfp4), BLOCK32_PRODUCT, mxfp4_scales_neon)
#endif

const struct format format_mxfp4 = {
    .id = 39,
    .name = "MXFP4",
    .block_elements = 32,
    .block_bytes = sizeof(struct block_mxfp4),
    .activation = ACT_Q8_0,
    .dequantize = mxfp4_dequantize,
    .dot = mxfp4_dot,
    .decode = {[TIER_SCALAR] = SCALAR(mxfp4, ACT_Q8_0),
               BLOCK32_DECODE_AVX2(mxfp4, q8_0)
               BLOCK32_DECODE_AVX512(mxfp4, q8_0)
               NEON_SLOT(mxfp4, ACT_Q8_0)},
    .prefill = {[TIER_SCALAR] = SCALAR(mxfp4, ACT_Q8_0),
                BLOCK32_PREFILL_AVX2(mxfp4, q8_0)
                BLOCK32_PREFILL_AVX512(mxfp4, q8_0)
                NEON_SLOT(mxfp4, ACT_Q8_0)},
};
