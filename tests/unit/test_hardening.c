/* What the release binary promises to an attacker: nothing to overwrite, nothing writable and executable, and no libm
 * function whose bits depend on the machine. Read off the binary with readelf and nm. */
#include "tests/support/suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *binary(void)
{
    const char *path = getenv("GGUFD_BINARY"), *mode = getenv("GGUFD_MODE");
    return path && mode && strcmp(mode, "release") == 0 ? path : NULL;
}

/* Output of `tool options file`; NULL when the tool is missing or fails. */
static char *inspect(const char *tool, const char *options, const char *file)
{
    char command[4200], *text = NULL;
    size_t size = 0;
    snprintf(command, sizeof command, "%s %s '%s' 2>/dev/null", tool, options, file);
    FILE *in = popen(command, "r"), *out = open_memstream(&text, &size);
    char block[4096];
    size_t n;
    while ((n = fread(block, 1, sizeof block, in)) > 0)
        fwrite(block, 1, n, out);
    fclose(out);
    if (pclose(in) != 0 || size == 0) {
        free(text);
        return NULL;
    }
    return text;
}

#define NEED(text) \
    if (!(text))   \
        SKIP("no release binary, or binutils are missing")

TEST(code_moves_and_tables_are_read_only)
{
    char *text = binary() ? inspect("readelf", "-W -h -l -d", binary()) : NULL;
    NEED(text);
    ck_assert_msg(strstr(text, "DYN (Position-Independent") != NULL, "not a PIE");
    ck_assert_msg(strstr(text, "GNU_RELRO") != NULL, "no RELRO");
    ck_assert_msg(strstr(text, "BIND_NOW") != NULL || strstr(text, "NOW") != NULL, "no BIND_NOW");
    ck_assert_msg(strstr(text, "TEXTREL") == NULL, "text relocations");
    free(text);
}
END

TEST(nothing_is_writable_and_executable)
{
    char *text = binary() ? inspect("readelf", "-W -l", binary()) : NULL;
    NEED(text);
    ck_assert_ptr_nonnull(strstr(text, "GNU_STACK"));
    ck_assert_msg(strstr(text, "RWE") == NULL, "a segment is writable and executable");
    free(text);
}
END

TEST(control_flow_is_guarded)
{
#if defined(__x86_64__)
    char *text = binary() ? inspect("readelf", "-n", binary()) : NULL;
    NEED(text);
    ck_assert_msg(strstr(text, "IBT") != NULL && strstr(text, "SHSTK") != NULL, "no CET marking:\n%s", text);
    free(text);
#else
    SKIP("CET exists on x86-64 only");
#endif
}
END

TEST(stack_protector_and_fortified_functions_are_linked)
{
    char *text = binary() ? inspect("nm", "-D", binary()) : NULL;
    NEED(text);
    ck_assert_ptr_nonnull(strstr(text, "__stack_chk_fail"));
    ck_assert_ptr_nonnull(strstr(text, "_chk@"));
    free(text);
}
END

TEST(no_libm_function_whose_bits_depend_on_the_machine_is_used)
{
    static const char *const forbidden[] = {" sinf@", " cosf@", " sincosf@", " expf@", " powf@",  " logf@", " exp@",
                                            " log@",  " pow@",  " sin@",     " cos@",  " tanhf@", " fmaf@", " fma@"};
    char *text = binary() ? inspect("nm", "-D", binary()) : NULL;
    NEED(text);
    for (size_t i = 0; i < sizeof forbidden / sizeof forbidden[0]; i++)
        ck_assert_msg(strstr(text, forbidden[i]) == NULL, "uses%s", forbidden[i]);
    free(text);
}
END

SUITE(hardening, T(code_moves_and_tables_are_read_only), T(nothing_is_writable_and_executable), T(control_flow_is_guarded),
      T(stack_protector_and_fortified_functions_are_linked), T(no_libm_function_whose_bits_depend_on_the_machine_is_used))
