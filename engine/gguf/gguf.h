/* The GGUF container: bounds-checked reading of header, keys and tensor directory over a read-only mapping.
 *
 * Contract: docs/gguf.md. Every bound is checked before any allocation or access; what is refused is named with file,
 * field, value and limit. All pointers and spans handed out live as long as the struct gguf. Reading is thread-safe. */
#ifndef GGUFD_GGUF_GGUF_H
#define GGUFD_GGUF_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/base/span.h"
#include "engine/quant/quant.h"

enum gguf_type {
    GGUF_U8, GGUF_I8, GGUF_U16, GGUF_I16, GGUF_U32, GGUF_I32, GGUF_F32, GGUF_BOOL, GGUF_STRING, GGUF_ARRAY,
    GGUF_U64, GGUF_I64, GGUF_F64, GGUF_TYPE_COUNT
};
const char *gguf_type_name(enum gguf_type type);

struct gguf_key {
    struct span name;
    enum gguf_type type;
    enum gguf_type element;  /* type == GGUF_ARRAY */
    uint64_t count;          /* array length; 1 for scalars */
    const void *data;        /* scalar or packed elements (unaligned); strings: first u64 length */
    uint64_t bytes;          /* size of that data in the file */
};

struct gguf_tensor {
    struct span name;
    uint32_t n_dims;
    uint64_t dims[4];        /* innermost first, 1-filled */
    const struct format *format;
    const void *data;        /* inside the mapping of its shard, contiguous rows */
    uint64_t bytes;
    const void *mapping_end; /* end of readable bytes of its shard's mapping */
};

struct gguf;

/* Opens a file, or all shards of a split model when `path` is its first shard (name-00001-of-0000N.gguf). */
enum status gguf_open(const char *path, const struct log_sink *log, struct gguf **out, struct error *err);
void gguf_close(struct gguf *g);

size_t gguf_key_count(const struct gguf *g);
const struct gguf_key *gguf_key_at(const struct gguf *g, size_t i); /* file order */
const struct gguf_key *gguf_key_find(const struct gguf *g, const char *name); /* NULL if absent */
size_t gguf_tensor_count(const struct gguf *g);
const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, size_t i);
const struct gguf_tensor *gguf_tensor_find(const struct gguf *g, const char *name);

/* Printable path (its end, if it is long) to put in front of messages. Those of gguf_open have it already. */
const char *gguf_label(const struct gguf *g);

/* Typed getters. Absent: *out keeps the caller's default and STATUS_OK is returned, unless `required`. Present with
 * another type than the one named: refused. */
enum status gguf_get_u32(const struct gguf *g, const char *name, bool required, uint32_t *out, struct error *err);
enum status gguf_get_f32(const struct gguf *g, const char *name, bool required, float *out, struct error *err);
enum status gguf_get_bool(const struct gguf *g, const char *name, bool required, bool *out, struct error *err);
enum status gguf_get_string(const struct gguf *g, const char *name, bool required, struct span *out,
                            struct error *err);
/* u32, or an array of u32/i32 whose entries are all equal. */
enum status gguf_get_u32_uniform(const struct gguf *g, const char *name, bool required, uint32_t *out,
                                 struct error *err);
/* NULL in *out if absent and not required. */
enum status gguf_get_array(const struct gguf *g, const char *name, enum gguf_type element, bool required,
                           const struct gguf_key **out, struct error *err);

/* Walks an array of strings in order: `*cursor` starts as NULL; i < key->count calls are valid. */
struct span gguf_string_next(const struct gguf_key *key, const void **cursor);

uint64_t gguf_file_bytes(const struct gguf *g);   /* all shards */
uint32_t gguf_version(const struct gguf *g);
uint64_t gguf_fingerprint(const struct gguf *g);  /* hash over metadata and tensor directory bytes of all shards */

/* True once a file under a mapping was truncated, rewritten or touched (size, mtime, inode of the open descriptor),
 * or a read of a missing page was caught. Replacing the file by rename does not count. Thread-safe, sticky.
 * *why (may be NULL) receives a sentence. */
bool gguf_has_changed(struct gguf *g, const char **why);

/* Asks the kernel to read the whole file in; reports progress 0..1 from the calling thread. */
void gguf_prefault(struct gguf *g, void (*progress)(void *context, double fraction), void *context);
/* mlock of all mappings; on refusal the message says needed and allowed bytes. */
enum status gguf_lock(struct gguf *g, struct error *err);

#endif
