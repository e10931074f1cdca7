/* A vocabulary as its file states it and as the reference completes it: texts, attributes, special ids, pieces.
 *
 * vocab_read is the only place that knows metadata keys; vocab_complete applies the rules of docs/tokenizer.md sections
 * 4 to 7 and 12 and knows no file. Everything lives in the arena; texts are borrowed from the file where possible. */
#ifndef GGUFD_TOKENIZER_VOCAB_H
#define GGUFD_TOKENIZER_VOCAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/arena.h"
#include "engine/tokenizer/pretok.h"
#include "engine/tokenizer/text_table.h"
#include "engine/tokenizer/tokenizer.h"

enum vocab_model { VOCAB_SPM, VOCAB_BPE };

#define VOCAB_BLANK "\xe2\x96\x81" /* U+2581, how vocabularies write a space */

struct vocab {
    struct arena arena;
    enum vocab_model model;
    size_t n;             /* tokens, below INT32_MAX */
    struct span *text;    /* [n] */
    struct span *piece;   /* [n], set by vocab_complete */
    uint32_t *rank;       /* [n] SentencePiece: ascending = descending score; NULL for byte-level BPE */
    uint16_t *attribute;  /* [n] enum token_attribute bits */
    bool *is_eog;         /* [n] */
    struct text_table ids;
    size_t text_max;      /* longest text in bytes */

    struct tokenizer_special special;
    const struct pretok_row *pre; /* byte-level BPE only, never NULL there */
    const struct gguf_key *merges; /* byte-level BPE only; NULL: none */
    struct span pre_name, general_name, architecture;

    uint32_t *listed; /* [n_listed] tokens looked for in texts, in the reference's order */
    size_t n_listed;
};

/* Refuses what section 1 of docs/tokenizer.md refuses. On failure v holds nothing. */
enum status vocab_read(struct vocab *v, const struct gguf *g, const struct log_sink *log, struct error *err);
enum status vocab_complete(struct vocab *v, struct error *err);
enum status vocab_pieces(struct vocab *v, struct error *err); /* part of vocab_complete */
void vocab_clear(struct vocab *v);

/* Lowest id with that text, TEXT_NONE if there is none. */
static inline uint32_t vocab_find(const struct vocab *v, struct span text)
{
    return text_table_find(&v->ids, text);
}

#endif
