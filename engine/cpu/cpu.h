/* What this processor can do, and how many of its cores this process may use. */
#ifndef GGUFD_CPU_CPU_H
#define GGUFD_CPU_CPU_H

#include <stdbool.h>
#include <stddef.h>

#include "engine/base/error.h"

/* Kernel tiers, ascending within an instruction set family; an empty kernel slot falls to the next lower tier that
 * this machine has, in the end to TIER_SCALAR. Every tier computes the same bits. */
#define CPU_TIER_TABLE(X)                                                                                     \
    X(TIER_SCALAR, "scalar", "baseline of the architecture")                                                  \
    X(TIER_AVX2, "avx2", "AVX2, FMA, F16C")                                                                   \
    X(TIER_AVX512, "avx512", "AVX-512 F, BW, DQ, VL, VNNI, VBMI, GFNI and everything of avx2")                \
    X(TIER_NEON, "neon", "arm64 with the dot product extension")

enum cpu_tier {
#define X(id, name, needs) id,
    CPU_TIER_TABLE(X)
#undef X
        TIER_COUNT
};

const char *cpu_tier_name(enum cpu_tier tier);
const char *cpu_tier_needs(enum cpu_tier tier);

/* True when processor and operating system support the tier (CPUID and XGETBV on x86-64, HWCAP on arm64). */
bool cpu_tier_available(enum cpu_tier tier);

/* Highest available tier. */
enum cpu_tier cpu_tier_best(void);

/* "auto" or a tier's name; refuses unknown names and tiers this machine lacks, listing what it has. */
enum status cpu_tier_parse(const char *name, enum cpu_tier *tier, struct error *err);

/* The next lower tier to try for an empty kernel slot; TIER_SCALAR maps to itself. */
enum cpu_tier cpu_tier_below(enum cpu_tier tier);

/* Usable cores = min(affinity mask, cgroup CPU quota rounded down, physical cores), at least 1.
 * `reason` says how, for the log, for example "2 = min(affinity 2, quota none, cores 2)". */
struct cpu_cores {
    unsigned usable, affinity, physical;
    unsigned quota; /* 0: no quota */
    char reason[96];
};
void cpu_cores_find(struct cpu_cores *cores);

/* Model name of the processor, for reports; "unknown" where the system does not tell. */
void cpu_model_name(char *out, size_t size);

/* Between two looks at a word that another thread will change: leaves the core to the other thread on it. */
static inline void cpu_pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb");
#endif
}

#endif
