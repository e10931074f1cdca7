/* TQ1_0: 256 values -1, 0, 1 as base-3 digits, five to a byte (four in the last bytes), and an F16 scale. */
#include "engine/quant/neon.h"
#include "engine/quant/superblock.h"
#include "engine/quant/superblock_avx2.h"
#include "engine/quant/superblock_sum_avx512.h"

struct block_tq1_0 {
    uint8_t digits[52]; /* 32 bytes of five digits, 16 of five, 4 of four */
    uint8_t d[2];
};
_Static_assert(sizeof(struct block_tq1_0) == 54, "TQ1_0 block");

/* Byte and digit of element i: digits run over a group of bytes, first digit of all bytes first. */
static void digit_place(int i, int *byte, int *digit)
{
    int first = i < 160 ? 0 : i < 240 ? 160 : 240, width = i < 160 ? 32 : i < 240 ? 16 : 4;
    int first_byte = i < 160 ? 0 : i < 240 ? 32 : 48;
    *byte = first_byte + (i - first) % width;
    *digit = (i - first) / width;
}

static void tq1_0_unpack(const void *block, struct superblock *out)
{
    static const int power[5] = {1, 3, 9, 27, 81};
    const struct block_tq1_0 *b = block;
    out->d = f16_to_float(load_u16(b->d));
    for (int i = 0; i < 256; i++) {
        int byte, digit;
        digit_place(i, &byte, &digit);
        int v = b->digits[byte] * power[digit] & 255;
        out->q[i] = (int8_t)((v * 3 >> 8) - 1);
    }
    for (int j = 0; j < 16; j++)
        out->scale[j] = 1;
}

static void tq1_0_dequantize(const void *row, float *out, size_t n)
{
    superblock_dequantize(row, out, n, sizeof(struct block_tq1_0), tq1_0_unpack, 1);
}

static float tq1_0_dot(const void *row, const void *act, size_t n)
{
    return superblock_dot(row, act, n, sizeof(struct block_tq1_0), tq1_0_unpack, 1);
}

SCALAR_KERNEL(tq1_0, ACT_Q8_K)

#if defined(__x86_64__)
/* 16 digits 0, 1, 2 of 16 bytes. */
AVX2_INLINE __m256i tq1_0_digits_avx2(__m128i bytes, int power)
{
    const __m256i low = _mm256_set1_epi16(255);
    __m256i v = _mm256_and_si256(_mm256_mullo_epi16(_mm256_cvtepu8_epi16(bytes), _mm256_set1_epi16((short)power)), low);
    return _mm256_srli_epi16(_mm256_mullo_epi16(v, _mm256_set1_epi16(3)), 8);
}

/* Digit `power` of 16 bytes, digit `next` of the 16 bytes b: a group in order. */
AVX2_INLINE __m256i tq1_0_group_avx2(__m128i a, int power, __m128i b, int next)
{
    __m256i digits = _mm256_packus_epi16(tq1_0_digits_avx2(a, power), tq1_0_digits_avx2(b, next));
    return avx2_grid_values(_mm256_sub_epi8(_mm256_permute4x64_epi64(digits, 0xd8), _mm256_set1_epi8(1)));
}

AVX2_INLINE void tq1_0_load_avx2(const uint8_t *block, struct superblock_avx2 *out)
{
    static const int power[5] = {1, 3, 9, 27, 81};
    const struct block_tq1_0 *b = (const void *)block;
    __m128i first = avx2_load128(b->digits), second = avx2_load128(b->digits + 16), third = avx2_load128(b->digits + 32);
    UNROLL
    for (size_t g = 0; g < 5; g++)
        out->q[g] = tq1_0_group_avx2(first, power[g], second, power[g]);
    out->q[5] = tq1_0_group_avx2(third, 1, third, 3);
    out->q[6] = tq1_0_group_avx2(third, 9, third, 27);
    /* the last 16: four digits of four bytes, each multiplied into its place modulo 256 */
    __m256i last = _mm256_cvtepu8_epi16(_mm_set1_epi32((int)load_u32(b->digits + 48)));
    last = _mm256_mullo_epi16(last, _mm256_setr_epi16(1, 1, 1, 1, 3, 3, 3, 3, 9, 9, 9, 9, 27, 27, 27, 27));
    __m256i bytes = _mm256_and_si256(last, _mm256_set1_epi16(255));
    bytes = _mm256_permute4x64_epi64(_mm256_packus_epi16(bytes, bytes), 0x08);
    out->q[7] = tq1_0_group_avx2(third, 81, _mm256_castsi256_si128(bytes), 1);
    out->scale = _mm256_set1_epi16(1);
    avx2_scales(b->d, out);
}

