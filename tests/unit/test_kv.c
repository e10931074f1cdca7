/* KV cache: size known before, committed as it is written, every element where the layout says. */
#include "engine/kv/kv.h"
#include "tests/support/random.h"
#include "tests/support/suite.h"

#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

TEST(every_element_lies_where_the_layout_says)
{
    struct kv_config c = {.n_layers = 3, .n_heads = 2, .head_size = 20, .n_positions = 37};
    struct kv kv;
    struct error err;
    ck_assert_int_eq(kv_init(&kv, &c, &err), STATUS_OK);
    ck_assert_uint_eq(kv.mapping_bytes, kv_bytes(&c));
    ck_assert_uint_eq(kv.length, 0);
    uint64_t seed = 1;
    size_t row = c.n_heads * c.head_size, n = c.n_layers * c.n_positions * row;
    float *k = malloc(n * sizeof *k), *v = malloc(n * sizeof *v);
    random_fill(&seed, k, n, 10);
    random_fill(&seed, v, n, 70000);
    for (size_t i = 0; i < c.n_layers * c.n_positions; i++)
        kv_store(&kv, i / c.n_positions, i % c.n_positions, k + i * row, v + i * row);
    for (size_t i = 0; i < n; i++) {
        size_t d = i % c.head_size, h = i / c.head_size % c.n_heads, p = i / row % c.n_positions;
        size_t layer = i / row / c.n_positions, blocks = 3;
        uint16_t k16 = kv.k[(((layer * c.n_heads + h) * blocks + p / 16) * c.head_size + d) * 16 + p % 16];
        size_t plane = d / 32 * 32, width = c.head_size - plane < 32 ? c.head_size - plane : 32;
        uint16_t v16 = kv.v[((layer * c.n_heads + h) * c.head_size + plane) * blocks * 16 + p * width + d % 32];
        if (k16 != f16_from_float(k[i]) || v16 != f16_from_float(v[i]))
            ck_abort_msg("layer %zu position %zu head %zu dimension %zu", layer, p, h, d);
    }
    free(k);
    free(v);
    kv_clear(&kv);
    kv_clear(&kv);
}
END

static size_t resident_bytes(void)
{
    size_t pages = 0, unused = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    ck_assert_ptr_nonnull(f);
    ck_assert_int_eq(fscanf(f, "%zu %zu", &unused, &pages), 2);
    fclose(f);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

TEST(memory_is_committed_as_positions_are_written)
{
    struct kv_config c = {.n_layers = 4, .n_heads = 8, .head_size = 128, .n_positions = 1u << 20};
    struct kv kv;
    struct error err;
    ck_assert_uint_gt(kv_bytes(&c), UINT64_C(16) << 30);
    size_t before = resident_bytes();
    if (kv_init(&kv, &c, &err) != STATUS_OK)
        SKIP("this machine does not overcommit address space");
    float *row = calloc(c.n_heads * c.head_size, sizeof *row);
    for (size_t layer = 0; layer < c.n_layers; layer++)
        kv_store(&kv, layer, 12345, row, row);
    ck_assert_uint_lt(resident_bytes() - before, (size_t)256 << 20); /* at most a huge page for each of 64 places */
    free(row);
    kv_clear(&kv);
}
END

/* Large pages are only advice, but whatever becomes of it, every element stays. */
TEST(settling_moves_all_of_a_cache_in_use_and_changes_nothing)
{
    struct kv_config c = {.n_layers = 2, .n_heads = 4, .head_size = 64, .n_positions = 8192};
    struct kv kv;
    struct error err;
    ck_assert_int_eq(kv_init(&kv, &c, &err), STATUS_OK);
    uint64_t seed = 5, state;
    for (size_t i = 0; i < kv.mapping_bytes / 8; i++)
        ((uint64_t *)kv.mapping)[i] = random_u64(&seed);
    kv.length = c.n_positions / 2;
    kv_settle(&kv, 512);
    ck_assert_uint_eq(kv.settled, 0);
    kv.length++;
    size_t steps = 0, last;
    do {
        last = kv.settled;
        kv_settle(&kv, steps++ % 2 ? 1 : 64);
    } while (kv.settled != last);
    if (kv.settled == SIZE_MAX)
        printf("note: this kernel has no large pages to move to\n");
    else
        ck_assert_uint_ge(kv.settled + (4 << 20), kv.mapping_bytes);
    state = 5;
    for (size_t i = 0; i < kv.mapping_bytes / 8; i++)
        ck_assert_uint_eq(((uint64_t *)kv.mapping)[i], random_u64(&state));
    kv_clear(&kv);
}
END

TEST(a_size_beyond_the_address_space_is_an_error)
{
    struct kv_config c = {.n_layers = SIZE_MAX / 16, .n_heads = 8, .head_size = 128, .n_positions = 4096};
    struct kv kv;
    struct error err;
    ck_assert_uint_eq(kv_bytes(&c), SIZE_MAX);
    ck_assert_int_eq(kv_init(&kv, &c, &err), STATUS_NO_MEMORY);
    ck_assert_ptr_nonnull(strstr(err.text, "4096 positions"));
    c.n_layers = (size_t)1 << 30;
    ck_assert_uint_lt(kv_bytes(&c), SIZE_MAX);
    ck_assert_int_eq(kv_init(&kv, &c, &err), STATUS_NO_MEMORY);
    kv_clear(&kv);
}
END

SUITE(kv, T(every_element_lies_where_the_layout_says), T(memory_is_committed_as_positions_are_written),
      T(settling_moves_all_of_a_cache_in_use_and_changes_nothing),
      T(a_size_beyond_the_address_space_is_an_error))
