/* The tensor directory. Refuses names outside 1..63 bytes, dimension counts outside 1..4, empty dimensions, sizes that
 * overflow, types that cannot be weights, rows that are not whole blocks, and a layout that is not exactly "each tensor
 * begins at the padded end of the one before, inside the file". */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine/gguf/reader.h"

#define ALIGNMENT_DEFAULT 32
#define BYTES_LIMIT ((uint64_t)INT64_MAX)

/* What the directory says and only the checks need. */
struct entry {
    uint32_t type;
    uint64_t offset;
};

static enum status tensor_context(const struct gguf_tensor *t, struct error *err)
{
    char quoted[ERROR_QUOTE_BYTES];
    return error_context(err, "tensor \"%s\"", error_quote(t->name.data, t->name.size, quoted));
}

static enum status read_dims(struct cursor *c, struct gguf_tensor *t, struct error *err)
{
    enum status s = cursor_u32(c, "dimension count", &t->n_dims, err);
    if (s != STATUS_OK)
        return s;
    if (t->n_dims < 1 || t->n_dims > 4)
        return error_set(err, STATUS_INVALID, "dimension count %" PRIu32 " is outside 1..4", t->n_dims);
    for (uint32_t i = 0; i < 4; i++) {
        t->dims[i] = 1;
        if (i >= t->n_dims)
            continue;
        s = cursor_u64(c, "dimension", &t->dims[i], err);
        if (s != STATUS_OK)
            return s;
        if (t->dims[i] < 1 || t->dims[i] > BYTES_LIMIT)
            return error_set(err, STATUS_INVALID, "dimension %" PRIu32 " is %" PRIu64 ", outside 1..2^63-1", i,
                             t->dims[i]);
    }
    return STATUS_OK;
}

static enum status read_entry(struct cursor *c, struct gguf_tensor *t, struct entry *e, struct error *err)
{
    enum status s = read_dims(c, t, err);
    if (s == STATUS_OK)
        s = cursor_u32(c, "type", &e->type, err);
    if (s == STATUS_OK)
        s = cursor_u64(c, "offset", &e->offset, err);
    return s;
}

static enum status read_entries(struct tensor_table *table, struct cursor *c, uint64_t n, struct entry *entries,
                                struct error *err)
{
    for (uint64_t i = 0; i < n; i++) {
        struct gguf_tensor t = {0};
        enum status s = cursor_string(c, "name", 1, GGUF_TENSOR_NAME_MAX, &t.name, err);
        if (s != STATUS_OK) {
            error_context(err, "tensor number %" PRIu64 " of %" PRIu64, i, n);
            return s;
        }
        s = read_entry(c, &t, &entries[i], err);
        if (s != STATUS_OK) {
            tensor_context(&t, err);
            return s;
        }
        if (!array_reserve((void **)&table->tensors, table->n, &table->capacity, sizeof t))
            return error_no_memory(err, table->n * 2 * sizeof t, "tensors");
        table->tensors[table->n++] = t;
    }
    return STATUS_OK;
}

/* Appends "31 (Q4_0_4_4)" to the message about the first refused type, once a type. */
static void list_type(struct error *err, uint32_t type)
{
    char item[64];
    const char *name = format_refused_name(type);
    snprintf(item, sizeof item, " %" PRIu32 " (%s)", type, name ? name : "unknown");
    size_t n = strlen(err->text);
    if (!strstr(err->text, item))
        snprintf(err->text + n, sizeof err->text - n, "%s%s", strstr(err->text, "; also") ? "," : "; also", item);
}

/* All types that cannot be weights are listed, so that one look at the log tells what the file is made of. */
static enum status bind_types(struct gguf_tensor *tensors, const struct entry *entries, uint64_t n, struct error *err)
{
    struct error refused = {0};
    for (uint64_t i = 0; i < n; i++) {
        tensors[i].format = format_find(entries[i].type);
        if (tensors[i].format)
            continue;
        if (refused.status == STATUS_OK) {
            const char *name = format_refused_name(entries[i].type);
            error_set(&refused, STATUS_UNSUPPORTED, "type %" PRIu32 " (%s) is not supported",
                      entries[i].type, name ? name : "unknown");
            tensor_context(&tensors[i], &refused);
        }
        list_type(&refused, entries[i].type);
    }
    if (refused.status != STATUS_OK && err)
        *err = refused;
    return refused.status;
}

