/* Q1_0: 128 signs and an F16 scale. */
#include "engine/quant/block32.h"
#include "engine/quant/block32_avx2.h"
#include "engine/quant/block32_avx512.h"
#include "engine/quant/neon.h"

struct block_q1_0 {
    uint8_t d[2];
    uint8_t packed[16];
};
_Static_assert(sizeof(struct block_q1_0) == 18, "Q1_0 block");

static int q1_0_value(const struct block_q1_0 *b, size_t i)
{
    return b->packed[i / 8] >> i % 8 & 1 ? 1 : -1;
}

static void q1_0_dequantize(const void *row, float *out, size_t n)
{
    const struct block_q1_0 *b = row;
    for (size_t i = 0; i < n; i++)
        out[i] = (float)q1_0_value(&b[i / 128], i % 128) * f16_to_float(load_u16(b[i / 128].d));
}

/* The 4 activation blocks of a weight block are summed with their scales first, then multiplied by its scale. */
static float q1_0_dot(const void *row, const void *act, size_t n)
{
    const struct block_q1_0 *b = row;
    const struct act_q8_0 *a = act;
    float r = 0;
    for (size_t k = 0; k < n / 128; k++) {
        float v = 0;
        for (size_t part = 0; part < 4; part++, a++) {
            int sum = 0;
            for (size_t i = 0; i < 32; i++)
                sum += q1_0_value(&b[k], 32 * part + i) * a->q[i];
            v += f16_to_float(a->d) * (float)sum;
        }
        r += f16_to_float(load_u16(b[k].d)) * v;
    }
    return r;
}

SCALAR_KERNEL(q1_0, ACT_Q8_0)

#if defined(__x86_64__)
AVX2_INLINE __m256i q1_0_load_avx2(const uint8_t *block, size_t part)
{
    uint32_t bits = load_u32(block + offsetof(struct block_q1_0, packed) + 4 * part);
    return _mm256_and_si256(avx2_bit_mask(bits), _mm256_set1_epi8(2));
}

BLOCK32_NESTED_AVX2(q1_0, sizeof(struct block_q1_0), 4)
#endif

#if defined(__x86_64__)
/* Four blocks have 16 times 32 signs. Activations under a set bit are added, twice, and the sum of all subtracted. */
AVX512_INLINE void q1_0_step_avx512(const uint8_t *x, const struct block32_activation *a, float *terms)
{
    const struct block_q1_0 *b = (const void *)x;
    uint64_t bits[8] ALIGNED; /* of the pairs */
    __m512i z[8];
    UNROLL
    for (size_t half = 0; half < 2; half++) {
        __m128i first = _mm_loadu_si128((const void *)b[2 * half].packed);
        __m128i second = _mm_loadu_si128((const void *)b[2 * half + 1].packed);
        _mm_store_si128((void *)(bits + 4 * half), _mm_unpacklo_epi32(first, second));
        _mm_store_si128((void *)(bits + 4 * half + 2), _mm_unpackhi_epi32(first, second));
    }
    UNROLL
    for (size_t k = 0; k < 8; k++)
        z[k] = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(1),
                                   _mm512_maskz_mov_epi8(bits[k], load512(a->pairs + 64 * k)));
    __m512i set = block32_add_pairs(z), sums = _mm512_sub_epi32(_mm512_add_epi32(set, set), load512(a->sums));
    _mm512_store_ps(terms, _mm512_mul_ps(_mm512_loadu_ps(a->d), _mm512_cvtepi32_ps(sums)));
}

AVX512_INLINE void q1_0_pack_part_avx512(const uint8_t *x, size_t row_bytes, size_t part, struct block32_tile *t)
{
    /* bits 4 k .. 4 k + 3 of two dwords to bit 1 of a byte each */
    const __m512i from = _mm512_set1_epi64(0x2221201f0201003f);
    __m512i bits = dwords_strided(x + offsetof(struct block_q1_0, packed) + 4 * part, row_bytes);
    UNROLL
    for (int k = 0; k < 8; k++) {
        __m512i q = _mm512_multishift_epi64_epi8(_mm512_add_epi8(from, _mm512_set1_epi8((char)(4 * k))), bits);
        q = _mm512_and_si512(q, _mm512_set1_epi8(2));
        _mm512_store_si512(t->w[k], _mm512_add_epi8(q, _mm512_set1_epi8(127)));
    }
    if (part == 3)
        _mm512_store_ps(t->d, halves_strided(x, row_bytes));
}

BLOCK32_PARTS_AVX512(q1_0, sizeof(struct block_q1_0), 4, BLOCK32_NESTED, BLOCK32_TILE, BLOCK32_PANEL)
#endif

#if defined(__aarch64__)
NEON_INLINE int8x16x2_t q1_0_load_neon(const uint8_t *block, size_t part)
{
    const uint8_t *bits = block + offsetof(struct block_q1_0, packed) + 4 * part;
    int8x16x2_t twice = {{vdupq_n_s8(0), vdupq_n_s8(0)}};
    twice = neon_add_high_bits(twice, bits); /* 16 for a set bit */
    twice.val[0] = vshrq_n_s8(twice.val[0], 3);
    twice.val[1] = vshrq_n_s8(twice.val[1], 3);
    return neon_subtract(twice, 1);
}

BLOCK32_PARTS_KERNEL_NEON(q1_0, sizeof(struct block_q1_0), 4, BLOCK32_NESTED, neon_first_half)
#endif

const struct format format_q1_0 = {
    .id = 41,
    .name = "Q1_0",
    .block_elements = 128,
    .block_bytes = sizeof(struct block_q1_0),
    .activation = ACT_Q8_0,
    .dequantize = q1_0_dequantize,
    .dot = q1_0_dot,
    .decode = {[TIER_SCALAR] = SCALAR(q1_0, ACT_Q8_0),
               BLOCK32_DECODE_AVX2(q1_0, q8_0)
               BLOCK32_DECODE_AVX512(q1_0, q8_0)
               NEON_SLOT(q1_0, ACT_Q8_0)},
    .prefill = {[TIER_SCALAR] = SCALAR(q1_0, ACT_Q8_0),
                BLOCK32_PREFILL_AVX2(q1_0, q8_0)
                BLOCK32_PREFILL_AVX512(q1_0, q8_0)
                NEON_SLOT(q1_0, ACT_Q8_0)},
};
