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
SUPERBLOCK_SCALAR_AVX2(tq1_0, sizeof(struct block_tq1_0), offsetof(struct block_tq1_0, d), 1)
#endif

#if defined(__x86_64__)
SUPERBLOCK_UNPACKED_AVX512(tq1_0, tq1_0_unpack, sizeof(struct block_tq1_0), 1, 1)
#endif

#if defined(__aarch64__)
SUPERBLOCK_KERNEL_NEON(tq1_0, sizeof(struct block_tq1_0), SUPERBLOCK_SUM, 1, tq1_0_unpack)
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
