/* Looking through the keys and weights of an open model, for --inspect. */
#include "engine/engine.h"

#include <inttypes.h>
#include <stdio.h>

#include "engine/base/f16.h"
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

/* Scalars only. The data is as in the file: unaligned, little-endian. */
static void print_value(const struct gguf_key *k, char out[ERROR_QUOTE_BYTES])
{
    uint64_t u = 0;
    double f = 0;
    if (k->type == GGUF_STRING) {
        error_quote((const char *)k->data + 8, load_u64(k->data), out);
        return;
    }
    memcpy(&u, k->data, k->bytes < sizeof u ? k->bytes : sizeof u);
    unsigned unused_bits = k->bytes < sizeof u ? (unsigned)(64 - 8 * k->bytes) : 0;
    int64_t i = (int64_t)(u << unused_bits) >> unused_bits;
    memcpy(&f, k->data, k->bytes < sizeof f ? k->bytes : sizeof f);
    switch (k->type) {
    case GGUF_I8:
    case GGUF_I16:
    case GGUF_I32:
    case GGUF_I64:
        snprintf(out, ERROR_QUOTE_BYTES, "%" PRId64, i);
        break;
    case GGUF_F32:
        snprintf(out, ERROR_QUOTE_BYTES, "%.9g", (double)bits_float((uint32_t)u));
        break;
    case GGUF_F64:
        snprintf(out, ERROR_QUOTE_BYTES, "%.17g", f);
        break;
    case GGUF_BOOL:
        snprintf(out, ERROR_QUOTE_BYTES, "%s", u ? "true" : "false");
        break;
    default:
        snprintf(out, ERROR_QUOTE_BYTES, "%" PRIu64, u);
    }
}

void engine_metadata(const struct engine *e, void (*on_key)(void *context, const struct engine_key *key), void *context)
{
    for (size_t i = 0; i < gguf_key_count(e->gguf); i++) {
        const struct gguf_key *k = gguf_key_at(e->gguf, i);
        struct engine_key key = {.is_array = k->type == GGUF_ARRAY, .count = k->count};
        key.type = gguf_type_name(key.is_array ? k->element : k->type);
        error_quote(k->name.data, k->name.size, key.name);
        if (!key.is_array)
            print_value(k, key.value);
        on_key(context, &key);
    }
}
