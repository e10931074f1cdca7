/* What the files of engine/gguf share: one shard as it is read, and the model made of all shards. */
#ifndef GGUFD_GGUF_READER_H
#define GGUFD_GGUF_READER_H

#include <pthread.h>
#include <stdatomic.h>

#include "engine/gguf/cursor.h"
#include "engine/gguf/gguf.h"
#include "engine/gguf/map.h"
#include "engine/gguf/names.h"

#define GGUF_KEYS_MAX (1u << 22)
#define GGUF_TENSORS_MAX (1u << 20)
#define GGUF_KEY_NAME_MAX 65535
#define GGUF_TENSOR_NAME_MAX 63
#define GGUF_KEY_BYTES_MIN 13    /* empty name, type, one-byte value */
#define GGUF_TENSOR_BYTES_MIN 32 /* empty name, dimension count, one dimension, type, offset */

struct key_table {
    struct gguf_key *keys;
    size_t n, capacity;
    struct names names;
};

struct tensor_table {
    struct gguf_tensor *tensors;
    size_t n, capacity;
    struct names names;
};

struct shard {
    struct map map;
    uint32_t version;
    uint64_t n_keys, n_tensors; /* as the header says, checked against the file's size */
    struct key_table keys;
    size_t metadata_bytes; /* header, keys and tensor directory */
    size_t trailing_bytes; /* behind the padded end of the last tensor */
};

struct gguf {
    struct shard *shards;
    size_t n_shards;
    struct tensor_table tensors; /* of all shards, in order */
    uint64_t file_bytes, fingerprint;
    atomic_bool changed;
    pthread_mutex_t why_lock;
    char why[512]; /* written once, before `changed` is set */
};

/* Names a file that is not GGUF but something often mistaken for it; NULL if unknown. */
const char *foreign_format(const char *data, size_t size);

/* keys.c: reads n keys. Messages name the key. key_table_clear frees in every case. */
enum status key_table_read(struct key_table *table, struct cursor *c, uint64_t n, struct error *err);
void key_table_clear(struct key_table *table);
const struct gguf_key *key_table_find(const struct key_table *table, const char *name);
/* Key of exactly that type; NULL in *out if absent and not required. */
enum status key_table_get(const struct key_table *table, const char *name, enum gguf_type type, bool required,
                          const struct gguf_key **out, struct error *err);

/* tensors.c: reads the shard's tensor directory at c and appends it. Messages name the tensor. */
enum status tensor_table_read(struct tensor_table *table, struct cursor *c, struct shard *shard, struct error *err);
enum status tensor_table_index(struct tensor_table *table, struct error *err); /* refuses duplicates */
void tensor_table_clear(struct tensor_table *table);

/* gguf.c: opens one file, reads header and keys, appends its tensors. Messages start with the file. shard_close in
 * every case. */
enum status shard_open(struct shard *shard, const char *path, struct tensor_table *tensors, struct error *err);
void shard_close(struct shard *shard);

/* shards.c: given an open first shard, opens the others that it announces. Refuses missing and disagreeing shards. */
enum status shards_open(struct gguf *g, const char *path, struct error *err);

/* Grows an array for one more item; false: no memory. */
bool array_reserve(void **items, size_t n, size_t *capacity, size_t item_bytes);

#endif
