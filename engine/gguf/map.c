/* Opens and maps one file; see map.h. Refuses directories, FIFOs, devices and empty files by name; never
 * waits, because a FIFO without a writer is opened with O_NONBLOCK and turned away by its type. */
#include "engine/gguf/map.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine/gguf/guard.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

const char *map_label(const char *path, char *out)
{
    size_t n = strlen(path);
    if (n <= ERROR_QUOTE_MAX)
        return error_quote(path, n, out);
    memcpy(out, "...", 3);
    error_quote(path + n - (ERROR_QUOTE_MAX - 3), ERROR_QUOTE_MAX - 3, out + 3);
    return out;
}

_Static_assert(sizeof(size_t) >= sizeof(off_t), "any file's size is a size_t");

static const char *file_kind(mode_t mode)
{
    return S_ISDIR(mode) ? "a directory" : S_ISFIFO(mode) ? "a FIFO" : "a device"; /* a socket cannot be opened */
}

static enum status check_kind(struct map *map, struct error *err)
{
    if (fstat(map->fd, &map->opened) != 0)
        return error_set(err, STATUS_IO, "%s: cannot be examined: %s", map->label, strerror(errno));
    if (!S_ISREG(map->opened.st_mode))
        return error_set(err, STATUS_INVALID, "%s: is %s, not a regular file", map->label,
                         file_kind(map->opened.st_mode));
    if (map->opened.st_size == 0)
        return error_set(err, STATUS_INVALID, "%s: the file is empty", map->label);
    return STATUS_OK;
}

enum status map_open(struct map *map, const char *path, struct error *err)
{
    *map = MAP_CLOSED;
    map_label(path, map->label);
    enum status s;
    map->fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    if (map->fd < 0) {
        s = error_set(err, STATUS_IO, "%s: cannot be opened: %s", map->label, strerror(errno));
        goto fail;
    }
    s = check_kind(map, err);
    if (s != STATUS_OK)
        goto fail;
    map->size = (size_t)map->opened.st_size;
    void *data = mmap(NULL, map->size, PROT_READ, MAP_SHARED, map->fd, 0);
    if (data == MAP_FAILED) {
        s = error_set(err, STATUS_IO, "%s: cannot be mapped (%zu bytes): %s", map->label, map->size, strerror(errno));
        goto fail;
    }
    map->data = data;
    s = guard_add(data, map->size, &map->slot, err);
    if (s != STATUS_OK)
        goto fail;
    return STATUS_OK;
fail:
    map_close(map);
    return s;
}

void map_close(struct map *map)
{
    if (map->slot >= 0)
        guard_remove(map->slot);
    if (map->data)
        munmap((void *)(uintptr_t)map->data, map->size);
    if (map->fd >= 0)
        close(map->fd);
    map->slot = -1;
    map->fd = -1;
    map->data = NULL;
    map->size = 0;
}

bool map_has_changed(const struct map *map, char *why, size_t why_bytes)
{
    struct stat now;
    const struct stat *then = &map->opened;
    if (fstat(map->fd, &now) != 0)
        snprintf(why, why_bytes, "%s: can no longer be examined: %s", map->label, strerror(errno));
    else if (now.st_size != then->st_size)
        snprintf(why, why_bytes, "%s: the file changed while in use: %lld bytes now, %lld when opened", map->label,
                 (long long)now.st_size, (long long)then->st_size);
    else if (now.st_mtim.tv_sec != then->st_mtim.tv_sec || now.st_mtim.tv_nsec != then->st_mtim.tv_nsec)
        snprintf(why, why_bytes, "%s: the file was written to while in use (modification time differs)", map->label);
    else if (guard_has_faulted(map->slot))
        snprintf(why, why_bytes, "%s: a page of the file could not be read while in use", map->label);
    else
        return false;
    return true;
}

void map_populate(const struct map *map, size_t begin, size_t end)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    begin -= begin % page;
    if (madvise((void *)(uintptr_t)(map->data + begin), end - begin, MADV_POPULATE_READ) == 0)
        return;
    /* Kernels before 5.14 lack it, and a truncated file fails it: reading one byte a page does the same. */
    for (size_t at = begin; at < end; at += page)
        (void)*(const volatile char *)(map->data + at);
}
