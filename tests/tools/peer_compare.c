/* peer_compare DIR [PART]: evaluates every model of tests/support/model_cases.inc whose name holds PART with this engine
 * and with the reference in DIR (PEER_BACKENDS=DIR/portable DIR/peer), and compares the logits bit for bit. Prints one
 * line a model: its hash for the .inc file, and what differs. Exit status 1 if anything does. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/hash.h"
#include "tests/support/evaluate.h"
#include "tests/support/model_cases.h"
#include "tests/support/suite.h"

struct reference {
    float *rows;
    size_t n; /* floats */
};

static struct reference reference_logits(const char *peer, const struct model_case *c, const char *model,
                                         const int32_t *tokens)
{
    static char command[1 << 16];
    char out[512];
    snprintf(out, sizeof out, "%s.f32", model);
    int used = snprintf(command, sizeof command, "PEER_BACKENDS=%s/portable %s/peer logits %s %s 0 1", peer, peer, model,
                        out);
    for (uint32_t i = 0; i < c->n_tokens; i++)
        used += snprintf(command + used, sizeof command - (size_t)used, " %d", tokens[i]);
    struct reference r = {NULL, 0};
    if (system(command) != 0)
        return r;
    size_t size = 0;
    r.rows = (float *)(void *)suite_read(out, &size);
    r.n = size / sizeof(float);
    remove(out);
    return r;
}

static size_t count_differing(const float *a, const float *b, size_t n)
{
    size_t differing = 0;
    for (size_t i = 0; i < n; i++)
        differing += memcmp(&a[i], &b[i], sizeof a[i]) != 0;
    return differing;
}

static const struct {
    const char *tier;
    unsigned batch, threads;
} settings[] = {{"scalar", 1, 1}, {"scalar", 64, 2}, {"auto", 1, 2}, {"auto", 7, 1}, {"auto", 64, 3}, {"auto", 512, 2}};

/* Number of settings that differ from the reference. */
static int compare_case(const char *peer, const struct model_case *c, const char *model)
{
    struct gguf_builder *b = model_case_build(c);
    gguf_builder_write(b, model);
    gguf_builder_free(b);
    int32_t *tokens = calloc(c->n_tokens, sizeof *tokens);
    model_case_tokens(c, tokens);
    struct reference r = reference_logits(peer, c, model, tokens);
    size_t n = (size_t)c->n_tokens * MODEL_CASE_VOCAB;
    float *rows = calloc(n, sizeof *rows);
    int failures = 0;
    if (r.n != n) {
        printf("%-28s the reference did not answer with %zu logits\n", c->name, n);
        failures = 1;
    }
    for (size_t i = 0; i < sizeof settings / sizeof settings[0] && r.n == n; i++) {
        struct evaluation e = evaluation_open(model, settings[i].tier, c->n_tokens, settings[i].batch,
                                              settings[i].threads);
        struct error err;
        if (evaluation_logits(&e, tokens, c->n_tokens, 0, 0, rows, &err) != STATUS_OK)
            printf("%-28s %s\n", c->name, err.text);
        size_t differing = count_differing(rows, r.rows, n);
        if (differing)
            printf("%-28s %s, batch %u, %u threads: %zu of %zu logits differ\n", c->name, settings[i].tier,
                   settings[i].batch, settings[i].threads, differing, n);
        failures += differing != 0;
        evaluation_close(&e);
    }
    if (!failures)
        printf("%-28s .hash = 0x%016" PRIx64 "  %s\n", c->name, hash_bytes(HASH_SEED, r.rows, n * sizeof(float)),
               c->hash == hash_bytes(HASH_SEED, r.rows, n * sizeof(float)) ? "as checked in" : "NOT CHECKED IN");
    fflush(stdout);
    free(tokens);
    free(rows);
    free(r.rows);
    remove(model);
    return failures;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: peer_compare DIR [PART]\n");
        return 2;
    }
    char model[256];
    snprintf(model, sizeof model, "%s/case.gguf", suite_tmp());
    int n = 0, failures = 0;
    for (const struct model_case *c = model_cases; c->name; c++)
        if (argc < 3 || strstr(c->name, argv[2])) {
            failures += compare_case(argv[1], c, model);
            n++;
        }
    printf("%d models x %zu settings, %d differ\n", n, sizeof settings / sizeof settings[0], failures);
    return failures != 0;
}
