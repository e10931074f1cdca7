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

enum { SOFTMAX_ROWS = 4, SOFTMAX_KEYS = 4 * SOFTMAX_STEP };

/* Exponentials of the keys [begin, begin + SOFTMAX_KEYS) of a row that it sees, and their sums of four, 0 for the rest. */
INLINE void exponentials_step(float *w, size_t begin, size_t n_keys, f32v max, double *sums)
{
    for (size_t key = begin; key < begin + SOFTMAX_KEYS; key += SOFTMAX_STEP, sums += LANES) {
        if (key + SOFTMAX_STEP <= n_keys)
            softmax_step(w + key, max, sums);
        else if (key < n_keys)
            softmax_part(w + key, max[0], n_keys - key, sums);
        else
            memset(sums, 0, LANES * sizeof *sums);
    }
}

/* Exponentials of the scores of SOFTMAX_ROWS rows in place, and the factors that make them probabilities. What is
 * missing in the last group of four is exp(-inf) = 0. The sums of several rows grow side by side. */
TARGET static void exponentials(float *const w[SOFTMAX_ROWS], const size_t n_keys[SOFTMAX_ROWS],
                                float factors[SOFTMAX_ROWS])
{
    double parts[SOFTMAX_ROWS][SOFTMAX_KEYS / 4], sums[SOFTMAX_ROWS] = {0};
    float max[SOFTMAX_ROWS];
    size_t last = 0;
    for (int r = 0; r < SOFTMAX_ROWS; r++) {
        max[r] = max_of(w[r], n_keys[r]);
        last = n_keys[r] > last ? n_keys[r] : last;
    }
    for (size_t key = 0; key < last; key += SOFTMAX_KEYS) {
        for (int r = 0; r < SOFTMAX_ROWS; r++)
            exponentials_step(w[r], key, n_keys[r], lanes_set(max[r]), parts[r]);
        for (int g = 0; g < SOFTMAX_KEYS / 4; g++)
            UNROLL for (int r = 0; r < SOFTMAX_ROWS; r++)
                sums[r] += parts[r][g];
    }
    for (int r = 0; r < SOFTMAX_ROWS; r++)
        factors[r] = (float)(1.0 / sums[r]);
}

TARGET static void all_exponentials(const struct attention_tile *t, size_t n_rows, const size_t *n_keys, float *factors)
{
    float *w[SOFTMAX_ROWS], nothing[1];
    size_t keys[SOFTMAX_ROWS];
    float part[SOFTMAX_ROWS];
    for (size_t r = 0; r < n_rows; r += SOFTMAX_ROWS) {
        size_t count = n_rows - r < SOFTMAX_ROWS ? n_rows - r : SOFTMAX_ROWS;
        for (size_t i = 0; i < SOFTMAX_ROWS; i++) {
            w[i] = i < count ? t->w + (r + i) * t->w_stride : nothing;
            keys[i] = i < count ? n_keys[r + i] : 0;
        }
        exponentials(w, keys, part);
        memcpy(factors + r, part, count * sizeof *factors);
    }
}

/* Probabilities of at least n_keys keys, rounded to F16, as double. */
TARGET static void encode_p(const float *w, float factor, double *p, size_t n_keys)
{
    for (size_t i = 0; i < n_keys; i += LANES) {
        uint16_t half[LANES];
        lanes_store_f16_fast(half, lanes_load(w + i) * factor);
        lanes_store_doubles(p + i, lanes_load_f16(half));
        lanes_store_doubles(p + i + DOUBLES, lanes_load_f16(half + DOUBLES));
    }
}

/* ---- one token ---- */

/* Keys of one tile of V: as many as p has room for, because every pass over a tile begins and ends with its sums. */
enum { DECODE_KEYS = ATTENTION_ROW_STEP * ATTENTION_KEYS / ATTENTION_GROUP };

/* The cache is read once and in order: lines are requested so early that the hardware, which follows the requests, has
 * brought most of them into the second-level cache before. A prefetch cannot fault. */
