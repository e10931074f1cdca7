/* Speed of the matrix product kernels of one thread, every format: decode against the bandwidth of a plain read,
 * prefill against the peak of the VNNI units, all measured in turn in this run. Thread CPU time; medians.
 *
 *   bench/kernels [--full] [--best] [--tier TIER] [FORMAT ...]
 *
 * One row per format: name, decode GB/s, % of read, decode GB/s from the cache, then per token count prefill GMAC/s and
 * % of peak, separated by tabs. --best: the best instead of the median where no ratio is asked for. */
#include "bench/measure.h"
#include "bench/read.h"
#include "engine/ops/matmul.h"
#include "tests/support/encode.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { COLS = 2048, PREFILL_ROWS = 1024, TOKENS_MAX = 512, REPETITIONS_MAX = 31 };
enum { CHUNK_BYTES = 48 << 20, CACHED_BYTES = 1 << 20 };

static size_t weights_bytes = (size_t)256 << 20; /* more than a core's share of the last cache; --full: 640 MB */
static size_t repetitions = 7;
static bool show_best;
static size_t token_counts[4] = {8, 128, 0, 0};
static enum cpu_tier tier;

static char *weights;
static float *activations;

static void *allocate(size_t size)
{
    void *p = NULL;
    if (posix_memalign(&p, 4096, size) != 0) {
        fprintf(stderr, "bench/kernels: no memory for %zu bytes\n", size);
        exit(1);
    }
    memset(p, 1, size);
    return p;
}

static double read_seconds(const char *data, size_t size)
{
    double start = cpu_seconds();
    read_through(data, size);
    return cpu_seconds() - start;
}

/* GMAC/s of 8-bit integers in the widest unit there is; 0 where we do not measure it. */
static double peak_gmacs(void)
{
#if defined(__x86_64__)
    if (!cpu_tier_available(TIER_AVX512))
        return 0;
    double best = 0;
    for (int i = 0; i < 20; i++) {
        long n = 100000;
        double start = cpu_seconds();
        __asm__ volatile("1:\n"
                         "vpdpbusd %%zmm30, %%zmm31, %%zmm0\n vpdpbusd %%zmm30, %%zmm31, %%zmm1\n"
                         "vpdpbusd %%zmm30, %%zmm31, %%zmm2\n vpdpbusd %%zmm30, %%zmm31, %%zmm3\n"
                         "vpdpbusd %%zmm30, %%zmm31, %%zmm4\n vpdpbusd %%zmm30, %%zmm31, %%zmm5\n"
                         "vpdpbusd %%zmm30, %%zmm31, %%zmm6\n vpdpbusd %%zmm30, %%zmm31, %%zmm7\n"
                         "vpdpbusd %%zmm30, %%zmm31, %%zmm8\n vpdpbusd %%zmm30, %%zmm31, %%zmm9\n"
                         "vpdpbusd %%zmm30, %%zmm31, %%zmm10\n vpdpbusd %%zmm30, %%zmm31, %%zmm11\n"
                         "dec %0\n jnz 1b"
                         : "+r"(n)
                         :
                         : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10",
                           "xmm11", "cc");
        double rate = 100000 * 12.0 * 64.0 / (cpu_seconds() - start) * 1e-9;
        best = rate > best ? rate : best;
    }
    return best;
#else
    return 0;
#endif
}

/* The same 256 kB of random blocks over and over: the kernels' time does not depend on values that are not
 * subnormal, and the scales of whole blocks are not. */
static void fill_weights(const struct format *f)
{
    size_t n_blocks = ((size_t)256 << 10) / f->block_bytes, bytes = n_blocks * f->block_bytes;
    uint64_t seed = 1;
    random_blocks(f, &seed, weights, n_blocks);
    for (size_t at = bytes; at < weights_bytes; at += bytes)
        memcpy(weights + at, weights, at + bytes < weights_bytes ? bytes : weights_bytes - at);
}

static struct matrix matrix_at(const struct format *f, size_t offset, size_t bytes)
{
    size_t row_bytes = format_row_bytes(f, COLS);
    return (struct matrix){f, weights + offset, weights + weights_bytes, COLS, bytes / row_bytes / 16 * 16};
}

struct buffers {
    void *x, *scratch;
    float *y;
};

static double product_seconds(const struct matrix *w, size_t n_tokens, const struct buffers *b)
{
    double start = cpu_seconds();
    matmul(w, tier, b->x, n_tokens, 0, w->n_rows, b->y, w->n_rows, b->scratch);
    return cpu_seconds() - start;
}

static struct buffers buffers_for(const struct matrix *w, size_t n_tokens)
{
    const struct activation_layout *layout = matmul_layout(w, tier, n_tokens);
    struct buffers b = {
        .x = allocate(layout->bytes(w->n_cols, n_tokens)),
        .scratch = allocate(matmul_scratch_bytes(w, tier, n_tokens) + 64),
        .y = allocate(n_tokens * w->n_rows * sizeof(float)),
    };
    layout->encode(activations, w->n_cols, w->n_cols, 0, n_tokens, n_tokens, b.x);
    return b;
}

static void buffers_free(struct buffers *b)
{
    free(b->x);
    free(b->scratch);
    free(b->y);
}

