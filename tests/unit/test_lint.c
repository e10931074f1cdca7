/* The house's own rules, read off the source tree: who includes whom, who may know which library, what every file
 * begins with. Needs the tree it was built from (GGUFD_ROOT). */
#include "tests/support/suite.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* folder -> folders whose headers it may include; a folder may always include itself and engine/base. */
static const struct {
    const char *folder, *may_include;
} arrows[] = {
    {"engine/base", ""},
    {"engine/cpu", ""},
    {"engine/quant", "engine/cpu"},
    {"engine/kv", ""},
    {"engine/gguf", "engine/quant engine/cpu"},
    {"engine/ops", "engine/quant engine/kv engine/cpu"},
    {"engine/tokenizer", "engine/gguf"},
    {"engine/exec", "engine/ops engine/kv engine/quant engine/cpu"},
    {"engine/models", "engine/exec engine/ops engine/kv engine/gguf engine/quant engine/cpu"},
    {"engine", "engine/exec engine/ops engine/kv engine/gguf engine/quant engine/cpu engine/models engine/tokenizer"},
    {"proto", ""},
    {"daemon", "proto engine"},
};

/* Libraries that only the daemon may know. */
static const char *const daemon_only[] = {"uv.h", "microhttpd.h", "cjson/cJSON.h", "cJSON.h"};

static const char *const folders[] = {"engine", "proto", "daemon"};
static int n_files, n_faults;

static void fault(const char *file, const char *what, const char *detail)
{
    printf("note: %s: %s%s\n", file, what, detail);
    n_faults++;
}

/* "engine/gguf/map.c" -> "engine/gguf" */
static void folder_of(const char *path, char *out, size_t size)
{
    snprintf(out, size, "%s", path);
    char *slash = strrchr(out, '/');
    if (slash)
        *slash = 0;
}

static bool word_in(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = list; (p = strstr(p, word)) != NULL; p += n)
        if ((p == list || p[-1] == ' ') && (p[n] == 0 || p[n] == ' '))
            return true;
    return false;
}

static void check_include(const char *file, const char *folder, const char *included)
{
    char target[256];
    folder_of(included, target, sizeof target);
    char root[256];
    snprintf(root, sizeof root, "%.*s", (int)strcspn(folder, "/"), folder);
    if (strcmp(target, folder) == 0 || strcmp(target, "engine/base") == 0 || strcmp(target, included) == 0)
        return;
    for (size_t i = 0; i < sizeof arrows / sizeof arrows[0]; i++) {
        const char *key = strncmp(folder, "engine", 6) == 0 ? folder : root;
        size_t n = strlen(arrows[i].folder);
        /* a folder below engine/quant (tables) lives by its parent's rule */
        bool same = strcmp(arrows[i].folder, key) == 0 ||
                    (strchr(arrows[i].folder, '/') && strncmp(key, arrows[i].folder, n) == 0 && key[n] == '/');
        if (!same)
            continue;
        if (!word_in(arrows[i].may_include, target) && strncmp(target, arrows[i].folder, n) != 0)
            fault(file, "must not include ", included);
        return;
    }
    fault(file, "stands in a folder without a rule: ", folder);
}

static void check_line(const char *file, const char *folder, const char *line)
{
    char included[200];
    if (sscanf(line, "#include \"%199[^\"]\"", included) == 1)
        check_include(file, folder, included);
    if (sscanf(line, "#include <%199[^>]>", included) == 1 && strncmp(folder, "daemon", 6) != 0)
        for (size_t i = 0; i < sizeof daemon_only / sizeof daemon_only[0]; i++)
            if (strcmp(included, daemon_only[i]) == 0)
                fault(file, "only daemon/ may include ", included);
}

static size_t root_length;

static int visit(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)ftw;
    const char *dot = strrchr(path, '.');
    if (type != FTW_F || !dot || (strcmp(dot, ".c") != 0 && strcmp(dot, ".h") != 0))
        return 0;
    const char *file = path + root_length;
    char folder[256], *text = suite_read(path, NULL);
    folder_of(file, folder, sizeof folder);
    n_files++;
    if (!text) {
        fault(file, "unreadable", "");
        return 0;
    }
    if (strncmp(text, "/*", 2) != 0)
        fault(file, "does not begin with a comment that says what it is", "");
    size_t n_lines = 0;
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"), n_lines++) {
        check_line(file, folder, line);
        if (strlen(line) > 132)
            fault(file, "has a line of more than 132 columns: ", line);
    }
    free(text);
    return 0;
}

TEST(every_include_follows_the_arrows)
{
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        const char *path = suite_root(folders[i]);
        root_length = strlen(path) - strlen(folders[i]);
        nftw(path, visit, 16, FTW_PHYS);
    }
    printf("note: %d files read\n", n_files);
    ck_assert_int_gt(n_files, 10);
    ck_assert_int_eq(n_faults, 0);
}
END

/* Words that must stand in one folder only: an architecture's or a format's name in code elsewhere is a branch that
 * belongs into a row. */
static const struct {
    const char *word, *folder;
} owned[] = {
    {"\"qwen3\"", "engine/models"}, {"\"mistral3\"", "engine/models"}, /* "qwen2" is a pre-tokenizer's name as well */
    {"format_q", "engine/quant"},   {"format_iq", "engine/quant"},
};

static int visit_owned(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)ftw;
    const char *file = path + root_length;
    char *text = type == FTW_F ? suite_read(path, NULL) : NULL;
    for (size_t i = 0; text && i < sizeof owned / sizeof owned[0]; i++)
        if (strncmp(file, owned[i].folder, strlen(owned[i].folder)) != 0 && strstr(text, owned[i].word))
            fault(file, "knows ", owned[i].word);
    free(text);
    return 0;
}

TEST(nobody_outside_its_folder_knows_an_architecture_or_a_format)
{
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        const char *path = suite_root(folders[i]);
        root_length = strlen(path) - strlen(folders[i]);
        nftw(path, visit_owned, 16, FTW_PHYS);
    }
    ck_assert_int_eq(n_faults, 0);
}
END

SUITE(lint, T(every_include_follows_the_arrows), T(nobody_outside_its_folder_knows_an_architecture_or_a_format))
