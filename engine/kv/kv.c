/* The cache's mapping and its layout; see kv.h. */
#include "engine/kv/kv.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "engine/base/f16.h"

enum { PAGE = 4096, LARGE_PAGE = 2 << 20, SETTLE_PER_TOKEN = 64 << 10 };

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* Linux 6.1 */
#endif

static size_t blocks_of(const struct kv_config *c)
{
    return c->n_positions / KV_BLOCK + (c->n_positions % KV_BLOCK != 0);
}

/* Bytes of K (V is as large), in whole pages and one page behind, so that a wide load may start at the last element. */
static size_t side_bytes(const struct kv_config *c)
{
    size_t bytes = sizeof(uint16_t) * KV_BLOCK;
    if (__builtin_mul_overflow(bytes, blocks_of(c), &bytes) || __builtin_mul_overflow(bytes, c->head_size, &bytes) ||
        __builtin_mul_overflow(bytes, c->n_heads, &bytes) || __builtin_mul_overflow(bytes, c->n_layers, &bytes) ||
        __builtin_add_overflow(bytes, 2 * PAGE - 1, &bytes))
        return SIZE_MAX;
    return bytes / PAGE * PAGE;
}

size_t kv_bytes(const struct kv_config *config)
{
    size_t side = side_bytes(config), both;
    return side == SIZE_MAX || __builtin_mul_overflow(side, 2, &both) ? SIZE_MAX : both;
}

enum status kv_init(struct kv *kv, const struct kv_config *config, struct error *err)
{
    *kv = (struct kv){.config = *config, .n_blocks = blocks_of(config), .mapping_bytes = kv_bytes(config)};
    void *p = MAP_FAILED;
    errno = ENOMEM;
    if (kv->mapping_bytes != SIZE_MAX)
        p = mmap(NULL, kv->mapping_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) {
        size_t wanted = kv->mapping_bytes;
        int code = errno;
        *kv = (struct kv){0};
        return error_set(err, STATUS_NO_MEMORY,
                         "KV cache: cannot map %zu bytes for %zu positions, %zu layers, %zu heads of %zu: %s", wanted,
                         config->n_positions, config->n_layers, config->n_heads, config->head_size, strerror(code));
    }
    kv->mapping = p;
    kv->k = p;
    kv->v = (uint16_t *)((char *)p + kv->mapping_bytes / 2);
    return STATUS_OK;
}

void kv_clear(struct kv *kv)
{
    if (kv->mapping)
        munmap(kv->mapping, kv->mapping_bytes);
    *kv = (struct kv){0};
}

void kv_settle(struct kv *kv, size_t n_tokens)
{
    size_t shift = -(uintptr_t)kv->mapping % LARGE_PAGE, part = n_tokens * SETTLE_PER_TOKEN / LARGE_PAGE * LARGE_PAGE;
    if (kv->length <= kv->config.n_positions / 2 || kv->settled == SIZE_MAX || kv->mapping_bytes < shift)
        return;
    size_t left = (kv->mapping_bytes - shift) / LARGE_PAGE * LARGE_PAGE - kv->settled;
    part = part < LARGE_PAGE ? LARGE_PAGE : part;
    part = part < left ? part : left;
    if (part == 0)
        return;
    if (madvise((char *)kv->mapping + shift + kv->settled, part, MADV_COLLAPSE) == 0 || errno == EAGAIN)
        kv->settled += part;
    else
        kv->settled = SIZE_MAX;
}

void kv_store(struct kv *kv, size_t layer, size_t position, const float *k, const float *v)
{
    size_t n = kv->config.head_size;
    assert(layer < kv->config.n_layers && position < kv->config.n_positions);
    for (size_t h = 0; h < kv->config.n_heads; h++, k += n, v += n) {
        uint16_t *column = kv_k_block(kv, layer, h, position) + position % KV_BLOCK;
        for (size_t d = 0; d < n; d++) {
            column[d * KV_BLOCK] = f16_from_float(k[d]);
            *kv_v(kv, layer, h, position, d) = f16_from_float(v[d]);
        }
    }
}
