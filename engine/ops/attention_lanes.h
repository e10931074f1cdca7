/* Attention in lanes: one body, compiled once per tier by the files that include lanes.h, rows_lanes.h and this.
 *
 * Scores: lanes are keys, each sums its dimensions in order. Values: lanes are dimensions, each sums its keys in order.
 * All products are of F16 values, exact in double, so fusing them with the addition changes nothing. */
#include "engine/ops/attention_tier.h"

/* Vectors of keys times rows in the score kernel of a batch, vectors of dimensions in the value kernel: as many
 * accumulators as registers allow. */
#if defined(TIER_IS_AVX2)
enum { Q_ROWS = 4, V_VECTORS = 4, GROUP_AT_ONCE = 4 };
#else
enum { Q_ROWS = 8, V_VECTORS = 8, GROUP_AT_ONCE = 8 };
#endif
enum { K_VECTORS = 3, K_TILE = K_VECTORS * DOUBLES };

/* The vector of K for DOUBLES keys from `key` on, dimension 0; the next dimension lies KV_BLOCK further. Keys behind the
 * cache's end read its last block: their scores are never used. */
INLINE const uint16_t *k_vector(const struct attention_tile *t, size_t key)
{
    size_t last = t->a->kv->n_blocks * KV_BLOCK - DOUBLES;
    key = key < last ? key : last;
    return kv_k_block(t->a->kv, t->a->layer, t->kv_head, key) + key % KV_BLOCK;
}

INLINE size_t row_keys(const struct attention_tile *t, size_t row)
{
    return t->a->position + t->token_begin + row / (t->head_end - t->head_begin) + 1;
}

INLINE const float *row_q(const struct attention_tile *t, size_t row)
{
    size_t n_heads = t->head_end - t->head_begin;
    return t->a->q + (t->token_begin + row / n_heads) * t->a->q_stride +
           (t->head_begin + row % n_heads) * t->a->kv->config.head_size;
}

INLINE float *row_out(const struct attention_tile *t, size_t row)
{
    size_t n_heads = t->head_end - t->head_begin;
    return t->a->out + (t->token_begin + row / n_heads) * t->a->out_stride +
           (t->head_begin + row % n_heads) * t->a->kv->config.head_size;
}

INLINE f64v lanes_set_double(double x)
{
    f64v v = {0};
    return v + x;
}

/* q as F16 values in double, to[d * stride]. */
TARGET static void encode_q(const float *q, size_t n, double *to, size_t stride)
{
    for (size_t d = 0; d < n; d += LANES) {
        float part[LANES];
        size_t count = n - d < LANES ? n - d : LANES;
        lanes_store(part, lanes_round_f16(count < LANES ? lanes_load_part(q + d, count) : lanes_load(q + d)));
        for (size_t i = 0; i < count; i++)
            to[(d + i) * stride] = (double)part[i];
    }
}

/* Exponentials of a row's scores in place; returns the factor that makes them probabilities. Complete vectors: what is
 * behind the last key is exp(-inf) = 0 and adds nothing. */
TARGET static float exponentials(float *w, size_t n_keys)
{
    size_t n = (n_keys + LANES - 1) / LANES * LANES;
    for (size_t i = n_keys; i < n; i++)
        w[i] = -INFINITY;
    return (float)(1.0 / softmax_groups(w, max_of(w, n), n));
}

/* Probabilities of ATTENTION_KEYS keys, rounded to F16, as double. */
TARGET static void encode_p(const float *w, float factor, double *p)
{
    for (size_t i = 0; i < ATTENTION_KEYS; i += LANES) {
        float part[LANES];
        lanes_store(part, lanes_round_f16(lanes_load(w + i) * factor));
        lanes_store_doubles(p + i, lanes_widen(part));
        lanes_store_doubles(p + i + DOUBLES, lanes_widen(part + DOUBLES));
    }
}

/* ---- one token ---- */