static enum status compute_bytes(struct gguf_tensor *t, struct error *err)
{
    const struct format *f = t->format;
    uint64_t elements = 1, bytes;
    for (int i = 0; i < 4; i++)
        if (__builtin_mul_overflow(elements, t->dims[i], &elements) || elements > BYTES_LIMIT)
            return error_set(err, STATUS_INVALID,
                             "dimensions %" PRIu64 " x %" PRIu64 " x %" PRIu64 " x %" PRIu64
                             " have more than 2^63-1 elements",
                             t->dims[0], t->dims[1], t->dims[2], t->dims[3]);
    if (t->dims[0] % f->block_elements != 0)
        return error_set(err, STATUS_INVALID, "row length %" PRIu64 " is not a multiple of the block size %" PRIu32
                         " of type %s", t->dims[0], f->block_elements, f->name);
    if (__builtin_mul_overflow(elements / f->block_elements, f->block_bytes, &bytes) || bytes > BYTES_LIMIT)
        return error_set(err, STATUS_INVALID, "%" PRIu64 " elements of type %s take more than 2^63-1 bytes", elements,
                         f->name);
    t->bytes = bytes;
    return STATUS_OK;
}

/* Places one tensor. `used` is the unpadded end of the tensor before it, relative to the data section. */
static enum status place(struct gguf_tensor *t, const struct entry *e, const struct map *map, uint64_t start,
                         uint64_t alignment, uint64_t *used, struct error *err)
{
    uint64_t available = map->size - start;
    uint64_t expected = (*used + alignment - 1) & ~(alignment - 1); /* used <= file size: no overflow */
    if (e->offset % alignment != 0)
        return error_set(err, STATUS_INVALID, "offset %" PRIu64 " is not a multiple of the alignment %" PRIu64,
                         e->offset, alignment);
    if (e->offset != expected)
        return error_set(err, STATUS_INVALID, "offset %" PRIu64 " must be %" PRIu64 ", the end of the tensor before it",
                         e->offset, expected);
    if (e->offset > available || t->bytes > available - e->offset)
        return error_set(err, STATUS_INVALID,
                         "data at %" PRIu64 " + offset %" PRIu64 " + %" PRIu64 " bytes exceeds the file size %zu",
                         start, e->offset, t->bytes, map->size);
    t->data = map->data + start + e->offset;
    t->mapping_end = map->data + map->size;
    *used = e->offset + t->bytes;
    return STATUS_OK;
}

static enum status get_alignment(const struct key_table *keys, uint64_t *out, struct error *err)
{
    const struct gguf_key *key;
    uint32_t value = ALIGNMENT_DEFAULT;
    enum status s = key_table_get(keys, "general.alignment", GGUF_U32, false, &key, err);
    if (s != STATUS_OK)
        return s;
    if (key)
        memcpy(&value, key->data, sizeof value);
    if (value == 0 || (value & (value - 1)) != 0)
        return error_set(err, STATUS_INVALID, "key \"general.alignment\": %" PRIu32 " is not a power of two", value);
    *out = value;
    return STATUS_OK;
}

static enum status place_all(struct gguf_tensor *tensors, const struct entry *entries, uint64_t n,
                             struct shard *shard, uint64_t directory_end, struct error *err)
{
    uint64_t alignment = ALIGNMENT_DEFAULT, used = 0;
    enum status s = get_alignment(&shard->keys, &alignment, err);
    if (s != STATUS_OK)
        return s;
    uint64_t start = (directory_end + alignment - 1) & ~(alignment - 1);
    if (start > shard->map.size && n > 0)
        return error_set(err, STATUS_INVALID, "data section would begin at %" PRIu64 ", the file ends at %zu", start,
                         shard->map.size);
    for (uint64_t i = 0; i < n; i++) {
        s = compute_bytes(&tensors[i], err);
        if (s == STATUS_OK)
            s = place(&tensors[i], &entries[i], &shard->map, start, alignment, &used, err);
        if (s != STATUS_OK) {
            tensor_context(&tensors[i], err);
            return s;
        }
    }
    uint64_t end = start + ((used + alignment - 1) & ~(alignment - 1));
    shard->trailing_bytes = end < shard->map.size ? (size_t)(shard->map.size - end) : 0;
    return STATUS_OK;
}

enum status tensor_table_read(struct tensor_table *table, struct cursor *c, struct shard *shard, struct error *err)
{
    size_t first = table->n;
    uint64_t n = shard->n_tensors; /* bounded by the file's size: a directory entry takes 32 bytes there, 16 here */
    struct entry *entries = malloc((size_t)n * sizeof *entries + 1);
    if (!entries)
        return error_no_memory(err, (size_t)n * sizeof *entries, "the tensor directory");
    enum status s = read_entries(table, c, n, entries, err);
    if (s == STATUS_OK && n > 0)
        s = bind_types(table->tensors + first, entries, n, err);
    if (s == STATUS_OK)
        s = place_all(n > 0 ? table->tensors + first : NULL, entries, n, shard, cursor_offset(c), err);
    free(entries);
    return s;
}

static struct span tensor_name(const void *items, size_t i)
{
    return ((const struct gguf_tensor *)items)[i].name;
}

enum status tensor_table_index(struct tensor_table *table, struct error *err)
{
    return names_build(&table->names, "tensor", tensor_name, table->tensors, table->n, err);
}

void tensor_table_clear(struct tensor_table *table)
{
    names_clear(&table->names);
    free(table->tensors);
    *table = (struct tensor_table){0};
}
