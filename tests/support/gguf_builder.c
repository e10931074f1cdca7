/* GGUF files for tests; see gguf_builder.h. */
#include "tests/support/gguf_builder.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

struct key {
    char *name;
    size_t name_size;
    uint32_t type;
    struct buffer payload;
};

struct tensor {
    char *name;
    uint32_t type, n_dims;
    uint64_t dims[16];
    struct buffer data;
};

struct gguf_builder {
    uint32_t version, alignment;
    struct key *keys;
    struct tensor *tensors;
    size_t n_keys, n_tensors;
};

static void *must(void *p)
{
    if (!p)
        abort();
    return p;
}

struct gguf_builder *gguf_builder_new(void)
{
    struct gguf_builder *b = must(calloc(1, sizeof *b));
    b->version = 3;
    b->alignment = 32;
    return b;
}

static void key_clear(struct key *key)
{
    free(key->name);
    buffer_clear(&key->payload);
}

static void tensor_clear(struct tensor *t)
{
    free(t->name);
    buffer_clear(&t->data);
}

void gguf_builder_free(struct gguf_builder *b)
{
    if (!b)
        return;
    for (size_t i = 0; i < b->n_keys; i++)
        key_clear(&b->keys[i]);
    for (size_t i = 0; i < b->n_tensors; i++)
        tensor_clear(&b->tensors[i]);
    free(b->keys);
    free(b->tensors);
    free(b);
}

void gguf_builder_version(struct gguf_builder *b, uint32_t version)
{
    b->version = version;
}

void gguf_builder_alignment(struct gguf_builder *b, uint32_t bytes)
{
    b->alignment = bytes;
    gguf_builder_u32(b, "general.alignment", bytes);
}

/* ---- keys ---- */

static struct key *find_key(struct gguf_builder *b, struct span name)
{
    for (size_t i = 0; i < b->n_keys; i++)
        if (span_equal((struct span){b->keys[i].name, b->keys[i].name_size}, name))
            return &b->keys[i];
    return NULL;
}

void gguf_builder_raw(struct gguf_builder *b, struct span name, uint32_t type, const void *payload, size_t bytes,
                      bool append)
{
    struct key *key = append ? NULL : find_key(b, name);
    if (!key) {
        if ((b->n_keys & (b->n_keys - 1)) == 0)
            b->keys = must(realloc(b->keys, (b->n_keys ? b->n_keys * 2 : 1) * sizeof *b->keys));
        key = &b->keys[b->n_keys++];
        *key = (struct key){.name = must(malloc(name.size + 1)), .name_size = name.size};
        memcpy(key->name, name.data, name.size);
    }
    key->type = type;
    key->payload.size = 0;
    buffer_append(&key->payload, payload, bytes);
}

static void scalar(struct gguf_builder *b, const char *name, enum gguf_type type, const void *value, size_t bytes)
{
    gguf_builder_raw(b, span_of(name), type, value, bytes, false);
}

void gguf_builder_u16(struct gguf_builder *b, const char *name, uint16_t value)
{
    scalar(b, name, GGUF_U16, &value, sizeof value);
}

void gguf_builder_u32(struct gguf_builder *b, const char *name, uint32_t value)
{
    scalar(b, name, GGUF_U32, &value, sizeof value);
}

void gguf_builder_i32(struct gguf_builder *b, const char *name, int32_t value)
{
    scalar(b, name, GGUF_I32, &value, sizeof value);
}

void gguf_builder_u64(struct gguf_builder *b, const char *name, uint64_t value)
{
    scalar(b, name, GGUF_U64, &value, sizeof value);
}

void gguf_builder_f32(struct gguf_builder *b, const char *name, float value)
{
    scalar(b, name, GGUF_F32, &value, sizeof value);
}

void gguf_builder_bool(struct gguf_builder *b, const char *name, bool value)
{
    scalar(b, name, GGUF_BOOL, &value, 1);
}

static void append_string(struct buffer *out, struct span text)
{
    uint64_t size = text.size;
    buffer_append(out, &size, sizeof size);
    buffer_append(out, text.data, text.size);
}

void gguf_builder_bytes(struct gguf_builder *b, const char *name, struct span value)
{
    struct buffer payload = {0};
    append_string(&payload, value);
    scalar(b, name, GGUF_STRING, payload.data, payload.size);
    buffer_clear(&payload);
}

