/* Split models: NAME-00001-of-0000N.gguf and its siblings, loaded as one. Refuses a later shard given as the model, a
 * file name that disagrees with split.count, missing shards, and shards whose split keys or repeated keys disagree with
 * the first. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine/gguf/guard.h"
#include "engine/gguf/reader.h"

#define SUFFIX_BYTES (sizeof "-00001-of-00001.gguf" - 1)

/* Shard number and count by file name, from 1; 0 of 0 when the name has not the form. */
struct position {
    unsigned number, count;
};

static bool five_digits(const char *text, unsigned *out)
{
    *out = 0;
    for (int i = 0; i < 5; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        *out = *out * 10 + (unsigned)(text[i] - '0');
    }
    return true;
}

static struct position name_position(const char *path)
{
    struct position p;
    size_t n = strlen(path);
    if (n < SUFFIX_BYTES)
        return (struct position){0};
    const char *suffix = path + n - SUFFIX_BYTES;
    if (suffix[0] == '-' && five_digits(suffix + 1, &p.number) && strncmp(suffix + 6, "-of-", 4) == 0 &&
        five_digits(suffix + 10, &p.count) && strcmp(suffix + 15, ".gguf") == 0)
        return p;
    return (struct position){0};
}

/* Path of shard `number` (from 1) beside `path`, whose name has the form. Caller frees; NULL: no memory. */
static char *sibling(const char *path, unsigned number, unsigned count)
{
    char *out;
    int stem = (int)(strlen(path) - SUFFIX_BYTES);
    return asprintf(&out, "%.*s-%05u-of-%05u.gguf", stem, path, number, count) < 0 ? NULL : out;
}

/* What a file's keys say about its place; count 1 when it says nothing. */
struct split {
    uint16_t number, count; /* number from 0 */
    int32_t n_tensors;      /* of all shards; -1: not said */
};

static enum status read_split(const struct key_table *keys, struct split *out, struct error *err)
{
    const struct gguf_key *key;
    *out = (struct split){0, 1, -1};
    enum status s = key_table_get(keys, "split.count", GGUF_U16, false, &key, err);
    if (s != STATUS_OK)
        return s;
    if (key)
        memcpy(&out->count, key->data, sizeof out->count);
    if (out->count < 1 || out->count > GUARD_SLOTS)
        return error_set(err, STATUS_RANGE, "key \"split.count\": %u is outside 1..%d", out->count, GUARD_SLOTS);
    bool required = out->count > 1;
    s = key_table_get(keys, "split.no", GGUF_U16, required, &key, err);
    if (s != STATUS_OK)
        return s;
    if (key)
        memcpy(&out->number, key->data, sizeof out->number);
    if (out->number >= out->count)
        return error_set(err, STATUS_RANGE, "key \"split.no\": %u is not below split.count %u", out->number,
                         out->count);
    s = key_table_get(keys, "split.tensors.count", GGUF_I32, required, &key, err);
    if (s == STATUS_OK && key)
        memcpy(&out->n_tensors, key->data, sizeof out->n_tensors);
    return s;
}

/* The path given must be the first shard, and its name must agree with its keys. */
static enum status check_first(const char *path, struct position name, const struct split *split, struct error *err)
{
    char label[ERROR_QUOTE_BYTES];
    if (split->number > 0 || name.number > 1) {
        char *first = name.count ? sibling(path, 1, name.count) : NULL;
        enum status s = error_set(err, STATUS_INVALID, "is shard %u of %u; give the first shard%s%s",
                                  split->number > 0 ? split->number + 1u : name.number,
                                  split->number > 0 ? split->count : name.count, first ? ": " : "",
                                  first ? map_label(first, label) : "");
        free(first);
        return s;
    }
    if (name.count == 0 && split->count > 1)
        return error_set(err, STATUS_INVALID, "split.count is %u, but the file is not named NAME-00001-of-%05u.gguf",
                         split->count, split->count);
    if (name.count != 0 && name.count != split->count)
        return error_set(err, STATUS_INVALID, "split.count is %u, but the file name says %u shards", split->count,
                         name.count);
    return STATUS_OK;
}

