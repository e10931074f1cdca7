/* The commands without a server, and starts that are refused: what they print, on which stream, and the exit status. */
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/daemon_process.h"
#include "tests/support/gguf_builder.h"
#include "tests/support/suite.h"

/* Runs argv with both streams into a pipe, whose reading end is returned. */
static pid_t launch(const char *const *argv, int *out)
{
    int ends[2];
    ck_assert_int_eq(pipe(ends), 0);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(ends[1], 1);
        dup2(ends[1], 2);
        close(ends[0]);
        close(ends[1]);
        execv(getenv("GGUFD_BINARY"), (char *const *)(void *)argv);
        _exit(127);
    }
    close(ends[1]);
    *out = ends[0];
    return pid;
}

/* Exit status; what is left to read goes to out, terminated. */
static int finish(pid_t pid, int fd, struct buffer *out)
{
    char data[4096];
    int status;
    for (ssize_t n; (n = read(fd, data, sizeof data)) > 0;)
        buffer_append(out, data, (size_t)n);
    buffer_byte(out, 0);
    close(fd);
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

static int run(const char *const *argv, struct buffer *out)
{
    int fd;
    pid_t pid = launch(argv, &fd);
    return finish(pid, fd, out);
}

static void expect_command(int status, const char *text, const char *const *argv)
{
    struct buffer out = {0};
    int got = run(argv, &out);
    if (got != status || !strstr(out.data, text))
        ck_abort_msg("%s %s: status %d, expected %d with %s: %.600s", argv[1], argv[2] ? argv[2] : "", got, status, text,
                     out.data);
    buffer_clear(&out);
}
#define COMMAND(status, text, ...) expect_command(status, text, (const char *const[]){"ggufd", __VA_ARGS__, NULL})

TEST(commands_check_inspect_and_generate_without_a_server)
{
    const char *model = model_tiny(), *bad = suite_root("Makefile");
    COMMAND(0, "threads", "--check", "--model", model);
    COMMAND(0, "\"anonymous_bytes\":", "--check", "--json", "--model", model);
    COMMAND(2, "GGUF", "--check", "--model", bad);
    COMMAND(2, "no-such", "--check", "--model", "/no-such-file");
    COMMAND(2, "tier", "--check", "--model", model, "--tier", "mmx");
    COMMAND(2, "keys", "--check", "--model", model, "--api-key-file", "/no-such-keys");
    COMMAND(2, "max_connections", "--check", "--model", model, "--queue", "64", "--max-connections", "64");
    COMMAND(2, "body_memory", "--check", "--model", model, "--max-body", "2000", "--body-memory", "1999");
    COMMAND(0, "sound: 0 values", "--inspect", model);
    COMMAND(0, "\"complete\":true", "--inspect", model, "--json");
    COMMAND(0, "\"reason\":\"length\"", "--model", model, "--prompt-tokens", "1,5,6", "--max-tokens", "4", "--json");
    COMMAND(0, "\n", "--model", model, "--prompt", "ab", "--max-tokens", "4");
    COMMAND(1, "context", "--model", model, "--prompt-tokens", "1,5,6", "--context", "3", "--max-tokens", "4");
    COMMAND(1, "prompt-tokens[1]", "--model", model, "--prompt-tokens", "1,99999");
    COMMAND(0, "numerics", "--version");
    COMMAND(0, "--model", "--help");
    COMMAND(2, "nonsense", "--nonsense");
}
END

TEST(a_refusal_of_a_command_is_a_message_and_a_status)
{
    const char *model = model_tiny(), *bad = suite_root("Makefile");
    COMMAND(2, "/no-such-file", "--inspect", "/no-such-file");
    COMMAND(2, "GGUF", "--inspect", bad, "--json");
    COMMAND(2, "/no-such-file", "--model", "/no-such-file", "--prompt", "a");
    COMMAND(2, "holds a vocabulary only", "--model", model_vocabulary(), "--prompt", "a");
    COMMAND(2, "log_file: /nonexistent/log cannot be opened: No such file", "--model", model, "--check", "--log-file",
            "/nonexistent/log");
    COMMAND(2, "holds no key", "--check", "--model", model, "--api-key-file", "/dev/null");
}
END

/* ---- models that are not the usual ---- */

static const char *write_model(struct gguf_builder *b, const char *name)
{
    static char paths[4][200];
    static unsigned next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s.gguf", suite_tmp(), name);
    gguf_builder_write(b, path);
    gguf_builder_free(b);
    return path;
}

TEST(a_model_without_name_or_weights_is_described)
{
    struct gguf_builder *b = gguf_builder_tiny(&(struct tiny_model){.type = 8, .seed = 3});
    ck_assert(gguf_builder_remove_key(b, "general.name"));
    const char *nameless = write_model(b, "nameless");
    COMMAND(0, "name          (none)\n", "--check", "--model", nameless);
    COMMAND(0, "\"name\":\"\"", "--check", "--json", "--model", nameless);
    COMMAND(0, " (vocabulary only), 0 parameters", "--check", "--model", model_vocabulary());
    COMMAND(0, "\"vocabulary_only\":true", "--check", "--json", "--model", model_vocabulary());
}
END

TEST(values_that_are_not_finite_are_counted_and_refused)
{
    size_t bytes;
    struct gguf_builder *b = gguf_builder_tiny(&(struct tiny_model){.type = 0, .seed = 3});
    float *data = (float *)(void *)gguf_builder_tensor_data(b, "output_norm.weight", &bytes);
    ck_assert_uint_ge(bytes, 8 * sizeof *data);
    data[5] = NAN;
    data[7] = INFINITY;
    const char *path = write_model(b, "unsound");
    COMMAND(2, "  2 values not finite, first at 5\n", "--inspect", path);
    COMMAND(2, "unsound: 2 values are not finite\n", "--inspect", path);
    COMMAND(2, "],\"complete\":true,\"non_finite\":2}\n", "--inspect", path, "--json");
}
END

TEST(a_prompt_of_no_tokens_is_refused)
{
    const char *path = write_model(gguf_builder_tiny(&(struct tiny_model){.type = 8, .bpe = true, .seed = 3}), "bpe");
    COMMAND(1, "prompt: holds no token", "--model", path, "--prompt", ""); /* no BOS is put in front here */
    COMMAND(0, "\n", "--model", path, "--prompt", "a", "--max-tokens", "1");
}
END

static int32_t first_token(const char *model)
{
    struct buffer out = {0};
    ck_assert_int_eq(run((const char *const[]){"ggufd", "--model", model, "--prompt-tokens", "1,5", "--max-tokens", "1", "--json",
                                               NULL}, &out), 0);
    const char *at = strstr(out.data, "\"tokens\":[");
    ck_assert_ptr_nonnull(at);
    int32_t id = (int32_t)strtol(at + strlen("\"tokens\":["), NULL, 10);
    buffer_clear(&out);
    return id;
}

/* The token that the model chooses becomes the first byte of a character, and the byte's token takes its text. */
TEST(an_unfinished_character_ends_as_a_replacement)
{
    const struct tiny_model tiny = {.type = 8, .seed = 3};
    size_t id = (size_t)first_token(write_model(gguf_builder_tiny(&tiny), "plain")), n, bytes;
    struct gguf_builder *b = gguf_builder_tiny(&tiny);
    struct span *texts = gguf_builder_get_strings(b, "tokenizer.ggml.tokens", &n);
    const size_t byte = 3 + 0xe6;
    struct span text = texts[id];
    texts[id] = texts[byte];
    texts[byte] = text;
    gguf_builder_strings(b, "tokenizer.ggml.tokens", texts, n);
    free(texts);
    /* behind element type and count */
    char *types = gguf_builder_payload(b, "tokenizer.ggml.token_type", &bytes) + 12;
    int32_t was, byte_type = 6;
    memcpy(&was, types + id * sizeof was, sizeof was);
    memcpy(types + byte * sizeof was, &was, sizeof was);
    memcpy(types + id * sizeof was, &byte_type, sizeof was);
    const char *path = write_model(b, "bytes");
    struct buffer out = {0};
    ck_assert_int_eq(run((const char *const[]){"ggufd", "--model", path, "--prompt-tokens", "1,5", "--max-tokens", "1",
                                               "--log-level", "error", NULL}, &out), 0);
    ck_assert_str_eq(out.data, "\xef\xbf\xbd\n");
    out.size = 0;
    ck_assert_int_eq(run((const char *const[]){"ggufd", "--model", path, "--prompt-tokens", "1,5", "--max-tokens", "1", "--json",
                                               NULL}, &out), 0);
    ck_assert_ptr_nonnull(strstr(out.data, "\"text\":\"\xef\xbf\xbd\""));
    buffer_clear(&out);
}
END

/* ---- the other end of the output ---- */

static int run_into(const char *file, const char *const *argv)
{
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        int fd = open(file, O_WRONLY);
        dup2(fd, 1);
        close(fd);
        execv(getenv("GGUFD_BINARY"), (char *const *)(void *)argv);
        _exit(127);
    }
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}
#define INTO_FULL(...) run_into("/dev/full", (const char *const[]){"ggufd", __VA_ARGS__, NULL})

