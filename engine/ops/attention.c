/* Attention: the plain code is the specification; see attention.h. */
#include "engine/ops/attention.h"

#include <assert.h>
#include <math.h>

#include "engine/base/f16.h"
#include "engine/ops/elementwise.h"

static size_t padded(size_t n, size_t multiple)
{
    return (n + multiple - 1) / multiple * multiple;
}

size_t attention_scratch_bytes(const struct kv_config *config, size_t n_heads, size_t n_tokens)
{
    (void)n_heads;
    (void)n_tokens;
    return padded((config->n_positions + 64) * sizeof(float) + config->head_size * sizeof(float), 64);
}

/* Scores of all keys for one head and query. */
static void scores(const struct attention *a, size_t kv_head, const float *q16, size_t n_keys, float *w)
{
    size_t n = a->kv->config.head_size;
    float scale = 1.0f / sqrtf((float)n);
    for (size_t t = 0; t < n_keys; t++) {
        const uint16_t *column = kv_k_block(a->kv, a->layer, kv_head, t) + t % KV_BLOCK;
        double sum = 0.0;
        for (size_t d = 0; d < n; d++)
            sum += (double)(f16_to_float(column[d * KV_BLOCK]) * q16[d]);
        w[t] = (float)sum * scale; /* the reference adds a mask of 0: no effect on the softmax */
    }
}

/* Groups of four count from position 0; what is missing in the last one is exp(-inf) = 0. */
static void probabilities(enum cpu_tier tier, float *w, size_t n_keys)
{
    size_t n = padded(n_keys, 4);
    for (size_t t = n_keys; t < n; t++)
        w[t] = -INFINITY;
    ops_softmax(tier, w, n);
    for (size_t t = 0; t < n_keys; t++)
        w[t] = f16_to_float(f16_from_float(w[t]));
}

static void weighted_values(const struct attention *a, size_t kv_head, const float *p16, size_t n_keys, float *out)
{
    size_t n = a->kv->config.head_size;
    const uint16_t *v = kv_v_row(a->kv, a->layer, kv_head, 0);
    for (size_t d = 0; d < n; d++) {
        double sum = 0.0;
        for (size_t t = 0; t < n_keys; t++)
            sum += (double)(f16_to_float(v[t * n + d]) * p16[t]);
        out[d] = (float)sum;
    }
}

void attention_rows(enum cpu_tier tier, const struct attention *a, size_t head_begin, size_t head_end,
                    size_t token_begin, size_t token_end, void *scratch)
{
    const struct kv_config *c = &a->kv->config;
    assert(a->n_heads % c->n_heads == 0 && a->position + a->n_tokens <= c->n_positions);
    size_t n = c->head_size, group = a->n_heads / c->n_heads;
    float *q16 = scratch, *w = q16 + n;
    for (size_t t = token_begin; t < token_end; t++)
        for (size_t h = head_begin; h < head_end; h++) {
            for (size_t d = 0; d < n; d++)
                q16[d] = f16_to_float(f16_from_float(a->q[t * a->q_stride + h * n + d]));
            size_t n_keys = a->position + t + 1;
            scores(a, h / group, q16, n_keys, w);
            probabilities(tier, w, n_keys);
            weighted_values(a, h / group, w, n_keys, a->out + t * a->out_stride + h * n);
        }
}

void attention_share(enum cpu_tier tier, const struct attention *a, unsigned worker, unsigned n_workers,
                     void *scratch)
{
    size_t begin = a->n_heads * worker / n_workers, end = a->n_heads * (worker + 1) / n_workers;
    attention_rows(tier, a, begin, end, 0, a->n_tokens, scratch);
}

void attention_store_share(enum cpu_tier tier, const struct attention_store *s, unsigned worker, unsigned n_workers)
{
    (void)tier;
    size_t begin = s->n_tokens * worker / n_workers, end = s->n_tokens * (worker + 1) / n_workers;
    for (size_t t = begin; t < end; t++)
        kv_store(s->kv, s->layer, s->position + t, s->k + t * s->k_stride, s->v + t * s->v_stride);
}
