/* A plain read of memory as fast as one core can: what decode is measured against. */
#ifndef GGUFD_BENCH_READ_H
#define GGUFD_BENCH_READ_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static volatile uint64_t read_sink;

enum { READ_AHEAD = 8192 };

#if defined(__x86_64__)
#include <immintrin.h>

__attribute__((target("avx512f"))) static inline void read_through_avx512(const char *data, size_t size)
{
    __m512i a = _mm512_setzero_si512(), b = a, c = a, d = a;
    for (size_t i = 0; i + 256 <= size; i += 256) {
        for (size_t line = 0; line < 256; line += 64)
            _mm_prefetch(data + i + READ_AHEAD + line, _MM_HINT_T1);
        a = _mm512_add_epi64(a, _mm512_loadu_si512(data + i));
        b = _mm512_add_epi64(b, _mm512_loadu_si512(data + i + 64));
        c = _mm512_add_epi64(c, _mm512_loadu_si512(data + i + 128));
        d = _mm512_add_epi64(d, _mm512_loadu_si512(data + i + 192));
    }
    a = _mm512_add_epi64(_mm512_add_epi64(a, b), _mm512_add_epi64(c, d));
    read_sink += (uint64_t)_mm512_reduce_add_epi64(a);
}
#endif

static inline void read_through(const char *data, size_t size)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) {
        read_through_avx512(data, size);
        return;
    }
#endif
    uint64_t sums[8] = {0};
    for (size_t i = 0; i + 64 <= size; i += 64) {
        uint64_t v[8];
        __builtin_prefetch(data + i + READ_AHEAD, 0, 2);
        memcpy(v, data + i, sizeof v);
        for (size_t k = 0; k < 8; k++)
            sums[k] += v[k];
    }
    for (size_t k = 0; k < 8; k++)
        read_sink += sums[k];
}

#endif
