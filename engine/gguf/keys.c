/* The key-value section. Refuses unknown types, nested arrays, bool values other than 0 and 1, names outside 1..65535
 * bytes, duplicates, and anything that reaches past the end of the file. Values stay where they are in the file. */
#include <inttypes.h>
#include <stdlib.h>

#include "engine/gguf/reader.h"

static const struct {
    const char *name;
    uint32_t bytes; /* 0: variable */
} types[GGUF_TYPE_COUNT] = {
    [GGUF_U8] = {"u8", 1},       [GGUF_I8] = {"i8", 1},       [GGUF_U16] = {"u16", 2},     [GGUF_I16] = {"i16", 2},
    [GGUF_U32] = {"u32", 4},     [GGUF_I32] = {"i32", 4},     [GGUF_F32] = {"f32", 4},     [GGUF_BOOL] = {"bool", 1},
    [GGUF_STRING] = {"string", 0}, [GGUF_ARRAY] = {"array", 0}, [GGUF_U64] = {"u64", 8},     [GGUF_I64] = {"i64", 8},
    [GGUF_F64] = {"f64", 8},
};

const char *gguf_type_name(enum gguf_type type)
{
    return types[type].name;
}

bool array_reserve(void **items, size_t n, size_t *capacity, size_t item_bytes)
{
    if (n < *capacity)
        return true;
    size_t more = *capacity ? *capacity * 2 : 64;
    void *grown = realloc(*items, more * item_bytes);
    if (!grown)
        return false;
    *items = grown;
    *capacity = more;
    return true;
}

static enum status read_type(struct cursor *c, const char *what, enum gguf_type *out, struct error *err)
{
    uint32_t type;
    enum status s = cursor_u32(c, what, &type, err);
    if (s != STATUS_OK)
        return s;
    if (type >= GGUF_TYPE_COUNT)
        return error_set(err, STATUS_INVALID, "%s %" PRIu32 " is unknown (0..%d)", what, type, GGUF_TYPE_COUNT - 1);
    *out = (enum gguf_type)type;
    return STATUS_OK;
}

static enum status check_bools(const struct gguf_key *key, struct error *err)
{
    const unsigned char *values = key->data;
    for (uint64_t i = 0; i < key->count; i++)
        if (values[i] > 1)
            return error_set(err, STATUS_INVALID, "bool value %d (element %" PRIu64 ") is neither 0 nor 1", values[i],
                             i);
    return STATUS_OK;
}

static enum status read_strings(struct cursor *c, struct gguf_key *key, struct error *err)
{
    const char *start = c->at;
    /* A string takes at least its length field: the claim is bounded before the walk. */
    if (key->count > cursor_left(c) / sizeof(uint64_t))
        return error_set(err, STATUS_INVALID, "array length %" PRIu64 " needs at least 8 bytes an element, %zu left",
                         key->count, cursor_left(c));
    for (uint64_t i = 0; i < key->count; i++) {
        struct span unused;
        enum status s = cursor_string(c, "string", 0, UINT64_MAX, &unused, err);
        if (s != STATUS_OK) {
            if (key->type == GGUF_ARRAY)
                error_context(err, "element %" PRIu64, i);
            return s;
        }
    }
    key->data = start;
    key->bytes = (uint64_t)(c->at - start);
    return STATUS_OK;
}

/* `count` elements of a type that is not an array. */
static enum status read_elements(struct cursor *c, enum gguf_type type, struct gguf_key *key, struct error *err)
{
    if (type == GGUF_STRING)
        return read_strings(c, key, err);
    uint32_t size = types[type].bytes;
    if (key->count > cursor_left(c) / size)
        return error_set(err, STATUS_INVALID,
                         "%s %" PRIu64 " of %" PRIu32 "-byte elements exceeds the %zu bytes left at offset %zu",
                         key->type == GGUF_ARRAY ? "array length" : "value count", key->count, size, cursor_left(c),
                         cursor_offset(c));
    key->bytes = key->count * size;
    key->data = c->at;
    c->at += key->bytes;
    return type == GGUF_BOOL ? check_bools(key, err) : STATUS_OK;
}

static enum status read_value(struct cursor *c, struct gguf_key *key, struct error *err)
{
    enum status s = read_type(c, "value type", &key->type, err);
    if (s != STATUS_OK)
        return s;
    key->count = 1;
    if (key->type != GGUF_ARRAY)
        return read_elements(c, key->type, key, err);
    s = read_type(c, "array element type", &key->element, err);
    if (s != STATUS_OK)
        return s;
    if (key->element == GGUF_ARRAY)
        return error_set(err, STATUS_UNSUPPORTED, "array element type 9: arrays of arrays are not supported");
    s = cursor_u64(c, "array length", &key->count, err);
    return s == STATUS_OK ? read_elements(c, key->element, key, err) : s;
}

static struct span key_name(const void *items, size_t i)
{
    return ((const struct gguf_key *)items)[i].name;
}

enum status key_table_read(struct key_table *table, struct cursor *c, uint64_t n, struct error *err)
{
    for (uint64_t i = 0; i < n; i++) {
        struct gguf_key key = {0};
        char quoted[ERROR_QUOTE_BYTES];
        enum status s = cursor_string(c, "name", 1, GGUF_KEY_NAME_MAX, &key.name, err);
        if (s != STATUS_OK) {
            error_context(err, "key number %" PRIu64 " of %" PRIu64, i, n);
            return s;
        }
        s = read_value(c, &key, err);
        if (s != STATUS_OK) {
            error_context(err, "key \"%s\"", error_quote(key.name.data, key.name.size, quoted));
            return s;
        }
        if (!array_reserve((void **)&table->keys, table->n, &table->capacity, sizeof key))
            return error_no_memory(err, table->n * 2 * sizeof key, "keys");
        table->keys[table->n++] = key;
    }
    return names_build(&table->names, "key", key_name, table->keys, table->n, err);
}

void key_table_clear(struct key_table *table)
{
    names_clear(&table->names);
    free(table->keys);
    *table = (struct key_table){0};
}

const struct gguf_key *key_table_find(const struct key_table *table, const char *name)
{
    size_t i = names_find(&table->names, span_of(name));
    return i == NAMES_NONE ? NULL : &table->keys[i];
}

enum status key_table_get(const struct key_table *table, const char *name, enum gguf_type type, bool required,
                          const struct gguf_key **out, struct error *err)
{
    const struct gguf_key *key = key_table_find(table, name);
    *out = NULL;
    if (!key)
        return required ? error_set(err, STATUS_INVALID, "key \"%s\" is missing", name) : STATUS_OK;
    if (key->type != type)
        return error_set(err, STATUS_INVALID, "key \"%s\" has type %s, must be %s", name, gguf_type_name(key->type),
                         gguf_type_name(type));
    *out = key;
    return STATUS_OK;
}
