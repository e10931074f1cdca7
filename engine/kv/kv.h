/* The KV cache of one sequence, as F16 in one lazily committed mapping: memory is used as positions are written.
 *
 * K lies in blocks of 16 keys, dimension-major, so that 16 scores are 16 lanes and each sums its dimensions in order:
 *     k[layer][kv head][position / 16][dimension][position % 16]
 * V lies in planes of 32 dimensions, a line of 64 bytes a position, so that a pass over some dimensions of all positions
 * reads one stream. The last plane of a head is as wide as what is left of it.
 *     v[layer][kv head][dimension / 32][position][dimension % 32]
 * Positions at or beyond `length` hold zeros or leftovers of a truncated past: finite or not, readers must ignore them. */
#ifndef GGUFD_KV_KV_H
#define GGUFD_KV_KV_H

#include <stddef.h>
#include <stdint.h>

#include "engine/base/error.h"

enum { KV_BLOCK = 16, KV_PLANE = 32 };

struct kv_config {
    size_t n_layers, n_heads, head_size; /* n_heads: of keys and values */
    size_t n_positions;
};

struct kv {
    struct kv_config config;
    size_t n_blocks;    /* of 16 positions, per head */
    size_t length;      /* positions that are valid, in all layers; set it to rewind */
    uint16_t *k, *v;
    void *mapping;
    size_t mapping_bytes;
    size_t settled;     /* bytes that kv_settle has moved, or SIZE_MAX: it cannot */
};

/* Address space kv_init will map; SIZE_MAX when that exceeds size_t. */
size_t kv_bytes(const struct kv_config *config);

enum status kv_init(struct kv *kv, const struct kv_config *config, struct error *err);
void kv_clear(struct kv *kv); /* a zeroed struct is fine */

/* First element of the block that holds `position`: [head_size][16]. */
static inline uint16_t *kv_k_block(const struct kv *kv, size_t layer, size_t head, size_t position)
{
    size_t block = (layer * kv->config.n_heads + head) * kv->n_blocks + position / KV_BLOCK;
    return kv->k + block * kv->config.head_size * KV_BLOCK;
}

/* Elements from one position to the next in the plane of a dimension. */
static inline size_t kv_v_stride(const struct kv *kv, size_t dimension)
{
    size_t left = kv->config.head_size - dimension / KV_PLANE * KV_PLANE;
    return left < KV_PLANE ? left : KV_PLANE;
}

/* V at `position`, from `dimension` to the end of its plane. */
static inline uint16_t *kv_v(const struct kv *kv, size_t layer, size_t head, size_t position, size_t dimension)
{
    size_t n_positions = kv->n_blocks * KV_BLOCK, first = dimension / KV_PLANE * KV_PLANE;
    size_t plane = (layer * kv->config.n_heads + head) * kv->config.head_size + first;
    return kv->v + plane * n_positions + position * kv_v_stride(kv, dimension) + (dimension - first);
}

/* Once more than half of the positions are in use, little is left to save by small pages: moves a part of the mapping,
 * larger after a step of more tokens, to large pages, which attention reads a tenth faster, until all of it has moved.
 * A cache that is filled is not larger for it. Without support or memory nothing happens. Not while a step runs. */
void kv_settle(struct kv *kv, size_t n_tokens);

/* Stores all heads of one position: k and v are rows [n_heads * head_size]. Does not change length. Different positions
 * may be stored by different threads. */
void kv_store(struct kv *kv, size_t layer, size_t position, const float *k, const float *v);

#endif