enum { K_AHEAD = 12288, V_AHEAD = 4096 }; /* bytes */

/* One dimension's part of decode_scores_step. */
INLINE void add_scores(const uint16_t *const *k, size_t d, const double *q, f64v *sums, const int vectors,
                       const int group)
{
    UNROLL for (int i = 0; i < vectors; i++) {
        f64v x = lanes_load_f16(k[i] + d * KV_BLOCK);
        UNROLL for (int g = 0; g < group; g++)
            sums[i * group + g] = lanes_fma(x, lanes_set_double(q[g]), sums[i * group + g]);
    }
}

/* Scores of `vectors` vectors of keys for `group` heads; q is [head size][group]. The blocks of these keys lie behind each
 * other and are read side by side, but requested in the order of their lines: that is the stream the hardware recognizes. */
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
    const char *line = (const char *)k[0];
    size_t n = t->a->kv->config.head_size, d = 0;
    for (; d + 2 <= n; d += 2, q += 2 * group) { /* a line of each block */
        UNROLL for (int i = 0; i < vectors; i += KV_BLOCK / DOUBLES, line += 64)
            __builtin_prefetch(line + K_AHEAD, 0, 3);
        add_scores(k, d, q, sums, vectors, group);
        add_scores(k, d + 1, q + group, sums, vectors, group);
    }
    if (d < n)
        add_scores(k, d, q, sums, vectors, group);
    UNROLL for (int g = 0; g < group; g++)
        UNROLL for (int i = 0; i < vectors; i++) {
            f32h s = __builtin_convertvector(sums[i * group + g], f32h) * scale;
            memcpy(t->w + (size_t)g * t->w_stride + key + (size_t)i * DOUBLES, &s, sizeof s);
        }
}

enum { PLANE_VECTORS = KV_PLANE / DOUBLES };

/* Values of `vectors` vectors of dimensions from d on, in one plane or in whole ones, for `group` heads and n_keys keys
 * from `key` on. */
INLINE void decode_values_step(const struct attention_tile *t, size_t key, size_t n_keys, size_t d, const int vectors,
                               const int group)
{
    f64v sums[24];
    const struct kv *kv = t->a->kv;
    size_t stride = (kv->config.head_size + DOUBLES - 1) / DOUBLES * DOUBLES, step[2];
    const uint16_t *v[2];
    const double *p = t->p;
    double *to = t->sums + d;
    UNROLL for (int i = 0; i < vectors; i += PLANE_VECTORS) {
        v[i / PLANE_VECTORS] = kv_v(kv, t->a->layer, t->kv_head, key, d + (size_t)i * DOUBLES);
        step[i / PLANE_VECTORS] = kv_v_stride(kv, d + (size_t)i * DOUBLES);
    }
    UNROLL for (int g = 0; g < group; g++)
        UNROLL for (int i = 0; i < vectors; i++)
            sums[g * vectors + i] = lanes_load_doubles(to + (size_t)g * stride + (size_t)i * DOUBLES);
    for (size_t end = key + n_keys; key < end; key++, p++) {
        UNROLL for (int i = 0; i < vectors; i++) {
            const uint16_t *at = v[i / PLANE_VECTORS];
            if (i % PLANE_VECTORS == 0)
                __builtin_prefetch((const char *)at + V_AHEAD, 0, 3);
            f64v x = lanes_load_f16(at + (size_t)(i % PLANE_VECTORS) * DOUBLES);
            UNROLL for (int g = 0; g < group; g++)
                sums[g * vectors + i] = lanes_fma(x, lanes_set_double(p[g * DECODE_KEYS]), sums[g * vectors + i]);
        }
        UNROLL for (int i = 0; i < vectors; i += PLANE_VECTORS)
            v[i / PLANE_VECTORS] += step[i / PLANE_VECTORS];
    }
    UNROLL for (int g = 0; g < group; g++)
        UNROLL for (int i = 0; i < vectors; i++)
            lanes_store_doubles(to + (size_t)g * stride + (size_t)i * DOUBLES, sums[g * vectors + i]);
}

