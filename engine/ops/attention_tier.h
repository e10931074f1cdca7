/* What a tier offers for attention, private to this folder: tiles of rows of one KV head.
 *
 * A row is one query of one head. The rows of a tile are ordered by token, then head, so that the number of keys they
 * see never falls. */
#ifndef GGUFD_OPS_ATTENTION_TIER_H
#define GGUFD_OPS_ATTENTION_TIER_H

#include "engine/ops/attention.h"

enum {
    ATTENTION_ROWS = 96,      /* most rows of a tile */
    ATTENTION_ROWS_MIN = 8,   /* so many fit whatever the number of keys */
    ATTENTION_ROW_STEP = 24,  /* buffers hold a multiple of so many rows */
    ATTENTION_KEYS = 64,      /* keys of one tile of V */
    ATTENTION_GROUP = 8       /* heads of one decode step */
};

struct attention_tile {
    const struct attention *a;
    size_t kv_head;
    size_t head_begin, head_end;    /* all of kv_head's group */
    size_t token_begin, token_end;
    /* Scratch, for the rows of the tile, at least ATTENTION_ROWS_MIN. */
    size_t w_stride;    /* floats between rows of w: all keys and a tile more */
    float *w;           /* [rows][w_stride] scores, then exponentials */
    double *q;          /* [rows][head size] */
    double *k;          /* one tile of K, [head size][24] */
    double *v;          /* one tile of V, [ATTENTION_KEYS][64] */
    double *p;          /* [rows up to ATTENTION_ROW_STEP][ATTENTION_KEYS] */
    double *sums;       /* [rows up to ATTENTION_ROW_STEP][head size up to 8] */
};

struct attention_tier {
    void (*decode)(const struct attention_tile *t);  /* one token, at most ATTENTION_GROUP heads */
    void (*prefill)(const struct attention_tile *t); /* at most ATTENTION_ROWS rows */
    void (*piece)(const struct attention_piece *piece, double *p); /* p: as in the tile; NULL: never gives any */
};

extern const struct attention_tier attention_avx2, attention_avx512, attention_neon;

#endif
