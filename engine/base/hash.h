/* A 64-bit non-cryptographic hash: for tables and for the model fingerprint. Same value on every machine. */
#ifndef GGUFD_BASE_HASH_H
#define GGUFD_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

#define HASH_SEED 0xcbf29ce484222325ull /* FNV-1a offset basis */

/* FNV-1a over size bytes, continued from h. */
static inline uint64_t hash_bytes(uint64_t h, const void *data, size_t size)
{
    const unsigned char *p = data;
    for (size_t i = 0; i < size; i++)
        h = (h ^ p[i]) * 0x100000001b3ull;
    return h;
}

/* Spreads entropy into the low bits (finalizer of MurmurHash3), for power-of-two tables. */
static inline uint64_t hash_mix(uint64_t h)
{
    h ^= h >> 33;
    h *= 0xff51afd7ed558ccdull;
    h ^= h >> 33;
    h *= 0xc4ceb9fe1a85ec53ull;
    return h ^ (h >> 33);
}

#endif
