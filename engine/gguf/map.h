/* One file, opened and mapped read-only, that can tell whether it changed since. */
#ifndef GGUFD_GGUF_MAP_H
#define GGUFD_GGUF_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

#include "engine/base/error.h"

struct map {
    char label[ERROR_QUOTE_BYTES]; /* printable tail of the path, for messages */
    int fd;                        /* -1: closed */
    int slot;                      /* of the guard; -1: none */
    const char *data;              /* NULL: not mapped */
    size_t size;
    struct stat opened;
};

/* Printable path for messages: its last bytes if it is long. Returns out[ERROR_QUOTE_BYTES]. */
const char *map_label(const char *path, char *out);

/* Refuses everything but a non-empty regular file, without waiting. The message starts with the label. On failure
 * *map is closed. */
enum status map_open(struct map *map, const char *path, struct error *err);
void map_close(struct map *map); /* a closed or zero-slot map (MAP_CLOSED) is fine */
#define MAP_CLOSED ((struct map){.fd = -1, .slot = -1})

/* True if the file was truncated, extended, rewritten or touched, or a missing page was read; `why` receives text. */
bool map_has_changed(const struct map *map, char *why, size_t why_bytes);

/* Reads bytes [begin, end) of the mapping in. A page that cannot be read is left to the reader. */
void map_populate(const struct map *map, size_t begin, size_t end);

#endif
