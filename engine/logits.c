/* Reading rows of finite logits: choice, order, probabilities. Order is total: higher logit first, then lower id. */
#include <math.h>
#include <string.h>

#include "engine/engine.h"
#include "engine/ops/elementwise.h"
#include "engine/ops/math.h"

enum { TOP_MAX = 100, PEXP_CHUNK = 256 };

int32_t logits_argmax(const float *logits, size_t n)
{
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        if (logits[i] > logits[best])
            best = i;
    return (int32_t)best;
}

size_t logits_top(const float *logits, size_t n, size_t k, struct logits_entry *top)
{
    size_t kept = 0;
    k = k < n ? k : n;
    k = k < TOP_MAX ? k : TOP_MAX;
    if (k == 0)
        return 0;
    for (size_t i = 0; i < n; i++) {
        if (kept == k && !(logits[i] > top[k - 1].logit))
            continue;
        size_t at = kept < k ? kept++ : k - 1;
        for (; at > 0 && logits[i] > top[at - 1].logit; at--)
            top[at] = top[at - 1];
        top[at] = (struct logits_entry){.id = (int32_t)i, .logit = logits[i]};
    }
    float max;
    double log_sum;
    logits_normalizer(logits, n, &max, &log_sum);
    for (size_t i = 0; i < kept; i++)
        top[i].logprob = logits_logprob(top[i].logit, max, log_sum);
    return kept;
}

void logits_normalizer(const float *logits, size_t n, float *max, double *log_sum)
{
    enum cpu_tier tier = cpu_tier_best(); /* every tier has the same bits */
    float part[PEXP_CHUNK];
    double sum = 0;
    *max = ops_max(tier, logits, n);
    for (size_t begin = 0; begin < n; begin += PEXP_CHUNK) {
        size_t count = n - begin < PEXP_CHUNK ? n - begin : PEXP_CHUNK;
        ops_pexp(tier, logits + begin, *max, part, count);
        for (size_t i = 0; i < count; i++)
            sum += (double)part[i];
    }
    *log_sum = math_log(sum);
}

float logits_logprob(float logit, float max, double log_sum)
{
    return (float)((double)logit - (double)max - log_sum);
}

size_t logits_rank(const float *logits, size_t n, int32_t id)
{
    size_t before = 0, own = (size_t)id;
    for (size_t i = 0; i < n; i++)
        before += logits[i] > logits[own] || (logits[i] == logits[own] && i < own);
    return before;
}