/* Scores of `vectors` vectors of keys for `group` heads; q is [head size][group]. */
INLINE void decode_scores_step(const struct attention_tile *t, size_t key, float scale, const int vectors,
                               const int group)
{
    f64v sums[16];
    const uint16_t *k[4];
    UNROLL for (int i = 0; i < vectors; i++)
        k[i] = k_vector(t, key + (size_t)i * DOUBLES);
    UNROLL for (int i = 0; i < vectors * group; i++)
        sums[i] = (f64v){0};
    const double *q = t->q;
    size_t n = t->a->kv->config.head_size;
    for (size_t d = 0; d < n; d++, q += group) {
        UNROLL for (int i = 0; i < vectors; i++) {
            f64v x = lanes_load_f16(k[i] + d * KV_BLOCK);
            UNROLL for (int g = 0; g < group; g++)
                sums[i * group + g] = lanes_fma(x, lanes_set_double(q[g]), sums[i * group + g]);
        }
    }
    UNROLL for (int g = 0; g < group; g++)
        UNROLL for (int i = 0; i < vectors; i++) {
            f32h s = __builtin_convertvector(sums[i * group + g], f32h) * scale;
            memcpy(t->w + (size_t)g * t->w_stride + key + (size_t)i * DOUBLES, &s, sizeof s);
        }
}

/* Values of `vectors` vectors of dimensions for `group` heads and n_keys keys; v and sums point to the first dimension,
 * p to the first key. */
INLINE void decode_values_step(const struct attention_tile *t, const uint16_t *v, size_t n_keys, const double *p,
                               double *to, const int vectors, const int group)
{
    f64v sums[24];
    size_t n = t->a->kv->config.head_size, stride = (n + DOUBLES - 1) / DOUBLES * DOUBLES;
    UNROLL for (int g = 0; g < group; g++)
        UNROLL for (int i = 0; i < vectors; i++)
            sums[g * vectors + i] = lanes_load_doubles(to + (size_t)g * stride + (size_t)i * DOUBLES);
    for (size_t key = 0; key < n_keys; key++, v += n, p++) {
        UNROLL for (int i = 0; i < vectors; i++) {
            f64v x = lanes_load_f16(v + (size_t)i * DOUBLES);
            UNROLL for (int g = 0; g < group; g++)
                sums[g * vectors + i] = lanes_fma(x, lanes_set_double(p[g * ATTENTION_KEYS]), sums[g * vectors + i]);
        }
    }
    UNROLL for (int g = 0; g < group; g++)
        UNROLL for (int i = 0; i < vectors; i++)
            lanes_store_doubles(to + (size_t)g * stride + (size_t)i * DOUBLES, sums[g * vectors + i]);
}

/* Instances for a number of heads: enough accumulators to hide latency, few enough for the registers. */
#define DECODE_INSTANCE(group, k_vectors, v_vectors)                                                            \
    TARGET static void decode_scores_##group(const struct attention_tile *t, size_t n_keys, float scale)        \
    {                                                                                                           \
        for (size_t key = 0; key < n_keys; key += k_vectors * DOUBLES)                                          \
            decode_scores_step(t, key, scale, k_vectors, group);                                                \
    }                                                                                                           \
    TARGET static void decode_values_##group(const struct attention_tile *t, const uint16_t *v, size_t n_keys)  \
    {                                                                                                           \
        size_t d = 0, n = t->a->kv->config.head_size;                                                           \
        for (; d + (v_vectors - 1) * DOUBLES < n; d += v_vectors * DOUBLES)                                     \
            decode_values_step(t, v + d, n_keys, t->p, t->sums + d, v_vectors, group);                          \
        for (; d < n; d += DOUBLES)                                                                             \
            decode_values_step(t, v + d, n_keys, t->p, t->sums + d, 1, group);                                  \
    }

#if defined(TIER_IS_AVX2)
DECODE_INSTANCE(1, 4, 8)
DECODE_INSTANCE(2, 2, 4)
DECODE_INSTANCE(3, 2, 4)
DECODE_INSTANCE(4, 2, 2)
#else
DECODE_INSTANCE(1, 4, 8)
DECODE_INSTANCE(2, 4, 8)
DECODE_INSTANCE(3, 4, 8)
DECODE_INSTANCE(4, 2, 4)
DECODE_INSTANCE(5, 2, 4)
DECODE_INSTANCE(6, 2, 4)
DECODE_INSTANCE(7, 2, 2)
DECODE_INSTANCE(8, 2, 2)
#endif

