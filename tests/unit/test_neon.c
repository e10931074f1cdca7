/* The NEON tier without an arm64 machine: the suites of the operations, cross-compiled, under qemu's emulation. They
 * compare every tier with the plain references, so this is where NEON's bits are checked. */
#include "tests/support/suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COMPILER "aarch64-linux-gnu-gcc"
#define EMULATOR "qemu-aarch64"

static const char *const flags =
    "-std=c11 -D_GNU_SOURCE -DGGUFD_VERSION='\"test\"' -Itests/arm64 -I. -O2 -ffp-contract=off -fno-math-errno -fno-strict-aliasing "
    "-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wvla -Wundef -Werror -static -pthread";
static const char *const sources =
    "engine/base/*.c engine/cpu/*.c engine/kv/*.c engine/ops/math.c engine/ops/rope.c engine/ops/elementwise.c "
    "engine/ops/attention.c engine/ops/tier_neon.c tests/arm64/suite.c";

/* Runs a shell command in the repository's root; its output is in *out (4 KiB at most) and its status returned. */
static int run(char *out, size_t size, const char *command)
{
    char line[4096];
    snprintf(line, sizeof line, "cd '%s' && { %s; } 2>&1", suite_root(""), command);
    FILE *f = popen(line, "r");
    ck_assert_ptr_nonnull(f);
    size_t n = fread(out, 1, size - 1, f);
    out[n] = 0;
    while (fread(line, 1, sizeof line, f))
        continue;
    return pclose(f);
}

static bool tools_missing(void)
{
    char out[256];
    return run(out, sizeof out, "command -v " COMPILER " && command -v " EMULATOR) != 0;
}

static const char *const suites[] = {"ops_math", "ops_elementwise", "ops_rope", "ops_attention"};

static void run_suite(const char *tmp, const char *suite)
{
    char command[2048], out[4096], expected[64];
    snprintf(command, sizeof command,
             COMPILER " %s -o %s/%s tests/unit/test_%s.c %s/*.o -lm && " EMULATOR " %s/%s", flags, tmp, suite, suite, tmp, tmp,
             suite);
    snprintf(expected, sizeof expected, "%s: ", suite);
    if (run(out, sizeof out, command) != 0 || !strstr(out, expected))
        ck_abort_msg("%s: %s", suite, out);
}

TEST(operations_have_the_same_bits_under_an_emulated_arm64)
{
    if (tools_missing())
        SKIP("no " COMPILER " or no " EMULATOR);
    if (suite_sanitized())
        SKIP("compiles nothing else than the release suite does");
    char tmp[4096], command[8192], out[4096];
    snprintf(tmp, sizeof tmp, "%s", suite_tmp());
    snprintf(command, sizeof command, "for f in %s; do " COMPILER " %s -c -o %s/$(echo $f | tr / _).o $f || exit 1; done",
             sources, flags, tmp);
    if (run(out, sizeof out, command) != 0)
        ck_abort_msg("%s", out);
    for (size_t i = 0; i < sizeof suites / sizeof suites[0]; i++)
        run_suite(tmp, suites[i]);
}
END

TEST(the_emulated_processor_has_the_neon_tier)
{
    if (tools_missing())
        SKIP("no " COMPILER " or no " EMULATOR);
    char tmp[4096], command[8192], out[4096];
    snprintf(tmp, sizeof tmp, "%s", suite_tmp());
    snprintf(command, sizeof command,
             "printf '#include \"engine/cpu/cpu.h\"\\nint main(void) { return cpu_tier_best() != TIER_NEON; }\\n' >%s/t.c && "
             COMPILER " -D_GNU_SOURCE -I. -static -o %s/t %s/t.c engine/cpu/*.c engine/base/error.c && " EMULATOR " %s/t",
             tmp, tmp, tmp, tmp);
    if (run(out, sizeof out, command) != 0)
        ck_abort_msg("%s", out);
}
END

SUITE(neon, T(the_emulated_processor_has_the_neon_tier), T_SLOW(operations_have_the_same_bits_under_an_emulated_arm64, 1200))