SUPERBLOCK_AVX2(tq1_0, sizeof(struct block_tq1_0), SUPERBLOCK_SUM, AVX2_GRID_OFFSET, 1, 1)
#endif

#if defined(__x86_64__)
/* Bytes and powers of 3 -> the digits that stand there, minus 1. */
AVX512_INLINE void tq1_0_digits_avx512(__m512i bytes, __m512i powers, size_t k, struct superblock_signed *out)
{
    const __m512i low = _mm512_set1_epi16(255);
    __m512i even = _mm512_mullo_epi16(bytes, powers), odd = _mm512_mullo_epi16(_mm512_andnot_si512(low, bytes), powers);
    __m512i v = _mm512_or_si512(_mm512_and_si512(low, even), odd); /* modulo 256 */
    /* 3 v / 256 is 1 from 86 and 2 from 171 on */
    __mmask64 nonzero = _mm512_cmpge_epu8_mask(_mm512_sub_epi8(v, _mm512_set1_epi8(86)), _mm512_set1_epi8(85));
    out->minus[k] = _mm512_cmplt_epu8_mask(v, _mm512_set1_epi8(86));
    out->magnitude[k] = _mm512_maskz_set1_epi8(nonzero, 1);
}

/* Four powers, for 16 bytes each. */
AVX512_INLINE __m512i tq1_0_powers_avx512(int a, int b, int c, int d)
{
    return _mm512_inserti64x4(
        _mm512_castsi256_si512(_mm256_set_m128i(_mm_set1_epi16((short)b), _mm_set1_epi16((short)a))),
        _mm256_set_m128i(_mm_set1_epi16((short)d), _mm_set1_epi16((short)c)), 1);
}

AVX512_INLINE void tq1_0_load_avx512(const uint8_t *x, struct superblock_signed *out)
{
    const struct block_tq1_0 *b = (const void *)x;
    __m512i first = _mm512_broadcast_i64x4(_mm256_loadu_si256((const void *)b->digits));
    __m512i second = _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)(b->digits + 32)));
    /* the last 16 elements: four digits of four bytes */
    __m512i last = _mm512_mask_set1_epi32(second, 0xf000, (int)load_u32(b->digits + 48));
    const __m512i last_powers = _mm512_inserti32x4(tq1_0_powers_avx512(9, 27, 81, 0),
                                                   _mm_setr_epi16(1, 1, 3, 3, 9, 9, 27, 27), 3);
    tq1_0_digits_avx512(first, tq1_0_powers_avx512(1, 1, 3, 3), 0, out);
    tq1_0_digits_avx512(first, tq1_0_powers_avx512(9, 9, 27, 27), 1, out);
    tq1_0_digits_avx512(_mm512_mask_mov_epi64(first, 0xf0, second), tq1_0_powers_avx512(81, 81, 1, 3), 2, out);
    tq1_0_digits_avx512(last, last_powers, 3, out);
    out->scale = _mm256_set1_epi16(1);
    out->d = half_at(b->d);
}

SUPERBLOCK_SIGNED_AVX512(tq1_0, sizeof(struct block_tq1_0), 1)
#endif

#if defined(__aarch64__)
SUPERBLOCK_KERNEL_NEON(tq1_0, sizeof(struct block_tq1_0), SUPERBLOCK_SUM, 1, 1, tq1_0_unpack)
#endif

const struct format format_tq1_0 = {
    .id = 34,
    .name = "TQ1_0",
    .block_elements = 256,
    .block_bytes = sizeof(struct block_tq1_0),
    .activation = ACT_Q8_K,
    .dequantize = tq1_0_dequantize,
    .dot = tq1_0_dot,
    .decode = {[TIER_SCALAR] = SCALAR(tq1_0, ACT_Q8_K),
               SUPERBLOCK_DECODE_AVX2(tq1_0)
               SUPERBLOCK_DECODE_AVX512(tq1_0)
               NEON_SLOT(tq1_0, ACT_Q8_K)},
    .prefill = {[TIER_SCALAR] = SCALAR(tq1_0, ACT_Q8_K),
                SUPERBLOCK_PREFILL_AVX2(tq1_0)
                SUPERBLOCK_PREFILL_AVX512(tq1_0)
                NEON_SLOT(tq1_0, ACT_Q8_K)},
};
