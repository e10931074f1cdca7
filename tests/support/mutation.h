/* One deliberate fault in a file image, and what must come of it. */
#ifndef GGUFD_TESTS_MUTATION_H
#define GGUFD_TESTS_MUTATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/buffer.h"

enum mutation_kind {
    POKE,      /* `bytes` bytes of the field become `value` */
    POKE_SIZE, /* the same with file size + value */
    POKE_LEFT, /* the same with the bytes behind the field + value */
    CUT        /* the file ends at field + value; field "end" is the file's size, "start" is 0 */
};

struct mutation {
    const char *field; /* as gguf_image_field names it */
    enum mutation_kind kind;
    unsigned bytes;
    uint64_t value;
    const char *expected; /* pattern (fnmatch) of the whole refusal; NULL: loads */
};

/* Writes the spoiled copy of `image` to `path`; false if there is no such field. */
bool mutation_write(const struct mutation *m, struct span image, const char *path);
/* True if `refusal` (NULL: it loaded) is what the pattern wants (NULL: to load). */
bool mutation_is_as_expected(const char *expected, const char *refusal);

#endif
