/* Llama 1 to 3, Mistral 7B, Mixtral and everything stored as "llama". Adjacent pairs rotate; optional biases
 * everywhere; rope_freqs.weight of Llama 3; dense or a mixture of experts. */
#include "engine/models/architecture.h"

static const struct key_row keys[] = {KEYS_COMMON, KEYS_EXPERTS, KEYS_END};

static const struct tensor_row tensors[] = {TENSORS_COMMON, TENSORS_ROPE_FREQS, TENSORS_END};

static const struct tensor_row layer_tensors[] = {LAYER_ATTENTION, LAYER_ATTENTION_OUTPUT_BIAS, LAYER_FEED_FORWARD,
                                                  LAYER_FEED_FORWARD_BIAS, LAYER_EXPERTS, TENSORS_END};

const struct architecture architecture_llama = {
    .name = "llama",
    .rope = ROPE_NORMAL,
    .keys = keys,
    .tensors = tensors,
    .layer_tensors = layer_tensors,
    .build = block_decoder,
};
