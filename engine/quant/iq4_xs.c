/* IQ4_XS: 256 nibbles that index 16 uneven values; eight 6-bit scales minus 32; an F16 scale of these. */
#include "engine/quant/block32_avx2.h"
#include "engine/quant/neon.h"
#include "engine/quant/superblock.h"
#include "engine/quant/superblock_avx512.h"
#include "engine/quant/tables.h"

struct block_iq4_xs {
    uint8_t d[2];
    uint8_t scales_high[2];
    uint8_t scales_low[4];
    uint8_t nibbles[128];
};
_Static_assert(sizeof(struct block_iq4_xs) == 136, "IQ4_XS block");

static void iq4_xs_unpack_scales(const struct block_iq4_xs *b, struct superblock *out)
{
    out->d = f16_to_float(load_u16(b->d));
    for (int j = 0; j < 8; j++) {
        int low = b->scales_low[j / 2] >> 4 * (j % 2) & 15, high = load_u16(b->scales_high) >> 2 * j & 3;
        out->scale[2 * j] = out->scale[2 * j + 1] = (int16_t)(low + 16 * high - 32);
    }
}

static void iq4_xs_unpack(const void *block, struct superblock *out)
{
    const struct block_iq4_xs *b = block;
    iq4_xs_unpack_scales(b, out);
    for (int j = 0; j < 8; j++)
        nibbles_unpack(b->nibbles + 16 * j, out->q + 32 * j);
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

AVX2_INLINE __m256 iq4_xs_terms_avx2(const uint8_t *x, size_t b, size_t m, const struct block32_avx2_act *a)
{
    (void)m;
    const struct block_iq4_xs *w = (const void *)x;
    __m256i sums[8];
    UNROLL
    for (size_t k = 0; k < 8; k++)
        sums[k] = avx2_dot_s8(iq4_xs_load_avx2(w, k), avx2_load(a->q + (b + k) * 32));
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

BLOCK32_KERNELS_AVX2(iq4_xs, sizeof(struct block_iq4_xs), BLOCK32_SCALED, 1, 128, false)
#endif

#if defined(__x86_64__)
/* Two groups of 32 (32 bytes at p) as value + 128. */
AVX512_INLINE __m512i iq4_xs_pair_avx512(const uint8_t *p)
{
    __m512i table = _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)table_iq4_nl));
    __m512i w = load256(p);
    w = _mm512_srlv_epi64(_mm512_shuffle_i64x2(w, w, 0x50), _mm512_setr_epi64(0, 0, 4, 4, 0, 0, 4, 4));
    w = _mm512_and_si512(w, _mm512_set1_epi8(15));
    return _mm512_shuffle_epi8(_mm512_xor_si512(table, _mm512_set1_epi8(-128)), w);
}

/* The eight scales of a super-block. */
AVX512_INLINE __m256 iq4_xs_scales_avx512(const uint8_t *x)
{
    const __m256i step = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    __m256i low = _mm256_srlv_epi32(_mm256_set1_epi32((int)load_u32(x + 4)), _mm256_slli_epi32(step, 2));
    __m256i high = _mm256_srlv_epi32(_mm256_set1_epi32(load_u16(x + 2)), _mm256_slli_epi32(step, 1));
    low = _mm256_and_si256(low, _mm256_set1_epi32(15));
    high = _mm256_slli_epi32(_mm256_and_si256(high, _mm256_set1_epi32(3)), 4);
    return _mm256_cvtepi32_ps(_mm256_sub_epi32(_mm256_add_epi32(low, high), _mm256_set1_epi32(32)));
}

/* The eight addends of a super-block at x. */
AVX512_INLINE __m256 iq4_xs_terms_avx512(const uint8_t *x, const struct superblock_activation *a)
{
    __m512i z[4];
    UNROLL
    for (size_t k = 0; k < 4; k++)
        z[k] = _mm512_dpbusd_epi32(_mm512_setzero_si512(), iq4_xs_pair_avx512(x + 8 + 32 * k),
                                   load512(a->plain + 64 * k));
    __m512i t = add_across(z[0], z[1], z[2], z[3]); /* lanes 0 and 1: even groups; 2 and 3: odd groups */
    __m256i even = _mm512_castsi512_si256(t), odd = _mm512_extracti64x4_epi64(t, 1);
    __m128i sums_even = _mm_add_epi32(_mm256_castsi256_si128(even), _mm256_extracti128_si256(even, 1));
    __m128i sums_odd = _mm_add_epi32(_mm256_castsi256_si128(odd), _mm256_extracti128_si256(odd, 1));
    __m256i sums = _mm256_set_m128i(_mm_unpackhi_epi32(sums_even, sums_odd), _mm_unpacklo_epi32(sums_even, sums_odd));
    __m256i excess = _mm256_cvtepi16_epi32(_mm_loadu_si128((const void *)a->sums32));
    sums = _mm256_sub_epi32(sums, _mm256_slli_epi32(excess, 7));
    __m256 d = _mm256_set1_ps(f16_to_float(load_u16(x)) * a->d[0]);
    return _mm256_mul_ps(_mm256_mul_ps(d, iq4_xs_scales_avx512(x)), _mm256_cvtepi32_ps(sums));
}

