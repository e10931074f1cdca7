/* Opens a model: header of one file, all shards, change detection, reading in and locking; see gguf.h.
 * Refuses wrong magic (naming the formats often mistaken), versions other than 2 and 3, and counts that the file's size
 * cannot hold. */
#include "engine/gguf/gguf.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "engine/base/hash.h"
#include "engine/gguf/reader.h"

#define HEADER_BYTES 24
#define PREFAULT_STEP_BYTES ((size_t)16 << 20)

static enum status check_magic(const struct map *map, struct error *err)
{
    char quoted[ERROR_QUOTE_BYTES];
    if (map->size >= 4 && memcmp(map->data, "GGUF", 4) != 0) {
        const char *foreign = foreign_format(map->data, map->size);
        if (foreign)
            return error_set(err, STATUS_INVALID, "is %s", foreign);
        return error_set(err, STATUS_INVALID, "magic \"%s\" is not \"GGUF\"", error_quote(map->data, 4, quoted));
    }
    if (map->size < HEADER_BYTES)
        return error_set(err, STATUS_INVALID, "file too short for a header: %zu bytes, %d needed", map->size,
                         HEADER_BYTES);
    return STATUS_OK;
}

static enum status check_version(uint32_t version, struct error *err)
{
    if (version == 2 || version == 3)
        return STATUS_OK;
    if (version != 0 && (version & 0xffff) == 0)
        return error_set(err, STATUS_UNSUPPORTED,
                         "version field 0x%08" PRIx32 ": a big-endian file; only little-endian files are supported",
                         version);
    return error_set(err, STATUS_UNSUPPORTED, "version %" PRIu32 " is not supported (2 and 3 are)", version);
}

static enum status check_count(const struct cursor *c, const char *what, uint64_t n, uint64_t limit,
                               size_t bytes_each, struct error *err)
{
    if (n > limit)
        return error_set(err, STATUS_RANGE, "%s count %" PRIu64 " exceeds %" PRIu64, what, n, limit);
    if (n > cursor_left(c) / bytes_each)
        return error_set(err, STATUS_INVALID, "%s count %" PRIu64 " needs at least %zu bytes each, %zu bytes left",
                         what, n, bytes_each, cursor_left(c));
    return STATUS_OK;
}

static enum status read_header(struct shard *shard, struct cursor *c, struct error *err)
{
    const void *magic;
    enum status s = check_magic(&shard->map, err);
    if (s == STATUS_OK)
        s = cursor_take(c, "magic", 4, &magic, err);
    if (s == STATUS_OK)
        s = cursor_u32(c, "version", &shard->version, err);
    if (s == STATUS_OK)
        s = check_version(shard->version, err);
    if (s == STATUS_OK)
        s = cursor_u64(c, "tensor count", &shard->n_tensors, err);
    if (s == STATUS_OK)
        s = cursor_u64(c, "key count", &shard->n_keys, err);
    if (s == STATUS_OK)
        s = check_count(c, "tensor", shard->n_tensors, GGUF_TENSORS_MAX, GGUF_TENSOR_BYTES_MIN, err);
    if (s == STATUS_OK)
        s = check_count(c, "key", shard->n_keys, GGUF_KEYS_MAX, GGUF_KEY_BYTES_MIN, err);
    return s;
}

enum status shard_open(struct shard *shard, const char *path, struct tensor_table *tensors, struct error *err)
{
    *shard = (struct shard){.map = MAP_CLOSED};
    enum status s = map_open(&shard->map, path, err);
    if (s != STATUS_OK)
        return s;
    struct cursor c = {shard->map.data, shard->map.data, shard->map.data + shard->map.size};
    s = read_header(shard, &c, err);
    if (s == STATUS_OK)
        s = key_table_read(&shard->keys, &c, shard->n_keys, err);
    if (s == STATUS_OK)
        s = tensor_table_read(tensors, &c, shard, err);
    shard->metadata_bytes = cursor_offset(&c);
    if (s != STATUS_OK)
        error_context(err, "%s", shard->map.label);
    return s;
}

void shard_close(struct shard *shard)
{
    key_table_clear(&shard->keys);
    map_close(&shard->map);
}

static void sum_up(struct gguf *g)
{
    g->fingerprint = HASH_SEED;
    for (size_t i = 0; i < g->n_shards; i++) {
        g->file_bytes += g->shards[i].map.size;
        g->fingerprint = hash_bytes(g->fingerprint, g->shards[i].map.data, g->shards[i].metadata_bytes);
    }
}

