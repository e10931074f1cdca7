/* Q4_0: 32 nibbles minus 8 and an F16 scale. The dot multiplies the integer sum by the two scales one after the other,
 * unlike the other formats of this family. */
#include "engine/quant/block32.h"
#include "engine/quant/block32_avx2.h"
#include "engine/quant/block32_avx512.h"
#include "engine/quant/neon.h"

struct block_q4_0 {
    uint8_t d[2];
    uint8_t nibbles[16];
};
_Static_assert(sizeof(struct block_q4_0) == 18, "Q4_0 block");

static void q4_0_unpack(const void *block, struct block32 *out)
{
    const struct block_q4_0 *b = block;
    out->d = f16_to_float(load_u16(b->d));
    nibbles_unpack(b->nibbles, out->q);
    for (int i = 0; i < 32; i++)
        out->q[i] = (int8_t)(out->q[i] - 8);
}

static void q4_0_dequantize(const void *row, float *out, size_t n)
{
    block32_dequantize(row, out, n, sizeof(struct block_q4_0), q4_0_unpack);
}

static float q4_0_dot(const void *row, const void *act, size_t n)
{
    const struct block_q4_0 *w = row;
    const struct act_q8_0 *a = act;
    struct block32 block;
    float r = 0;
    for (size_t b = 0; b < n / 32; b++) {
        q4_0_unpack(&w[b], &block);
        r += ((float)block32_sum(block.q, a[b].q) * block.d) * f16_to_float(a[b].d);
    }
    return r;
}

SCALAR_KERNEL(q4_0, ACT_Q8_0)

#if defined(__x86_64__)
AVX2_INLINE __m256i q4_0_load_avx2(const uint8_t *block)
{
    return avx2_nibbles(block + offsetof(struct block_q4_0, nibbles));
}

BLOCK32_AVX2(q4_0, sizeof(struct block_q4_0), BLOCK32_CHAIN, 8, false, avx2_halves_first)
#endif

#if defined(__x86_64__)
AVX512_INLINE __m512 q4_0_terms_avx512(const uint8_t *x, const struct block32_activation *a)
{
    __m512i sums = block32_sums_nibbles(x + 2, sizeof(struct block_q4_0), false, _mm512_setzero_si512(), a->quads);
    __m512 d = low_halves(block32_heads(x, sizeof(struct block_q4_0)));
    sums = _mm512_sub_epi32(sums, _mm512_slli_epi32(load512(a->sums), 3));
    return _mm512_mul_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(sums), d), _mm512_loadu_ps(a->d));
}

AVX512_INLINE void q4_0_pack_block_avx512(const uint8_t *x, size_t row_bytes, struct block32_tile *t)
{
    block32_pack_nibbles(x + 2, row_bytes, nibble_table(128 - 8), t);
    _mm512_store_ps(t->d, halves_strided(x, row_bytes));
}

BLOCK32_AVX512(q4_0, sizeof(struct block_q4_0), BLOCK32_CHAIN, BLOCK32_TILE, BLOCK32_PANEL)
#endif

#if defined(__aarch64__)
NEON_INLINE int8x16x2_t q4_0_load_neon(const uint8_t *block)
{
    return neon_subtract(neon_nibbles(block + offsetof(struct block_q4_0, nibbles)), 8);
}

BLOCK32_KERNEL_NEON(q4_0, sizeof(struct block_q4_0), BLOCK32_CHAIN)
#endif

const struct format format_q4_0 = {
    .id = 2,
    .name = "Q4_0",
    .block_elements = 32,
    .block_bytes = sizeof(struct block_q4_0),
    .activation = ACT_Q8_0,
    .dequantize = q4_0_dequantize,
    .dot = q4_0_dot,
    .decode = {[TIER_SCALAR] = SCALAR(q4_0, ACT_Q8_0),
               BLOCK32_DECODE_AVX2(q4_0, q8_0)
               BLOCK32_DECODE_AVX512(q4_0, q8_0)
               NEON_SLOT(q4_0, ACT_Q8_0)},
    .prefill = {[TIER_SCALAR] = SCALAR(q4_0, ACT_Q8_0),
                BLOCK32_PREFILL_AVX2(q4_0, q8_0)
                BLOCK32_PREFILL_AVX512(q4_0, q8_0)
                NEON_SLOT(q4_0, ACT_Q8_0)},
};
