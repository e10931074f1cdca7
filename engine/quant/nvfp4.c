/* NVFP4: 64 E2M1 values; a UE4M3 scale per 16. */
#include "engine/quant/block32.h"
#include "engine/quant/block32_avx2.h"
#include "engine/quant/block32_avx512.h"
#include "engine/quant/neon.h"
#include "engine/quant/tables.h"

struct block_nvfp4 {
    uint8_t scales[4];
    uint8_t nibbles[4][8];  /* of 16 values: the first eight low */
};
_Static_assert(sizeof(struct block_nvfp4) == 36, "NVFP4 block");

/* Half of an unsigned E4M3 value, because the table holds twice the E2M1 values. Bit 7 is ignored; 0x7f gives 0. */
static float half_scale(uint8_t x)
{
    int exponent = x >> 3 & 15, mantissa = x & 7;
    if ((x & 127) == 127)
        return 0;
    if (exponent == 0)
        return (float)mantissa * 0x1p-10f;
    return bits_float((uint32_t)(exponent + 119) << 23 | (uint32_t)mantissa << 20);
}

static void nvfp4_unpack(const uint8_t *nibbles, int8_t *q)
{
    for (int k = 0; k < 8; k++) {
        q[k] = table_fp4[nibbles[k] & 15];
        q[k + 8] = table_fp4[nibbles[k] >> 4];
    }
}

static void nvfp4_dequantize(const void *row, float *out, size_t n)
{
    const struct block_nvfp4 *b = row;
    int8_t q[16];
    for (size_t g = 0; g < n / 16; g++) {
        nvfp4_unpack(b[g / 4].nibbles[g % 4], q);
        for (size_t i = 0; i < 16; i++)
            out[16 * g + i] = (float)q[i] * half_scale(b[g / 4].scales[g % 4]);
    }
}

static float nvfp4_dot(const void *row, const void *act, size_t n)
{
    const struct block_nvfp4 *b = row;
    const struct act_q8_0 *a = act;
    int8_t q[16];
    float r = 0;
    for (size_t g = 0; g < n / 16; g++) {
        int sum = 0;
        nvfp4_unpack(b[g / 4].nibbles[g % 4], q);
        for (size_t i = 0; i < 16; i++)
            sum += q[i] * a[g / 2].q[16 * (g % 2) + i];
        r += (f16_to_float(a[g / 2].d) * half_scale(b[g / 4].scales[g % 4])) * (float)sum;
    }
    return r;
}

SCALAR_KERNEL(nvfp4, ACT_Q8_0)

#if defined(__x86_64__)
/* half_scale of eight bytes. */
AVX2_INLINE __m256 nvfp4_scales_avx2(__m128i scales)
{
    __m256i x = _mm256_and_si256(_mm256_cvtepu8_epi32(scales), _mm256_set1_epi32(127));
    __m256i normal = _mm256_add_epi32(_mm256_slli_epi32(x, 20), _mm256_set1_epi32(119 << 23));
    __m256 subnormal = _mm256_mul_ps(_mm256_cvtepi32_ps(x), _mm256_set1_ps(0x1p-10f));
    __m256i is_small = _mm256_cmpgt_epi32(_mm256_set1_epi32(8), x);
    __m256 all = _mm256_blendv_ps(_mm256_castsi256_ps(normal), subnormal, _mm256_castsi256_ps(is_small));
    return _mm256_andnot_ps(_mm256_castsi256_ps(_mm256_cmpeq_epi32(x, _mm256_set1_epi32(127))), all);
}

/* 32 values in order: half `part` of a block. */
AVX2_INLINE __m256i nvfp4_load_avx2(const struct block_nvfp4 *b, size_t part)
{
    __m256i packed = _mm256_castsi128_si256(avx2_load128(b->nibbles[2 * part]));
    packed = _mm256_srlv_epi64(_mm256_permute4x64_epi64(packed, 0x50), _mm256_setr_epi64x(0, 4, 0, 4));
    return avx2_lookup(_mm256_and_si256(packed, _mm256_set1_epi8(15)), table_fp4);
}