TEST(output_that_is_lost_is_a_failure)
{
    const char *model = model_tiny();
    ck_assert_int_eq(INTO_FULL("--version"), 1);
    ck_assert_int_eq(INTO_FULL("--help"), 1);
    ck_assert_int_eq(INTO_FULL("--check", "--model", model), 1);
    ck_assert_int_eq(INTO_FULL("--check", "--json", "--model", model), 1);
    ck_assert_int_eq(INTO_FULL("--inspect", model), 1);
    ck_assert_int_eq(INTO_FULL("--inspect", model, "--json"), 1);
    ck_assert_int_eq(INTO_FULL("--model", model, "--prompt", "ab", "--max-tokens", "20"), 1);
    ck_assert_int_eq(INTO_FULL("--model", model, "--prompt", "ab", "--max-tokens", "20", "--json"), 1);
}
END

/* True once the process has its own handlers for SIGINT and SIGTERM. */
static bool catches_signals(pid_t pid)
{
    char path[64], line[256];
    unsigned long long caught = 0;
    snprintf(path, sizeof path, "/proc/%d/status", pid);
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, "SigCgt:", 7) == 0)
            caught = strtoull(line + 7, NULL, 16);
    if (f)
        fclose(f);
    return (caught >> (SIGINT - 1) & 1) && (caught >> (SIGTERM - 1) & 1);
}