/* GB/s with weights that stay in the second-level cache: the kernel's own speed. */
static double decode_cached(const struct format *f)
{
    double rate[5 * REPETITIONS_MAX];
    struct matrix w = matrix_at(f, 0, CACHED_BYTES);
    struct buffers b = buffers_for(&w, 1);
    for (size_t i = 0; i < 5 * repetitions; i++)
        rate[i] = (double)(w.n_rows * format_row_bytes(f, COLS)) / product_seconds(&w, 1, &b) * 1e-9;
    buffers_free(&b);
    double m = median(rate, 5 * repetitions);
    return show_best ? rate[5 * repetitions - 1] : m;
}

/* Read passes and products over different parts of the weights in turn. */
static void decode(const struct format *f)
{
    double read[REPETITIONS_MAX], product[REPETITIONS_MAX], share[REPETITIONS_MAX];
    size_t chunk_bytes = CHUNK_BYTES / f->block_bytes * f->block_bytes; /* whole blocks: torn ones have absurd scales */
    struct matrix w = matrix_at(f, 0, chunk_bytes);
    struct buffers b = buffers_for(&w, 1);
    size_t n_chunks = weights_bytes / chunk_bytes, chunk = 0;
    for (size_t i = 0; i < repetitions; i++) {
        read[i] = (double)chunk_bytes / read_seconds(weights + chunk++ % n_chunks * chunk_bytes, chunk_bytes) * 1e-9;
        w = matrix_at(f, chunk++ % n_chunks * chunk_bytes, chunk_bytes);
        double bytes = (double)(w.n_rows * format_row_bytes(f, COLS));
        product[i] = bytes / product_seconds(&w, 1, &b) * 1e-9;
        share[i] = product[i] / read[i];
    }
    buffers_free(&b);
    printf("%s\t%.1f\t%.0f", f->name, median(product, repetitions), 100 * median(share, repetitions));
    printf("\t%.1f", decode_cached(f));
}

static void prefill(const struct format *f, size_t n_tokens, double peak)
{
    double rate[REPETITIONS_MAX];
    struct matrix w = matrix_at(f, 0, PREFILL_ROWS * format_row_bytes(f, COLS));
    struct buffers b = buffers_for(&w, n_tokens);
    for (size_t i = 0; i < repetitions; i++)
        rate[i] = (double)w.n_rows * (double)COLS * (double)n_tokens / product_seconds(&w, n_tokens, &b) * 1e-9;
    buffers_free(&b);
    double m = median(rate, repetitions);
    m = show_best ? rate[repetitions - 1] : m;
    printf("\t%.1f\t%.0f", m, peak > 0 ? 100 * m / peak : 0);
}

static void bench_format(const struct format *f, double peak)
{
    fill_weights(f);
    decode(f);
    for (size_t i = 0; i < 4 && token_counts[i]; i++)
        prefill(f, token_counts[i], peak);
    putchar('\n');
    fflush(stdout);
}

static void print_header(double peak)
{
    char model[128];
    double read[REPETITIONS_MAX];
    for (size_t i = 0; i < repetitions; i++)
        read[i] = (double)CHUNK_BYTES / read_seconds(weights + i % 4 * CHUNK_BYTES, CHUNK_BYTES) * 1e-9;
    cpu_model_name(model, sizeof model);
    printf("# %s, tier %s, 1 thread, %d columns\n", model, cpu_tier_name(tier), COLS);
    printf("# read %.1f GB/s, 8-bit peak %.0f GMAC/s\n", median(read, repetitions), peak);
    printf("format\tdecode GB/s\t%% of read\tfrom cache GB/s");
    for (size_t i = 0; i < 4 && token_counts[i]; i++)
        printf("\tprefill %zu GMAC/s\t%% of peak", token_counts[i]);
    putchar('\n');
}

int main(int argc, char **argv)
{
    struct error err;
    int first = 1;
    tier = cpu_tier_best();
    for (; first < argc && strncmp(argv[first], "--", 2) == 0; first++) {
        if (strcmp(argv[first], "--best") == 0) {
            show_best = true;
        } else if (strcmp(argv[first], "--full") == 0) {
            weights_bytes = (size_t)640 << 20;
            repetitions = 15;
            memcpy(token_counts, (size_t[]){8, 32, 128, 512}, sizeof token_counts);
        } else if (strcmp(argv[first], "--tier") == 0 && first + 1 < argc) {
            if (cpu_tier_parse(argv[++first], &tier, &err) != STATUS_OK) {
                fprintf(stderr, "bench/kernels: %s\n", err.text);
                return 2;
            }
        } else {
            fprintf(stderr, "usage: bench/kernels [--full] [--best] [--tier TIER] [FORMAT ...]\n");
            return 2;
        }
    }
    weights = allocate(weights_bytes);
    activations = allocate((size_t)TOKENS_MAX * COLS * sizeof *activations);
    uint64_t seed = 2;
    random_floats(&seed, activations, (size_t)TOKENS_MAX * COLS);
    double peak = peak_gmacs();
    print_header(peak);
    size_t n;
    const struct format *const *all = format_all(&n);
    for (size_t i = 0; i < n && first == argc; i++)
        bench_format(all[i], peak);
    for (; first < argc; first++) {
        const struct format *f = format_by_name(argv[first]);
        if (!f) {
            fprintf(stderr, "bench/kernels: unknown format %s\n", argv[first]);
            return 2;
        }
        bench_format(f, peak);
    }
    return 0;
}
