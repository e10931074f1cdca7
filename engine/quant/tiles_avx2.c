/* The loop around the tile kernels of the AVX2 tier. */
#include "engine/quant/avx2.h"

#if defined(__x86_64__)

size_t avx2_tiles_scratch(const struct avx2_family *f, size_t n_cols)
{
    return n_cols / f->block_elements * f->tile_block_bytes;
}

void avx2_tiles_run(const struct product *p, const struct avx2_family *f)
{
    const uint8_t *rows[AVX2_ROWS];
    struct avx2_job job = {.tile = p->scratch, .n_blocks = p->n_cols / f->block_elements, .y_stride = p->y_stride};
    for (size_t row = p->row_begin; row < p->row_end; row += AVX2_ROWS) {
        job.n_rows = avx2_rows(p, row, AVX2_ROWS, rows);
        job.panel = p->x;
        f->pack(rows, job.n_blocks, p->scratch);
        for (size_t t = 0; t < p->n_tokens; t += AVX2_TOKENS) {
            job.n_tokens = p->n_tokens - t < AVX2_TOKENS ? p->n_tokens - t : AVX2_TOKENS;
            job.y = p->y + t * p->y_stride + row;
            f->run(&job);
            job.panel += job.n_blocks * f->panel_block_bytes;
        }
    }
}

#endif
