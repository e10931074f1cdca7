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

/* Distances of the two prefetches, measured: into the second-level cache early, into the first late. */
enum { PREFETCH_L2 = 8192, PREFETCH_L1 = 2048 };

/* One weight stream in steps of `bytes`: the lines that begin in step i behind x, each requested from both caches. A
 * prefetch cannot fault. */
__attribute__((always_inline)) static inline void prefetch_step(const uint8_t *x, size_t i, size_t bytes)
{
    UNROLL
    for (size_t at = (i * bytes + 63) / 64 * 64; at < (i + 1) * bytes; at += 64) {
        _mm_prefetch((const char *)x + PREFETCH_L2 + at, _MM_HINT_T1);
        _mm_prefetch((const char *)x + PREFETCH_L1 + at, _MM_HINT_T0);
    }
}

__attribute__((always_inline)) static inline void prefetch_stream(const uint8_t *x, size_t bytes)
{
    prefetch_step(x, 0, bytes);
}

#endif
#endif