/* What was read is only worth something if the files held still meanwhile. */
static enum status check_still(struct gguf *g, struct error *err)
{
    const char *why;
    return gguf_has_changed(g, &why) ? error_set(err, STATUS_MODEL_CHANGED, "%s", why) : STATUS_OK;
}

static void note_trailing(const struct gguf *g, const struct log_sink *log)
{
    for (size_t i = 0; i < g->n_shards; i++)
        if (g->shards[i].trailing_bytes > 0)
            log_note(log, LOG_LEVEL_WARN, "%s: %zu bytes behind the last tensor belong to nothing",
                     g->shards[i].map.label, g->shards[i].trailing_bytes);
}

enum status gguf_open(const char *path, const struct log_sink *log, struct gguf **out, struct error *err)
{
    *out = NULL;
    struct gguf *g = calloc(1, sizeof *g);
    if (!g)
        return error_no_memory(err, sizeof *g, "a model file");
    pthread_mutex_init(&g->why_lock, NULL);
    enum status s = shards_open(g, path, err);
    if (s != STATUS_OK)
        goto fail;
    s = tensor_table_index(&g->tensors, err);
    if (s != STATUS_OK) {
        error_context(err, "%s", g->shards[0].map.label);
        goto fail;
    }
    sum_up(g);
    s = check_still(g, err);
    if (s != STATUS_OK)
        goto fail;
    note_trailing(g, log);
    log_note(log, LOG_LEVEL_DEBUG, "%s: GGUF version %" PRIu32 ", %zu keys, %zu tensors, %" PRIu64 " bytes, files: %zu",
             g->shards[0].map.label, g->shards[0].version, g->shards[0].keys.n, g->tensors.n, g->file_bytes,
             g->n_shards);
    *out = g;
    return STATUS_OK;
fail:
    gguf_close(g);
    return s;
}

void gguf_close(struct gguf *g)
{
    if (!g)
        return;
    for (size_t i = 0; i < g->n_shards; i++)
        shard_close(&g->shards[i]);
    free(g->shards);
    tensor_table_clear(&g->tensors);
    pthread_mutex_destroy(&g->why_lock);
    free(g);
}

bool gguf_has_changed(struct gguf *g, const char **why)
{
    bool changed = atomic_load(&g->changed);
    if (!changed) {
        char text[sizeof g->why];
        for (size_t i = 0; i < g->n_shards && !changed; i++)
            changed = map_has_changed(&g->shards[i].map, text, sizeof text);
        if (!changed)
            return false;
        pthread_mutex_lock(&g->why_lock);
        if (!atomic_load(&g->changed))
            memcpy(g->why, text, sizeof text);
        atomic_store(&g->changed, true);
        pthread_mutex_unlock(&g->why_lock);
    }
    if (why)
        *why = g->why;
    return true;
}

void gguf_prefault(struct gguf *g, void (*progress)(void *context, double fraction), void *context)
{
    uint64_t done = 0;
    for (size_t i = 0; i < g->n_shards; i++) {
        const struct map *map = &g->shards[i].map;
        for (size_t at = 0; at < map->size;) {
            size_t end = map->size - at < PREFAULT_STEP_BYTES ? map->size : at + PREFAULT_STEP_BYTES;
            map_populate(map, at, end);
            done += end - at;
            at = end;
            if (progress)
                progress(context, (double)done / (double)g->file_bytes);
        }
    }
}

static enum status lock_refused(const struct gguf *g, int number, struct error *err)
{
    struct rlimit limit = {0};
    char allowed[32] = "unlimited";
    if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        snprintf(allowed, sizeof allowed, "%" PRIu64, (uint64_t)limit.rlim_cur);
    return error_set(err, STATUS_NO_MEMORY,
                     "locking the model needs %" PRIu64 " bytes, allowed are %s (ulimit -l, LimitMEMLOCK=): %s",
                     g->file_bytes, allowed, strerror(number));
}

enum status gguf_lock(struct gguf *g, struct error *err)
{
    for (size_t i = 0; i < g->n_shards; i++) {
        if (mlock(g->shards[i].map.data, g->shards[i].map.size) == 0)
            continue;
        int number = errno;
        while (i-- > 0)
            munlock(g->shards[i].map.data, g->shards[i].map.size);
        return lock_refused(g, number, err);
    }
    return STATUS_OK;
}
