/* Helpers of the formats whose weights are entries of a grid with signs. */
#ifndef GGUFD_QUANT_GRID_H
#define GGUFD_QUANT_GRID_H

#include "engine/quant/superblock.h"
#include "engine/quant/tables.h"

/* n entries, element j negative where bit j of signs is set. */
QUANT_INLINE void grid_unpack(const uint8_t *entry, unsigned signs, int n, int8_t *q)
{
    for (int j = 0; j < n; j++)
        q[j] = (int8_t)(signs >> j & 1 ? -entry[j] : entry[j]);
}

#endif