/* Instances for a number of heads: enough accumulators to hide latency, few enough for the registers. */
#define DECODE_INSTANCE(group, k_vectors, v_vectors)                                                            \
    TARGET static void decode_scores_##group(const struct attention_tile *t, size_t key, size_t end, float scale) \
    {                                                                                                           \
        for (; key < end; key += k_vectors * DOUBLES)                                                           \
            decode_scores_step(t, key, scale, k_vectors, group);                                                \
    }                                                                                                           \
    TARGET static void decode_values_##group(const struct attention_tile *t, size_t key, size_t n_keys, size_t d, \
                                             size_t end)                                                        \
    {                                                                                                           \
        for (; d + (v_vectors - 1) * DOUBLES < end; d += v_vectors * DOUBLES)                                   \
            decode_values_step(t, key, n_keys, d, v_vectors, group);                                            \
        for (; d < end; d += DOUBLES)                                                                           \
            decode_values_step(t, key, n_keys, d, 1, group);                                                    \
    }                                                                                                           \
    enum { DECODE_DIMS_##group = v_vectors * DOUBLES > KV_PLANE ? v_vectors * DOUBLES : KV_PLANE };

#if defined(TIER_IS_AVX2)
DECODE_INSTANCE(1, 4, 8)
DECODE_INSTANCE(2, 2, 4)
DECODE_INSTANCE(3, 2, 4)
DECODE_INSTANCE(4, 2, 2)
#else
DECODE_INSTANCE(1, 4, 8)
DECODE_INSTANCE(2, 4, 8)
DECODE_INSTANCE(3, 4, 8)
DECODE_INSTANCE(4, 4, 4)
DECODE_INSTANCE(5, 2, 4)
DECODE_INSTANCE(6, 2, 4)
DECODE_INSTANCE(7, 2, 2)
DECODE_INSTANCE(8, 2, 2)
#endif

#define DECODE_ROW(group) {decode_scores_##group, decode_values_##group, DECODE_DIMS_##group}
static const struct {
    void (*scores)(const struct attention_tile *t, size_t key, size_t end, float scale);
    void (*values)(const struct attention_tile *t, size_t key, size_t n_keys, size_t d, size_t end);
    size_t dims; /* values are cut at multiples of so many dimensions */
} decode_instances[GROUP_AT_ONCE] = {
    DECODE_ROW(1), DECODE_ROW(2), DECODE_ROW(3), DECODE_ROW(4),
#if !defined(TIER_IS_AVX2)
    DECODE_ROW(5), DECODE_ROW(6), DECODE_ROW(7), DECODE_ROW(8),
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

/* Keys between two looks for a helper; less than two such steps are not worth sharing. */
enum { SCORE_KEYS = 512 };

INLINE size_t piece_step(const struct attention_piece *piece)
{
    return piece->factors ? DECODE_KEYS : SCORE_KEYS;
}

/* The first keys of a piece; p has room for DECODE_KEYS probabilities of each head. */
TARGET static void piece_begin(struct attention_piece *piece, double *p)
{
    struct attention_tile t = *piece->tile;
    size_t n = t.a->kv->config.head_size, group = t.head_end - t.head_begin;
    size_t key = piece->key_begin, left = piece->key_end - key;
    size_t count = left < piece_step(piece) ? left : piece_step(piece);
    if (!piece->factors) {
        decode_instances[group - 1].scores(&t, key, key + count, 1.0f / sqrtf((float)n));
    } else {
        t.p = p;
        for (size_t g = 0; g < group; g++)
            encode_p(t.w + g * t.w_stride + key, piece->factors[g], p + g * DECODE_KEYS, count);
        decode_instances[group - 1].values(&t, key, count, piece->dim_begin, piece->dim_end);
    }
    piece->key_begin += count;
}

/* Halves a piece, if that is worth it: scores by keys, values by dimensions, whose sums stand in the tile and go on. */
TARGET static bool piece_split(struct attention_piece *piece, struct attention_piece *upper)
{
    const struct attention_tile *t = piece->tile;
    size_t step = piece_step(piece), left = piece->key_end - piece->key_begin;
    size_t dims = decode_instances[t->head_end - t->head_begin - 1].dims;
    size_t parts = (piece->dim_end - piece->dim_begin + dims - 1) / dims;
    *upper = *piece;
    if (left < 2 * step || (piece->factors && parts < 2))
        return false;
    if (piece->factors)
        piece->dim_end = upper->dim_begin = piece->dim_begin + (parts + 1) / 2 * dims;
    else
        piece->key_end = upper->key_begin = piece->key_begin + (left / step + 1) / 2 * step;
    return true;
}

/* All of a piece, with whatever help there is. */
TARGET static void piece_finish(struct attention_piece piece)
{
    const struct attention_help *help = piece.tile->a->help;
    struct attention_piece given;
    bool has_given = false;
    for (;;) {
        if (help && !has_given && help->wanted(help->context) && piece_split(&piece, &given)) {
            help->give(help->context, &given);
            has_given = true;
        }
        if (piece.key_begin < piece.key_end) {
            piece_begin(&piece, piece.tile->p);
        } else if (has_given && help->take_back(help->context)) {
            piece = given;
            has_given = false;
        } else {
            return;
        }
    }
}

static void decode_piece(const struct attention_piece *piece, double *p)
{
    for (struct attention_piece left = *piece; left.key_begin < left.key_end;)
        piece_begin(&left, p);
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
        size_t keys[GROUP_AT_ONCE];
        for (size_t g = 0; g < group; g++)
            encode_q(row_q(&t, g), n, t.q + g, group);
        piece_finish((struct attention_piece){.tile = &t, .key_end = n_keys});
        for (size_t g = 0; g < group; g++)
            keys[g] = n_keys;
        all_exponentials(&t, group, keys, factors);
        clear_sums(&t, group);
        piece_finish((struct attention_piece){.tile = &t, .factors = factors, .key_end = n_keys, .dim_end = n});
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

TARGET static void prefill_scores(const struct attention_tile *t, size_t n_rows, const size_t *n_keys)
{
    size_t n = t->a->kv->config.head_size, n_panels = (n_rows + Q_ROWS - 1) / Q_ROWS;
    float scale = 1.0f / sqrtf((float)n);
    for (size_t r = 0; r < n_panels * Q_ROWS; r++) /* the last panel repeats the last row */
        encode_q(row_q(t, r < n_rows ? r : n_rows - 1), n, t->q + r / Q_ROWS * Q_ROWS * n + r % Q_ROWS, Q_ROWS);
    for (size_t key = 0; key < n_keys[n_rows - 1]; key += K_TILE) {
        load_k_tile(t, key);
        for (size_t p = 0; p < n_panels; p++) {
            size_t last = (p + 1) * Q_ROWS < n_rows ? (p + 1) * Q_ROWS - 1 : n_rows - 1;
            if (key < n_keys[last])
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
            f64v x = lanes_keep(lanes_load_doubles(v + key * v_stride + (size_t)i * DOUBLES));
            UNROLL for (int r = 0; r < rows; r++)
                sums[r * vectors + i] = lanes_fma(x, y[r], sums[r * vectors + i]);
        }
    }
    UNROLL for (int r = 0; r < rows; r++)
        UNROLL for (int i = 0; i < vectors; i++)
            lanes_store_doubles(to + (size_t)r * stride + (size_t)i * DOUBLES, sums[r * vectors + i]);
}

/* Of the ATTENTION_KEYS keys from `key` on, those that a row of n_keys keys sees. */
INLINE size_t visible_keys(size_t n_keys, size_t key)
{
    if (n_keys <= key)
        return 0;
    return n_keys - key < ATTENTION_KEYS ? n_keys - key : ATTENTION_KEYS;
}

/* One slice of dimensions, from d on, for all rows and the keys [key, key + ATTENTION_KEYS). A group of rows takes the
 * keys that all of them see together, what some see besides row by row: nothing masked is multiplied, so it need not be
 * finite. */
INLINE void value_slice(const struct attention_tile *t, size_t n_rows, const size_t *n_keys, size_t key, size_t d,
                        const int vectors, const int rows)
{
    size_t n = t->a->kv->config.head_size, stride = (n + DOUBLES - 1) / DOUBLES * DOUBLES;
    size_t v_stride = (size_t)vectors * DOUBLES, loaded = visible_keys(n_keys[n_rows - 1], key);
    for (size_t i = 0; i < v_stride; i += DOUBLES) {
        const uint16_t *v = kv_v(t->a->kv, t->a->layer, t->kv_head, key, d + i);
        size_t step = kv_v_stride(t->a->kv, d + i);
        for (size_t k = 0; k < loaded; k++)
            lanes_store_doubles(t->v + k * v_stride + i, lanes_load_f16(v + k * step));
    }
    for (size_t r = 0; r < n_rows; r += (size_t)rows) {
        const double *p = t->p + r * ATTENTION_KEYS;
        double *sums = t->sums + r * stride + d;
        size_t common = visible_keys(n_keys[r], key);
        value_tile(t->v, v_stride, p, 0, common, sums, stride, rows, vectors);
        for (size_t i = 1; i < (size_t)rows && r + i < n_rows; i++) {
            size_t own = visible_keys(n_keys[r + i], key);
            if (own > common)
                value_tile(t->v, v_stride, p + i * ATTENTION_KEYS, common, own, sums + i * stride, stride, 1, vectors);
        }
    }
}

#define VALUE_SLICE(vectors, rows)                                                                              \
    TARGET static void value_slice_##vectors(const struct attention_tile *t, size_t n_rows, const size_t *n_keys, \
                                             size_t key, size_t d)                                              \
    {                                                                                                           \
        value_slice(t, n_rows, n_keys, key, d, vectors, rows);                                                  \
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
    void (*slice)(const struct attention_tile *t, size_t n_rows, const size_t *n_keys, size_t key, size_t d);
} value_slices[] = {
#if !defined(TIER_IS_AVX2)
    {8, value_slice_8},
#endif
    {4, value_slice_4},
    {2, value_slice_2},
    {1, value_slice_1},
};

TARGET static void prefill_values(const struct attention_tile *t, size_t n_rows, const size_t *n_keys,
                                  const float *factors)
{
    size_t n_vectors = (t->a->kv->config.head_size + DOUBLES - 1) / DOUBLES;
    clear_sums(t, n_rows);
    for (size_t key = 0; key < n_keys[n_rows - 1]; key += ATTENTION_KEYS) {
        for (size_t r = 0; r < n_rows; r++)
            encode_p(t->w + r * t->w_stride + key, factors[r], t->p + r * ATTENTION_KEYS, visible_keys(n_keys[r], key));
        size_t done = 0;
        for (size_t s = 0; s < sizeof value_slices / sizeof value_slices[0]; s++)
            for (; n_vectors - done >= value_slices[s].vectors; done += value_slices[s].vectors)
                value_slices[s].slice(t, n_rows, n_keys, key, done * DOUBLES);
    }
}

TARGET static void prefill(const struct attention_tile *t)
{
    float factors[ATTENTION_ROWS];
    size_t n_keys[ATTENTION_ROWS], n_rows = (t->token_end - t->token_begin) * (t->head_end - t->head_begin);
    for (size_t r = 0; r < n_rows; r++)
        n_keys[r] = row_keys(t, r);
    prefill_scores(t, n_rows, n_keys);
    all_exponentials(t, n_rows, n_keys, factors);
    prefill_values(t, n_rows, n_keys, factors);
    write_out(t, n_rows);
}

const struct attention_tier TIER(attention) = {.decode = decode, .prefill = prefill, .piece = decode_piece};