void gguf_builder_string(struct gguf_builder *b, const char *name, const char *value)
{
    gguf_builder_bytes(b, name, span_of(value));
}

static void array_head(struct buffer *out, uint32_t element, uint64_t count)
{
    buffer_append(out, &element, sizeof element);
    buffer_append(out, &count, sizeof count);
}

void gguf_builder_array(struct gguf_builder *b, const char *name, enum gguf_type element, uint64_t count,
                        const void *data, size_t bytes)
{
    struct buffer payload = {0};
    array_head(&payload, element, count);
    buffer_append(&payload, data, bytes);
    scalar(b, name, GGUF_ARRAY, payload.data, payload.size);
    buffer_clear(&payload);
}

void gguf_builder_strings(struct gguf_builder *b, const char *name, const struct span *strings, size_t count)
{
    struct buffer payload = {0};
    array_head(&payload, GGUF_STRING, count);
    for (size_t i = 0; i < count; i++)
        append_string(&payload, strings[i]);
    scalar(b, name, GGUF_ARRAY, payload.data, payload.size);
    buffer_clear(&payload);
}

char *gguf_builder_payload(struct gguf_builder *b, const char *name, size_t *bytes)
{
    struct key *key = find_key(b, span_of(name));
    if (!key)
        return NULL;
    if (bytes)
        *bytes = key->payload.size;
    return key->payload.data;
}

struct span *gguf_builder_get_strings(struct gguf_builder *b, const char *name, size_t *count)
{
    const char *p = must(gguf_builder_payload(b, name, NULL));
    uint64_t n, size;
    memcpy(&n, p + 4, sizeof n);
    struct span *out = must(malloc(((size_t)n + 1) * sizeof *out));
    p += 12;
    for (uint64_t i = 0; i < n; i++, p += size) {
        memcpy(&size, p, sizeof size);
        p += sizeof size;
        out[i] = (struct span){p, (size_t)size};
    }
    *count = (size_t)n;
    return out;
}

bool gguf_builder_remove_key(struct gguf_builder *b, const char *name)
{
    struct key *key = find_key(b, span_of(name));
    if (!key)
        return false;
    key_clear(key);
    memmove(key, key + 1, (size_t)(b->keys + --b->n_keys - key) * sizeof *key);
    return true;
}

/* ---- tensors ---- */

static size_t needed_bytes(uint32_t type, uint32_t n_dims, const uint64_t *dims)
{
    const struct format *f = format_find(type);
    size_t bytes = f ? format_row_bytes(f, dims[0]) : 0;
    for (uint32_t i = 1; i < n_dims; i++)
        bytes *= dims[i];
    return bytes;
}

void gguf_builder_tensor(struct gguf_builder *b, const char *name, uint32_t type, uint32_t n_dims,
                         const uint64_t *dims, const void *data, size_t bytes)
{
    struct tensor t = {.name = must(strdup(name)), .type = type, .n_dims = n_dims};
    for (uint32_t i = 0; i < n_dims && i < 16; i++)
        t.dims[i] = dims[i];
    if (!data && bytes == 0)
        bytes = needed_bytes(type, n_dims, dims);
    if (!buffer_reserve(&t.data, bytes + 1))
        abort();
    if (data)
        memcpy(t.data.data, data, bytes);
    else
        memset(t.data.data, 0, bytes);
    t.data.size = bytes;
    if ((b->n_tensors & (b->n_tensors - 1)) == 0)
        b->tensors = must(realloc(b->tensors, (b->n_tensors ? b->n_tensors * 2 : 1) * sizeof *b->tensors));
    b->tensors[b->n_tensors++] = t;
}

static struct tensor *find_tensor(struct gguf_builder *b, const char *name)
{
    for (size_t i = 0; i < b->n_tensors; i++)
        if (strcmp(b->tensors[i].name, name) == 0)
            return &b->tensors[i];
    return NULL;
}

bool gguf_builder_remove_tensor(struct gguf_builder *b, const char *name)
{
    struct tensor *t = find_tensor(b, name);
    if (!t)
        return false;
    tensor_clear(t);
    memmove(t, t + 1, (size_t)(b->tensors + --b->n_tensors - t) * sizeof *t);
    return true;
}

bool gguf_builder_rename_tensor(struct gguf_builder *b, const char *from, const char *to)
{
    struct tensor *t = find_tensor(b, from);
    if (!t)
        return false;
    free(t->name);
    t->name = must(strdup(to));
    return true;
}

