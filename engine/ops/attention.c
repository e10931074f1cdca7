/* Attention: cutting the work into tiles, and the plain code, which is the specification; see attention.h. */
#include "engine/ops/attention.h"

#include <assert.h>
#include <math.h>

#include "engine/base/f16.h"
#include "engine/ops/attention_tier.h"
#include "engine/ops/elementwise.h"
#include "engine/ops/rows.h"

enum { SCORE_BYTES = 1 << 20 }; /* scores of a tile should stay in the second-level cache */

static size_t round_up(size_t n, size_t multiple)
{
    return (n + multiple - 1) / multiple * multiple;
}

static size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* ---- scratch ---- */

static size_t w_stride(size_t n_keys)
{
    return round_up(n_keys + ATTENTION_KEYS, 16);
}

/* Most rows a batch can fill, whatever the keys. */
static size_t rows_bound(const struct kv_config *c, size_t n_heads, size_t n_tokens)
{
    return min_size(ATTENTION_ROWS, round_up(n_heads / c->n_heads * n_tokens, ATTENTION_ROWS_MIN));
}

/* Rows whose scores of n_keys keys fit, at most `bound`. */
static size_t rows_fitting(size_t n_keys, size_t bound)
{
    size_t fit = SCORE_BYTES / (w_stride(n_keys) * sizeof(float)) / ATTENTION_ROWS_MIN * ATTENTION_ROWS_MIN;
    return fit < ATTENTION_ROWS_MIN ? ATTENTION_ROWS_MIN : min_size(fit, bound);
}

/* Lays the buffers of `rows` rows out from `base` on, w last; returns the bytes in front of w. */
static size_t lay_out(struct attention_tile *t, const struct kv_config *c, size_t rows, char *base)
{
    size_t stepped = round_up(rows, ATTENTION_ROW_STEP), at = 0;
    struct {
        void **pointer;
        size_t bytes;
    } parts[] = {
        {(void **)&t->q, rows * c->head_size * sizeof(double)},
        {(void **)&t->k, 24 * c->head_size * sizeof(double)},
        {(void **)&t->v, ATTENTION_KEYS * 64 * sizeof(double)},
        {(void **)&t->p, stepped * ATTENTION_KEYS * sizeof(double)},
        {(void **)&t->sums, stepped * round_up(c->head_size, 8) * sizeof(double)},
        {(void **)&t->w, 0},
    };
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        *parts[i].pointer = base ? base + at : NULL;
        at = round_up(at + parts[i].bytes, 64);
    }
    return at;
}

/* Scores of as many rows as fit, or of the fewest rows when there are many keys. */
size_t attention_scratch_bytes(const struct kv_config *config, size_t n_heads, size_t n_tokens)
{
    struct attention_tile t;
    size_t rows = rows_bound(config, n_heads, n_tokens), row_bytes = w_stride(config->n_positions) * sizeof(float);
    size_t most = rows * row_bytes < SCORE_BYTES ? rows * row_bytes : SCORE_BYTES;
    if (most < ATTENTION_ROWS_MIN * row_bytes)
        most = ATTENTION_ROWS_MIN * row_bytes;
    return lay_out(&t, config, rows, NULL) + round_up(most, 64);
}

/* ---- plain code ---- */

/* Scores of all keys for one head and query. */
static void plain_scores(const struct attention *a, size_t kv_head, const double *q16, size_t n_keys, float *w)
{
    size_t n = a->kv->config.head_size;
    float scale = 1.0f / sqrtf((float)n);
    for (size_t t = 0; t < n_keys; t++) {
        const uint16_t *column = kv_k_block(a->kv, a->layer, kv_head, t) + t % KV_BLOCK;
        double sum = 0.0;
        for (size_t d = 0; d < n; d++)
            sum += (double)f16_to_float(column[d * KV_BLOCK]) * q16[d];
        w[t] = (float)sum * scale; /* the reference adds a mask of 0: no effect on the softmax */
    }
}

/* Groups of four count from position 0; what is missing in the last one is exp(-inf) = 0. */
static void plain_probabilities(float *w, size_t n_keys)
{
    size_t n = round_up(n_keys, 4);
    for (size_t t = n_keys; t < n; t++)
        w[t] = -INFINITY;
    ops_softmax(TIER_SCALAR, w, n);
    for (size_t t = 0; t < n_keys; t++)
        w[t] = f16_to_float(f16_from_float(w[t]));
}

