/* SentencePiece ("llama"): a fragment's characters are merged by descending score; docs/tokenizer.md section 9. */
#ifndef GGUFD_TOKENIZER_SPM_H
#define GGUFD_TOKENIZER_SPM_H

#include "engine/tokenizer/encoder.h"
#include "engine/tokenizer/vocab.h"

struct spm {
    const struct vocab *vocab;
    uint32_t byte_id[256];   /* the unknown token where there is none */
    uint32_t ascii_id[128];  /* token of a one-byte text */
    uint64_t *joined;        /* bit set over hashed character pairs that stand side by side in some token */
    uint64_t joined_mask;    /* bits - 1 */
};

enum status spm_init(struct spm *s, struct vocab *v, struct error *err);

/* Appends the ids of one raw fragment, with a space in front if `prefix`. */
enum status spm_encode(const struct spm *s, struct encoder *e, struct span fragment, bool prefix, struct error *err);

#endif
