/* Q4_1: 32 nibbles, an F16 scale and an F16 minimum. */
#include "engine/quant/block32.h"
#include "engine/quant/block32_avx2.h"
#include "engine/quant/block32_avx512.h"
#include "engine/quant/neon.h"

struct block_q4_1 {
    uint8_t d[2], m[2];
    uint8_t nibbles[16];
};
_Static_assert(sizeof(struct block_q4_1) == 20, "Q4_1 block");

static void q4_1_unpack(const void *block, struct block32 *out)
{
    const struct block_q4_1 *b = block;
    out->d = f16_to_float(load_u16(b->d));
    out->m = f16_to_float(load_u16(b->m));
    nibbles_unpack(b->nibbles, out->q);
}

static void q4_1_dequantize(const void *row, float *out, size_t n)
{
    block32_dequantize_min(row, out, n, sizeof(struct block_q4_1), q4_1_unpack);
}

static float q4_1_dot(const void *row, const void *act, size_t n)
{
    return block32_dot_min(row, act, n, sizeof(struct block_q4_1), q4_1_unpack);
}

SCALAR_KERNEL(q4_1, ACT_Q8_1)

#if defined(__x86_64__)
AVX2_INLINE __m256i q4_1_load_avx2(const uint8_t *block)
{
    return avx2_nibbles(block + offsetof(struct block_q4_1, nibbles));
}

BLOCK32_AVX2(q4_1, sizeof(struct block_q4_1), BLOCK32_MINIMUM, 0, false, avx2_halves_first)
#endif

#if defined(__x86_64__)
AVX512_INLINE __m512 q4_1_terms_avx512(const uint8_t *x, const struct block32_activation *a)
{
    __m512i sums = block32_sums_nibbles(x + 4, sizeof(struct block_q4_1), false, _mm512_setzero_si512(), a->quads);
    return block32_term_min(sums, block32_heads(x, sizeof(struct block_q4_1)), a);
}

AVX512_INLINE void q4_1_pack_block_avx512(const uint8_t *x, size_t row_bytes, struct block32_tile *t)
{
    block32_pack_nibbles(x + 4, row_bytes, nibble_table(128), t);
    _mm512_store_ps(t->d, halves_strided(x, row_bytes));
    _mm512_store_ps(t->m, halves_strided(x + 2, row_bytes));
}

BLOCK32_AVX512(q4_1, sizeof(struct block_q4_1), BLOCK32_MINIMUM, BLOCK32_TILE_MIN, BLOCK32_PANEL_MIN)
#endif

#if defined(__aarch64__)
NEON_INLINE int8x16x2_t q4_1_load_neon(const uint8_t *block)
{
    return neon_nibbles(block + offsetof(struct block_q4_1, nibbles));
}

BLOCK32_KERNEL_NEON(q4_1, sizeof(struct block_q4_1), BLOCK32_MINIMUM)
#endif

const struct format format_q4_1 = {
    .id = 3,
    .name = "Q4_1",
    .block_elements = 32,
    .block_bytes = sizeof(struct block_q4_1),
    .activation = ACT_Q8_1,
    .dequantize = q4_1_dequantize,
    .dot = q4_1_dot,
    .decode = {[TIER_SCALAR] = SCALAR(q4_1, ACT_Q8_1),
               BLOCK32_DECODE_AVX2(q4_1, q8_1)
               BLOCK32_DECODE_AVX512(q4_1, q8_1)
               NEON_SLOT(q4_1, ACT_Q8_1)},
    .prefill = {[TIER_SCALAR] = SCALAR(q4_1, ACT_Q8_1),
                BLOCK32_PREFILL_AVX2(q4_1, q8_1)
                BLOCK32_PREFILL_AVX512(q4_1, q8_1)
                NEON_SLOT(q4_1, ACT_Q8_1)},
};
