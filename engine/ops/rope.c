/* RoPE parameters, angle rows and rotation; docs/numerics.md, section "RoPE", gives every rounding. */
#include "engine/ops/rope.h"

#include <assert.h>
#include <math.h>

#include "engine/ops/math.h"
#include "engine/ops/rows.h"

/* Magnitude of YaRN for factor F >= 1 and multiplier k. */
static float yarn_magnitude(float factor, float k)
{
    return factor <= 1.0f ? 1.0f : ((0.1f * k) * math_logf(factor)) + 1.0f;
}

static float attention_factor(const struct rope *rope)
{
    const struct rope_options *o = &rope->options;
    float result = 1.0f;
    if (rope->yarn) {
        float factor = 1.0f / rope->frequency_scale, lg = math_logf(factor);
        result = yarn_magnitude(factor, 1.0f);
        if (o->log_multiplier != 0.0f)
            result = result / yarn_magnitude(factor, o->log_multiplier);
        result = result * (1.0f / (1.0f + 0.1f * lg));
    }
    return result * o->attention_factor;
}

/* Pair index at which a wavelength fits `beta` times into the original context. */
static float correction_index(const struct rope_options *o, float beta)
{
    const float pi = 0x1.921fb6p+1f;
    float turns = (float)o->original_context / ((beta * 2.0f) * pi);
    return ((float)o->n_dims * math_logf(turns)) / (2.0f * math_logf(o->base));
}

void rope_init(struct rope *rope, const struct rope_options *options)
{
    assert(options->n_dims % 2 == 0 && options->n_dims > 0);
    *rope = (struct rope){.options = *options};
    rope->theta_scale = math_powf(options->base, -2.0f / (float)options->n_dims);
    rope->frequency_scale = options->factor == 0.0f ? 1.0f : 1.0f / options->factor;
    if (options->scaling == ROPE_SCALING_NONE)
        rope->frequency_scale = 1.0f;
    rope->yarn = options->scaling == ROPE_SCALING_YARN;
    rope->magnitude = attention_factor(rope);
    if (rope->yarn) {
        float low = floorf(correction_index(options, options->beta_fast));
        float high = ceilf(correction_index(options, options->beta_slow));
        rope->low = low > 0.0f ? low : 0.0f;
        rope->high = high < (float)(options->n_dims - 1) ? high : (float)(options->n_dims - 1);
        rope->magnitude *= 1.0f + 0.1f * math_logf(1.0f / rope->frequency_scale);
    }
}

/* Share of the unscaled angle in pair i: 1 below `low`, 0 above `high`. */
static float yarn_mix(const struct rope *rope, size_t i)
{
    float width = rope->high - rope->low;
    float y = ((float)i - rope->low) / (width > 0.001f ? width : 0.001f);
    y = y > 0.0f ? y : 0.0f;
    return 1.0f - (y < 1.0f ? y : 1.0f);
}

void rope_angles(const struct rope *rope, size_t position, float *cosines, float *sines)
{
    const float *factors = rope->options.frequency_factors;
    float theta = (float)position;
    for (size_t i = 0; i < rope->options.n_dims / 2; i++) {
        float unscaled = theta / (factors ? factors[i] : 1.0f);
        float angle = rope->frequency_scale * unscaled, sine, cosine;
        if (rope->yarn) {
            float mix = yarn_mix(rope, i);
            angle = (angle * (1.0f - mix)) + (unscaled * mix);
        }
        math_sincosf(angle, &sine, &cosine);
        cosines[i] = cosine * rope->magnitude;
        sines[i] = sine * rope->magnitude;
        theta = theta * rope->theta_scale;
    }
}

void rope_apply(enum cpu_tier tier, const struct rope *rope, const float *cosines, const float *sines, float *x,
                size_t n_heads)
{
    const struct rows *rows = rows_find(tier);
    size_t n = rope->options.n_dims;
    for (size_t h = 0; h < n_heads; h++) {
        if (rope->options.kind == ROPE_NEOX)
            rows->rotate_neox(cosines, sines, x + h * n, n);
        else
            rows->rotate_normal(cosines, sines, x + h * n, n);
    }
}

float rope_temperature(const struct rope *rope, size_t position)
{
    const struct rope_options *o = &rope->options;
    if (o->temperature_scale == 0.0f)
        return 1.0f;
    double steps = (double)floorf((float)position / (float)o->original_context);
    return (float)(math_log(steps + 1.0) * (double)o->temperature_scale + 1.0);
}