/* Eight addends of two blocks (m == 4), or four of one. */
AVX2_INLINE __m256 nvfp4_terms_avx2(const uint8_t *x, size_t b, size_t m, const struct block32_avx2_act *a)
{
    const struct block_nvfp4 *first = (const void *)x, *second = m == 4 ? first + 1 : first;
    __m256i sums[4];
    UNROLL
    for (size_t k = 0; k < 4; k++)
        sums[k] = avx2_dot_s8(nvfp4_load_avx2(k < 2 ? first : second, k % 2), avx2_load(a->q + (b + k) * 32));
    __m256i sum = _mm256_hadd_epi32(_mm256_hadd_epi32(sums[0], sums[1]), _mm256_hadd_epi32(sums[2], sums[3]));
    sum = _mm256_permutevar8x32_epi32(sum, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    __m256 dx = _mm256_castps128_ps256(_mm_loadu_ps(a->d + b));
    dx = _mm256_permutevar8x32_ps(dx, _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3));
    __m128i scales = _mm_unpacklo_epi32(_mm_cvtsi32_si128((int)load_u32(first->scales)),
                                        _mm_cvtsi32_si128((int)load_u32(second->scales)));
    return _mm256_mul_ps(_mm256_mul_ps(dx, nvfp4_scales_avx2(scales)), _mm256_cvtepi32_ps(sum));
}

AVX2 static void nvfp4_pack_avx2(const uint8_t *const rows[8], size_t n_blocks, uint8_t *tile)
{
    struct block32_avx2_tile *t = (void *)tile;
    for (size_t b = 0; b < n_blocks; b++, t++) {
        __m256i w[8];
        uint8_t scales[2][8];
        UNROLL
        for (size_t i = 0; i < 8; i++) {
            const struct block_nvfp4 *block = (const struct block_nvfp4 *)rows[i] + b / 2;
            w[i] = _mm256_add_epi8(nvfp4_load_avx2(block, b % 2), _mm256_set1_epi8(16));
            for (size_t half = 0; half < 2; half++)
                scales[half][i] = block->scales[2 * (b % 2) + half];
        }
        block32_store_tile_avx2(w, 16, t);
        _mm256_store_ps(t->d, nvfp4_scales_avx2(_mm_cvtsi64_si128((long long)load_u64(scales[0]))));
        _mm256_store_ps(t->m, nvfp4_scales_avx2(_mm_cvtsi64_si128((long long)load_u64(scales[1]))));
    }
}

BLOCK32_KERNELS_AVX2(nvfp4, 2 * sizeof(struct block_nvfp4), BLOCK32_HALVES, 1, 16, true)
#endif

#if defined(__x86_64__)
/* half_scale of the lowest byte of every dword. */
AVX512_INLINE __m512 nvfp4_scales_avx512(__m512i bytes)
{
    __m512i x = _mm512_and_si512(bytes, _mm512_set1_epi32(127));
    __m512 normal = _mm512_castsi512_ps(_mm512_add_epi32(_mm512_slli_epi32(x, 20), _mm512_set1_epi32(119 << 23)));
    __m512 subnormal = _mm512_mul_ps(_mm512_cvtepi32_ps(x), _mm512_set1_ps(0x1p-10f));
    __m512 scale = _mm512_mask_mov_ps(normal, _mm512_cmplt_epu32_mask(x, _mm512_set1_epi32(8)), subnormal);
    return _mm512_maskz_mov_ps(_mm512_cmpneq_epu32_mask(x, _mm512_set1_epi32(127)), scale);
}

/* 16 addends: groups of 16 weights with two to an activation block. */
AVX512_INLINE __m512 nvfp4_terms_avx512(__m512i first, __m512i second, __m512i order, __m128i scales, __m512 dx)
{
    __m512 sums = _mm512_cvtepi32_ps(_mm512_permutex2var_epi32(first, order, second));
    __m512 scale = _mm512_mul_ps(_mm512_permutexvar_ps(order, dx), nvfp4_scales_avx512(_mm512_cvtepu8_epi32(scales)));
    return _mm512_mul_ps(scale, sums);
}

