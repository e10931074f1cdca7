/* Puts a fuzzer's input where code that wants a path finds it, without touching a disk. */
#ifndef GGUFD_TESTS_MEMORY_FILE_H
#define GGUFD_TESTS_MEMORY_FILE_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* Path of a file that holds exactly these bytes; valid until the next call. */
static inline const char *memory_file(const uint8_t *data, size_t size)
{
    static char path[64];
    static int fd = -1;
    if (fd >= 0)
        close(fd);
    fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return path;
}

#endif
