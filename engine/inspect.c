/* Looking through the weights of an open model, tensor by tensor, for --inspect. */
#include "engine/engine.h"

#include <stdio.h>

#include "engine/engine_state.h"
#include "engine/gguf/inspect.h"

static void describe(const struct gguf_tensor *t, struct engine_tensor *out)
{
    char quoted[ERROR_QUOTE_BYTES];
    struct tensor_check check;
    tensor_check(t, &check);
    *out = (struct engine_tensor){.type = t->format->name, .n_dims = t->n_dims, .bytes = t->bytes,
                                  .checksum = check.checksum, .non_finite = check.non_finite,
                                  .first_non_finite = check.first_non_finite};
    snprintf(out->name, sizeof out->name, "%s", error_quote(t->name.data, t->name.size, quoted));
    for (int i = 0; i < 4; i++)
        out->dims[i] = t->dims[i];
}

enum status engine_inspect(struct engine *e, void (*on_tensor)(void *context, const struct engine_tensor *tensor),
                           void *context, struct error *err)
{
    uint64_t done = 0, total = 0;
    const char *why;
    for (size_t i = 0; i < gguf_tensor_count(e->gguf); i++)
        total += gguf_tensor_at(e->gguf, i)->bytes;
    for (size_t i = 0; i < gguf_tensor_count(e->gguf); i++) {
        struct engine_tensor tensor;
        describe(gguf_tensor_at(e->gguf, i), &tensor);
        done += tensor.bytes;
        tensor.fraction = (double)done / (double)total;
        if (gguf_has_changed(e->gguf, &why))
            return error_set(err, STATUS_MODEL_CHANGED, "%s", why);
        on_tensor(context, &tensor);
    }
    return STATUS_OK;
}
