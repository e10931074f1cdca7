/* Word splitting of byte-level BPE vocabularies: one row a name of tokenizer.ggml.pre, no regex engine.
 *
 * A program is a list of passes; each pass cuts every segment of the one before into smaller ones, and the segments of
 * the last pass are the words (docs/tokenizer.md, "Words"). Passes run nested, segment by segment, so that nothing is
 * stored; time is linear in the text. */
#ifndef GGUFD_TOKENIZER_PRETOK_H
#define GGUFD_TOKENIZER_PRETOK_H

#include <stdbool.h>
#include <stddef.h>

#include "engine/base/arena.h"
#include "engine/base/error.h"
#include "engine/base/span.h"

enum pretok_flag {
    PRE_ADD_BOS = 1,         /* default of add_bos_token */
    PRE_FORCE_BOS = 2,       /* add_bos whatever the key says */
    PRE_NO_BOS = 4,          /* the default BOS id is none */
    PRE_WHOLE_WORDS = 8,     /* a word that is a token is taken without merging */
    PRE_WHOLE_NEWLINES = 16, /* the same for words of newlines only */
    PRE_ESCAPE = 32,         /* spaces become U+2581 */
    PRE_RAW = 64,            /* symbols are characters, not bytes of the byte alphabet */
    PRE_NO_MERGES = 128      /* the file may leave merges out */
};

struct pretok_program;

struct pretok_row {
    const char *name;
    const struct pretok_program *program;
    unsigned flags; /* enum pretok_flag */
};

/* Refuses an unknown name, naming it and its nearest neighbours. */
enum status pretok_find(struct span name, const struct pretok_row **out, struct error *err);
/* Rows in file order; NULL after the last. */
const struct pretok_row *pretok_at(size_t i);

/* A program made ready to run. */
struct pretok;

/* In the arena; NULL: no memory. */
const struct pretok *pretok_new(const struct pretok_program *program, struct arena *a);

/* Takes the word text[start..end); false stops the split. */
typedef bool pretok_word(void *context, size_t start, size_t end);
/* Calls `word` for every word of `text` in order; together they are the text. The text must be clean
 * (lenient_utf8.h). false: stopped. */
bool pretok_split(const struct pretok *p, struct span text, pretok_word *word, void *context);

#endif
