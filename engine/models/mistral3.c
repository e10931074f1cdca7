/* Mistral Small 3.1 and Ministral 3. As llama, with YaRN parameters of its own and a temperature that grows with the
 * position: the only architecture whose reference reads the beta, log multiplier and temperature keys. */
#include "engine/models/architecture.h"

static const struct key_row keys[] = {
    KEYS_COMMON,
    KEYS_EXPERTS,
    KEY("rope.scaling.yarn_beta_fast", F32, OPTIONAL, rope.beta_fast, 1e-6, 1e6),
    KEY("rope.scaling.yarn_beta_slow", F32, OPTIONAL, rope.beta_slow, 1e-6, 1e6),
    KEY("rope.scaling.yarn_log_multiplier", F32, OPTIONAL, rope.log_multiplier, 0, 1e6),
    KEY("attention.temperature_scale", F32, OPTIONAL, rope.temperature_scale, 0, 1e6),
    KEYS_END,
};

static const struct tensor_row tensors[] = {TENSORS_COMMON, TENSORS_ROPE_FREQS, TENSORS_END};

static const struct tensor_row layer_tensors[] = {LAYER_ATTENTION, LAYER_ATTENTION_OUTPUT_BIAS, LAYER_FEED_FORWARD,
                                                  LAYER_FEED_FORWARD_BIAS, LAYER_EXPERTS, TENSORS_END};

static enum status check(const struct hparams *h, struct error *err)
{
    if (h->rope.temperature_scale != 0 && h->rope.original_context == 0)
        return error_set(err, STATUS_UNSUPPORTED,
                         "mistral3.attention.temperature_scale is %g, which needs "
                         "mistral3.rope.scaling.original_context_length to be at least 1",
                         (double)h->rope.temperature_scale);
    return STATUS_OK;
}

const struct architecture architecture_mistral3 = {
    .name = "mistral3",
    .rope = ROPE_NORMAL,
    .keys = keys,
    .tensors = tensors,
    .layer_tensors = layer_tensors,
    .check = check,
    .build = block_decoder,
};