/* Eight blocks. Their 16 bytes of two groups are an activation block. */
AVX512_INLINE void nvfp4_step_avx512(const uint8_t *x, const struct block32_activation *a, float *terms)
{
    /* the entry of an activation block in `first`, then in `second`: 16 above (which a single operand ignores) */
    const __m512i order = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const __m256i blocks = _mm256_setr_epi32(0, 36, 72, 108, 144, 180, 216, 252);
    const __m512i low = _mm512_set1_epi8(15), table = block32_table(table_fp4);
    __m512i y[4], z[4];
    UNROLL
    for (size_t k = 0; k < 4; k++) {
        const uint8_t *nibbles = x + 2 * sizeof(struct block_nvfp4) * k + 4;
        __m512i w = load_halves(nibbles, nibbles + sizeof(struct block_nvfp4));
        __m512i w0 = _mm512_shuffle_epi8(table, _mm512_and_si512(w, low));
        __m512i w1 = _mm512_shuffle_epi8(table, high_nibbles(w));
        y[k] = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_unpacklo_epi64(w0, w1), load512(a->quads + 128 * k));
        z[k] = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_unpackhi_epi64(w0, w1),
                                   load512(a->quads + 128 * k + 64));
    }
    __m512i excess = load512(a->firsts), excess_second = _mm512_sub_epi32(load512(a->sums), excess);
    __m512i first = _mm512_sub_epi32(add_lanes(y), _mm512_slli_epi32(excess, 7));
    __m512i second = _mm512_sub_epi32(add_lanes(z), _mm512_slli_epi32(excess_second, 7));
    __m256i scales = _mm256_i32gather_epi32((const void *)x, blocks, 1);
    __m512 dx = _mm512_loadu_ps(a->d);
    const __m512i order_high = _mm512_add_epi32(order, _mm512_set1_epi32(8));
    _mm512_store_ps(terms, nvfp4_terms_avx512(first, second, order, _mm256_castsi256_si128(scales), dx));
    _mm512_store_ps(terms + 16, nvfp4_terms_avx512(first, second, order_high, _mm256_extracti128_si256(scales, 1), dx));
}

AVX512_INLINE void nvfp4_pack_part_avx512(const uint8_t *x, size_t row_bytes, size_t part, struct block32_tile *t)
{
    __m512i scales = dwords_strided(x, row_bytes);
    if (part == 1)
        scales = _mm512_srli_epi32(scales, 16);
    block32_pack_nibbles_of(x + 4 + 16 * part, row_bytes, block32_table(table_fp4), 2, t);
    _mm512_store_ps(t->d, nvfp4_scales_avx512(scales));
    _mm512_store_ps(t->m, nvfp4_scales_avx512(_mm512_srli_epi32(scales, 8)));
}

BLOCK32_PARTS_AVX512(nvfp4, sizeof(struct block_nvfp4), 2, BLOCK32_HALVES, BLOCK32_TILE_MIN, BLOCK32_PANEL_MIN)
#endif

#if defined(__aarch64__)
NEON_INLINE float nvfp4_scale_neon(const uint8_t *block, size_t half)
{
    return half_scale(block[half]);
}

NEON_INLINE int8x16x2_t nvfp4_load_neon(const uint8_t *block, size_t part)
{
    const struct block_nvfp4 *b = (const void *)block;
    int8x16x2_t q = neon_nibbles(b->nibbles[2 * part]); /* low, high nibbles of 2 times 8 bytes */
    int8x16_t first = vcombine_s8(vget_low_s8(q.val[0]), vget_low_s8(q.val[1]));
    int8x16_t second = vcombine_s8(vget_high_s8(q.val[0]), vget_high_s8(q.val[1]));
    return neon_lookup((int8x16x2_t){{first, second}}, table_fp4);
}

BLOCK32_PARTS_KERNEL_NEON(nvfp4, sizeof(struct block_nvfp4), 2, BLOCK32_HALVES, nvfp4_scale_neon)
#endif

const struct format format_nvfp4 = {
    .id = 40,
    .name = "NVFP4",
    .block_elements = 64,
    .block_bytes = sizeof(struct block_nvfp4),
    .activation = ACT_Q8_0,
    .dequantize = nvfp4_dequantize,
    .dot = nvfp4_dot,
    .decode = {[TIER_SCALAR] = SCALAR(nvfp4, ACT_Q8_0),
               BLOCK32_DECODE_AVX2(nvfp4, q8_0)
               BLOCK32_DECODE_AVX512(nvfp4, q8_0)
               NEON_SLOT(nvfp4, ACT_Q8_0)},
    .prefill = {[TIER_SCALAR] = SCALAR(nvfp4, ACT_Q8_0),
                BLOCK32_PREFILL_AVX2(nvfp4, q8_0)
                BLOCK32_PREFILL_AVX512(nvfp4, q8_0_halves)
                NEON_SLOT(nvfp4, ACT_Q8_0)},
};
