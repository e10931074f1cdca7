/* IQ4_XS: 256 nibbles that index 16 uneven values; eight 6-bit scales minus 32; an F16 scale of these. */
#include "engine/quant/block32_avx2.h"
#include "engine/quant/superblock.h"
#include "engine/quant/tables.h"

struct block_iq4_xs {
    uint8_t d[2];
    uint8_t scales_high[2];
    uint8_t scales_low[4];
    uint8_t nibbles[128];
};
_Static_assert(sizeof(struct block_iq4_xs) == 136, "IQ4_XS block");

static void iq4_xs_unpack(const void *block, struct superblock *out)
{
    const struct block_iq4_xs *b = block;
    out->d = f16_to_float(load_u16(b->d));
    for (int j = 0; j < 8; j++) {
        int low = b->scales_low[j / 2] >> 4 * (j % 2) & 15, high = load_u16(b->scales_high) >> 2 * j & 3;
        out->scale[2 * j] = out->scale[2 * j + 1] = (int16_t)(low + 16 * high - 32);
        nibbles_unpack(b->nibbles + 16 * j, out->q + 32 * j);
    }
    for (int i = 0; i < 256; i++)
        out->q[i] = table_iq4_nl[out->q[i]];
}

static void iq4_xs_dequantize(const void *row, float *out, size_t n)
{
    superblock_dequantize(row, out, n, sizeof(struct block_iq4_xs), iq4_xs_unpack, 1);
}

/* One addition per 32 weights, unlike the other super-block formats. */
static float iq4_xs_dot(const void *row, const void *act, size_t n)
{
    const struct block_iq4_xs *b = row;
    const struct act_q8_k *a = act;
    struct superblock w;
    float r = 0;
    for (size_t i = 0; i < n / 256; i++) {
        iq4_xs_unpack(&b[i], &w);
        float d = w.d * a[i].d;
        for (int j = 0; j < 8; j++)
            r += (d * (float)w.scale[2 * j]) * (float)block32_sum(w.q + 32 * j, a[i].q + 32 * j);
    }
    return r;
}

SCALAR_KERNEL(iq4_xs, ACT_Q8_K)

#if defined(__x86_64__)
AVX2_INLINE __m256i iq4_xs_load_avx2(const struct block_iq4_xs *b, size_t part)
{
    return avx2_lookup(avx2_nibbles(b->nibbles + 16 * part), table_iq4_nl);
}

/* The eight scales of a super-block. */
AVX2_INLINE __m256 iq4_xs_scales_avx2(const struct block_iq4_xs *b)
{
    const __m256i fours = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
    const __m256i twos = _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14);
    __m256i low = _mm256_srlv_epi32(avx2_broadcast32(b->scales_low), fours);
    __m256i high = _mm256_srlv_epi32(_mm256_set1_epi32(load_u16(b->scales_high)), twos);
    low = _mm256_and_si256(low, _mm256_set1_epi32(15));
    high = _mm256_slli_epi32(_mm256_and_si256(high, _mm256_set1_epi32(3)), 4);
    return _mm256_cvtepi32_ps(_mm256_sub_epi32(_mm256_or_si256(low, high), _mm256_set1_epi32(32)));
}

AVX2_INLINE __m256 iq4_xs_terms_avx2(const uint8_t *row, size_t b, size_t m, const struct block32_avx2_act *a)
{
    (void)m;
    const struct block_iq4_xs *w = (const struct block_iq4_xs *)row + b / 8;
    __m256i sums[8];
    UNROLL
    for (size_t k = 0; k < 8; k++)
        sums[k] = avx2_dot_s8(_mm256_xor_si256(iq4_xs_load_avx2(w, k), _mm256_set1_epi8(-128)),
                              avx2_load(a->q + (b + k) * 32));
    return block32_rule_avx2(BLOCK32_SCALED, _mm256_cvtepi32_ps(avx2_add_across(sums)),
                             _mm256_set1_ps(f16_to_float(load_u16(w->d))), iq4_xs_scales_avx2(w),
                             _mm256_loadu_ps(a->d + b), _mm256_setzero_ps());
}

AVX2 static void iq4_xs_pack_avx2(const uint8_t *const rows[8], size_t n_blocks, uint8_t *tile)
{
    struct block32_avx2_tile *t = (void *)tile;
    for (size_t b = 0; b < n_blocks; b++) {
        __m256i w[8];
        UNROLL
        for (size_t i = 0; i < 8; i++) {
            const struct block_iq4_xs *block = (const struct block_iq4_xs *)rows[i] + b / 8;
            w[i] = iq4_xs_load_avx2(block, b % 8);
            t[b].d[i] = f16_to_float(load_u16(block->d));
            if (b % 8 == 0) {
                float scales[8];
                _mm256_storeu_ps(scales, iq4_xs_scales_avx2(block));
                for (size_t k = 0; k < 8; k++)
                    t[b + k].m[i] = scales[k];
            }
        }
        block32_store_tile_avx2(w, 128, &t[b]);
    }
}

BLOCK32_KERNELS_AVX2(iq4_xs, BLOCK32_SCALED, 128, false)
#endif

const struct format format_iq4_xs = {
    .id = 23,
    .name = "IQ4_XS",
    .block_elements = 256,
    .block_bytes = sizeof(struct block_iq4_xs),
    .activation = ACT_Q8_K,
    .dequantize = iq4_xs_dequantize,
    .dot = iq4_xs_dot,
    .decode = {[TIER_SCALAR] = SCALAR(iq4_xs, ACT_Q8_K),
               BLOCK32_DECODE_AVX2(iq4_xs, q8_k32)},
    .prefill = {[TIER_SCALAR] = SCALAR(iq4_xs, ACT_Q8_K),
                BLOCK32_PREFILL_AVX2(iq4_xs, q8_k32)},
};
