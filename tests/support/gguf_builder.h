/* Makes GGUF files for tests: any keys, any tensors, right or deliberately wrong; and small models with random weights.
 *
 *   struct gguf_builder *b = gguf_builder_new();
 *   gguf_builder_u32(b, "llama.block_count", 2);
 *   gguf_builder_tensor(b, "token_embd.weight", 8, 2, (uint64_t[]){64, 320}, NULL, 0);
 *   gguf_builder_write(b, path);
 *   gguf_builder_free(b);
 *
 * Setting a key that is there replaces it. Running out of memory or of disk aborts: this is for tests only. */
#ifndef GGUFD_TESTS_GGUF_BUILDER_H
#define GGUFD_TESTS_GGUF_BUILDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/buffer.h"
#include "engine/base/span.h"
#include "engine/gguf/gguf.h"

struct gguf_builder;

struct gguf_builder *gguf_builder_new(void);
void gguf_builder_free(struct gguf_builder *b);

/* ---- header ---- */
void gguf_builder_version(struct gguf_builder *b, uint32_t version);   /* default 3 */
void gguf_builder_alignment(struct gguf_builder *b, uint32_t bytes);   /* default 32; also sets general.alignment */

/* ---- keys ---- */
void gguf_builder_u16(struct gguf_builder *b, const char *name, uint16_t value);
void gguf_builder_u32(struct gguf_builder *b, const char *name, uint32_t value);
void gguf_builder_i32(struct gguf_builder *b, const char *name, int32_t value);
void gguf_builder_u64(struct gguf_builder *b, const char *name, uint64_t value);
void gguf_builder_f32(struct gguf_builder *b, const char *name, float value);
void gguf_builder_bool(struct gguf_builder *b, const char *name, bool value);
void gguf_builder_string(struct gguf_builder *b, const char *name, const char *value);
void gguf_builder_bytes(struct gguf_builder *b, const char *name, struct span value); /* string that may hold NUL */
/* `bytes` of packed elements; for strings use gguf_builder_strings. */
void gguf_builder_array(struct gguf_builder *b, const char *name, enum gguf_type element, uint64_t count,
                        const void *data, size_t bytes);
void gguf_builder_strings(struct gguf_builder *b, const char *name, const struct span *strings, size_t count);
/* The strings of an array key: malloc'ed spans into the builder, valid until that key is set again. Aborts if absent. */
struct span *gguf_builder_get_strings(struct gguf_builder *b, const char *name, size_t *count);
/* Payload of a key as it will be in the file (an array's begins with u32 element type, u64 count); NULL if absent. */
char *gguf_builder_payload(struct gguf_builder *b, const char *name, size_t *bytes);
/* Any type number over any payload; `append` adds the key even if one of this name is there. */
void gguf_builder_raw(struct gguf_builder *b, struct span name, uint32_t type, const void *payload, size_t bytes,
                      bool append);
bool gguf_builder_remove_key(struct gguf_builder *b, const char *name);

/* ---- tensors ---- */
/* Data NULL: `bytes` zero bytes, or, with bytes 0, as many as type and dimensions need. n_dims and type may be
 * wrong. */
void gguf_builder_tensor(struct gguf_builder *b, const char *name, uint32_t type, uint32_t n_dims,
                         const uint64_t *dims, const void *data, size_t bytes);
bool gguf_builder_remove_tensor(struct gguf_builder *b, const char *name);
bool gguf_builder_rename_tensor(struct gguf_builder *b, const char *from, const char *to);
/* The tensor's data, to be changed in place; NULL if there is no such tensor. */
char *gguf_builder_tensor_data(struct gguf_builder *b, const char *name, size_t *bytes);

/* ---- output ---- */
void gguf_builder_image(const struct gguf_builder *b, struct buffer *out); /* the file's bytes, appended to out */
void gguf_builder_write(const struct gguf_builder *b, const char *path);
/* Splits the tensors over n files NAME-00001-of-0000N.gguf as llama-gguf-split does; `stem` is the path before "-". */
void gguf_builder_write_shards(const struct gguf_builder *b, const char *stem, unsigned n);
void gguf_image_write(const void *data, size_t size, const char *path);

/* Offset of a field of a well-formed image, SIZE_MAX if there is none: "version", "n_tensors", "n_keys",
 * "key[NAME].name", ".type", ".element", ".count", ".value" (scalar, string's length, or first element),
 * "tensor[NAME].name", ".n_dims", ".dim0" to ".dim3", ".type", ".offset", "directory_end", "data". */
size_t gguf_image_field(const void *image, size_t size, const char *field);

/* ---- random ---- */
uint64_t test_random(uint64_t *state);                               /* 64 bits; any seed */
float test_random_float(uint64_t *state, float low, float high);

/* ---- small models ---- */
struct tiny_model {
    const char *architecture; /* NULL: "llama"; also "qwen2", "qwen3", "mistral3" */
    uint32_t type;            /* of matrices: 0 F32, 1 F16, 8 Q8_0 */
    uint32_t n_layers, n_embd, n_heads, n_heads_kv, n_ff, context; /* 0: 2, 64, 4, 2, 96, 256 */
    bool tied;                /* no output.weight */
    bool vocabulary_only;
    bool bpe;                 /* a byte-level BPE vocabulary instead of SentencePiece */
    uint64_t seed;
};
/* A complete model with random weights; the same bytes for the same argument. */
struct gguf_builder *gguf_builder_tiny(const struct tiny_model *model);

#endif
