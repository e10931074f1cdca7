/* Attention of every tier, shape and split against a naive reference that pads to 256 keys as the original does. */
#include "engine/ops/attention.h"
#include "engine/ops/math.h"
#include "tests/support/random.h"
#include "tests/support/suite.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct shape {
    size_t head_size, n_heads_kv, group, position, n_tokens;
};

/* One attention problem with its plain K and V (F16 values as float, [position][kv head][head size]). */
struct problem {
    struct shape shape;
    struct kv kv;
    size_t n_keys;
    float *k, *v, *q, *want;
    size_t layer, n_heads, q_stride, out_stride;
};

static float *floats(size_t n)
{
    float *p = calloc(n ? n : 1, sizeof *p);
    ck_assert_ptr_nonnull(p);
    return p;
}

static float f16(float x)
{
    return f16_to_float(f16_from_float(x));
}

/* docs/numerics.md, "KV cache and attention". */
static void reference_head(const struct problem *p, size_t t, size_t h, float *out)
{
    size_t n = p->shape.head_size, kv_head = h / p->shape.group, keys = p->shape.position + t + 1;
    size_t stride = p->shape.n_heads_kv * n, padded = (keys + 255) / 256 * 256;
    float *w = floats(padded), max = -INFINITY, scale = 1.0f / sqrtf((float)n);
    for (size_t j = 0; j < padded; j++) {
        double sum = 0;
        for (size_t d = 0; d < n && j < keys; d++)
            sum = sum + (double)p->k[j * stride + kv_head * n + d] * (double)f16(p->q[t * p->q_stride + h * n + d]);
        w[j] = j < keys ? ((float)sum * scale) + 0.0f : -INFINITY;
        max = fmaxf(max, w[j]);
    }
    double sum = 0;
    for (size_t j = 0; j < padded; j += 4) {
        for (size_t i = j; i < j + 4; i++)
            w[i] = math_pexp(w[i] - max);
        volatile float left = w[j] + w[j + 1], right = w[j + 2] + w[j + 3], group = left + right;
        sum = sum + (double)group;
    }
    float factor = (float)(1.0 / sum);
    for (size_t d = 0; d < n; d++) {
        double o = 0;
        for (size_t j = 0; j < keys; j++)
            o = o + (double)p->v[j * stride + kv_head * n + d] * (double)f16(w[j] * factor);
        out[d] = (float)o;
    }
    free(w);
}

static void store_all(struct problem *p, enum cpu_tier tier, size_t from)
{
    size_t row = p->shape.n_heads_kv * p->shape.head_size;
    struct attention_store s = {.kv = &p->kv, .layer = p->layer, .position = from, .n_tokens = p->n_keys - from,
                                .k = p->k + from * row, .v = p->v + from * row, .k_stride = row, .v_stride = row};
    for (unsigned w = 0; w < 3; w++)
        attention_store_share(tier, &s, w, 3);
}

static struct problem *problem_new(uint64_t *seed, const struct shape *shape, float scale)
{
    struct problem *p = calloc(1, sizeof *p);
    ck_assert_ptr_nonnull(p);
    p->shape = *shape;
    p->n_keys = shape->position + shape->n_tokens;
    p->n_heads = shape->n_heads_kv * shape->group;
    p->layer = 1;
    size_t row = shape->n_heads_kv * shape->head_size, n_q = p->n_heads * shape->head_size;
    struct kv_config config = {.n_layers = 2, .n_heads = shape->n_heads_kv, .head_size = shape->head_size,
                               .n_positions = p->n_keys + random_below(seed, 20)};
    struct error err;
    if (kv_init(&p->kv, &config, &err) != STATUS_OK)
        ck_abort_msg("%s", err.text);
    p->k = floats(p->n_keys * row);
    p->v = floats(p->n_keys * row);
    for (size_t i = 0; i < p->n_keys * row; i++) {
        p->k[i] = f16(random_value(seed, scale));
        p->v[i] = f16(random_value(seed, 2));
    }
    p->q_stride = n_q + random_below(seed, 5);
    p->out_stride = n_q + random_below(seed, 5);
    p->q = floats(shape->n_tokens * p->q_stride);
    random_fill(seed, p->q, shape->n_tokens * p->q_stride, scale);
    /* A truncated past left garbage in the cache, not finite at that, where this sequence has not written yet. */
    for (size_t i = 0; i < config.n_layers * config.n_heads * p->kv.n_blocks * KV_BLOCK * config.head_size; i++)
        p->kv.k[i] = p->kv.v[i] = 0x7e00;
    p->want = floats(shape->n_tokens * p->out_stride);
    for (size_t t = 0; t < shape->n_tokens; t++)
        for (size_t h = 0; h < p->n_heads; h++)
            reference_head(p, t, h, p->want + t * p->out_stride + h * shape->head_size);
    return p;
}