static const struct {
    void (*scores)(const struct attention_tile *t, size_t n_keys, float scale);
    void (*values)(const struct attention_tile *t, const uint16_t *v, size_t n_keys);
} decode_instances[GROUP_AT_ONCE] = {
    {decode_scores_1, decode_values_1}, {decode_scores_2, decode_values_2},
    {decode_scores_3, decode_values_3}, {decode_scores_4, decode_values_4},
#if !defined(TIER_IS_AVX2)
    {decode_scores_5, decode_values_5}, {decode_scores_6, decode_values_6},
    {decode_scores_7, decode_values_7}, {decode_scores_8, decode_values_8},
#endif
};

TARGET static void write_out(const struct attention_tile *t, size_t n_rows)
{
    size_t n = t->a->kv->config.head_size, stride = (n + DOUBLES - 1) / DOUBLES * DOUBLES;
    for (size_t r = 0; r < n_rows; r++) {
        const double *sums = t->sums + r * stride;
        float *out = row_out(t, r);
        size_t d = 0;
        for (; d + DOUBLES <= n; d += DOUBLES)
            lanes_store_narrow(out + d, lanes_load_doubles(sums + d));
        for (; d < n; d++)
            out[d] = (float)sums[d];
    }
}

TARGET static void clear_sums(const struct attention_tile *t, size_t n_rows)
{
    size_t n = t->a->kv->config.head_size, stride = (n + DOUBLES - 1) / DOUBLES * DOUBLES;
    memset(t->sums, 0, n_rows * stride * sizeof *t->sums);
}

TARGET static void decode(const struct attention_tile *tile)
{
    const struct attention *a = tile->a;
    size_t n = a->kv->config.head_size, n_keys = row_keys(tile, 0);
    struct attention_tile t = *tile;
    for (; t.head_begin < tile->head_end; t.head_begin = t.head_end) {
        size_t group = tile->head_end - t.head_begin < GROUP_AT_ONCE ? tile->head_end - t.head_begin : GROUP_AT_ONCE;
        t.head_end = t.head_begin + group;
        float factors[GROUP_AT_ONCE];
        for (size_t g = 0; g < group; g++)
            encode_q(row_q(&t, g), n, t.q + g, group);
        decode_instances[group - 1].scores(&t, n_keys, 1.0f / sqrtf((float)n));
        for (size_t g = 0; g < group; g++)
            factors[g] = exponentials(t.w + g * t.w_stride, n_keys);
        clear_sums(&t, group);
        for (size_t key = 0; key < n_keys; key += ATTENTION_KEYS) {
            for (size_t g = 0; g < group; g++)
                encode_p(t.w + g * t.w_stride + key, factors[g], t.p + g * ATTENTION_KEYS);
            size_t count = n_keys - key < ATTENTION_KEYS ? n_keys - key : ATTENTION_KEYS;
            decode_instances[group - 1].values(&t, kv_v_row(a->kv, a->layer, t.kv_head, key), count);
        }
        write_out(&t, group);
    }
}

/* ---- many rows ---- */

/* K of K_TILE keys as double, [head size][K_TILE]. */
TARGET static void load_k_tile(const struct attention_tile *t, size_t key)
{
    size_t n = t->a->kv->config.head_size;
    const uint16_t *k[K_VECTORS];
    UNROLL for (int i = 0; i < K_VECTORS; i++)
        k[i] = k_vector(t, key + (size_t)i * DOUBLES);
    for (size_t d = 0; d < n; d++)
        UNROLL for (int i = 0; i < K_VECTORS; i++)
            lanes_store_doubles(t->k + d * K_TILE + (size_t)i * DOUBLES, lanes_load_f16(k[i] + d * KV_BLOCK));
}