static void plain_values(const struct attention *a, size_t kv_head, const float *p16, size_t n_keys, float *out)
{
    size_t n = a->kv->config.head_size;
    for (size_t d = 0; d < n; d++) {
        const uint16_t *v = kv_v(a->kv, a->layer, kv_head, 0, d);
        size_t stride = kv_v_stride(a->kv, d);
        double sum = 0.0;
        for (size_t t = 0; t < n_keys; t++)
            sum += (double)(f16_to_float(v[t * stride]) * p16[t]);
        out[d] = (float)sum;
    }
}

static void plain_tile(const struct attention_tile *tile)
{
    const struct attention *a = tile->a;
    size_t n = a->kv->config.head_size;
    for (size_t t = tile->token_begin; t < tile->token_end; t++)
        for (size_t h = tile->head_begin; h < tile->head_end; h++) {
            size_t n_keys = a->position + t + 1;
            for (size_t d = 0; d < n; d++)
                tile->q[d] = (double)f16_to_float(f16_from_float(a->q[t * a->q_stride + h * n + d]));
            plain_scores(a, tile->kv_head, tile->q, n_keys, tile->w);
            plain_probabilities(tile->w, n_keys);
            plain_values(a, tile->kv_head, tile->w, n_keys, a->out + t * a->out_stride + h * n);
        }
}

static const struct attention_tier attention_scalar = {.decode = plain_tile, .prefill = plain_tile};

static const struct attention_tier *tier_find(enum cpu_tier tier)
{
    static const struct attention_tier *const tiers[TIER_COUNT] = {
        [TIER_SCALAR] = &attention_scalar,
#if defined(__x86_64__)
        [TIER_AVX2] = &attention_avx2,
        [TIER_AVX512] = &attention_avx512,
#elif defined(__aarch64__)
        [TIER_NEON] = &attention_neon,
#endif
    };
    while (!tiers[tier])
        tier = cpu_tier_below(tier);
    return tiers[tier];
}

/* ---- tiles ---- */

enum { PREFILL_ROWS = 4 }; /* fewer rows than this are faster one token at a time */

/* Tokens [token_begin, token_end) of some heads of one group, as many tokens at a time as rows fit. */
static void group_rows(const struct attention_tier *tier, struct attention_tile *tile, size_t rows, size_t token_begin,
                       size_t token_end)
{
    size_t n_heads = tile->head_end - tile->head_begin, step = rows / n_heads;
    for (size_t t = token_begin; t < token_end; t = tile->token_end) {
        tile->token_begin = t;
        tile->token_end = min_size(t + step, token_end);
        if ((tile->token_end - t) * n_heads < PREFILL_ROWS || step == 1)
            tile->token_end = t + 1;
        if (tile->token_end == t + 1)
            tier->decode(tile);
        else
            tier->prefill(tile);
    }
}

void attention_rows(enum cpu_tier tier, const struct attention *a, size_t head_begin, size_t head_end,
                    size_t token_begin, size_t token_end, void *scratch)
{
    const struct kv_config *c = &a->kv->config;
    assert(a->n_heads % c->n_heads == 0 && a->position + a->n_tokens <= c->n_positions);
    size_t group = a->n_heads / c->n_heads, n_keys = a->position + token_end;
    struct attention_tile tile = {.a = a, .w_stride = w_stride(n_keys)};
    size_t bound = rows_bound(c, a->n_heads, a->n_tokens), rows = rows_fitting(n_keys, bound);
    lay_out(&tile, c, bound, scratch);
    for (size_t h = head_begin; h < head_end; h = tile.head_end) {
        tile.kv_head = h / group;
        tile.head_begin = h;
        tile.head_end = min_size(min_size((tile.kv_head + 1) * group, head_end), h + ATTENTION_GROUP);
        group_rows(tier_find(tier), &tile, rows, token_begin, token_end);
    }
}

/* Query rows are cut into tiles whose scores fit the scratch; an item is one tile's rows of one KV head's query heads, or
 * of a part of them where there are fewer items than workers. */