static void problem_free(struct problem *p)
{
    kv_clear(&p->kv);
    free(p->k);
    free(p->v);
    free(p->q);
    free(p->want);
    free(p);
}

static void expect(const struct problem *p, const float *out, enum cpu_tier tier, unsigned n_workers)
{
    size_t n_q = p->n_heads * p->shape.head_size;
    const struct shape *s = &p->shape;
    for (size_t t = 0; t < s->n_tokens; t++)
        for (size_t i = 0; i < p->out_stride; i++) {
            float want = i < n_q ? p->want[t * p->out_stride + i] : -1.0f, got = out[t * p->out_stride + i];
            if (!same_float(got, want))
                ck_abort_msg("tier %s, head size %zu, %zu x %zu heads, position %zu, %zu tokens, %u workers: token %zu "
                             "[%zu] = %a, expected %a",
                             cpu_tier_name(tier), s->head_size, s->n_heads_kv, s->group, s->position, s->n_tokens,
                             n_workers, t, i, (double)got, (double)want);
        }
}

static void run_and_expect(struct problem *p, enum cpu_tier tier, unsigned n_workers)
{
    size_t bytes = attention_scratch_bytes(&p->kv.config, p->n_heads, p->shape.n_tokens);
    ck_assert_uint_eq(bytes % 64, 0);
    void *scratch = aligned_alloc(64, bytes);
    ck_assert_ptr_nonnull(scratch);
    memset(scratch, 0x7f, bytes);
    float *out = floats(p->shape.n_tokens * p->out_stride);
    for (size_t i = 0; i < p->shape.n_tokens * p->out_stride; i++)
        out[i] = -1.0f; /* must stay between the rows */
    struct attention a = {.kv = &p->kv, .layer = p->layer, .n_heads = p->n_heads, .position = p->shape.position,
                          .n_tokens = p->shape.n_tokens, .q = p->q, .out = out, .q_stride = p->q_stride,
                          .out_stride = p->out_stride};
    for (size_t item = attention_items(&a, n_workers); item > 0; item--) /* any order will do */
        attention_item(tier, &a, n_workers, item - 1, scratch);
    expect(p, out, tier, n_workers);
    free(out);
    free(scratch);
}

static void every_tier(uint64_t *seed, const struct shape *shape, float scale)
{
    struct problem *p = problem_new(seed, shape, scale);
    for (int tier = 0; tier < TIER_COUNT; tier++) {
        if (!cpu_tier_available((enum cpu_tier)tier))
            continue;
        store_all(p, (enum cpu_tier)tier, 0);
        for (unsigned n_workers = 1; n_workers <= 4; n_workers += 1 + (unsigned)random_below(seed, 3))
            run_and_expect(p, (enum cpu_tier)tier, n_workers);
    }
    problem_free(p);
}

TEST(one_token_attends_to_any_number_of_keys)
{
    uint64_t seed = 1;
    for (size_t keys = 1; keys < 70; keys++)
        every_tier(&seed, &(struct shape){64, 2, 1 + keys % 4, keys - 1, 1}, 2);
    static const size_t more[] = {95, 96, 97, 127, 128, 255, 256, 257, 300, 511, 530, 769};
    for (size_t i = 0; i < sizeof more / sizeof more[0]; i++)
        every_tier(&seed, &(struct shape){64, 1, 4, more[i] - 1, 1}, 3);
}
END

TEST(any_head_size_and_group_works)
{
    uint64_t seed = 2;
    static const size_t sizes[] = {1, 2, 4, 8, 12, 16, 20, 24, 32, 36, 40, 48, 56, 64, 72, 80, 96, 100, 112, 120, 128, 160, 192, 256, 300};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i += suite_sanitized() ? 3 : 1)
        for (size_t group = 1; group <= 9; group += 1 + random_below(&seed, 2)) {
            every_tier(&seed, &(struct shape){sizes[i], 1 + random_below(&seed, 2), group, random_below(&seed, 60), 1}, 2);
            every_tier(&seed, &(struct shape){sizes[i], 1, group, random_below(&seed, 40), 1 + random_below(&seed, 12)}, 2);
        }
}
END

