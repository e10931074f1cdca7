/* Helpers of the tokenizer's suites: opening vocabularies, reading golden ids, random texts. */
#ifndef GGUFD_TESTS_TOKENIZING_H
#define GGUFD_TESTS_TOKENIZING_H

#include "engine/base/buffer.h"
#include "engine/tokenizer/tokenizer.h"
#include "tests/support/gguf_builder.h"

struct vocabulary_file {
    struct gguf *g;
    struct tokenizer *t;
};

/* Both NULL on failure. */
enum status vocabulary_open(struct vocabulary_file *v, const char *path, const struct log_sink *log, struct error *err);
/* The vocabulary that b describes, through a file of its own. */
enum status vocabulary_build(struct vocabulary_file *v, const struct gguf_builder *b, const struct log_sink *log,
                             struct error *err);
void vocabulary_close(struct vocabulary_file *v);
/* A copy of the vocabulary at `path`, which has tokenizer.ggml.pre, with another value there. */
enum status vocabulary_open_as(struct vocabulary_file *v, const char *path, const char *pre, struct error *err);

enum { GOLDEN_PLAIN, GOLDEN_PARSE_SPECIAL, GOLDEN_ADD_SPECIAL, GOLDEN_KINDS };
struct golden_counts {
    size_t passed[GOLDEN_KINDS], total;
};
/* Compares with a file of lines {"text": ..., "ids": [...]}; the first differences are printed. False: unreadable. */
bool golden_compare(const struct tokenizer *t, const char *jsonl, struct golden_counts *counts);

/* Fills out with a text of words, blanks, scripts, symbols, digits, special tokens; with `broken` also of ill-formed
 * UTF-8. */
void random_text(uint64_t *state, bool broken, struct buffer *out);

#endif
