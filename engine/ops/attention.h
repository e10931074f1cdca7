/* Causal attention of a batch of query rows over the KV cache, in the reference's order of sums.
 *
 * Query row t stands at position `position + t` and sees the keys 0..position + t, which must be in the cache already.
 * Any head size; n_heads must be a multiple of the cache's heads. */
#ifndef GGUFD_OPS_ATTENTION_H
#define GGUFD_OPS_ATTENTION_H

#include <stdbool.h>
#include <stddef.h>

#include "engine/cpu/cpu.h"
#include "engine/kv/kv.h"

struct attention_tile;

/* A part of one token's attention that another worker may compute. Lives as long as the call that made it. */
struct attention_piece {
    const struct attention_tile *tile;
    const float *factors;               /* NULL: scores; otherwise values, weighted by exponentials times these */
    size_t key_begin, key_end;
    size_t dim_begin, dim_end;          /* of values */
};

/* How a worker gives pieces away, one at a time. */
struct attention_help {
    bool (*wanted)(void *context);      /* somebody would compute one */
    void (*give)(void *context, const struct attention_piece *piece);
    bool (*take_back)(void *context);   /* true: nobody began it, so it is the caller's again; false: now it is done */
    void *context;
};

struct attention {
    const struct kv *kv;
    size_t layer, n_heads;
    size_t position, n_tokens;
    const float *q;     /* [n_tokens][q_stride], rotated, not scaled; heads adjacent */
    float *out;         /* [n_tokens][out_stride], heads adjacent; may not be q */
    size_t q_stride, out_stride;
    const struct attention_help *help; /* NULL: nobody helps */
};

/* Scratch one worker needs for up to n_tokens query rows and any position of the cache; a multiple of 64. The scratch
 * must be aligned to 64 bytes. */
size_t attention_scratch_bytes(const struct kv_config *config, size_t n_heads, size_t n_tokens);

/* The whole as independent items 0..attention_items() - 1, for n_workers workers to divide as they like. */
size_t attention_items(const struct attention *a, unsigned n_workers);
void attention_item(enum cpu_tier tier, const struct attention *a, unsigned n_workers, size_t item, void *scratch);

/* Another worker's piece. */
void attention_piece_run(enum cpu_tier tier, const struct attention_piece *piece, void *scratch);

/* The keys that an item reads first, in one stream. */
const void *attention_item_keys(const struct attention *a, unsigned n_workers, size_t item, size_t *bytes);

/* Heads [head_begin, head_end) of query rows [token_begin, token_end). */
void attention_rows(enum cpu_tier tier, const struct attention *a, size_t head_begin, size_t head_end,
                    size_t token_begin, size_t token_end, void *scratch);

/* Stores this worker's share of n_tokens rows of K (rotated) and V in the cache, from position on. Rows as in q. */
struct attention_store {
    struct kv *kv;
    size_t layer, position, n_tokens;
    const float *k, *v;
    size_t k_stride, v_stride;
};
void attention_store_share(enum cpu_tier tier, const struct attention_store *s, unsigned worker, unsigned n_workers);

#endif