char *gguf_builder_tensor_data(struct gguf_builder *b, const char *name, size_t *bytes)
{
    struct tensor *t = find_tensor(b, name);
    if (!t)
        return NULL;
    if (bytes)
        *bytes = t->data.size;
    return t->data.data;
}

/* ---- output ---- */

static void pad(struct buffer *out, size_t start, uint32_t alignment)
{
    while (alignment != 0 && (out->size - start) % alignment != 0)
        buffer_byte(out, 0);
}

static void append_keys(struct buffer *out, const struct key *keys, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        append_string(out, (struct span){keys[i].name, keys[i].name_size});
        buffer_append(out, &keys[i].type, sizeof keys[i].type);
        buffer_append(out, keys[i].payload.data, keys[i].payload.size);
    }
}

static void append_tensors(struct buffer *out, const struct tensor *tensors, size_t n, size_t start,
                           uint32_t alignment)
{
    uint64_t offset = 0;
    for (size_t i = 0; i < n; i++) {
        const struct tensor *t = &tensors[i];
        append_string(out, span_of(t->name));
        buffer_append(out, &t->n_dims, sizeof t->n_dims);
        buffer_append(out, t->dims, (t->n_dims < 16 ? t->n_dims : 16) * sizeof t->dims[0]);
        buffer_append(out, &t->type, sizeof t->type);
        buffer_append(out, &offset, sizeof offset);
        offset += t->data.size;
        if (alignment != 0 && offset % alignment != 0)
            offset += alignment - offset % alignment;
    }
    pad(out, start, alignment);
    size_t data = out->size;
    for (size_t i = 0; i < n; i++) {
        buffer_append(out, tensors[i].data.data, tensors[i].data.size);
        pad(out, data, alignment);
    }
}

static void image(const struct gguf_builder *b, size_t n_keys, size_t first, size_t n_tensors, struct buffer *out)
{
    size_t start = out->size;
    uint64_t counts[2] = {n_tensors, n_keys};
    buffer_text(out, "GGUF");
    buffer_append(out, &b->version, sizeof b->version);
    buffer_append(out, counts, sizeof counts);
    append_keys(out, b->keys, n_keys);
    append_tensors(out, b->tensors + first, n_tensors, start, b->alignment);
    if (out->failed)
        abort();
}

void gguf_builder_image(const struct gguf_builder *b, struct buffer *out)
{
    image(b, b->n_keys, 0, b->n_tensors, out);
}

void gguf_image_write(const void *data, size_t size, const char *path)
{
    FILE *f = must(fopen(path, "wb"));
    if (fwrite(data, 1, size, f) != size || fclose(f) != 0)
        abort();
}

void gguf_builder_write(const struct gguf_builder *b, const char *path)
{
    struct buffer out = {0};
    gguf_builder_image(b, &out);
    gguf_image_write(out.data, out.size, path);
    buffer_clear(&out);
}

/* The first shard holds all keys and no tensors fewer than its share; later ones only say which shard they are. */
void gguf_builder_write_shards(const struct gguf_builder *b, const char *stem, unsigned n)
{
    size_t done = 0;
    for (unsigned i = 0; i < n; i++) {
        size_t end = b->n_tensors * (i + 1) / n;
        struct gguf_builder *shard = gguf_builder_new();
        struct buffer out = {0};
        char path[4096];
        shard->version = b->version;
        shard->alignment = b->alignment;
        for (size_t k = 0; i == 0 && k < b->n_keys; k++)
            gguf_builder_raw(shard, (struct span){b->keys[k].name, b->keys[k].name_size}, b->keys[k].type,
                             b->keys[k].payload.data, b->keys[k].payload.size, true);
        if (b->alignment != 32)
            gguf_builder_u32(shard, "general.alignment", b->alignment);
        gguf_builder_u16(shard, "split.no", (uint16_t)i);
        gguf_builder_u16(shard, "split.count", (uint16_t)n);
        gguf_builder_i32(shard, "split.tensors.count", (int32_t)b->n_tensors);
        shard->tensors = b->tensors;
        image(shard, shard->n_keys, done, end - done, &out);
        shard->tensors = NULL;
        snprintf(path, sizeof path, "%s-%05u-of-%05u.gguf", stem, i + 1, n);
        gguf_image_write(out.data, out.size, path);
        buffer_clear(&out);
        gguf_builder_free(shard);
        done = end;
    }
}