TEST(a_batch_attends_causally_at_any_position)
{
    uint64_t seed = 3;
    static const size_t tokens[] = {2, 3, 7, 8, 9, 15, 16, 17, 24, 31, 33, 64, 70};
    for (size_t i = 0; i < sizeof tokens / sizeof tokens[0]; i++)
        for (int round = 0; round < 3; round++)
            every_tier(&seed, &(struct shape){round == 2 ? 80 : 64, 2, 1 + random_below(&seed, 4),
                                              round ? random_below(&seed, 150) : 0, tokens[i]}, 2);
}
END

/* So many keys that the scores of fewer rows fit than a tile has, in the end of the fewest. */
TEST(tiles_shrink_when_there_are_many_keys)
{
    uint64_t seed = 9;
    every_tier(&seed, &(struct shape){8, 1, 8, 9000, 13}, 2);
    every_tier(&seed, &(struct shape){8, 1, 3, 40000, 5}, 2);
    every_tier(&seed, &(struct shape){8, 1, 12, 3000, 9}, 2);
}
END

/* Scores so far apart that most probabilities vanish or are subnormal F16, and some exponentials leave the fast range. */
TEST(extreme_scores_keep_their_bits)
{
    uint64_t seed = 4;
    for (int round = 0; round < 12; round++)
        every_tier(&seed, &(struct shape){64, 1, 3, random_below(&seed, 100), 1 + random_below(&seed, 20)},
                   round % 2 ? 40 : 12);
}
END

TEST(a_value_that_is_not_finite_reaches_every_output_that_sees_it)
{
    uint64_t seed = 5;
    struct shape shape = {64, 1, 2, 20, 9};
    for (int tier = 0; tier < TIER_COUNT; tier++) {
        if (!cpu_tier_available((enum cpu_tier)tier))
            continue;
        struct problem *p = problem_new(&seed, &shape, 2);
        p->k[24 * 64 + 5] = NAN; /* position 24, seen by query rows 4.. */
        for (size_t t = 0; t < shape.n_tokens; t++)
            for (size_t h = 0; h < p->n_heads; h++)
                reference_head(p, t, h, p->want + t * p->out_stride + h * 64);
        ck_assert(!isnan(p->want[3 * p->out_stride]) && isnan(p->want[4 * p->out_stride]));
        store_all(p, (enum cpu_tier)tier, 0);
        run_and_expect(p, (enum cpu_tier)tier, 1);
        p->k[24 * 64 + 5] = 1;
        p->v[22 * 64 + 7] = INFINITY;
        for (size_t t = 0; t < shape.n_tokens; t++)
            for (size_t h = 0; h < p->n_heads; h++)
                reference_head(p, t, h, p->want + t * p->out_stride + h * 64);
        store_all(p, (enum cpu_tier)tier, 0);
        run_and_expect(p, (enum cpu_tier)tier, 2);
        problem_free(p);
    }
}
END

/* A batch, its halves and single tokens give the same bits: what was evaluated before does not matter. */
TEST(splitting_a_batch_changes_nothing)
{
    uint64_t seed = 6;
    struct problem *p = problem_new(&seed, &(struct shape){64, 2, 2, 37, 40}, 2);
    size_t bytes = attention_scratch_bytes(&p->kv.config, p->n_heads, p->shape.n_tokens);
    void *scratch = aligned_alloc(64, bytes);
    for (int tier = 0; tier < TIER_COUNT; tier++) {
        if (!cpu_tier_available((enum cpu_tier)tier))
            continue;
        store_all(p, (enum cpu_tier)tier, 0);
        for (size_t step = 1; step <= 40; step += 1 + step / 3) {
            float *out = floats(p->shape.n_tokens * p->out_stride);
            for (size_t i = 0; i < p->shape.n_tokens * p->out_stride; i++)
                out[i] = -1.0f;
            for (size_t t = 0; t < 40; t += step) {
                struct attention a = {.kv = &p->kv, .layer = p->layer, .n_heads = p->n_heads,
                                      .position = p->shape.position + t, .n_tokens = step < 40 - t ? step : 40 - t,
                                      .q = p->q + t * p->q_stride, .out = out + t * p->out_stride,
                                      .q_stride = p->q_stride, .out_stride = p->out_stride};
                for (size_t item = 0; item < attention_items(&a, 1); item++)
                    attention_item((enum cpu_tier)tier, &a, 1, item, scratch);
            }
            expect(p, out, (enum cpu_tier)tier, 1);
            free(out);
        }
    }
    free(scratch);
    problem_free(p);
}
END

