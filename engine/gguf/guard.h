/* Survives reads of file pages that are gone: process-wide, for mappings registered here only.
 *
 * A SIGBUS inside a registered mapping puts zero pages over the rest of that mapping and marks its slot; the read goes
 * on and yields zeros. A SIGBUS elsewhere goes to the action that was installed before. The handler is installed by
 * the first guard_add and stays. */
#ifndef GGUFD_GGUF_GUARD_H
#define GGUFD_GGUF_GUARD_H

#include <stdbool.h>
#include <stddef.h>

#include "engine/base/error.h"

#define GUARD_SLOTS 256 /* mappings at one time, in this process */

/* Registers [data, data + size); *slot names it. Refuses when all slots are taken. Any thread. */
enum status guard_add(const void *data, size_t size, int *slot, struct error *err);
/* After this the mapping may be unmapped; no thread may read it any more. */
void guard_remove(int slot);
/* True once a missing page of this mapping was read. Sticky. */
bool guard_has_faulted(int slot);

#endif
