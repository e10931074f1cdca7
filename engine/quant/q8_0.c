/* Q8_0: 32 signed bytes and an F16 scale. */
#include "engine/quant/block32.h"
#include "engine/quant/block32_avx2.h"
#include "engine/quant/block32_avx512.h"
#include "engine/quant/neon.h"

struct block_q8_0 {
    uint8_t d[2];
    int8_t q[32];
};
_Static_assert(sizeof(struct block_q8_0) == 34, "Q8_0 block");

static void q8_0_unpack(const void *block, struct block32 *out)
{
    const struct block_q8_0 *b = block;
    out->d = f16_to_float(load_u16(b->d));
    memcpy(out->q, b->q, sizeof b->q);
}

static void q8_0_dequantize(const void *row, float *out, size_t n)
{
    block32_dequantize(row, out, n, sizeof(struct block_q8_0), q8_0_unpack);
}

static float q8_0_dot(const void *row, const void *act, size_t n)
{
    return block32_dot(row, act, n, sizeof(struct block_q8_0), q8_0_unpack);
}

SCALAR_KERNEL(q8_0, ACT_Q8_0)

#if defined(__x86_64__)
AVX2_INLINE __m256i q8_0_load_avx2(const uint8_t *block)
{
    return avx2_load(block + offsetof(struct block_q8_0, q));
}

BLOCK32_AVX2(q8_0, sizeof(struct block_q8_0), BLOCK32_PRODUCT, 128, false, avx2_halves_first)
#endif

#if defined(__x86_64__)
AVX512_INLINE __m512 q8_0_terms_avx512(const uint8_t *x, const struct block32_activation *a)
{
    __m512i sums = block32_sums_bytes(x + 2, sizeof(struct block_q8_0), _mm512_set1_epi8(-128), a->pairs);
    return block32_term(sums, 7, low_halves(block32_heads(x, sizeof(struct block_q8_0))), a);
}

AVX512_INLINE void q8_0_pack_block_avx512(const uint8_t *x, size_t row_bytes, struct block32_tile *t)
{
    block32_pack_bytes(x + 2, row_bytes, t);
    _mm512_store_ps(t->d, halves_strided(x, row_bytes));
}

BLOCK32_AVX512(q8_0, sizeof(struct block_q8_0), BLOCK32_PRODUCT, BLOCK32_TILE, BLOCK32_PANEL)
#endif

#if defined(__aarch64__)
NEON_INLINE int8x16x2_t q8_0_load_neon(const uint8_t *block)
{
    const int8_t *q = ((const struct block_q8_0 *)(const void *)block)->q;
    return (int8x16x2_t){{vld1q_s8(q), vld1q_s8(q + 16)}};
}

BLOCK32_KERNEL_NEON(q8_0, sizeof(struct block_q8_0), BLOCK32_PRODUCT)
#endif

const struct format format_q8_0 = {
    .id = 8,
    .name = "Q8_0",
    .block_elements = 32,
    .block_bytes = sizeof(struct block_q8_0),
    .activation = ACT_Q8_0,
    .dequantize = q8_0_dequantize,
    .dot = q8_0_dot,
    .decode = {[TIER_SCALAR] = SCALAR(q8_0, ACT_Q8_0),
               BLOCK32_DECODE_AVX2(q8_0, q8_0)
               BLOCK32_DECODE_AVX512(q8_0, q8_0)
               NEON_SLOT(q8_0, ACT_Q8_0)},
    .prefill = {[TIER_SCALAR] = SCALAR(q8_0, ACT_Q8_0),
                BLOCK32_PREFILL_AVX2(q8_0, q8_0)
                BLOCK32_PREFILL_AVX512(q8_0, q8_0)
                NEON_SLOT(q8_0, ACT_Q8_0)},
};