AVX512 static void iq4_xs_decode_avx512(const struct product *p)
{
    size_t n = p->n_cols / 256;
    float *terms = p->scratch;
    const struct superblock_activation a = superblock_activation_at(p->x, n);
    for (size_t row = p->row_begin; row < p->row_end; row += ROWS) {
        const uint8_t *rows = row_group(p, row, 0, (uint8_t *)(terms + ROWS * 8 * n));
        for (size_t i = 0; i < ROWS; i++) {
            const uint8_t *x = rows + i * p->row_bytes;
            for (size_t b = 0; b < n; b++, x += sizeof(struct block_iq4_xs)) {
                struct superblock_activation at = superblock_activation_from(&a, b);
                prefetch_stream(x, sizeof(struct block_iq4_xs));
                _mm256_storeu_ps(terms + 8 * (i * n + b), iq4_xs_terms_avx512(x, &at));
            }
        }
        _mm512_mask_storeu_ps(p->y + row, row_mask(p, row),
                              add_columns(_mm512_setzero_ps(), terms, 8 * n, 8 * n));
    }
}

static size_t iq4_xs_decode_scratch_avx512(size_t n_cols, size_t n_tokens)
{
    (void)n_tokens;
    return n_cols / 32 * ROWS * sizeof(float) + row_group_bytes(n_cols / 256 * sizeof(struct block_iq4_xs), 0);
}

AVX512_INLINE void iq4_xs_pack_block_avx512(const uint8_t *x, size_t row_bytes, struct superblock_tile *t)
{
    struct lane_rows rows[8];
    for (size_t i = 0; i < ROWS; i++) {
        const uint8_t *b = x + i * row_bytes;
        float scales[8];
        _mm256_storeu_ps(scales, iq4_xs_scales_avx512(b));
        for (size_t j = 0; j < 8; j++)
            t->c[j][i] = scales[j];
        for (size_t k = 0; k < 4; k++)
            lane_rows_store(rows + 2 * k, i, by_lanes(iq4_xs_pair_avx512(b + 8 + 32 * k)));
    }
    tile_weights(rows, t);
    _mm512_store_ps(t->d, halves_strided(x, row_bytes));
}

SUPERBLOCK_TILES_AVX512(iq4_xs, sizeof(struct block_iq4_xs), SUPERBLOCK_GROUPS, 1, 1)
#endif

#if defined(__aarch64__)
NEON_INLINE void iq4_xs_unpack_neon(const void *block, struct superblock *out)
{
    const struct block_iq4_xs *b = block;
    iq4_xs_unpack_scales(b, out);
    for (size_t j = 0; j < 8; j++) {
        int8x16x2_t q = neon_lookup(neon_nibbles(b->nibbles + 16 * j), table_iq4_nl);
        vst1q_s8(out->q + 32 * j, q.val[0]);
        vst1q_s8(out->q + 32 * j + 16, q.val[1]);
    }
}

SUPERBLOCK_KERNEL_NEON(iq4_xs, sizeof(struct block_iq4_xs), SUPERBLOCK_GROUPS, 1, 1, iq4_xs_unpack_neon)
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
               BLOCK32_DECODE_AVX2(iq4_xs, q8_k32)
               SUPERBLOCK_DECODE_AVX512(iq4_xs)
               NEON_SLOT(iq4_xs, ACT_Q8_K)},
    .prefill = {[TIER_SCALAR] = SCALAR(iq4_xs, ACT_Q8_K),
                BLOCK32_PREFILL_AVX2(iq4_xs, q8_k32)
                SUPERBLOCK_PREFILL_AVX512(iq4_xs)
                NEON_SLOT(iq4_xs, ACT_Q8_K)},
};
