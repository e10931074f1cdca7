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

/* Dword k of the heads of two super-blocks, each for eight lanes. */
AVX512_INLINE __m512i iq4_xs_dword_avx512(__m512i a, __m512i b, int k)
{
    const __m512i first = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 16, 16, 16, 16, 16, 16, 16, 16);
    return _mm512_permutex2var_epi32(a, _mm512_add_epi32(first, _mm512_set1_epi32(k)), b);
}

AVX512_INLINE __m512i iq4_xs_head_avx512(const uint8_t *x)
{
    return _mm512_castsi128_si512(_mm_loadu_si128((const void *)x));
}

/* The eight scales each of two super-blocks, of their heads. */
AVX512_INLINE __m512 iq4_xs_scales_avx512(__m512i a, __m512i b)
{
    const __m512i fours = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28);
    const __m512i twos = _mm512_setr_epi32(12, 14, 16, 18, 20, 22, 24, 26, 12, 14, 16, 18, 20, 22, 24, 26);
    __m512i low = _mm512_srlv_epi32(iq4_xs_dword_avx512(a, b, 1), fours);
    __m512i high = _mm512_srlv_epi32(iq4_xs_dword_avx512(a, b, 0), twos); /* behind D, moved up by four bits */
    __m512i scale = _mm512_ternarylogic_epi32(low, high, _mm512_set1_epi32(15), TERNARY_CHOOSE);
    return _mm512_cvtepi32_ps(_mm512_sub_epi32(_mm512_and_si512(scale, _mm512_set1_epi32(63)), _mm512_set1_epi32(32)));
}

/* n super-blocks a row. */
struct iq4_xs_scratch {
    float *terms;   /* [16 rows][n][8]: the addends */
    float *dx;      /* [n][8]: dx of the activation, repeated; readable for 8 more */
    int8_t *halves; /* [n][2][2][64]: of four groups the elements 0..15, then 16..31, as the nibbles lie */
    uint8_t *stage;
};

static inline struct iq4_xs_scratch iq4_xs_scratch_at(void *base, size_t n)
{
    char *at = base;
    struct iq4_xs_scratch s = {.terms = base};
    s.halves = (int8_t *)(at += ROWS * 8 * n * sizeof(float));
    s.dx = (float *)(void *)(at += 256 * n);
    s.stage = (uint8_t *)at + round_up(8 * (n + 1) * sizeof(float), 64);
    return s;
}

AVX512_INLINE void iq4_xs_arrange_avx512(const struct superblock_activation *a, size_t n, const struct iq4_xs_scratch *s)
{
    for (size_t b = 0; b < n; b++) {
        _mm256_store_ps(s->dx + 8 * b, _mm256_set1_ps(a->d[b]));
        for (size_t h = 0; h < 2; h++) {
            const int8_t *plain = a->plain + 256 * b + 128 * h;
            __m512i first = load512(plain), second = load512(plain + 64);
            _mm512_store_si512(s->halves + 256 * b + 128 * h, _mm512_shuffle_i32x4(first, second, 0x88));
            _mm512_store_si512(s->halves + 256 * b + 128 * h + 64, _mm512_shuffle_i32x4(first, second, 0xdd));
        }
    }
}

/* Values + 128 times activations: a quarter of the sum of group 4 h + j in every dword of lane j of out[h]. */
AVX512_INLINE void iq4_xs_dots_avx512(const uint8_t *x, const int8_t *halves, __m512i out[2])
{
    __m512i table = _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)table_iq4_nl));
    table = _mm512_xor_si512(table, _mm512_set1_epi8(-128));
    UNROLL
    for (size_t h = 0; h < 2; h++) {
        __m512i w = load512(x + 8 + 64 * h);
        __m512i low = _mm512_shuffle_epi8(table, _mm512_and_si512(w, _mm512_set1_epi8(15)));
        __m512i high = _mm512_shuffle_epi8(table, high_nibbles(w));
        out[h] = _mm512_dpbusd_epi32(_mm512_setzero_si512(), low, load512(halves + 128 * h));
        out[h] = _mm512_dpbusd_epi32(out[h], high, load512(halves + 128 * h + 64));
    }
}

