/* Looking keys and tensors up, and reading typed values. A key of another type than the one named is refused. */
#include <inttypes.h>

#include "engine/gguf/reader.h"

size_t gguf_key_count(const struct gguf *g)
{
    return g->shards[0].keys.n;
}

const struct gguf_key *gguf_key_at(const struct gguf *g, size_t i)
{
    return &g->shards[0].keys.keys[i];
}

const struct gguf_key *gguf_key_find(const struct gguf *g, const char *name)
{
    return key_table_find(&g->shards[0].keys, name);
}

size_t gguf_tensor_count(const struct gguf *g)
{
    return g->tensors.n;
}

const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, size_t i)
{
    return &g->tensors.tensors[i];
}

const struct gguf_tensor *gguf_tensor_find(const struct gguf *g, const char *name)
{
    size_t i = names_find(&g->tensors.names, span_of(name));
    return i == NAMES_NONE ? NULL : &g->tensors.tensors[i];
}

uint64_t gguf_file_bytes(const struct gguf *g)
{
    return g->file_bytes;
}

uint32_t gguf_version(const struct gguf *g)
{
    return g->shards[0].version;
}

uint64_t gguf_fingerprint(const struct gguf *g)
{
    return g->fingerprint;
}

const char *gguf_label(const struct gguf *g)
{
    return g->shards[0].map.label;
}

/* Copies a scalar of exactly this type; leaves *out alone when the key is absent. */
static enum status get_scalar(const struct gguf *g, const char *name, enum gguf_type type, bool required, void *out,
                              size_t size, struct error *err)
{
    const struct gguf_key *key;
    enum status s = key_table_get(&g->shards[0].keys, name, type, required, &key, err);
    if (s == STATUS_OK && key)
        memcpy(out, key->data, size);
    return s;
}

enum status gguf_get_u32(const struct gguf *g, const char *name, bool required, uint32_t *out, struct error *err)
{
    return get_scalar(g, name, GGUF_U32, required, out, sizeof *out, err);
}

enum status gguf_get_f32(const struct gguf *g, const char *name, bool required, float *out, struct error *err)
{
    return get_scalar(g, name, GGUF_F32, required, out, sizeof *out, err);
}

enum status gguf_get_bool(const struct gguf *g, const char *name, bool required, bool *out, struct error *err)
{
    return get_scalar(g, name, GGUF_BOOL, required, out, sizeof *out, err); /* only 0 and 1 came past the reader */
}

enum status gguf_get_string(const struct gguf *g, const char *name, bool required, struct span *out, struct error *err)
{
    const struct gguf_key *key;
    enum status s = key_table_get(&g->shards[0].keys, name, GGUF_STRING, required, &key, err);
    if (s == STATUS_OK && key)
        *out = (struct span){(const char *)key->data + sizeof(uint64_t), (size_t)key->bytes - sizeof(uint64_t)};
    return s;
}

static enum status uniform_value(const struct gguf_key *key, const char *name, uint32_t *out, struct error *err)
{
    const char *values = key->data;
    uint32_t first;
    if (key->element != GGUF_U32 && key->element != GGUF_I32)
        return error_set(err, STATUS_INVALID, "key \"%s\" is an array of %s, must be of u32 or i32", name,
                         gguf_type_name(key->element));
    if (key->count == 0)
        return error_set(err, STATUS_INVALID, "key \"%s\" is an empty array", name);
    memcpy(&first, values, sizeof first);
    for (uint64_t i = 1; i < key->count; i++) {
        uint32_t value;
        memcpy(&value, values + i * sizeof value, sizeof value);
        if (value != first)
            return error_set(err, STATUS_UNSUPPORTED,
                             "key \"%s\" differs between layers (%" PRIu32 " and, for layer %" PRIu64 ", %" PRIu32 ")",
                             name, first, i, value);
    }
    if (key->element == GGUF_I32 && first > INT32_MAX)
        return error_set(err, STATUS_RANGE, "key \"%s\" is negative (%" PRId32 ")", name, (int32_t)first);
    *out = first;
    return STATUS_OK;
}

enum status gguf_get_u32_uniform(const struct gguf *g, const char *name, bool required, uint32_t *out,
                                 struct error *err)
{
    const struct gguf_key *key = gguf_key_find(g, name);
    if (!key || key->type != GGUF_ARRAY)
        return gguf_get_u32(g, name, required, out, err);
    return uniform_value(key, name, out, err);
}

enum status gguf_get_array(const struct gguf *g, const char *name, enum gguf_type element, bool required,
                           const struct gguf_key **out, struct error *err)
{
    enum status s = key_table_get(&g->shards[0].keys, name, GGUF_ARRAY, required, out, err);
    if (s == STATUS_OK && *out && (*out)->element != element) {
        s = error_set(err, STATUS_INVALID, "key \"%s\" is an array of %s, must be of %s", name,
                      gguf_type_name((*out)->element), gguf_type_name(element));
        *out = NULL;
    }
    return s;
}

struct span gguf_string_next(const struct gguf_key *key, const void **cursor)
{
    const char *at = *cursor ? *cursor : key->data;
    uint64_t length;
    memcpy(&length, at, sizeof length);
    *cursor = at + sizeof length + length;
    return (struct span){at + sizeof length, (size_t)length};
}
