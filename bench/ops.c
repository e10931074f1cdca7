/* Operations between the matrix products: multiply-accumulates per cycle of attention, cycles per element of the rest.
 *
 *   bench/ops [TIER ...]
 *
 * Thread CPU time, best of many short runs; cycles from a calibration of this core's clock (a chain of dependent
 * multiplications, 3 cycles each), so that figures of different machines compare. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/measure.h"
#include "engine/ops/attention.h"
#include "engine/ops/elementwise.h"
#include "engine/ops/rope.h"
#include "tests/support/random.h"

static double seconds_per_cycle(void)
{
    double best = 1;
    for (int round = 0; round < 20; round++) {
        uint64_t x = 3;
        double start = cpu_seconds();
        for (int i = 0; i < 200000; i++) {
            x *= x;
            __asm__ volatile("" : "+r"(x));
        }
        double seconds = (cpu_seconds() - start) / (3 * 200000.0);
        best = seconds < best ? seconds : best;
    }
    return best;
}

/* Cycles of one run of `statement`: best of `rounds` batches of `repeat`. */
#define CYCLES(result, rounds, repeat, statement)                          \
    do {                                                                   \
        double best_ = 1e9, cycle_ = seconds_per_cycle();                  \
        for (int i_ = 0; i_ < (rounds); i_++) {                            \
            double start_ = cpu_seconds();                                 \
            for (int k_ = 0; k_ < (repeat); k_++)                          \
                statement;                                                 \
            double t_ = (cpu_seconds() - start_) / (repeat);               \
            best_ = t_ < best_ ? t_ : best_;                               \
        }                                                                  \
        (result) = best_ / cycle_;                                         \
    } while (0)

static void *must(void *p)
{
    if (!p) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
    return p;
}

static float *random_floats(size_t n, float scale)
{
    uint64_t seed = n;
    float *p = must(malloc(n * sizeof *p));
    random_fill(&seed, p, n, scale);
    return p;
}

static void attention_all(enum cpu_tier tier, const struct attention *a, void *scratch)
{
    for (size_t item = 0, n = attention_items(a, 1); item < n; item++)
        attention_item(tier, a, 1, item, scratch);
}

static void bench_attention(enum cpu_tier tier, size_t head_size, size_t group, size_t position, size_t n_tokens)
{
    struct kv_config config = {.n_layers = 1, .n_heads = 1, .head_size = head_size, .n_positions = position + n_tokens};
    struct kv kv;
    struct error err;
    if (kv_init(&kv, &config, &err) != STATUS_OK) {
        fprintf(stderr, "%s\n", err.text);
        exit(1);
    }
    float *k = random_floats(config.n_positions * head_size, 2), *v = random_floats(config.n_positions * head_size, 3);
    for (size_t p = 0; p < config.n_positions; p++)
        kv_store(&kv, 0, p, k + p * head_size, v + p * head_size);
    size_t row = group * head_size;
    float *q = random_floats(n_tokens * row, 2), *out = random_floats(n_tokens * row, 1);
    struct attention a = {.kv = &kv, .n_heads = group, .position = position, .n_tokens = n_tokens, .q = q, .out = out,
                          .q_stride = row, .out_stride = row};
    void *scratch = must(aligned_alloc(64, attention_scratch_bytes(&config, group, n_tokens)));
    double pairs = 0, cycles;
    for (size_t t = 0; t < n_tokens; t++)
        pairs += (double)((position + t + 1) * group);
    int repeat = pairs * (double)head_size > 2e6 ? 1 : (int)(4e6 / (pairs * (double)head_size));
    CYCLES(cycles, tier == TIER_SCALAR ? 3 : 30, repeat, attention_all(tier, &a, scratch));
    printf("%-7s attention, head size %3zu, %zu grouped heads, %3zu tokens at %5zu: %6.2f MAC/cycle\n", cpu_tier_name(tier),
           head_size, group, n_tokens, position, 2 * pairs * (double)head_size / cycles);
    free(k);
    free(v);
    free(q);
    free(out);
    free(scratch);
    kv_clear(&kv);
}

static void bench_rows(enum cpu_tier tier)
{
    enum { N = 2048, ROWS = 32 };
    float *x = random_floats(N * ROWS, 3), *y = random_floats(N * ROWS, 3), *out = random_floats(N * ROWS, 1);
    uint16_t *half = must(malloc(N * ROWS * sizeof *half));
    struct rms_norm norm = {.x = x, .weight = y, .out = out, .n = N, .n_rows = 1, .x_stride = N, .out_stride = N,
                            .epsilon = 1e-5f};
    struct rope_options options = ROPE_OPTIONS_DEFAULT;
    options.n_dims = 64;
    struct rope rope;
    rope_init(&rope, &options);
    float cosines[32], sines[32];
    double cycles;
#define ROW(name, elements, statement)                                                              \
    CYCLES(cycles, 30, 20, statement);                                                              \
    printf("%-7s %-40s %6.2f cycles/element\n", cpu_tier_name(tier), name, cycles / (double)(elements))
    ROW("rms norm, one row of 2048", N, ops_rms_norm(tier, &norm));
    norm.n_rows = ROWS;
    ROW("rms norm, 32 rows of 2048", N * ROWS, ops_rms_norm(tier, &norm));
    ROW("swiglu", N, ops_swiglu(tier, x, y, out, N, 0, N));
    ROW("add", N, ops_add(tier, x, y, out, N));
    ROW("max", N, ops_max(tier, x, N));
    ROW("softmax", N, ops_softmax(tier, out, N));
    ROW("f16", N, ops_f16_encode(tier, x, half, N));
    ROW("rope angles, 64 dimensions (per pair)", 32, rope_angles(&rope, 4321, cosines, sines));
    memcpy(out, x, N * sizeof *out);
    ROW("rope, normal, 32 heads", N, rope_apply(tier, &rope, cosines, sines, out, N / 64));
    rope.options.kind = ROPE_NEOX;
    ROW("rope, neox, 32 heads", N, rope_apply(tier, &rope, cosines, sines, out, N / 64));
#undef ROW
    free(x);
    free(y);
    free(out);
    free(half);
}

static void bench_tier(enum cpu_tier tier)
{
    static const struct {
        size_t head_size, group, position, n_tokens;
    } shapes[] = {
        {64, 1, 1535, 1},  {64, 4, 1535, 1},   {64, 7, 1535, 1},   {128, 1, 1535, 1}, {128, 4, 1535, 1}, {80, 4, 1535, 1},
        {64, 4, 127, 1},   {64, 4, 0, 128},    {64, 4, 1024, 128}, {64, 4, 1024, 256}, {64, 1, 1024, 128}, {64, 7, 1024, 128},
        {80, 4, 1024, 128}, {128, 4, 1024, 128}, {128, 4, 0, 512},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        bench_attention(tier, shapes[i].head_size, shapes[i].group, shapes[i].position, shapes[i].n_tokens);
    bench_rows(tier);
}

int main(int argc, char **argv)
{
    struct error err;
    for (int i = 1; i < argc; i++) {
        enum cpu_tier tier;
        if (cpu_tier_parse(argv[i], &tier, &err) != STATUS_OK) {
            fprintf(stderr, "%s\n", err.text);
            return 1;
        }
        bench_tier(tier);
    }
    for (int tier = 0; argc < 2 && tier < TIER_COUNT; tier++)
        if (cpu_tier_available((enum cpu_tier)tier))
            bench_tier((enum cpu_tier)tier);
    return 0;
}
