/* Text <-> token ids, exactly as the reference does for SentencePiece ("llama") and byte-level BPE ("gpt2").
 *
 * A tokenizer is immutable after tokenizer_new and may be used by any number of threads. Texts are counted bytes, any
 * content. Contract: docs/tokenizer.md. */
#ifndef GGUFD_TOKENIZER_TOKENIZER_H
#define GGUFD_TOKENIZER_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/buffer.h"
#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/base/span.h"
#include "engine/gguf/gguf.h"

enum { TOKEN_NONE = -1 };

enum token_attribute {
    TOKEN_UNKNOWN = 1, TOKEN_UNUSED = 2, TOKEN_NORMAL = 4, TOKEN_CONTROL = 8, TOKEN_USER_DEFINED = 16,
    TOKEN_BYTE = 32, TOKEN_LSTRIP = 128, TOKEN_RSTRIP = 256
};

struct tokenizer_special {
    int32_t bos, eos, eot, eom, unknown, separator, padding, mask;
    int32_t fim_pre, fim_suf, fim_mid, fim_pad, fim_rep, fim_sep;
    bool add_bos, add_eos, add_space_prefix;
};

/* Growable array of ids; zero-initialise, free() data at the end. */
struct token_list {
    int32_t *data;
    size_t count, capacity;
};

struct tokenizer;

/* Copies nothing of the vocabulary's text that it can borrow: g must outlive the tokenizer. */
enum status tokenizer_new(const struct gguf *g, const struct log_sink *log, struct tokenizer **out,
                          struct error *err);
void tokenizer_free(struct tokenizer *t);

size_t tokenizer_size(const struct tokenizer *t);
const char *tokenizer_model(const struct tokenizer *t);            /* "llama" or "gpt2" */
const struct tokenizer_special *tokenizer_special(const struct tokenizer *t);
unsigned tokenizer_attributes(const struct tokenizer *t, int32_t id);
bool tokenizer_is_eog(const struct tokenizer *t, int32_t id);      /* ends a generation */
struct span tokenizer_text(const struct tokenizer *t, int32_t id); /* as stored */
/* Bytes that the token contributes to a text; special tokens give their text. Borrowed. */
struct span tokenizer_piece(const struct tokenizer *t, int32_t id);
size_t tokenizer_memory(const struct tokenizer *t);                /* bytes of its own */

enum {
    TOKENIZE_PARSE_SPECIAL = 1, /* control and unknown tokens in the text become tokens */
    TOKENIZE_NO_PREFIX = 2      /* the text continues ordinary text: SentencePiece puts no blank in front of it */
};
/* Appends the ids of text. `limit`: once more than `limit` ids exist the call may stop and returns STATUS_OVERFLOW
 * with the list holding at least limit + 1 ids (SIZE_MAX: no limit). Time near-linear in size, stack bounded,
 * memory below 50 times the text. BOS and EOS are the caller's to add (tokenizer_special). */
enum status tokenizer_encode(const struct tokenizer *t, struct span text, unsigned flags, size_t limit,
                             struct token_list *out, struct error *err);

/* Ids of one whole text with add_special: BOS in front and EOS behind as the metadata says. */
enum status tokenizer_encode_whole(const struct tokenizer *t, struct span text, bool add_special, unsigned flags,
                                   size_t limit, struct token_list *out, struct error *err);

bool token_list_push(struct token_list *list, int32_t id); /* false: no memory */

/* Appends the concatenated pieces of n ids; ids must be in range. */
void tokenizer_decode(const struct tokenizer *t, const int32_t *ids, size_t n, struct buffer *out);

#endif