/* D * dx * scale of all groups of two super-blocks. */
AVX512_INLINE __m512 iq4_xs_factors_avx512(__m512i a, __m512i b, const float *dx)
{
    const __m512i in_place = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 2, 2, 2, 2, 2, 2, 2, 2);
    __m128i heads = _mm_unpacklo_epi32(_mm512_castsi512_si128(a), _mm512_castsi512_si128(b));
    __m512 d = _mm512_castps128_ps512(_mm_cvtph_ps(heads)); /* of a, scales, of b, scales */
    d = _mm512_mul_ps(_mm512_permutexvar_ps(in_place, d), _mm512_loadu_ps(dx));
    return _mm512_mul_ps(d, iq4_xs_scales_avx512(a, b));
}

/* The eight addends each of `count` (1 or 2) super-blocks at x; of one, the upper ones are undefined. */
AVX512_INLINE __m512 iq4_xs_terms_avx512(const uint8_t *x, size_t count, const int16_t *sums32, const int8_t *halves,
                                         const float *dx)
{
    enum { BYTES = sizeof(struct block_iq4_xs) };
    __m512i z[4], heads[2];
    UNROLL
    for (size_t i = 0; i < 2; i++) {
        size_t at = i < count ? i : 0;
        heads[i] = iq4_xs_head_avx512(x + at * BYTES);
        if (i < count)
            prefetch_step(x, i, BYTES);
        iq4_xs_dots_avx512(x + at * BYTES, halves + 256 * at, z + 2 * i);
        __asm__ volatile("" ::: "memory"); /* or all requests would come first */
    }
    __m256i excess = count == 2 ? _mm256_loadu_si256((const void *)sums32)
                                : _mm256_castsi128_si256(_mm_loadu_si128((const void *)sums32));
    __m512i sums = _mm512_sub_epi32(add_lanes(z), _mm512_slli_epi32(_mm512_cvtepi16_epi32(excess), 7));
    return _mm512_mul_ps(iq4_xs_factors_avx512(heads[0], heads[1], dx), _mm512_cvtepi32_ps(sums));
}

AVX512_INLINE void iq4_xs_rows_avx512(const struct product *p)
{
    size_t n = p->n_cols / 256;
    const struct iq4_xs_scratch s = iq4_xs_scratch_at(p->scratch, n);
    const struct superblock_activation a = superblock_activation_at(p->x, n);
    iq4_xs_arrange_avx512(&a, n, &s);
    for (size_t row = p->row_begin; row < p->row_end; row += ROWS) {
        const uint8_t *rows = row_group(p, row, 0, s.stage);
        for (size_t i = 0; i < ROWS; i++) {
            const uint8_t *x = rows + i * p->row_bytes;
            float *terms = s.terms + 8 * i * n;
            size_t b = 0;
            for (; b + 2 <= n; b += 2, x += 2 * sizeof(struct block_iq4_xs))
                _mm512_storeu_ps(terms + 8 * b,
                                 iq4_xs_terms_avx512(x, 2, a.sums32 + 8 * b, s.halves + 256 * b, s.dx + 8 * b));
            if (b < n)
                _mm256_storeu_ps(terms + 8 * b, _mm512_castps512_ps256(iq4_xs_terms_avx512(
                                                    x, 1, a.sums32 + 8 * b, s.halves + 256 * b, s.dx + 8 * b)));
        }
        _mm512_mask_storeu_ps(p->y + row, row_mask(p, row), add_columns(_mm512_setzero_ps(), s.terms, 8 * n, 8 * n));
    }
}

DECODE_RUN_AVX512(iq4_xs, iq4_xs_rows_avx512(p),
                  ROWS * 8 * (n_cols / 256) * sizeof(float) + n_cols + round_up(8 * (n_cols / 256 + 1) * sizeof(float), 64) +
                      row_group_bytes(n_cols / 256 * sizeof(struct block_iq4_xs), 0))

AVX512_INLINE void iq4_xs_pack_block_avx512(const uint8_t *x, size_t row_bytes, struct superblock_tile *t)
{
    struct lane_rows rows[8];
    for (size_t i = 0; i < ROWS; i++)
        for (size_t k = 0; k < 4; k++)
            lane_rows_store(rows + 2 * k, i, by_lanes(iq4_xs_pair_avx512(x + i * row_bytes + 8 + 32 * k)));
    for (size_t i = 0; i < ROWS; i += 2) {
        const uint8_t *b = x + i * row_bytes;
        float scales[2][8] ALIGNED;
        _mm512_store_ps(scales[0], iq4_xs_scales_avx512(iq4_xs_head_avx512(b), iq4_xs_head_avx512(b + row_bytes)));
        for (size_t j = 0; j < 8; j++) {
            t->c[j][i] = scales[0][j];
            t->c[j][i + 1] = scales[1][j];
        }
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