TEST(rows_of_chosen_heads_and_tokens_only_are_written)
{
    uint64_t seed = 7;
    struct problem *p = problem_new(&seed, &(struct shape){48, 2, 3, 19, 21}, 2);
    void *scratch = aligned_alloc(64, attention_scratch_bytes(&p->kv.config, p->n_heads, p->shape.n_tokens));
    size_t n_out = p->shape.n_tokens * p->out_stride;
    for (int tier = 0; tier < TIER_COUNT; tier++)
        for (int round = 0; round < 40 && cpu_tier_available((enum cpu_tier)tier); round++) {
            store_all(p, (enum cpu_tier)tier, 0);
            size_t h0 = random_below(&seed, 6), h1 = h0 + random_below(&seed, 7 - h0);
            size_t t0 = random_below(&seed, 21), t1 = t0 + random_below(&seed, 22 - t0);
            float *out = floats(n_out);
            struct attention a = {.kv = &p->kv, .layer = p->layer, .n_heads = p->n_heads, .position = p->shape.position,
                                  .n_tokens = p->shape.n_tokens, .q = p->q, .out = out, .q_stride = p->q_stride,
                                  .out_stride = p->out_stride};
            attention_rows((enum cpu_tier)tier, &a, h0, h1, t0, t1, scratch);
            for (size_t i = 0; i < n_out; i++) {
                size_t t = i / p->out_stride, h = i % p->out_stride / 48;
                bool chosen = t >= t0 && t < t1 && h >= h0 && h < h1;
                if (!same_float(out[i], chosen ? p->want[i] : 0))
                    ck_abort_msg("tier %d heads %zu-%zu tokens %zu-%zu: token %zu head %zu", tier, h0, h1, t0, t1, t, h);
            }
            free(out);
        }
    free(scratch);
    problem_free(p);
}
END

TEST(storing_gives_the_cache_the_same_bits_on_every_tier)
{
    uint64_t seed = 8;
    static const size_t sizes[] = {1, 20, 64, 100, 256, 300};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct kv_config config = {.n_layers = 2, .n_heads = 2, .head_size = sizes[i], .n_positions = 40};
        size_t row = config.n_heads * config.head_size, n = config.n_positions * row;
        float *k = floats(n), *v = floats(n);
        for (size_t j = 0; j < n; j++) {
            k[j] = j % 7 ? random_value(&seed, 1e5f) : random_bits(&seed);
            v[j] = j % 7 ? random_value(&seed, 1e-4f) : random_bits(&seed);
        }
        struct kv want, got;
        struct error err;
        ck_assert_int_eq(kv_init(&want, &config, &err), STATUS_OK);
        for (size_t p = 3; p < config.n_positions; p++)
            kv_store(&want, 1, p, k + p * row, v + p * row);
        for (int tier = 0; tier < TIER_COUNT; tier++) {
            if (!cpu_tier_available((enum cpu_tier)tier))
                continue;
            ck_assert_int_eq(kv_init(&got, &config, &err), STATUS_OK);
            struct attention_store s = {.kv = &got, .layer = 1, .position = 3, .n_tokens = 37, .k = k + 3 * row,
                                        .v = v + 3 * row, .k_stride = row, .v_stride = row};
            for (unsigned w = 0; w < 2; w++)
                attention_store_share((enum cpu_tier)tier, &s, w, 2);
            if (memcmp(want.mapping, got.mapping, want.mapping_bytes) != 0)
                ck_abort_msg("tier %d, head size %zu", tier, sizes[i]);
            kv_clear(&got);
        }
        kv_clear(&want);
        free(k);
        free(v);
    }
}
END

SUITE(ops_attention, T(one_token_attends_to_any_number_of_keys), T(any_head_size_and_group_works),
      T(a_batch_attends_causally_at_any_position), T(extreme_scores_keep_their_bits),
      T(tiles_shrink_when_there_are_many_keys),
      T(a_value_that_is_not_finite_reaches_every_output_that_sees_it), T(splitting_a_batch_changes_nothing),
      T(rows_of_chosen_heads_and_tokens_only_are_written),
      T(storing_gives_the_cache_the_same_bits_on_every_tier))