TEST(a_signal_ends_a_generation_with_what_there_is)
{
    signal(SIGINT, SIG_DFL); /* Check's own handlers, which the child would have until it is the daemon */
    signal(SIGTERM, SIG_DFL);
    for (int json = 0; json < 2; json++) {
        const char *const argv[] = {"ggufd", "--model", model_slow(), "--prompt-tokens", "1,5", "--max-tokens", "4000",
                                    "--tier", "scalar", "--threads", "1", "--log-level", "error", json ? "--json" : NULL, NULL};
        struct buffer out = {0};
        int fd;
        pid_t pid = launch(argv, &fd);
        for (double until = now_ms() + PATIENCE_MS; !catches_signals(pid); sleep_ms(2))
            ck_assert(now_ms() < until);
        kill(pid, json ? SIGTERM : SIGINT);
        ck_assert_int_eq(finish(pid, fd, &out), 0);
        if (json)
            ck_assert_msg(strstr(out.data, "\"reason\":\"cancelled\"") != NULL, "%s", out.data);
        else
            ck_assert(out.size >= 2 && out.data[out.size - 2] == '\n');
        buffer_clear(&out);
    }
}
END

/* ---- what the environment brings ---- */

TEST(unknown_variables_are_named_once)
{
    const char *model = model_tiny();
    setenv("GGUFD_THREDS", "2", 1);
    COMMAND(0, "warn unknown-environment name=GGUFD_THREDS\n", "--check", "--model", model);
    struct buffer out = {0};
    ck_assert_int_eq(run((const char *const[]){"ggufd", "--check", "--model", model, "--log-level", "error", NULL}, &out), 0);
    ck_assert_ptr_null(strstr(out.data, "THREDS"));
    buffer_clear(&out);
    unsetenv("GGUFD_THREDS");
    setenv("GGUFD_THREADS", "many", 1);
    COMMAND(2, "GGUFD_THREADS: must be an integer", "--check", "--model", model);
    unsetenv("GGUFD_THREADS");
}
END

SUITE(commands, T(commands_check_inspect_and_generate_without_a_server), T(a_refusal_of_a_command_is_a_message_and_a_status),
      T(a_model_without_name_or_weights_is_described), T(values_that_are_not_finite_are_counted_and_refused),
      T(a_prompt_of_no_tokens_is_refused), T(an_unfinished_character_ends_as_a_replacement), T(output_that_is_lost_is_a_failure),
      T(a_signal_ends_a_generation_with_what_there_is), T(unknown_variables_are_named_once))
