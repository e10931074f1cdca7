/* Checksum and scan of tensor data; see inspect.h. A damaged scale shows as a whole block of values that are not
 * finite, so that looking at dequantized values finds it in every format alike. */
#include "engine/gguf/inspect.h"

#include <math.h>

#include "engine/base/hash.h"

#define CHUNK_ELEMENTS 4096

static void scan(const float *values, size_t n, uint64_t first, struct tensor_check *out)
{
    for (size_t i = 0; i < n; i++) {
        if (isfinite(values[i]))
            continue;
        if (out->non_finite++ == 0)
            out->first_non_finite = first + i;
    }
}

/* In pieces of whole blocks that stay in the cache between checksum and scan. */
void tensor_check(const struct gguf_tensor *t, struct tensor_check *out)
{
    const struct format *f = t->format;
    const char *data = t->data;
    uint64_t elements = t->dims[0] * t->dims[1] * t->dims[2] * t->dims[3];
    uint64_t step = CHUNK_ELEMENTS / f->block_elements * f->block_elements;
    float values[CHUNK_ELEMENTS];
    *out = (struct tensor_check){.checksum = HASH_SEED};
    for (uint64_t at = 0; at < elements; at += step) {
        size_t n = (size_t)(elements - at < step ? elements - at : step), bytes = format_row_bytes(f, n);
        out->checksum = hash_bytes(out->checksum, data, bytes);
        f->dequantize(data, values, n);
        scan(values, n, at, out);
        data += bytes;
    }
}
