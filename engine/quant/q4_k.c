/* Q4_K: 256 nibbles; eight 6-bit pairs of scale and minimum; F16 scales of both. */
#include "engine/quant/neon.h"
#include "engine/quant/superblock.h"
#include "engine/quant/superblock_avx2.h"
#include "engine/quant/superblock_quads_avx512.h"

struct block_q4_k {
    uint8_t d[2], dmin[2];
    uint8_t scale_min[12];
    uint8_t nibbles[128];
};
_Static_assert(sizeof(struct block_q4_k) == 144, "Q4_K block");

static void q4_k_unpack(const void *block, struct superblock *out)
{
    const struct block_q4_k *b = block;
    out->d = f16_to_float(load_u16(b->d));
    out->dmin = f16_to_float(load_u16(b->dmin));
    scale_min_unpack(b->scale_min, out->scale, out->min);
    nibbles_256_unpack(b->nibbles, out->q);
}

static void q4_k_dequantize(const void *row, float *out, size_t n)
{
    superblock_dequantize_min(row, out, n, sizeof(struct block_q4_k), q4_k_unpack);
}

static float q4_k_dot(const void *row, const void *act, size_t n)
{
    return superblock_dot_lanes(row, act, n, sizeof(struct block_q4_k), q4_k_unpack, true);
}

SCALAR_KERNEL(q4_k, ACT_Q8_K)

#if defined(__x86_64__)
AVX2_INLINE void q4_k_load_avx2(const uint8_t *block, struct superblock_avx2 *out)
{
    const struct block_q4_k *b = (const void *)block;
    avx2_nibbles_256(b->nibbles, out->q);
    avx2_scale_min(b->scale_min, out);
    avx2_scales_two(b->d, out);
}

SUPERBLOCK_AVX2(q4_k, sizeof(struct block_q4_k), SUPERBLOCK_LANES_MIN, 0, 1, 1)
#endif

#if defined(__x86_64__)
AVX512_INLINE void q4_k_quads_avx512(const uint8_t *x, const struct superblock_activation *a, __m512i out[4])
{
    const __m512i low = _mm512_set1_epi8(15), zero = _mm512_setzero_si512();
    UNROLL
    for (size_t h = 0; h < 2; h++) {
        __m512i w = in_turns(load512(x + 16 + 64 * h));
        out[2 * h] = _mm512_dpbusd_epi32(zero, _mm512_and_si512(w, low), load512(a->wide + 128 * h));
        out[2 * h + 1] = _mm512_dpbusd_epi32(zero, high_nibbles(w), load512(a->wide + 128 * h + 64));
    }
}

AVX512_INLINE void q4_k_pack_block_avx512(const uint8_t *x, size_t row_bytes, struct superblock_tile *t)
{
    const __m512i low = _mm512_set1_epi8(15);
    struct lane_rows rows[4]; /* of nibbles: groups 2 c and 2 c + 1 */
    for (size_t i = 0; i < ROWS; i++) {
        lane_rows_store(rows, i, by_lanes(load512(x + i * row_bytes + 16)));
        lane_rows_store(rows + 2, i, by_lanes(load512(x + i * row_bytes + 80)));
    }
    UNROLL
    for (size_t c = 0; c < 4; c++) {
        UNROLL
        for (size_t half = 0; half < 2; half++) {
            __m512i q[4];
            lane_rows_load(rows + c, half, q);
            UNROLL
            for (size_t k = 0; k < 4; k++) {
                _mm512_store_si512(t->w[4 * half + k][2 * c], _mm512_and_si512(q[k], low));
                _mm512_store_si512(t->w[4 * half + k][2 * c + 1], high_nibbles(q[k]));
            }
        }
    }
    tile_scales_min(x, row_bytes, t);
}

QUADS_AVX512(q4_k, sizeof(struct block_q4_k))
SUPERBLOCK_TILES_AVX512(q4_k, sizeof(struct block_q4_k), SUPERBLOCK_LANES_MIN, 1, 1)
#endif

#if defined(__aarch64__)
NEON_INLINE void q4_k_unpack_neon(const void *block, struct superblock *out)
{
    const struct block_q4_k *b = block;
    out->d = neon_half(b->d);
    out->dmin = neon_half(b->dmin);
    scale_min_unpack(b->scale_min, out->scale, out->min);
    neon_nibbles_256(b->nibbles, out->q);
}

SUPERBLOCK_KERNEL_NEON(q4_k, sizeof(struct block_q4_k), SUPERBLOCK_LANES_MIN, 1, 1, q4_k_unpack_neon)
#endif

const struct format format_q4_k = {
    .id = 12,
    .name = "Q4_K",
    .block_elements = 256,
    .block_bytes = sizeof(struct block_q4_k),
    .activation = ACT_Q8_K,
    .dequantize = q4_k_dequantize,
    .dot = q4_k_dot,
    .decode = {[TIER_SCALAR] = SCALAR(q4_k, ACT_Q8_K),
               SUPERBLOCK_DECODE_AVX2(q4_k)
               SUPERBLOCK_DECODE_AVX512(q4_k)
               NEON_SLOT(q4_k, ACT_Q8_K)},
    .prefill = {[TIER_SCALAR] = SCALAR(q4_k, ACT_Q8_K),
                SUPERBLOCK_PREFILL_AVX2(q4_k)
                SUPERBLOCK_PREFILL_AVX512(q4_k)
                NEON_SLOT(q4_k, ACT_Q8_K)},
};
