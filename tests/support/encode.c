/* Random and round-to-nearest weight blocks; see encode.h. Knows the layouts by their byte offsets on purpose: a second
 * statement of them beside engine/quant, so that a mistake in one shows. */
#include "tests/support/encode.h"

#include "engine/base/f16.h"

#include <math.h>
#include <string.h>

uint64_t random_u64(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15ull;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

float random_float(uint64_t *state)
{
    return (float)(random_u64(state) >> 40) * 0x1p-23f - 1;
}

void random_floats(uint64_t *state, float *out, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = random_float(state);
}

void random_bytes(uint64_t *state, void *out, size_t n)
{
    unsigned char *p = out;
    for (size_t i = 0; i < n; i += 8) {
        uint64_t word = random_u64(state);
        memcpy(p + i, &word, n - i < 8 ? n - i : 8);
    }
}

static void store_f16(float value, uint8_t *at)
{
    uint16_t h = f16_from_float(value);
    memcpy(at, &h, sizeof h);
}

/* Scale fields: offset and kind. 'h' F16 of either sign, 'p' F16 >= 0, 'e' E8M0, 'u' UE4M3, 'm' IQ1_M's spread F16,
 * 'f' the block is one float, 's' one F16, 'b' one BF16. `largest` is about the largest |integer| the scale meets. */
static const struct random_format {
    const char *name;
    float largest;
    struct {
        char kind;
        uint8_t offset, count;
    } fields[2];
} random_formats[] = {
    {"F32", 1, {{'f', 0, 1}}},
    {"F16", 1, {{'s', 0, 1}}},
    {"BF16", 1, {{'b', 0, 1}}},
    {"Q8_0", 127, {{'h', 0, 1}}},
    {"Q4_0", 8, {{'h', 0, 1}}},
    {"Q4_1", 15, {{'h', 0, 2}}},
    {"Q5_0", 16, {{'h', 0, 1}}},
    {"Q5_1", 31, {{'h', 0, 2}}},
    {"Q2_K", 45, {{'h', 80, 2}}},
    {"Q3_K", 128, {{'h', 108, 1}}},
    {"Q4_K", 945, {{'h', 0, 2}}},
    {"Q5_K", 1953, {{'h', 0, 2}}},
    {"Q6_K", 4096, {{'h', 208, 1}}},
    {"IQ1_S", 15, {{'h', 0, 1}}},
    {"IQ1_M", 15, {{'m', 48, 1}}},
    {"IQ2_XXS", 160, {{'h', 0, 1}}},
    {"IQ2_XS", 160, {{'h', 0, 1}}},
    {"IQ2_S", 160, {{'h', 0, 1}}},
    {"IQ3_XXS", 480, {{'h', 0, 1}}},
    {"IQ3_S", 480, {{'h', 0, 1}}},
    {"IQ4_NL", 127, {{'h', 0, 1}}},
    {"IQ4_XS", 4064, {{'h', 0, 1}}},
    {"TQ1_0", 1, {{'h', 52, 1}}},
    {"TQ2_0", 1, {{'h', 64, 1}}},
    {"MXFP4", 12, {{'e', 0, 1}}},
    {"NVFP4", 12, {{'u', 0, 4}}},
    {"Q1_0", 1, {{'h', 0, 1}}},
    {"Q2_0", 2, {{'h', 0, 1}}},
};

/* Magnitude 0.25 .. 1, either sign. */
static float random_scale(uint64_t *state)
{
    float f = random_float(state);
    return f < 0 ? f * 0.75f - 0.25f : f * 0.75f + 0.25f;
}

static void random_field(const struct random_format *r, char kind, uint64_t *state, uint8_t *at)
{
    float scale = 4 * random_scale(state) / r->largest, value = random_float(state);
    uint16_t h = f16_from_float(scale), bf = bf16_from_float(value);
    switch (kind) {
    case 'h':
        store_f16(scale, at);
        break;
    case 'f':
        memcpy(at, &value, sizeof value);
        break;
    case 's':
        store_f16(value, at);
        break;
    case 'b':
        memcpy(at, &bf, sizeof bf);
        break;
    case 'e':
        *at = (uint8_t)(120 + random_u64(state) % 7);
        break;
    case 'u':
        *at = (uint8_t)(0x20 + random_u64(state) % 16);
        break;
    case 'm':
        for (int k = 0; k < 4; k++)
            at[2 * k + 1] = (uint8_t)((at[2 * k + 1] & 15) | (h >> 4 * k & 15) << 4);
        break;
    }
}

void random_blocks(const struct format *f, uint64_t *state, void *out, size_t n_blocks)
{
    const struct random_format *r = random_formats;
    while (strcmp(r->name, f->name) != 0)
        r++;
    random_bytes(state, out, n_blocks * f->block_bytes);
    for (size_t b = 0; b < n_blocks; b++)
        for (size_t i = 0; i < 2; i++) {
            size_t width = r->fields[i].kind == 'h' ? 2 : 1;
            for (size_t k = 0; k < r->fields[i].count; k++)
                random_field(r, r->fields[i].kind, state,
                             (uint8_t *)out + b * f->block_bytes + r->fields[i].offset + k * width);
        }
}

/* Integer in [low, high] nearest to v. */
static int nearest(float v, int low, int high)
{
    float r = roundf(v);
    return r < (float)low ? low : r > (float)high ? high : (int)r;
}

static float inverse(float d)
{
    return d != 0 ? 1 / d : 0;
}

static void range(const float *x, int n, float *low, float *high)
{
    *low = *high = x[0];
    for (int i = 1; i < n; i++) {
        *low = fminf(*low, x[i]);
        *high = fmaxf(*high, x[i]);
    }
}

/* F16 scale at `out`, 32 integers in [-half, half - 1] (half 8, 16, 128) or [0, 2 * half - 1] above an F16 minimum. */
static void encode_32(const float *x, uint8_t *out, int *q, int half, bool has_min)
{
    float low, high;
    range(x, 32, &low, &high);
    float base = has_min ? low : 0;
    float d = has_min ? (high - low) / (float)(2 * half - 1) : fmaxf(high, -low) / (float)(half - 1);
    store_f16(d, out);
    if (has_min)
        store_f16(base, out + 2);
    for (int i = 0; i < 32; i++)
        q[i] = nearest((x[i] - base) * inverse(d), has_min ? 0 : -half, has_min ? 2 * half - 1 : half - 1);
}

/* Nibbles (and, for five bits, the high ones in front of them) of 32 non-negative integers. */
static void pack_32(const int *q, uint8_t *high, uint8_t *nibbles)
{
    uint32_t bits = 0;
    for (int i = 0; i < 32; i++)
        bits |= (uint32_t)(q[i] >> 4) << i;
    if (high)
        memcpy(high, &bits, sizeof bits);
    for (int k = 0; k < 16; k++)
        nibbles[k] = (uint8_t)((q[k] & 15) | (q[k + 16] & 15) << 4);
}

static void encode_q4_0(const float *x, uint8_t *out)
{
    int q[32];
    encode_32(x, out, q, 8, false);
    for (int i = 0; i < 32; i++)
        q[i] += 8;
    pack_32(q, NULL, out + 2);
}

static void encode_q4_1(const float *x, uint8_t *out)
{
    int q[32];
    encode_32(x, out, q, 8, true);
    pack_32(q, NULL, out + 4);
}

static void encode_q5_0(const float *x, uint8_t *out)
{
    int q[32];
    encode_32(x, out, q, 16, false);
    for (int i = 0; i < 32; i++)
        q[i] += 16;
    pack_32(q, out + 2, out + 6);
}

static void encode_q5_1(const float *x, uint8_t *out)
{
    int q[32];
    encode_32(x, out, q, 16, true);
    pack_32(q, out + 4, out + 8);
}

static void encode_q8_0(const float *x, uint8_t *out)
{
    int q[32];
    encode_32(x, out, q, 128, false);
    for (int i = 0; i < 32; i++)
        out[2 + i] = (uint8_t)q[i];
}

/* Eight sub-blocks of 32: 6-bit scales and minima; q in [0, levels]. */
static void encode_scale_min(const float *x, uint8_t *out, int levels, int *q)
{
    float scale[8], min[8], largest_scale = 0, largest_min = 0;
    for (int j = 0; j < 8; j++) {
        float low, high;
        range(x + 32 * j, 32, &low, &high);
        min[j] = fmaxf(-low, 0);
        scale[j] = fmaxf(high + min[j], 0) / (float)levels;
        largest_scale = fmaxf(largest_scale, scale[j]);
        largest_min = fmaxf(largest_min, min[j]);
    }
    float d = largest_scale / 63, dmin = largest_min / 63;
    store_f16(d, out);
    store_f16(dmin, out + 2);
    memset(out + 4, 0, 12);
    for (int j = 0; j < 8; j++) {
        int s = nearest(scale[j] * inverse(d), 0, 63), m = nearest(min[j] * inverse(dmin), 0, 63);
        uint8_t *p = out + 4;
        if (j < 4) {
            p[j] = (uint8_t)(p[j] | s);
            p[j + 4] = (uint8_t)(p[j + 4] | m);
        } else {
            p[j + 4] = (uint8_t)((s & 15) | (m & 15) << 4);
            p[j - 4] = (uint8_t)(p[j - 4] | s >> 4 << 6);
            p[j] = (uint8_t)(p[j] | m >> 4 << 6);
        }
        for (int i = 32 * j; i < 32 * j + 32; i++)
            q[i] = nearest((x[i] + dmin * (float)m) * inverse(d * (float)s), 0, levels);
    }
}

static void pack_nibbles_256(const int *q, uint8_t *out)
{
    memset(out, 0, 128);
    for (int i = 0; i < 256; i++) {
        uint8_t *at = out + 32 * (i / 64) + i % 32;
        *at = (uint8_t)(*at | (q[i] & 15) << 4 * (i / 32 % 2));
    }
}

static void encode_q4_k(const float *x, uint8_t *out)
{
    int q[256];
    encode_scale_min(x, out, 15, q);
    pack_nibbles_256(q, out + 16);
}

static void encode_q5_k(const float *x, uint8_t *out)
{
    int q[256];
    encode_scale_min(x, out, 31, q);
    memset(out + 16, 0, 32);
    for (int i = 0; i < 256; i++)
        out[16 + i % 32] = (uint8_t)(out[16 + i % 32] | q[i] >> 4 << i / 32);
    pack_nibbles_256(q, out + 48);
}

/* Sixteen sub-blocks of 16 with signed scales up to `limit`; q in [-half, half - 1]. */
static float encode_scales_16(const float *x, int limit, int half, int *scale, int *q)
{
    float step[16], largest = 0;
    for (int j = 0; j < 16; j++) {
        float low, high;
        range(x + 16 * j, 16, &low, &high);
        step[j] = fmaxf(high, -low) / (float)(half - 1);
        largest = fmaxf(largest, step[j]);
    }
    float d = largest / (float)limit;
    for (int j = 0; j < 16; j++) {
        scale[j] = nearest(step[j] * inverse(d), 0, limit);
        for (int i = 16 * j; i < 16 * j + 16; i++)
            q[i] = nearest(x[i] * inverse(d * (float)scale[j]), -half, half - 1);
    }
    return d;
}

static void encode_q6_k(const float *x, uint8_t *out)
{
    int q[256], scale[16];
    float d = encode_scales_16(x, 127, 32, scale, q);
    memset(out, 0, 192);
    for (int i = 0; i < 256; i++) {
        int half = i / 128, quarter = i / 32 % 4, l = i % 32, v = q[i] + 32;
        uint8_t *low = out + 64 * half + 32 * (quarter % 2) + l, *high = out + 128 + 32 * half + l;
        *low = (uint8_t)(*low | (v & 15) << 4 * (quarter / 2));
        *high = (uint8_t)(*high | v >> 4 << 2 * quarter);
    }
    for (int j = 0; j < 16; j++)
        out[192 + j] = (uint8_t)scale[j];
    store_f16(d, out + 208);
}

static void encode_q3_k(const float *x, uint8_t *out)
{
    int q[256], scale[16];
    float d = encode_scales_16(x, 31, 4, scale, q);
    memset(out, 0, 108);
    for (int i = 0; i < 256; i++) {
        int v = q[i] + 4;
        uint8_t *high = out + i % 32, *low = out + 32 + 32 * (i / 128) + i % 32;
        *high = (uint8_t)(*high | (v >> 2) << i / 32);
        *low = (uint8_t)(*low | (v & 3) << 2 * (i / 32 % 4));
    }
    for (int j = 0; j < 16; j++) {
        int s = scale[j] + 32;
        uint8_t *low = out + 96 + j % 8, *high = out + 104 + j % 4;
        *low = (uint8_t)(*low | (s & 15) << 4 * (j / 8));
        *high = (uint8_t)(*high | s >> 4 << 2 * (j / 4));
    }
    store_f16(d, out + 108);
}

static void encode_q2_k(const float *x, uint8_t *out)
{
    float scale[16], min[16], largest_scale = 0, largest_min = 0;
    for (int j = 0; j < 16; j++) {
        float low, high;
        range(x + 16 * j, 16, &low, &high);
        min[j] = fmaxf(-low, 0);
        scale[j] = fmaxf(high + min[j], 0) / 3;
        largest_scale = fmaxf(largest_scale, scale[j]);
        largest_min = fmaxf(largest_min, min[j]);
    }
    float d = largest_scale / 15, dmin = largest_min / 15;
    memset(out, 0, 80);
    for (int i = 0; i < 256; i++) {
        int s = nearest(scale[i / 16] * inverse(d), 0, 15), m = nearest(min[i / 16] * inverse(dmin), 0, 15);
        int q = nearest((x[i] + dmin * (float)m) * inverse(d * (float)s), 0, 3);
        uint8_t *at = out + 16 + 32 * (i / 128) + i % 32;
        out[i / 16] = (uint8_t)(s | m << 4);
        *at = (uint8_t)(*at | q << 2 * (i / 32 % 4));
    }
    store_f16(d, out + 80);
    store_f16(dmin, out + 82);
}

static void encode_f32(const float *x, uint8_t *out)
{
    memcpy(out, x, sizeof *x);
}

static void encode_f16(const float *x, uint8_t *out)
{
    store_f16(*x, out);
}

static void encode_bf16(const float *x, uint8_t *out)
{
    uint16_t h = bf16_from_float(*x);
    memcpy(out, &h, sizeof h);
}

static const struct {
    const char *name;
    void (*encode)(const float *x, uint8_t *out);
} encoders[] = {
    {"F32", encode_f32},   {"F16", encode_f16},   {"BF16", encode_bf16}, {"Q8_0", encode_q8_0}, {"Q4_0", encode_q4_0},
    {"Q4_1", encode_q4_1}, {"Q5_0", encode_q5_0}, {"Q5_1", encode_q5_1}, {"Q2_K", encode_q2_k}, {"Q3_K", encode_q3_k},
    {"Q4_K", encode_q4_k}, {"Q5_K", encode_q5_k}, {"Q6_K", encode_q6_k},
};

bool encode_row(const struct format *f, const float *x, void *out, size_t n)
{
    for (size_t e = 0; e < sizeof encoders / sizeof encoders[0]; e++) {
        if (strcmp(encoders[e].name, f->name) != 0)
            continue;
        for (size_t b = 0; b < n / f->block_elements; b++)
            encoders[e].encode(x + b * f->block_elements, (uint8_t *)out + b * f->block_bytes);
        return true;
    }
    return false;
}
