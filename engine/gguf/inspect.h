/* Looking through one tensor's data: a checksum, and values that no calculation survives. */
#ifndef GGUFD_GGUF_INSPECT_H
#define GGUFD_GGUF_INSPECT_H

#include "engine/gguf/gguf.h"

struct tensor_check {
    uint64_t checksum;        /* FNV-1a over the data as stored */
    uint64_t non_finite;      /* values that dequantize to NaN or infinity */
    uint64_t first_non_finite; /* element number of the first; 0 if there is none */
};

/* Reads the whole tensor; about a second a gigabyte. */
void tensor_check(const struct gguf_tensor *t, struct tensor_check *out);

#endif
