/* Rotary position embedding: from the metadata's parameters to one row of sines and cosines per position.
 *
 * Rows depend on the position only: compute them once per position and step, and apply them in every layer. */
#ifndef GGUFD_OPS_ROPE_H
#define GGUFD_OPS_ROPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/cpu/cpu.h"

/* Which two elements of a head form pair i: (2i, 2i+1), or (i, i + n/2). */
enum rope_kind { ROPE_NORMAL, ROPE_NEOX };

enum rope_scaling { ROPE_SCALING_LINEAR, ROPE_SCALING_NONE, ROPE_SCALING_YARN };

/* As the metadata gives them; ROPE_OPTIONS_DEFAULT holds the defaults of absent keys (n_dims and original_context must
 * be set). */
struct rope_options {
    enum rope_kind kind;
    uint32_t n_dims;                /* head size; even */
    float base;                     /* rope.freq_base */
    enum rope_scaling scaling;      /* rope.scaling.type */
    float factor;                   /* rope.scaling.factor, else rope.scale_linear, else 0 */
    float attention_factor;         /* rope.scaling.attn_factor */
    uint32_t original_context;      /* rope.scaling.original_context_length, else context_length */
    float beta_fast, beta_slow;     /* yarn_beta_* */
    float log_multiplier;           /* yarn_log_multiplier */
    float temperature_scale;        /* attention.temperature_scale; 0: off */
    const float *frequency_factors; /* rope_freqs.weight [n_dims / 2], or NULL; must outlive the struct rope */
};
#define ROPE_OPTIONS_DEFAULT \
    ((struct rope_options){.base = 10000.0f, .attention_factor = 1.0f, .beta_fast = 32.0f, .beta_slow = 1.0f})

struct rope {
    struct rope_options options;
    float theta_scale;      /* base^(-2 / n_dims) */
    float frequency_scale;  /* 1 / factor */
    float magnitude;        /* of every sine and cosine */
    bool yarn;
    float low, high;        /* YaRN: pair indices between which interpolation fades out */
};
void rope_init(struct rope *rope, const struct rope_options *options);

/* Row of one position: cosines[n_dims / 2], sines[n_dims / 2], magnitude included. */
void rope_angles(const struct rope *rope, size_t position, float *cosines, float *sines);

/* Rotates n_heads adjacent heads of n_dims values in place. */
void rope_apply(enum cpu_tier tier, const struct rope *rope, const float *cosines, const float *sines, float *x,
                size_t n_heads);

/* Factor for every Q element after the rotation; exactly 1 where it has no effect. */
float rope_temperature(const struct rope *rope, size_t position);

#endif
