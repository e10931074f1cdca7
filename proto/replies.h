/* Reply bodies, written from structs into a buffer. Numbers read back as the same float32; a value that is not finite
 * is written as null and never as NaN. Any thread. */
#ifndef GGUFD_PROTO_REPLIES_H
#define GGUFD_PROTO_REPLIES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/buffer.h"
#include "engine/base/span.h"
#include "proto/problem.h"

/* Why a generation ended: names go to clients and into the metric's label. */
#define REASON_TABLE(X)                                                                                  \
    X(EOS, "eos") X(STOP, "stop") X(LENGTH, "length") X(CONTEXT, "context") X(DEADLINE, "deadline")      \
    X(CANCELLED, "cancelled") X(SHUTDOWN, "shutdown") X(ERROR, "error")
enum reason {
#define X(identifier, name) REASON_##identifier,
    REASON_TABLE(X)
#undef X
    REASON_COUNT
};
const char *reason_name(enum reason reason);

/* One of the best tokens at a position. */
struct reply_candidate {
    int32_t id;
    float logit, logprob;
    struct span piece;
};

struct reply_timings {
    double queue_ms, prefill_ms, decode_ms;
    size_t prefill_tokens, decode_tokens; /* evaluated in those times; the rates are computed from them */
};

struct reply_model {
    const char *name, *fingerprint, *numerics;
};

/* ---- /tokenize, /detokenize ---- */

/* Bytes of a token; `context` as given. */
typedef struct span reply_piece_function(const void *context, int32_t id);
/* piece NULL: ids alone. */
void reply_tokenize(struct buffer *b, const int32_t *ids, size_t n, reply_piece_function *piece, const void *context);
/* bytes: the concatenated pieces. */
void reply_detokenize(struct buffer *b, struct span bytes);

/* ---- /logits ---- */

struct reply_row {
    size_t position;
    int32_t token;
    bool has_next; /* absent at the prompt's last position */
    int32_t next_id;
    float next_logit, next_logprob;
    size_t next_rank;
    const struct reply_candidate *top;
    size_t n_top;
};
/* begin, one row each in ascending order, end. */
void reply_logits_begin(struct buffer *b, const int32_t *tokens, size_t n, uint32_t n_vocab);
void reply_logits_row(struct buffer *b, const struct reply_row *row);
void reply_logits_end(struct buffer *b, size_t cached_tokens, const struct reply_timings *timings);

/* ---- /generate ---- */

struct reply_token {
    size_t index;
    int32_t id;
    struct span text;   /* what became certain with this token; valid UTF-8 */
    bool has_logprob;
    float logprob;
    const struct reply_candidate *top;
    size_t n_top;
};
/* A line of a stream, newline included. */
void reply_token_line(struct buffer *b, const struct reply_token *token);
void reply_progress_line(struct buffer *b, size_t prompt_tokens, size_t processed);

struct reply_end {
    struct span text;   /* stream: what was held back; otherwise the whole text */
    enum reason reason;
    struct span stop;   /* the stop string that matched; data NULL: none */
    size_t prompt_tokens, cached_tokens, generated_tokens;
    struct reply_timings timings;
    struct reply_model model;
    const struct problem *problem; /* NULL: none */
};
/* The last line of a stream, newline included. */
void reply_last_line(struct buffer *b, const struct reply_end *end);

/* One entry of "logprobs" of a reply without stream; entries is that array's inside, grown call by call. */
void reply_logprob_entry(struct buffer *entries, const struct reply_token *token);
/* The reply without stream; logprobs: the entries, NULL when not asked for. */
void reply_generate(struct buffer *b, const struct reply_end *end, const int32_t *ids, size_t n,
                    const struct buffer *logprobs);

/* ---- /health, /ready, /model, DELETE /generate/{id} ---- */

void reply_status(struct buffer *b, const char *status); /* {"status":"ok"} */
void reply_cancelled(struct buffer *b, struct span id);  /* {"id":..., "status":"cancelling"} */

struct reply_model_card {
    struct reply_model model;
    const char *architecture, *tokenizer, *engine_version, *tier, *threads_reason;
    bool vocabulary_only;
    uint64_t parameters, file_bytes;
    uint32_t context, context_trained, n_vocab, n_layers, n_embd, n_heads, n_heads_kv;
    unsigned threads, batch;
    int32_t bos, eos, eot, unknown, padding; /* negative: null */
    bool add_bos, add_eos;
    uint64_t kv_bytes, arena_bytes, vocabulary_bytes;
    size_t n_types;
    struct {
        const char *name;
        size_t tensors;
        uint64_t bytes;
    } types[32];
};
void reply_model_card(struct buffer *b, const struct reply_model_card *card);

/* ---- shared ---- */

/* "piece": a string where it is valid UTF-8 by itself, else an array of byte values. */
void reply_piece(struct buffer *b, struct span piece);
void reply_base64(struct buffer *b, struct span bytes);

#endif
