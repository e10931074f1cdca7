/* Tier detection: instruction set bits and the operating system's permission to use the wide registers. */
#include "engine/cpu/cpu.h"

#include <stdio.h>
#include <string.h>

static const char *const tier_names[TIER_COUNT] = {
#define X(id, name, needs) name,
    CPU_TIER_TABLE(X)
#undef X
};

static const char *const tier_needs[TIER_COUNT] = {
#define X(id, name, needs) needs,
    CPU_TIER_TABLE(X)
#undef X
};

const char *cpu_tier_name(enum cpu_tier tier)
{
    return tier_names[tier];
}

const char *cpu_tier_needs(enum cpu_tier tier)
{
    return tier_needs[tier];
}

#if defined(__x86_64__)
#include <cpuid.h>

/* XCR0: which register states the operating system saves. */
static unsigned os_states(void)
{
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE))
        return 0;
    unsigned low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

enum { XCR0_AVX = 0x06, XCR0_AVX512 = 0xe6 };

static bool has_avx2(void)
{
    unsigned a, b, c, d;
    if ((os_states() & XCR0_AVX) != XCR0_AVX || !__get_cpuid(1, &a, &b, &c, &d))
        return false;
    if (!(c & bit_AVX) || !(c & bit_FMA) || !(c & bit_F16C))
        return false;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_AVX2) && (b & bit_BMI2);
}

static bool has_avx512(void)
{
    unsigned a, b, c, d;
    if (!has_avx2() || (os_states() & XCR0_AVX512) != XCR0_AVX512 || !__get_cpuid_count(7, 0, &a, &b, &c, &d))
        return false;
    unsigned need_b = bit_AVX512F | bit_AVX512DQ | bit_AVX512BW | bit_AVX512VL;
    unsigned need_c = bit_AVX512VBMI | bit_AVX512VNNI | bit_GFNI;
    return (b & need_b) == need_b && (c & need_c) == need_c;
}

bool cpu_tier_available(enum cpu_tier tier)
{
    switch (tier) {
    case TIER_SCALAR:
        return true;
    case TIER_AVX2:
        return has_avx2();
    case TIER_AVX512:
        return has_avx512();
    default:
        return false;
    }
}

#elif defined(__aarch64__)
#include <sys/auxv.h>

bool cpu_tier_available(enum cpu_tier tier)
{
    const unsigned long hwcap_asimddp = 1ul << 20;
    return tier == TIER_SCALAR || (tier == TIER_NEON && (getauxval(AT_HWCAP) & hwcap_asimddp));
}

#else

bool cpu_tier_available(enum cpu_tier tier)
{
    return tier == TIER_SCALAR;
}

#endif

enum cpu_tier cpu_tier_best(void)
{
    for (int tier = TIER_COUNT - 1; tier > TIER_SCALAR; tier--)
        if (cpu_tier_available((enum cpu_tier)tier))
            return (enum cpu_tier)tier;
    return TIER_SCALAR;
}

enum cpu_tier cpu_tier_below(enum cpu_tier tier)
{
    return tier == TIER_AVX512 ? TIER_AVX2 : TIER_SCALAR;
}

/* "scalar avx2" */
static void list_available(char *out, size_t size)
{
    size_t n = 0;
    for (int tier = 0; tier < TIER_COUNT; tier++)
        if (cpu_tier_available((enum cpu_tier)tier) && n < size)
            n += (size_t)snprintf(out + n, size - n, "%s%s", n ? " " : "", tier_names[tier]);
}

enum status cpu_tier_parse(const char *name, enum cpu_tier *tier, struct error *err)
{
    if (strcmp(name, "auto") == 0) {
        *tier = cpu_tier_best();
        return STATUS_OK;
    }
    char have[96], quoted[ERROR_QUOTE_BYTES];
    list_available(have, sizeof have);
    for (int i = 0; i < TIER_COUNT; i++) {
        if (strcmp(name, tier_names[i]) != 0)
            continue;
        if (!cpu_tier_available((enum cpu_tier)i))
            return error_set(err, STATUS_UNSUPPORTED, "tier %s needs %s, which this machine lacks; it has: auto %s",
                             name, tier_needs[i], have);
        *tier = (enum cpu_tier)i;
        return STATUS_OK;
    }
    return error_set(err, STATUS_INVALID, "unknown tier \"%s\"; this machine has: auto %s",
                     error_quote(name, strlen(name), quoted), have);
}