/* Keys that a later shard repeats must say the same, or it belongs to another model. */
static enum status check_repeated_keys(const struct key_table *first, const struct key_table *later, struct error *err)
{
    for (size_t i = 0; i < later->n; i++) {
        const struct gguf_key *key = &later->keys[i];
        size_t found = names_find(&first->names, key->name);
        if (found == NAMES_NONE || span_is(key->name, "split.no") || span_is(key->name, "general.alignment"))
            continue;
        const struct gguf_key *other = &first->keys[found];
        char quoted[ERROR_QUOTE_BYTES];
        if (key->type != other->type || key->element != other->element || key->bytes != other->bytes ||
            memcmp(key->data, other->data, key->bytes) != 0)
            return error_set(err, STATUS_INVALID, "key \"%s\" disagrees with the first shard",
                             error_quote(key->name.data, key->name.size, quoted));
    }
    return STATUS_OK;
}

static enum status check_later(const struct shard *first, const struct shard *shard, const struct split *expected,
                               unsigned number, struct error *err)
{
    struct split split;
    enum status s = read_split(&shard->keys, &split, err);
    if (s != STATUS_OK)
        return s;
    if (split.count != expected->count)
        return error_set(err, STATUS_INVALID, "split.count is %u, the first shard says %u", split.count,
                         expected->count);
    if (split.number != number)
        return error_set(err, STATUS_INVALID, "split.no is %u, its file name says %u", split.number, number);
    if (split.n_tensors != expected->n_tensors)
        return error_set(err, STATUS_INVALID, "split.tensors.count is %" PRId32 ", the first shard says %" PRId32,
                         split.n_tensors, expected->n_tensors);
    return check_repeated_keys(&first->keys, &shard->keys, err);
}

static enum status open_later(struct gguf *g, const char *path, const struct split *split, struct error *err)
{
    for (unsigned i = 1; i < split->count; i++) {
        struct shard *shard = &g->shards[i];
        char *name = sibling(path, i + 1, split->count);
        if (!name)
            return error_no_memory(err, strlen(path), "a path");
        enum status s = shard_open(shard, name, &g->tensors, err);
        free(name);
        g->n_shards = i + 1;
        if (s != STATUS_OK) {
            error_context(err, "shard %u of %u", i + 1, split->count);
            return s;
        }
        s = check_later(&g->shards[0], shard, split, i, err);
        if (s != STATUS_OK) {
            error_context(err, "%s", shard->map.label);
            return s;
        }
    }
    return STATUS_OK;
}

static enum status check_total(const struct gguf *g, const struct split *split, struct error *err)
{
    if (split->n_tensors < 0 || (size_t)split->n_tensors == g->tensors.n)
        return STATUS_OK;
    return error_set(err, STATUS_INVALID, "%s: split.tensors.count is %" PRId32 ", the %u shards hold %zu tensors",
                     g->shards[0].map.label, split->n_tensors, split->count, g->tensors.n);
}

enum status shards_open(struct gguf *g, const char *path, struct error *err)
{
    struct split split;
    g->shards = calloc(1, sizeof *g->shards);
    if (!g->shards)
        return error_no_memory(err, sizeof *g->shards, "shards");
    g->n_shards = 1;
    enum status s = shard_open(&g->shards[0], path, &g->tensors, err);
    if (s != STATUS_OK)
        return s;
    s = read_split(&g->shards[0].keys, &split, err);
    if (s == STATUS_OK)
        s = check_first(path, name_position(path), &split, err);
    if (s != STATUS_OK) {
        error_context(err, "%s", g->shards[0].map.label);
        return s;
    }
    if (split.count > 1) {
        struct shard *shards = realloc(g->shards, split.count * sizeof *shards);
        if (!shards)
            return error_no_memory(err, split.count * sizeof *shards, "shards");
        g->shards = shards;
    }
    s = open_later(g, path, &split, err);
    return s == STATUS_OK ? check_total(g, &split, err) : s;
}
