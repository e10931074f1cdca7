/* NVFP4: 64 E2M1 values; a UE4M3 scale per 16. */
#include "engine/quant/block32.h"
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

const struct format format_nvfp4 = {
    .id = 40,
    .name = "NVFP4",
    .block_elements = 64,
    .block_bytes = sizeof(struct block_nvfp4),
    .activation = ACT_Q8_0,
    .dequantize = nvfp4_dequantize,
    .dot = nvfp4_dot,
    .decode = {[TIER_SCALAR] = SCALAR(nvfp4, ACT_Q8_0)},
    .prefill = {[TIER_SCALAR] = SCALAR(nvfp4, ACT_Q8_0)},
};
