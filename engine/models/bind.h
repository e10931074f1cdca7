/* Between the files of this folder: tensors to weights, and the proof that the graph reads all of them. */
#ifndef GGUFD_MODELS_BIND_H
#define GGUFD_MODELS_BIND_H

#include "engine/models/architecture.h"

/* m->architecture and m->hparams are set. Allocates m->layers, model_clear frees. */
enum status model_bind(struct model *m, const struct gguf *g, size_t n_tokens, struct error *err);

/* Every bound weight is read by some node. */
enum status model_check_use(const struct model *m, const struct graph *g, struct error *err);

#endif