/* Scores of a tile of keys for Q_ROWS rows; q is [head size][Q_ROWS], w the first row at the first key. */
TARGET static void score_tile(const double *k, const double *q, size_t n, float scale, float *w, size_t w_stride)
{
    f64v sums[Q_ROWS][K_VECTORS];
    UNROLL for (int r = 0; r < Q_ROWS; r++)
        UNROLL for (int i = 0; i < K_VECTORS; i++)
            sums[r][i] = (f64v){0};
    for (size_t d = 0; d < n; d++, k += K_TILE, q += Q_ROWS) {
        f64v x[K_VECTORS];
        UNROLL for (int i = 0; i < K_VECTORS; i++)
            x[i] = lanes_load_doubles(k + i * DOUBLES);
        UNROLL for (int r = 0; r < Q_ROWS; r++) {
            f64v y = lanes_set_double(q[r]);
            UNROLL for (int i = 0; i < K_VECTORS; i++)
                sums[r][i] = lanes_fma(x[i], y, sums[r][i]);
        }
    }
    UNROLL for (int r = 0; r < Q_ROWS; r++)
        UNROLL for (int i = 0; i < K_VECTORS; i++) {
            f32h s = __builtin_convertvector(sums[r][i], f32h) * scale;
            memcpy(w + (size_t)r * w_stride + (size_t)i * DOUBLES, &s, sizeof s);
        }
}

TARGET static void prefill_scores(const struct attention_tile *t, size_t n_rows)
{
    size_t n = t->a->kv->config.head_size, n_panels = (n_rows + Q_ROWS - 1) / Q_ROWS, n_keys = row_keys(t, n_rows - 1);
    float scale = 1.0f / sqrtf((float)n);
    for (size_t r = 0; r < n_panels * Q_ROWS; r++) /* the last panel repeats the last row */
        encode_q(row_q(t, r < n_rows ? r : n_rows - 1), n, t->q + r / Q_ROWS * Q_ROWS * n + r % Q_ROWS, Q_ROWS);
    for (size_t key = 0; key < n_keys; key += K_TILE) {
        load_k_tile(t, key);
        for (size_t p = 0; p < n_panels; p++) {
            size_t last = (p + 1) * Q_ROWS < n_rows ? (p + 1) * Q_ROWS - 1 : n_rows - 1;
            if (key < row_keys(t, last))
                score_tile(t->k, t->q + p * Q_ROWS * n, n, scale, t->w + p * Q_ROWS * t->w_stride + key, t->w_stride);
        }
    }
}

/* Adds keys [begin, end) of a tile to `rows` rows of sums, `vectors` vectors of dimensions each; p and sums point to the
 * first row, v to dimension 0 of the slice. */
INLINE void value_tile(const double *v, size_t v_stride, const double *p, size_t begin, size_t end, double *to,
                       size_t stride, const int rows, const int vectors)
{
    f64v sums[3 * V_VECTORS];
    UNROLL for (int r = 0; r < rows; r++)
        UNROLL for (int i = 0; i < vectors; i++)
            sums[r * vectors + i] = lanes_load_doubles(to + (size_t)r * stride + (size_t)i * DOUBLES);
    for (size_t key = begin; key < end; key++) {
        f64v y[3 * V_VECTORS];
        UNROLL for (int r = 0; r < rows; r++)
            y[r] = lanes_set_double(p[(size_t)r * ATTENTION_KEYS + key]);
        UNROLL for (int i = 0; i < vectors; i++) {
            f64v x = lanes_load_doubles(v + key * v_stride + (size_t)i * DOUBLES);
            UNROLL for (int r = 0; r < rows; r++)
                sums[r * vectors + i] = lanes_fma(x, y[r], sums[r * vectors + i]);
        }
    }
    UNROLL for (int r = 0; r < rows; r++)
        UNROLL for (int i = 0; i < vectors; i++)
            lanes_store_doubles(to + (size_t)r * stride + (size_t)i * DOUBLES, sums[r * vectors + i]);
}

/* One slice of dimensions for all rows and the keys [key, key + ATTENTION_KEYS). A group of rows takes the keys that
 * all of them see together, the others row by row: nothing masked is multiplied, so it need not be finite. */
