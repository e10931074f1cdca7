/* Every example of the documentation is executed: in README.md and docs/, blocks marked ```console hold commands behind
 * "$ " and what they print. They run against a real daemon that serves the demo model; "…" in the documentation matches any
 * text. So an example cannot rot, and a field cannot vanish unnoticed. */
#include "tests/support/daemon_process.h"
#include "tests/support/suite.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ANY "…"
#define ADDRESS "127.0.0.1:8080"

static int n_examples, n_wrong;

/* Does text match pattern, in which ANY stands for any run of bytes? */
static bool matches(const char *pattern, const char *text)
{
    const char *star = NULL, *from = text;
    while (*text) {
        if (strncmp(pattern, ANY, strlen(ANY)) == 0) {
            star = pattern += strlen(ANY);
            from = text;
        } else if (*pattern == *text) {
            pattern++;
            text++;
        } else if (star) {
            pattern = star;
            text = ++from;
        } else {
            return false;
        }
    }
    while (strncmp(pattern, ANY, strlen(ANY)) == 0)
        pattern += strlen(ANY);
    return *pattern == 0;
}

/* text with every `from` replaced; malloc'ed. */
static char *replaced(const char *text, const char *from, const char *to)
{
    struct buffer b;
    buffer_init(&b);
    for (const char *at; (at = strstr(text, from)) != NULL; text = at + strlen(from)) {
        buffer_append(&b, text, (size_t)(at - text));
        buffer_text(&b, to);
    }
    buffer_text(&b, text);
    buffer_byte(&b, 0);
    ck_assert(!b.failed);
    return b.data;
}

static char *run(const char *command)
{
    struct buffer b;
    char block[4096];
    size_t n;
    buffer_init(&b);
    FILE *in = popen(command, "r");
    ck_assert_ptr_nonnull(in);
    while ((n = fread(block, 1, sizeof block, in)) > 0)
        buffer_append(&b, block, n);
    pclose(in);
    while (b.size && b.data[b.size - 1] == '\n')
        b.size--;
    buffer_byte(&b, 0);
    return b.data;
}

/* Runs one command of the documentation and compares. */
static void check_example(const struct daemon *d, const char *file, const char *command, const char *expected)
{
    char *first = replaced(command, ADDRESS, d->address), *second = replaced(first, "build/ggufd", getenv("GGUFD_BINARY"));
    char *line = replaced("cd \"$GGUFD_ROOT\" && { ", "\1", "");
    size_t size = strlen(line) + strlen(second) + 32;
    char *whole = malloc(size);
    snprintf(whole, size, "%s%s\n} 2>&1", line, second);
    char *out = run(whole), *got = replaced(out, d->address, ADDRESS);
    n_examples++;
    if (!matches(expected, got)) {
        n_wrong++;
        printf("note: %s: $ %s\nnote: documented: %s\nnote: printed:    %s\n", file, command, expected, got);
    }
    free(first);
    free(second);
    free(line);
    free(whole);
    free(out);
    free(got);
}

/* One ```console block: "$ " starts a command, lines that end in \ or stand inside '…' of it continue it. */
static void check_block(const struct daemon *d, const char *file, char *block)
{
    char *at = block;
    while (*at) {
        ck_assert_msg(strncmp(at, "$ ", 2) == 0, "%s: a block does not begin with a command: %.40s", file, at);
        char *end = strchr(at, '\n');
        while (end && end > at && end[-1] == '\\')
            end = strchr(end + 1, '\n');
        char *command = strndup(at + 2, end ? (size_t)(end - at - 2) : strlen(at + 2));
        char *output = end ? end + 1 : at + strlen(at), *next = strncmp(output, "$ ", 2) == 0 ? output - 1 : strstr(output, "\n$ ");
        char *expected = next < output && next ? strdup("") : strndup(output, next ? (size_t)(next - output) : strlen(output));
        check_example(d, file, command, expected);
        at = next ? next + 1 : output + strlen(output);
        free(command);
        free(expected);
    }
}

static void check_file(const struct daemon *d, const char *file)
{
    char *text = suite_read(suite_root(file), NULL);
    ck_assert_msg(text != NULL, "%s is missing", file);
    for (char *at = text; (at = strstr(at, "```console\n")) != NULL;) {
        char *begin = at + strlen("```console\n"), *end = strstr(begin, "\n```");
        ck_assert_msg(end != NULL, "%s: an unfinished block", file);
        *end = 0;
        check_block(d, file, begin);
        at = end + 1;
    }
    free(text);
}

TEST(every_example_of_the_documentation_prints_what_it_says)
{
    static const char *const options[] = {"--threads", "2", NULL};
    if (system("command -v curl >/dev/null") != 0)
        SKIP("curl is missing");
    struct daemon d;
    daemon_start(&d, suite_root("tests/models/fables-q8_0.gguf"), options);
    check_file(&d, "README.md");
    DIR *dir = opendir(suite_root("docs"));
    ck_assert_ptr_nonnull(dir);
    for (struct dirent *e; (e = readdir(dir)) != NULL;) {
        size_t n = strlen(e->d_name);
        char path[300];
        snprintf(path, sizeof path, "docs/%s", e->d_name);
        if (n > 3 && strcmp(e->d_name + n - 3, ".md") == 0)
            check_file(&d, path);
    }
    closedir(dir);
    daemon_stop(&d);
    printf("note: %d examples, %d wrong\n", n_examples, n_wrong);
    ck_assert_int_ge(n_examples, 5);
    ck_assert_int_eq(n_wrong, 0);
}
END

/* `make run` would show the answers of whoever is there, and its own daemon would be dead. */
TEST(the_demonstration_refuses_an_address_where_something_answers)
{
    struct daemon d;
    char command[1000];
    if (system("command -v curl >/dev/null") != 0)
        SKIP("curl is missing");
    daemon_start(&d, model_tiny(), NULL);
    snprintf(command, sizeof command, "ADDRESS=%s timeout 120 sh %s false 2>&1 | grep -q 'answers at'", d.address,
             suite_root("tests/serve.sh"));
    ck_assert_int_eq(system(command), 0);
    daemon_stop(&d);
}
END

/* Words that a page must hold for each row of a table of the source. */
static void rows_are_named(const char *table, const char *prefix, const char *page, const char *dash)
{
    char *rows = suite_read(suite_root(table), NULL), *text = suite_read(suite_root(page), NULL);
    ck_assert_ptr_nonnull(rows);
    ck_assert_ptr_nonnull(text);
    int n = 0;
    for (char *at = rows; (at = strstr(at, prefix)) != NULL; at += strlen(prefix)) {
        if (at != rows && at[-1] != '\n')
            continue;
        char name[80] = "";
        if (sscanf(at + strlen(prefix), "%*[^,], %79[a-z_0-9]", name) != 1)
            continue;
        char *word = replaced(name, "_", dash);
        ck_assert_msg(strstr(text, word) != NULL, "%s does not name %s", page, word);
        free(word);
        n++;
    }
    ck_assert_int_gt(n, 5);
    free(rows);
    free(text);
}

TEST(the_manual_page_names_every_option)
{
    rows_are_named("daemon/options.def", "OPTION(", "docs/ggufd.1", "\\-");
}
END

TEST(the_configuration_page_names_every_key)
{
    rows_are_named("daemon/options.def", "OPTION(", "docs/configuration.md", "_");
}
END

SUITE(docs, T(every_example_of_the_documentation_prints_what_it_says),
      T(the_demonstration_refuses_an_address_where_something_answers), T(the_manual_page_names_every_option),
      T(the_configuration_page_names_every_key))
