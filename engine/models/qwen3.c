/* Qwen 3, dense. Pairs (i, i + n/2) rotate; every Q and K head has an RMS norm of its own; the head size is free. */
#include "engine/models/architecture.h"

static const struct key_row keys[] = {KEYS_COMMON, KEYS_END};

static const struct tensor_row tensors[] = {TENSORS_COMMON, TENSORS_END};

static const struct tensor_row layer_tensors[] = {
    LAYER_ATTENTION,
    LAYER("attn_q_norm.weight", attn_q_norm, REQUIRED, ALWAYS, DIM_HEAD),
    LAYER("attn_k_norm.weight", attn_k_norm, REQUIRED, ALWAYS, DIM_HEAD),
    LAYER_FEED_FORWARD,
    TENSORS_END,
};

const struct architecture architecture_qwen3 = {
    .name = "qwen3",
    .rope = ROPE_NEOX,
    .keys = keys,
    .tensors = tensors,
    .layer_tensors = layer_tensors,
    .build = block_decoder,
};
