/* Qwen 2 and 2.5, dense. Pairs (i, i + n/2) rotate; Q, K and V biases; all heads together are as wide as the
 * embedding. */
#include "engine/models/architecture.h"

static const struct key_row keys[] = {KEYS_COMMON, KEYS_END};

static const struct tensor_row tensors[] = {
    TENSORS_COMMON,
    TENSOR("output.bias", output_bias, OPTIONAL, ALWAYS, DIM_VOCAB),
    TENSORS_END,
};

static const struct tensor_row layer_tensors[] = {LAYER_ATTENTION, LAYER_FEED_FORWARD, TENSORS_END};

/* The reference reads Q and the attention's output as square matrices. */
static enum status check(const struct hparams *h, struct error *err)
{
    if ((uint64_t)h->n_heads * h->head_size != h->n_embd)
        return error_set(err, STATUS_UNSUPPORTED,
                         "qwen2: %u heads of %u values must be as wide as embedding_length %u", h->n_heads,
                         h->head_size, h->n_embd);
    return STATUS_OK;
}

const struct architecture architecture_qwen2 = {
    .name = "qwen2",
    .rope = ROPE_NEOX,
    .keys = keys,
    .tensors = tensors,
    .layer_tensors = layer_tensors,
    .check = check,
    .build = block_decoder,
};
