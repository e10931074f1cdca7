/* What the kernels of both x86-64 tiers share: unrolling and the stream of weights. */
#ifndef GGUFD_QUANT_X86_H
#define GGUFD_QUANT_X86_H
#if defined(__x86_64__)

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif
#define ALIGNED __attribute__((aligned(64)))

static inline size_t round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

/* Distances of the prefetches, measured: into the second-level cache early, into the first late. The hardware follows
 * requests, but only within a page, so beside arithmetic memory idles whenever a page begins: some lines are requested
 * one or two pages earlier still. */
enum { PREFETCH_L1 = 4096, PREFETCH_L2 = 10240, PREFETCH_PAGE = 4096 };

/* One weight stream in steps of `bytes`: requests the lines that begin in step i behind x for both caches, the first of x
 * and every second one behind it by pages too. A prefetch cannot fault. */
__attribute__((always_inline)) static inline void prefetch_step(const uint8_t *x, size_t i, size_t bytes)
{
    UNROLL
    for (size_t at = (i * bytes + 63) / 64 * 64; at < (i + 1) * bytes; at += 64) {
        _mm_prefetch((const char *)x + PREFETCH_L2 + at, _MM_HINT_T1);
        _mm_prefetch((const char *)x + PREFETCH_L1 + at, _MM_HINT_T0);
        if (at % 128 == 0)
            _mm_prefetch((const char *)x + PREFETCH_L2 + (at % 256 ? 2 : 1) * PREFETCH_PAGE + at, _MM_HINT_T1);
    }
}

__attribute__((always_inline)) static inline void prefetch_stream(const uint8_t *x, size_t bytes)
{
    prefetch_step(x, 0, bytes);
}

#endif
#endif