struct cut {
    size_t n_tokens, n_tiles, part, n_parts;
};

static struct cut cut_of(const struct attention *a, unsigned n_workers)
{
    const struct kv_config *c = &a->kv->config;
    size_t group = a->n_heads / c->n_heads;
    size_t rows = rows_fitting(a->position + a->n_tokens, rows_bound(c, a->n_heads, a->n_tokens));
    struct cut cut = {.n_tokens = min_size(a->n_tokens, rows / min_size(group, ATTENTION_GROUP)), .part = group};
    cut.n_tiles = (a->n_tokens + cut.n_tokens - 1) / cut.n_tokens;
    while (cut.part > 1 && cut.n_tiles * c->n_heads * (group / cut.part) < n_workers)
        cut.part = (cut.part + 1) / 2;
    cut.n_parts = (group + cut.part - 1) / cut.part;
    return cut;
}

size_t attention_items(const struct attention *a, unsigned n_workers)
{
    struct cut cut = cut_of(a, n_workers);
    return cut.n_tiles * a->kv->config.n_heads * cut.n_parts;
}

const void *attention_item_keys(const struct attention *a, unsigned n_workers, size_t item, size_t *bytes)
{
    size_t kv_head = item / cut_of(a, n_workers).n_parts % a->kv->config.n_heads;
    *bytes = round_up(a->position + 1, KV_BLOCK) * a->kv->config.head_size * sizeof *a->kv->k;
    return kv_k_block(a->kv, a->layer, kv_head, 0);
}

void attention_item(enum cpu_tier tier, const struct attention *a, unsigned n_workers, size_t item, void *scratch)
{
    struct cut cut = cut_of(a, n_workers);
    size_t n_heads = a->kv->config.n_heads, group = a->n_heads / n_heads;
    size_t tile = item / cut.n_parts / n_heads, kv_head = item / cut.n_parts % n_heads, h = item % cut.n_parts * cut.part;
    attention_rows(tier, a, kv_head * group + h, kv_head * group + min_size(h + cut.part, group), tile * cut.n_tokens,
                   min_size((tile + 1) * cut.n_tokens, a->n_tokens), scratch);
}

void attention_piece_run(enum cpu_tier tier, const struct attention_piece *piece, void *scratch)
{
    const struct attention *a = piece->tile->a;
    const struct kv_config *c = &a->kv->config;
    struct attention_tile own;
    lay_out(&own, c, rows_bound(c, a->n_heads, a->n_tokens), scratch);
    tier_find(tier)->piece(piece, own.p);
}

/* ---- storing ---- */

enum { STORE_PART = 256 };

/* One head of one position; columns of K are 32 bytes apart. */
static void store_head(const struct rows *rows, const struct kv *kv, size_t layer, size_t head, size_t position,
                       const float *k, const float *v)
{
    size_t n = kv->config.head_size;
    uint16_t part[STORE_PART], *column = kv_k_block(kv, layer, head, position) + position % KV_BLOCK;
    for (size_t begin = 0; begin < n; begin += STORE_PART) {
        size_t count = min_size(n - begin, STORE_PART);
        rows->f16_encode(k + begin, part, count);
        for (size_t d = 0; d < count; d++)
            column[(begin + d) * KV_BLOCK] = part[d];
    }
    for (size_t d = 0; d < n; d += KV_PLANE)
        rows->f16_encode(v + d, kv_v(kv, layer, head, position, d), min_size(n - d, KV_PLANE));
}

void attention_store_share(enum cpu_tier tier, const struct attention_store *s, unsigned worker, unsigned n_workers)
{
    const struct kv_config *c = &s->kv->config;
    const struct rows *rows = rows_find(tier);
    size_t begin = s->n_tokens * worker / n_workers, end = s->n_tokens * (worker + 1) / n_workers, n = c->head_size;
    assert(s->layer < c->n_layers && s->position + s->n_tokens <= c->n_positions);
    for (size_t t = begin; t < end; t++)
        for (size_t h = 0; h < c->n_heads; h++)
            store_head(rows, s->kv, s->layer, h, s->position + t, s->k + t * s->k_stride + h * n,
                       s->v + t * s->v_stride + h * n);
}
