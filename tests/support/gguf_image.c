/* Where the fields of a well-formed GGUF image are, so that tests can spoil them one at a time. Written against the
 * format's description and not against engine/gguf, which it helps to test; it trusts the image. */
#include <stdlib.h>
#include <string.h>

#include "tests/support/gguf_builder.h"

struct walk {
    const char *image;
    size_t at;
    const char *wanted;
    size_t found;
};

static uint64_t number(struct walk *w, size_t bytes)
{
    uint64_t value = 0;
    memcpy(&value, w->image + w->at, bytes);
    w->at += bytes;
    return value;
}

static struct span text(struct walk *w)
{
    size_t size = (size_t)number(w, 8);
    struct span s = {w->image + w->at, size};
    w->at += size;
    return s;
}

/* Notes the current offset if the wanted field is KIND[NAME].PART, or just PART without a name. */
static void field(struct walk *w, const char *kind, struct span name, const char *part)
{
    size_t n = strlen(kind);
    const char *p = w->wanted;
    if (w->found != SIZE_MAX)
        return;
    if (n > 0) {
        if (strncmp(p, kind, n) != 0 || p[n] != '[' || strncmp(p + n + 1, name.data, name.size) != 0 ||
            strncmp(p + n + 1 + name.size, "].", 2) != 0)
            return;
        p += n + name.size + 3;
    }
    if (strcmp(p, part) == 0)
        w->found = w->at;
}

static size_t scalar_bytes(uint64_t type)
{
    static const unsigned char bytes[GGUF_TYPE_COUNT] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    if (type >= GGUF_TYPE_COUNT)
        abort();
    return bytes[type];
}

static void walk_key(struct walk *w, uint32_t *alignment)
{
    size_t start = w->at;
    struct span name = text(w);
    size_t after = w->at;
    w->at = start;
    field(w, "key", name, "name");
    w->at = after;
    field(w, "key", name, "type");
    uint64_t type = number(w, 4), count = 1;
    if (type == GGUF_ARRAY) {
        field(w, "key", name, "element");
        type = number(w, 4);
        field(w, "key", name, "count");
        count = number(w, 8);
    }
    field(w, "key", name, "value");
    if (type == GGUF_U32 && span_is(name, "general.alignment"))
        memcpy(alignment, w->image + w->at, sizeof *alignment);
    for (uint64_t i = 0; type == GGUF_STRING && i < count; i++)
        text(w);
    if (type != GGUF_STRING)
        w->at += scalar_bytes(type) * count;
}

static void walk_tensor(struct walk *w)
{
    static const char *const dims[] = {"dim0", "dim1", "dim2", "dim3"};
    size_t start = w->at;
    struct span name = text(w);
    size_t after = w->at;
    w->at = start;
    field(w, "tensor", name, "name");
    w->at = after;
    field(w, "tensor", name, "n_dims");
    uint64_t n = number(w, 4);
    for (uint64_t i = 0; i < n && i < 4; i++) {
        field(w, "tensor", name, dims[i]);
        number(w, 8);
    }
    field(w, "tensor", name, "type");
    number(w, 4);
    field(w, "tensor", name, "offset");
    number(w, 8);
}

size_t gguf_image_field(const void *image, size_t size, const char *wanted)
{
    static const struct span none;
    struct walk w = {image, 4, wanted, SIZE_MAX};
    uint32_t alignment = 32;
    field(&w, "", none, "version");
    number(&w, 4);
    field(&w, "", none, "n_tensors");
    uint64_t n_tensors = number(&w, 8);
    field(&w, "", none, "n_keys");
    uint64_t n_keys = number(&w, 8);
    for (uint64_t i = 0; i < n_keys; i++)
        walk_key(&w, &alignment);
    for (uint64_t i = 0; i < n_tensors; i++)
        walk_tensor(&w);
    field(&w, "", none, "directory_end");
    while (w.at % alignment != 0)
        w.at++;
    field(&w, "", none, "data");
    return w.found < size ? w.found : SIZE_MAX;
}
