/* daemon/auth: what a file of keys may hold, and that nothing opens without one of them. */
#include "daemon/auth.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/base/buffer.h"
#include "tests/support/suite.h"

enum { KEYS_MAX = 1024, KEY_BYTES_MAX = 512 };

static enum status load(const char *text, size_t size, struct auth_keys **keys, struct error *err)
{
    static char path[300];
    snprintf(path, sizeof path, "%s/keys", suite_tmp());
    FILE *f = fopen(path, "w");
    ck_assert(f && fwrite(text, 1, size, f) == size && fclose(f) == 0);
    enum status status = auth_keys_load(path, keys, err);
    if (status)
        ck_assert_ptr_nonnull(strstr(err->text, path)); /* the message names the file */
    ck_assert_int_eq(*keys != NULL, status == STATUS_OK);
    return status;
}

static bool opens(const struct auth_keys *keys, const char *authorization)
{
    return auth_key_allowed(keys, authorization ? span_of(authorization) : (struct span){0});
}

TEST(no_file_means_an_open_door_and_a_missing_one_a_refusal)
{
    struct auth_keys *keys;
    struct error err;
    ck_assert_int_eq(auth_keys_load("", &keys, &err), STATUS_OK);
    ck_assert(!keys && opens(keys, NULL));
    ck_assert_int_eq(auth_keys_load("/nonexistent/keys", &keys, &err), STATUS_IO);
    ck_assert_str_eq(err.text, "API key file /nonexistent/keys: No such file or directory");
    ck_assert_int_eq(auth_keys_load(suite_tmp(), &keys, &err), STATUS_IO);
    ck_assert_ptr_nonnull(strstr(err.text, "Is a directory"));
    ck_assert_ptr_null(keys);
    auth_keys_free(NULL);
}
END

TEST(a_file_without_a_key_is_refused)
{
    static const char *const texts[] = {"", "\n\n", "# only\n#comments", " \t\r\n"};
    struct auth_keys *keys;
    struct error err;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        ck_assert_int_eq(load(texts[i], strlen(texts[i]), &keys, &err), STATUS_INVALID);
        ck_assert_ptr_nonnull(strstr(err.text, ": holds no key"));
    }
}
END

TEST(the_longest_key_is_512_bytes)
{
    char line[KEY_BYTES_MAX + 2], header[KEY_BYTES_MAX + 20] = "Bearer ";
    struct auth_keys *keys;
    struct error err;
    memset(line, 'k', sizeof line);
    memset(header + 7, 'k', KEY_BYTES_MAX);
    ck_assert_int_eq(load(line, KEY_BYTES_MAX, &keys, &err), STATUS_OK); /* the last line needs no end */
    ck_assert(opens(keys, header));
    header[7 + KEY_BYTES_MAX] = 'k'; /* one byte more, the rest the same */
    ck_assert(!opens(keys, header));
    header[7 + KEY_BYTES_MAX - 1] = 0; /* one less */
    ck_assert(!opens(keys, header));
    auth_keys_free(keys);
    ck_assert_int_eq(load(line, KEY_BYTES_MAX + 1, &keys, &err), STATUS_RANGE);
    ck_assert_ptr_nonnull(strstr(err.text, ": line 1: a key of 513 bytes, at most 512"));
}
END

TEST(at_most_1024_keys_and_each_opens)
{
    struct buffer b = {0};
    struct auth_keys *keys;
    struct error err;
    for (int i = 0; i < KEYS_MAX; i++)
        buffer_printf(&b, "# %d\r\nkey-%d\r\n", i, i);
    ck_assert_int_eq(load(b.data, b.size, &keys, &err), STATUS_OK);
    for (int i = 0; i <= KEYS_MAX; i++) {
        char header[40];
        snprintf(header, sizeof header, "bearer key-%d", i);
        if (opens(keys, header) != (i < KEYS_MAX))
            ck_abort_msg("key %d", i);
    }
    auth_keys_free(keys);
    buffer_text(&b, "one more\n");
    ck_assert_int_eq(load(b.data, b.size, &keys, &err), STATUS_RANGE);
    ck_assert_ptr_nonnull(strstr(err.text, ": more than 1024 keys"));
    buffer_clear(&b);
}
END

TEST(only_the_whole_key_behind_its_scheme_opens)
{
    struct auth_keys *keys;
    struct error err;
    ck_assert_int_eq(load("secret\n", 7, &keys, &err), STATUS_OK);
    ck_assert(opens(keys, "Bearer secret") && opens(keys, "BEARER secret"));
    static const char *const wrong[] = {NULL,           "",             "secret",         "Bearer",         "Bearer ",
                                        "Bearer secre", "Bearer secrets", "Basic  secret", "Bearer  secret", "Bearer Secret"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        if (opens(keys, wrong[i]))
            ck_abort_msg("%s opens", wrong[i] ? wrong[i] : "nothing");
    auth_keys_free(keys);
}
END

static void traced(const struct auth_keys *keys, struct span value)
{
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL))
        _exit(100);
    auth_key_allowed(keys, value); /* nothing is done for the first time below */
    raise(SIGSTOP);
    bool allowed = auth_key_allowed(keys, value);
    _exit(allowed);
}

/* Instructions that a fresh process executes for one comparison, up to its end; 0: it cannot be traced. *allowed: its
 * answer. */
static unsigned long count_instructions(const struct auth_keys *keys, const char *key, int *allowed)
{
    char value[KEY_BYTES_MAX + 8];
    int n = snprintf(value, sizeof value, "Bearer %s", key), status;
    unsigned long count = 0;
    pid_t pid = fork();
    if (pid == 0)
        traced(keys, (struct span){value, (size_t)n});
    for (waitpid(pid, &status, 0); WIFSTOPPED(status); waitpid(pid, &status, 0), count++)
        if (ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL))
            ck_abort_msg("ptrace: %s", strerror(errno));
    *allowed = WEXITSTATUS(status);
    return *allowed == 100 ? 0 : count;
}

TEST(a_wrong_key_takes_the_instructions_of_the_right_one)
{
    static const char *const wrong[] = {"Xecret-key", "secret-keX", "secreX-key", "XXXXXXXXXX", "other-key-", "\1\2\3\4\5\6\7\10\11\12"};
    struct auth_keys *keys;
    struct error err;
    int allowed;
    if (suite_sanitized())
        SKIP("sanitizers add instructions of their own");
    static const char text[] = "first key of another length\nsecret-key\nthird\n";
    ck_assert_int_eq(load(text, sizeof text - 1, &keys, &err), STATUS_OK);
    unsigned long right = count_instructions(keys, "secret-key", &allowed);
    if (!right)
        SKIP("processes cannot be traced here");
    ck_assert_int_eq(allowed, 1);
    printf("note: %lu instructions\n", right);
    ck_assert_uint_gt(right, 1000);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        unsigned long n = count_instructions(keys, wrong[i], &allowed);
        ck_assert_int_eq(allowed, 0);
        ck_assert_msg(n == right, "%s: %lu instructions, not %lu", wrong[i], n, right);
    }
    auth_keys_free(keys);
}
END

SUITE(auth, T(no_file_means_an_open_door_and_a_missing_one_a_refusal), T(a_file_without_a_key_is_refused),
      T(the_longest_key_is_512_bytes), T(at_most_1024_keys_and_each_opens), T(only_the_whole_key_behind_its_scheme_opens),
      T(a_wrong_key_takes_the_instructions_of_the_right_one))
