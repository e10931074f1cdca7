/* Applies faults to images; see mutation.h. */
#include "tests/support/mutation.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/gguf_builder.h"

bool mutation_write(const struct mutation *m, struct span image, const char *path)
{
    struct buffer copy = {0};
    size_t at = strcmp(m->field, "end") == 0     ? image.size
                : strcmp(m->field, "start") == 0 ? 0
                                                 : gguf_image_field(image.data, image.size, m->field);
    if (at == SIZE_MAX)
        return false;
    uint64_t value = m->value;
    value += m->kind == POKE_SIZE ? image.size : m->kind == POKE_LEFT ? image.size - at - m->bytes : 0;
    buffer_append(&copy, image.data, image.size);
    if (m->kind == CUT)
        copy.size = at + (size_t)m->value;
    else
        memcpy(copy.data + at, &value, m->bytes);
    gguf_image_write(copy.data, copy.size, path);
    buffer_clear(&copy);
    return true;
}

bool mutation_is_as_expected(const char *expected, const char *refusal)
{
    if (!expected || !refusal)
        return !expected && !refusal;
    return fnmatch(expected, refusal, FNM_NOESCAPE) == 0;
}
