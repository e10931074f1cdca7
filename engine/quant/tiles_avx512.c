/* The loop around the tile kernels of the AVX-512 tier: which tiles are unpacked when, against which tokens they run.
 *
 * With many tokens several tiles are unpacked together, as many as stay in the second-level cache, so that each panel
 * of activations is fetched once for all of them. While they run, the next tiles' weights are prefetched. */
#include "engine/quant/avx512.h"

#if defined(__x86_64__)

enum { SUPER_TILE_BYTES = 512 << 10, SUPER_TILE_MAX = 8, FEW_TOKENS = 64 };

static size_t tile_bytes(const struct tile_family *f, size_t n_cols)
{
    return round_up(n_cols / f->block_elements * f->tile_block_bytes, 64);
}

static size_t tiles_at_once(const struct tile_family *f, size_t n_cols, size_t n_tokens)
{
    size_t n = SUPER_TILE_BYTES / tile_bytes(f, n_cols);
    if (n <= 1 || n_tokens <= FEW_TOKENS)
        return 1;
    return n < SUPER_TILE_MAX ? n : SUPER_TILE_MAX;
}

size_t tiles_scratch_bytes(const struct tile_family *f, size_t n_cols, size_t n_tokens)
{
    size_t row_bytes = n_cols / f->block_elements * f->block_bytes;
    return row_group_bytes(row_bytes, f->overread) + tiles_at_once(f, n_cols, n_tokens) * tile_bytes(f, n_cols);
}

/* Row tiles [row, row + n_tiles * 16) against all tokens. */
static void super_tile_run(const struct product *p, const struct tile_family *f, size_t row, size_t n_tiles,
                           const uint8_t *tiles)
{
    size_t n_blocks = p->n_cols / f->block_elements, n_panels = (p->n_tokens + TOKENS - 1) / TOKENS;
    const uint8_t *panels = (const uint8_t *)p->x + f->panel_offset * n_panels * n_blocks;
    struct tile_job job = {.n_blocks = n_blocks, .y_stride = p->y_stride};
    /* What follows in memory is used next, by this product or by the caller's next one; a prefetch cannot fault. */
    const uint8_t *next = (const uint8_t *)p->weights + (row + n_tiles * ROWS) * p->row_bytes;
    if (next < (const uint8_t *)p->weights_end) {
        job.prefetch = next;
        job.prefetch_step = n_tiles * ROWS * p->row_bytes / (n_tiles * n_panels * n_blocks) + 1;
        if (job.prefetch_step > 64)
            job.prefetch_step = round_up(job.prefetch_step, 64);
    }
    for (size_t t = 0; t < p->n_tokens; t += TOKENS) {
        job.n_tokens = p->n_tokens - t < TOKENS ? p->n_tokens - t : TOKENS;
        job.panel = panels + t / TOKENS * n_blocks * f->panel_block_bytes;
        for (size_t i = 0; i < n_tiles; i++) {
            job.tile = tiles + i * tile_bytes(f, p->n_cols);
            job.y = p->y + t * p->y_stride + row + i * ROWS;
            job.rows = row_mask(p, row + i * ROWS);
            (job.n_tokens <= TOKENS / 2 ? f->run_few : f->run)(&job);
            if (job.prefetch_step)
                job.prefetch += job.prefetch_step * n_blocks;
        }
    }
}

void tiles_run(const struct product *p, const struct tile_family *f)
{
    size_t at_once = tiles_at_once(f, p->n_cols, p->n_tokens), n_blocks = p->n_cols / f->block_elements;
    uint8_t *stage = p->scratch, *tiles = stage + row_group_bytes(p->row_bytes, f->overread);
    for (size_t row = p->row_begin; row < p->row_end; row += at_once * ROWS) {
        size_t n_tiles = (p->row_end - row + ROWS - 1) / ROWS;
        if (n_tiles > at_once)
            n_tiles = at_once;
        for (size_t i = 0; i < n_tiles; i++)
            f->pack(row_group(p, row + i * ROWS, f->overread, stage), p->row_bytes, n_blocks,
                    tiles + i * tile_bytes(f, p->n_cols));
        super_tile_run(p, f, row, n_tiles, tiles);
    }
}

#endif
