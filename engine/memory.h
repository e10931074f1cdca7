/* How much memory this process may still take. */
#ifndef GGUFD_ENGINE_MEMORY_H
#define GGUFD_ENGINE_MEMORY_H

#include <stdint.h>

/* The smaller of the system's available memory and what every memory control group above this process leaves (page
 * cache counts as free: it gives way). 0: unknown. `root` is put in front of /proc and /sys: "" but in tests. */
uint64_t memory_available(const char *root);

#endif
