/* Weight blocks for tests and benchmarks: random ones, and a plain round-to-nearest encoder. Neither is meant for real
 * models: llama-quantize searches for better scales, so its files differ from what encode_row() writes. */
#ifndef GGUFD_TESTS_ENCODE_H
#define GGUFD_TESTS_ENCODE_H

#include "engine/quant/quant.h"

/* Deterministic on every machine (splitmix64); *state may start anywhere. */
uint64_t random_u64(uint64_t *state);
/* Uniform in [-1, 1), 24 bits. */
float random_float(uint64_t *state);
void random_floats(uint64_t *state, float *out, size_t n);
void random_bytes(uint64_t *state, void *out, size_t n);

/* n_blocks valid blocks of any format: random integers, finite scales such that weights are of magnitude 0.001 .. 4. */
void random_blocks(const struct format *f, uint64_t *state, void *out, size_t n_blocks);

/* n floats (a multiple of the block) -> n / block_elements blocks, each value rounded to the nearest one its block's
 * scale allows. False, and nothing written: no encoder for this format (the grid and ternary ones). */
bool encode_row(const struct format *f, const float *x, void *out, size_t n);

#endif
