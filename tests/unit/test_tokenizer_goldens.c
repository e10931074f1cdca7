/* Ids of the reference: every golden text of the fixtures, three ways each. Needs ../shared. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/suite.h"
#include "tests/support/tokenizing.h"

static struct golden_counts sum;
static size_t n_files, n_different;

/* Four files a line: "passed/of" over the three ways together. */
static void count(const char *name, const struct golden_counts *c)
{
    printf("%s%s %zu/%zu", n_files % 4 ? ", " : n_files ? "\nnote: " : "note: ", name,
           c->passed[0] + c->passed[1] + c->passed[2], c->total * GOLDEN_KINDS);
    for (int kind = 0; kind < GOLDEN_KINDS; kind++) {
        sum.passed[kind] += c->passed[kind];
        n_different += c->total - c->passed[kind];
    }
    sum.total += c->total;
    n_files++;
}

static int is_jsonl(const struct dirent *e)
{
    size_t n = strlen(e->d_name);
    return n > 6 && strcmp(e->d_name + n - 6, ".jsonl") == 0;
}

/* Calls `check` with each name NAME.jsonl of a folder below fixtures/. */
static void each_golden(const char *folder, void (*check)(const char *name, const char *jsonl))
{
    const char *path = suite_shared(folder);
    struct dirent **entries;
    int n = path ? scandir(path, &entries, is_jsonl, alphasort) : -1;
    ck_assert_int_gt(n, 0);
    for (int i = 0; i < n; i++) {
        char jsonl[4096], name[256];
        snprintf(jsonl, sizeof jsonl, "%s/%s", suite_shared(folder), entries[i]->d_name);
        snprintf(name, sizeof name, "%.*s", (int)strlen(entries[i]->d_name) - 6, entries[i]->d_name);
        check(name, jsonl);
        free(entries[i]);
    }
    free(entries);
    printf("\nnote: %zu files: plain %zu/%zu, parse_special %zu/%zu, add_special %zu/%zu\n", n_files, sum.passed[0],
           sum.total, sum.passed[1], sum.total, sum.passed[2], sum.total);
    fflush(stdout);
    ck_assert_uint_eq(n_different, 0);
}

static void check_vocabulary(const char *name, const char *jsonl)
{
    char path[4096];
    struct vocabulary_file v;
    struct error err;
    struct golden_counts c;
    snprintf(path, sizeof path, "%.*s.gguf", (int)strlen(jsonl) - 6, jsonl);
    if (vocabulary_open(&v, path, NULL, &err) != STATUS_OK)
        ck_abort_msg("%s: %s", name, err.text);
    if (!golden_compare(v.t, jsonl, &c))
        ck_abort_msg("%s is unreadable", jsonl);
    count(name, &c);
    vocabulary_close(&v);
}

TEST(every_vocabulary_gives_the_golden_ids)
{
    if (!suite_shared("fixtures/vocab/llama-spm.jsonl"))
        SKIP("../shared/fixtures/vocab is missing");
    each_golden("fixtures/vocab", check_vocabulary);
}
END

static void check_pre(const char *name, const char *jsonl)
{
    struct vocabulary_file v;
    struct error err;
    struct golden_counts c;
    if (vocabulary_open_as(&v, suite_shared("fixtures/vocab/pre/BASE.gguf"), name, &err) != STATUS_OK)
        ck_abort_msg("%s: %s", name, err.text);
    if (!golden_compare(v.t, jsonl, &c))
        ck_abort_msg("%s is unreadable", jsonl);
    count(name, &c);
    vocabulary_close(&v);
}

TEST(every_word_splitter_gives_the_golden_ids)
{
    if (!suite_shared("fixtures/vocab/pre/BASE.gguf"))
        SKIP("../shared/fixtures/vocab/pre is missing");
    each_golden("fixtures/vocab/pre", check_pre);
}
END

SUITE(tokenizer_goldens, T(every_vocabulary_gives_the_golden_ids), T(every_word_splitter_gives_the_golden_ids))
