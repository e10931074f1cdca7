/* Q2_0: 64 values of 2 bits minus 1 and an F16 scale. */
#include "engine/quant/block32.h"
#include "engine/quant/block32_avx2.h"
#include "engine/quant/block32_avx512.h"
#include "engine/quant/neon.h"

struct block_q2_0 {
    uint8_t d[2];
    uint8_t packed[16];
};
_Static_assert(sizeof(struct block_q2_0) == 18, "Q2_0 block");

static int q2_0_value(const struct block_q2_0 *b, size_t i)
{
    return (b->packed[i / 4] >> 2 * (i % 4) & 3) - 1;
}

static void q2_0_dequantize(const void *row, float *out, size_t n)
{
    const struct block_q2_0 *b = row;
    for (size_t i = 0; i < n; i++)
        out[i] = (float)q2_0_value(&b[i / 64], i % 64) * f16_to_float(load_u16(b[i / 64].d));
}

/* The 2 activation blocks of a weight block are summed with their scales first, then multiplied by its scale. */
static float q2_0_dot(const void *row, const void *act, size_t n)
{
    const struct block_q2_0 *b = row;
    const struct act_q8_0 *a = act;
    float r = 0;
    for (size_t k = 0; k < n / 64; k++) {
        float v = 0;
        for (size_t part = 0; part < 2; part++, a++) {
            int sum = 0;
            for (size_t i = 0; i < 32; i++)
                sum += q2_0_value(&b[k], 32 * part + i) * a->q[i];
            v += f16_to_float(a->d) * (float)sum;
        }
        r += f16_to_float(load_u16(b[k].d)) * v;
    }
    return r;
}

SCALAR_KERNEL(q2_0, ACT_Q8_0)

#if defined(__x86_64__)
AVX2_INLINE __m256i q2_0_load_avx2(const uint8_t *block, size_t part)
{
    const __m256i four_times = _mm256_setr_epi8(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 6,
                                                6, 6, 6, 7, 7, 7, 7);
    uint64_t bits = load_u64(block + offsetof(struct block_q2_0, packed) + 8 * part);
    __m256i v = _mm256_shuffle_epi8(_mm256_set1_epi64x((long long)bits), four_times);
    /* byte k of four by 2 k: as words by 0 and 2, upper bytes from dwords shifted by 4 */
    __m256i even = _mm256_blend_epi16(v, _mm256_srli_epi16(v, 4), 0xaa);
    __m256i odd = _mm256_srli_epi16(even, 2);
    return _mm256_and_si256(_mm256_blendv_epi8(even, odd, _mm256_set1_epi16((short)0xff00)), _mm256_set1_epi8(3));
}

BLOCK32_NESTED_AVX2(q2_0, sizeof(struct block_q2_0), 2)
#endif

#if defined(__x86_64__)
/* Eight bytes of two blocks, two blocks apart -> 64 values, stored 1 too large. */
AVX512_INLINE __m512i q2_0_pair_avx512(const uint8_t *packed)
{
    const __m512i from = _mm512_set1_epi64(0x0e0c0a0806040200);
    __m128i bytes = _mm_loadl_epi64((const void *)packed);
    bytes = _mm_unpacklo_epi64(bytes, _mm_loadl_epi64((const void *)(packed + 2 * sizeof(struct block_q2_0))));
    __m512i q = _mm512_multishift_epi64_epi8(from, _mm512_cvtepu16_epi64(bytes));
    return _mm512_and_si512(q, _mm512_set1_epi8(3));
}

AVX512_INLINE void q2_0_step_avx512(const uint8_t *x, const struct block32_activation *a, float *terms)
{
    const struct block_q2_0 *b = (const void *)x;
    __m512i z[8];
    UNROLL
    for (size_t k = 0; k < 8; k++) {
        size_t m = block32_of_pair(k);
        z[k] = _mm512_dpbusd_epi32(_mm512_setzero_si512(), q2_0_pair_avx512(b[m / 2].packed + 8 * (m % 2)),
                                   load512(a->pairs + 64 * k));
    }
    __m512i sums = _mm512_sub_epi32(block32_add_pairs(z), load512(a->sums));
    _mm512_store_ps(terms, _mm512_mul_ps(_mm512_loadu_ps(a->d), _mm512_cvtepi32_ps(sums)));
}

AVX512_INLINE void q2_0_pack_part_avx512(const uint8_t *x, size_t row_bytes, size_t part, struct block32_tile *t)
{
    const __m512i from = _mm512_set1_epi64(0x2624222006040200); /* the four values of a byte, of two dwords */
    UNROLL
    for (size_t half = 0; half < 2; half++) {
        const uint8_t *packed = x + offsetof(struct block_q2_0, packed) + 8 * part + 4 * half;
        __m512i bytes = dwords_strided(packed, row_bytes);
        UNROLL
        for (size_t k = 0; k < 4; k++) {
            __m512i q = _mm512_multishift_epi64_epi8(_mm512_add_epi8(from, _mm512_set1_epi8((char)(8 * k))), bytes);
            q = _mm512_and_si512(q, _mm512_set1_epi8(3));
            _mm512_store_si512(t->w[4 * half + k], _mm512_add_epi8(q, _mm512_set1_epi8(127)));
        }
    }
    if (part == 1)
        _mm512_store_ps(t->d, halves_strided(x, row_bytes));
}

BLOCK32_PARTS_AVX512(q2_0, sizeof(struct block_q2_0), 2, BLOCK32_NESTED, BLOCK32_TILE, BLOCK32_PANEL)
#endif

#if defined(__aarch64__)
NEON_INLINE int8x16x2_t q2_0_load_neon(const uint8_t *block, size_t part)
{
    static const int8_t right[16] = {0, -2, -4, -6, 0, -2, -4, -6, 0, -2, -4, -6, 0, -2, -4, -6};
    static const uint8_t byte[2][16] = {{0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3},
                                        {4, 4, 4, 4, 5, 5, 5, 5, 6, 6, 6, 6, 7, 7, 7, 7}};
    uint8x8_t bits = vld1_u8(block + offsetof(struct block_q2_0, packed) + 8 * part);
    uint8x16_t packed = vcombine_u8(bits, bits);
    int8x16x2_t q;
    for (size_t half = 0; half < 2; half++) {
        uint8x16_t v = vshlq_u8(vqtbl1q_u8(packed, vld1q_u8(byte[half])), vld1q_s8(right));
        q.val[half] = vreinterpretq_s8_u8(vandq_u8(v, vdupq_n_u8(3)));
    }
    return neon_subtract(q, 1);
}

BLOCK32_PARTS_KERNEL_NEON(q2_0, sizeof(struct block_q2_0), 2, BLOCK32_NESTED, neon_first_half)
#endif

const struct format format_q2_0 = {
    .id = 42,
    .name = "Q2_0",
    .block_elements = 64,
    .block_bytes = sizeof(struct block_q2_0),
    .activation = ACT_Q8_0,
    .dequantize = q2_0_dequantize,
    .dot = q2_0_dot,
    .decode = {[TIER_SCALAR] = SCALAR(q2_0, ACT_Q8_0),
               BLOCK32_DECODE_AVX2(q2_0, q8_0)
               BLOCK32_DECODE_AVX512(q2_0, q8_0)
               NEON_SLOT(q2_0, ACT_Q8_0)},
    .prefill = {[TIER_SCALAR] = SCALAR(q2_0, ACT_Q8_0),
                BLOCK32_PREFILL_AVX2(q2_0, q8_0)
                BLOCK32_PREFILL_AVX512(q2_0, q8_0)
                NEON_SLOT(q2_0, ACT_Q8_0)},
};
