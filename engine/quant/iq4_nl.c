/* IQ4_NL: 32 nibbles that index 16 uneven values, and an F16 scale. */
#include "engine/quant/block32.h"
#include "engine/quant/block32_avx2.h"
#include "engine/quant/block32_avx512.h"
#include "engine/quant/neon.h"
#include "engine/quant/tables.h"

struct block_iq4_nl {
    uint8_t d[2];
    uint8_t nibbles[16];
};
_Static_assert(sizeof(struct block_iq4_nl) == 18, "IQ4_NL block");

static void iq4_nl_unpack(const void *block, struct block32 *out)
{
    const struct block_iq4_nl *b = block;
    out->d = f16_to_float(load_u16(b->d));
    nibbles_unpack(b->nibbles, out->q);
    for (int i = 0; i < 32; i++)
        out->q[i] = table_iq4_nl[out->q[i]];
}

static void iq4_nl_dequantize(const void *row, float *out, size_t n)
{
    block32_dequantize(row, out, n, sizeof(struct block_iq4_nl), iq4_nl_unpack);
}

static float iq4_nl_dot(const void *row, const void *act, size_t n)
{
    return block32_dot(row, act, n, sizeof(struct block_iq4_nl), iq4_nl_unpack);
}

SCALAR_KERNEL(iq4_nl, ACT_Q8_0)

#if defined(__x86_64__)
AVX2_INLINE __m256i iq4_nl_load_avx2(const uint8_t *block)
{
    return avx2_lookup(avx2_nibbles(block + offsetof(struct block_iq4_nl, nibbles)), table_iq4_nl);
}

BLOCK32_AVX2(iq4_nl, sizeof(struct block_iq4_nl), BLOCK32_PRODUCT, 128, false, avx2_halves_first)
#endif

#if defined(__x86_64__)
AVX512_INLINE __m512 iq4_nl_terms_avx512(const uint8_t *x, const struct block32_activation *a)
{
    const __m512i table = block32_table(table_iq4_nl);
    __m512i sums = block32_sums_nibbles(x + 2, sizeof(struct block_iq4_nl), true, table, a->quads);
    return block32_term(sums, 7, low_halves(block32_heads(x, sizeof(struct block_iq4_nl))), a);
}

AVX512_INLINE void iq4_nl_pack_block_avx512(const uint8_t *x, size_t row_bytes, struct block32_tile *t)
{
    block32_pack_nibbles(x + 2, row_bytes, block32_table(table_iq4_nl), t);
    _mm512_store_ps(t->d, halves_strided(x, row_bytes));
}

BLOCK32_AVX512(iq4_nl, sizeof(struct block_iq4_nl), BLOCK32_PRODUCT, BLOCK32_TILE, BLOCK32_PANEL)
#endif

#if defined(__aarch64__)
NEON_INLINE int8x16x2_t iq4_nl_load_neon(const uint8_t *block)
{
    return neon_lookup(neon_nibbles(block + offsetof(struct block_iq4_nl, nibbles)), table_iq4_nl);
}

BLOCK32_KERNEL_NEON(iq4_nl, sizeof(struct block_iq4_nl), BLOCK32_PRODUCT)
#endif

const struct format format_iq4_nl = {
    .id = 20,
    .name = "IQ4_NL",
    .block_elements = 32,
    .block_bytes = sizeof(struct block_iq4_nl),
    .activation = ACT_Q8_0,
    .dequantize = iq4_nl_dequantize,
    .dot = iq4_nl_dot,
    .decode = {[TIER_SCALAR] = SCALAR(iq4_nl, ACT_Q8_0),
               BLOCK32_DECODE_AVX2(iq4_nl, q8_0)
               BLOCK32_DECODE_AVX512(iq4_nl, q8_0)
               NEON_SLOT(iq4_nl, ACT_Q8_0)},
    .prefill = {[TIER_SCALAR] = SCALAR(iq4_nl, ACT_Q8_0),
                BLOCK32_PREFILL_AVX2(iq4_nl, q8_0)
                BLOCK32_PREFILL_AVX512(iq4_nl, q8_0)
                NEON_SLOT(iq4_nl, ACT_Q8_0)},
};