#define VALUE_SLICE(vectors_, rows_)                                                                              \
    TARGET static void value_slice_##vectors_(const struct attention_tile *t, size_t n_rows, size_t key, size_t d) \
    {                                                                                                              \
        size_t n = t->a->kv->config.head_size, stride = (n + DOUBLES - 1) / DOUBLES * DOUBLES;                     \
        size_t n_keys = row_keys(t, n_rows - 1) - key;                                                             \
        n_keys = n_keys < ATTENTION_KEYS ? n_keys : ATTENTION_KEYS;                                                \
        const uint16_t *v = kv_v_row(t->a->kv, t->a->layer, t->kv_head, key) + d;                                  \
        for (size_t k = 0; k < n_keys; k++, v += n)                                                                \
            UNROLL for (int i = 0; i < vectors_; i++)                                                              \
                lanes_store_doubles(t->v + (k * vectors_ + (size_t)i) * DOUBLES,                                   \
                                    lanes_load_f16(v + (size_t)i * DOUBLES));                                      \
        for (size_t r = 0; r < n_rows; r += rows_) {                                                               \
            const double *p = t->p + r * ATTENTION_KEYS;                                                           \
            double *sums = t->sums + r * stride + d;                                                               \
            size_t common = visible_keys(t, r, key);                                                               \
            value_tile(t->v, vectors_ * DOUBLES, p, 0, common, sums, stride, rows_, vectors_);                     \
            for (size_t i = 1; i < rows_ && r + i < n_rows; i++)                                                   \
                value_tile(t->v, vectors_ * DOUBLES, p + i * ATTENTION_KEYS, common, visible_keys(t, r + i, key),  \
                           sums + i * stride, stride, 1, vectors_);                                                \
        }                                                                                                          \
    }

/* Of the ATTENTION_KEYS keys from `key` on, those the row sees. */
INLINE size_t visible_keys(const struct attention_tile *t, size_t row, size_t key)
{
    size_t n_keys = row_keys(t, row);
    if (n_keys <= key)
        return 0;
    return n_keys - key < ATTENTION_KEYS ? n_keys - key : ATTENTION_KEYS;
}

#if defined(TIER_IS_AVX2)
VALUE_SLICE(4, 3)
VALUE_SLICE(2, 6)
VALUE_SLICE(1, 12)
#else
VALUE_SLICE(8, 3)
VALUE_SLICE(4, 6)
VALUE_SLICE(2, 12)
VALUE_SLICE(1, 24)
#endif

static const struct {
    size_t vectors;
    void (*slice)(const struct attention_tile *t, size_t n_rows, size_t key, size_t d);
} value_slices[] = {
#if !defined(TIER_IS_AVX2)
    {8, value_slice_8},
#endif
    {4, value_slice_4},
    {2, value_slice_2},
    {1, value_slice_1},
};

TARGET static void prefill_values(const struct attention_tile *t, size_t n_rows, const float *factors)
{
    size_t n_vectors = (t->a->kv->config.head_size + DOUBLES - 1) / DOUBLES, n_keys = row_keys(t, n_rows - 1);
    clear_sums(t, n_rows);
    for (size_t key = 0; key < n_keys; key += ATTENTION_KEYS) {
        for (size_t r = 0; r < n_rows; r++)
            encode_p(t->w + r * t->w_stride + key, factors[r], t->p + r * ATTENTION_KEYS);
        size_t done = 0;
        for (size_t s = 0; s < sizeof value_slices / sizeof value_slices[0]; s++)
            for (; n_vectors - done >= value_slices[s].vectors; done += value_slices[s].vectors)
                value_slices[s].slice(t, n_rows, key, done * DOUBLES);
    }
}

TARGET static void prefill(const struct attention_tile *t)
{
    float factors[ATTENTION_ROWS];
    size_t n_rows = (t->token_end - t->token_begin) * (t->head_end - t->head_begin);
    prefill_scores(t, n_rows);
    for (size_t r = 0; r < n_rows; r++)
        factors[r] = exponentials(t->w + r * t->w_stride, row_keys(t, r));
    prefill_values(t, n_rows, factors);
    write_out(t, n_rows);
}

const struct attention_tier TIER(attention) = {.decode = decode, .prefill = prefill};
