/* Q5_0: 32 values of 5 bits (nibbles and 32 high bits) minus 16, and an F16 scale. */
#include "engine/quant/block32.h"
#include "engine/quant/block32_avx2.h"
#include "engine/quant/block32_avx512.h"
#include "engine/quant/neon.h"

struct block_q5_0 {
    uint8_t d[2];
    uint8_t high[4];
    uint8_t nibbles[16];
};
_Static_assert(sizeof(struct block_q5_0) == 22, "Q5_0 block");

static void q5_0_unpack(const void *block, struct block32 *out)
{
    const struct block_q5_0 *b = block;
    uint32_t high = load_u32(b->high);
    out->d = f16_to_float(load_u16(b->d));
    nibbles_unpack(b->nibbles, out->q);
    for (int i = 0; i < 32; i++)
        out->q[i] = (int8_t)(out->q[i] + (high >> i & 1 ? 0 : -16));
}

static void q5_0_dequantize(const void *row, float *out, size_t n)
{
    block32_dequantize(row, out, n, sizeof(struct block_q5_0), q5_0_unpack);
}

static float q5_0_dot(const void *row, const void *act, size_t n)
{
    return block32_dot(row, act, n, sizeof(struct block_q5_0), q5_0_unpack);
}

SCALAR_KERNEL(q5_0, ACT_Q8_0)

#if defined(__x86_64__)
AVX2_INLINE __m256i q5_0_load_avx2(const uint8_t *block)
{
    __m256i low = avx2_nibbles(block + offsetof(struct block_q5_0, nibbles));
    return _mm256_or_si256(low, avx2_high_bits(block + offsetof(struct block_q5_0, high)));
}

BLOCK32_AVX2(q5_0, sizeof(struct block_q5_0), BLOCK32_PRODUCT, 16, true, avx2_halves_first)
#endif

#if defined(__x86_64__)
AVX512_INLINE __m512 q5_0_terms_avx512(const uint8_t *x, const struct block32_activation *a)
{
    __m512i sums = block32_sums_5_bits(x + 6, x + 2, sizeof(struct block_q5_0), a->quads);
    __m512i heads = block32_heads(x, sizeof(struct block_q5_0));
    return block32_term(sums, 4, low_halves(heads), a);
}

AVX512_INLINE void q5_0_pack_block_avx512(const uint8_t *x, size_t row_bytes, struct block32_tile *t)
{
    block32_pack_5_bits(x + 6, x + 2, row_bytes, 128 - 16, t);
    _mm512_store_ps(t->d, halves_strided(x, row_bytes));
}

BLOCK32_AVX512(q5_0, sizeof(struct block_q5_0), BLOCK32_PRODUCT, BLOCK32_TILE, BLOCK32_PANEL)
#endif

#if defined(__aarch64__)
NEON_INLINE int8x16x2_t q5_0_load_neon(const uint8_t *block)
{
    int8x16x2_t low = neon_nibbles(block + offsetof(struct block_q5_0, nibbles));
    return neon_subtract(neon_add_high_bits(low, block + offsetof(struct block_q5_0, high)), 16);
}

BLOCK32_KERNEL_NEON(q5_0, sizeof(struct block_q5_0), BLOCK32_PRODUCT)
#endif

const struct format format_q5_0 = {
    .id = 6,
    .name = "Q5_0",
    .block_elements = 32,
    .block_bytes = sizeof(struct block_q5_0),
    .activation = ACT_Q8_0,
    .dequantize = q5_0_dequantize,
    .dot = q5_0_dot,
    .decode = {[TIER_SCALAR] = SCALAR(q5_0, ACT_Q8_0),
               BLOCK32_DECODE_AVX2(q5_0, q8_0)
               BLOCK32_DECODE_AVX512(q5_0, q8_0)
               NEON_SLOT(q5_0, ACT_Q8_0)},
    .prefill = {[TIER_SCALAR] = SCALAR(q5_0, ACT_Q8_0),
                BLOCK32_PREFILL_AVX2(q5_0, q8_0)
                BLOCK32_PREFILL_AVX512(q5_0, q8_0)
                NEON_SLOT(q5_0, ACT_Q8_0)},
};
