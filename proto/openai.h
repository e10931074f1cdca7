/* POST /v1/completions and GET /v1/models: the OpenAI-compatible face of /generate, greedy only.
 *
 * Refused with 400: a temperature other than 0, n or best_of other than 1, sampling fields with effect, suffix, unknown
 * fields. model, user and seed are accepted and have no effect; null stands for an absent field. */
#ifndef GGUFD_PROTO_OPENAI_H
#define GGUFD_PROTO_OPENAI_H

#include "proto/replies.h"
#include "proto/requests.h"

#define OPENAI_MAX_TOKENS 16 /* the interface's default, cut to the configured limit */
#define OPENAI_PROMPTS_MAX 64

struct openai_request {
    struct prompt *prompts; /* one a choice, in order; add_special and parse_special are true */
    size_t n_prompts;       /* 1..OPENAI_PROMPTS_MAX */
    uint32_t max_tokens;
    struct stop_strings stop;
    bool has_logprobs;      /* logprobs 0 asks for the chosen tokens alone */
    uint32_t logprobs;
    bool echo, stream, include_usage;
};
enum status openai_request_read(struct span body, const struct request_limits *limits, struct openai_request *out,
                                struct problem *problem);
void openai_request_clear(struct openai_request *r);

/* The members that all parts of one reply share. */
struct openai_reply {
    const char *id;      /* without "cmpl-" */
    const char *model;
    int64_t created;     /* seconds since 1970 */
};

/* A choice's logprobs object, grown token by token. Zero-initialise; clear frees; openai_logprobs_reset keeps the text
 * offset and drops the entries (for streams: one chunk's entries at a time). */
struct openai_logprobs {
    struct buffer tokens, logprobs, top, offsets;
    struct buffer tail;  /* bytes of an unfinished character */
    size_t characters;   /* code points before the next token */
};
/* has_logprob false: null (the first token of the prompt). n_top 0: an empty object. */
void openai_logprobs_add(struct openai_logprobs *l, struct span piece, bool has_logprob, float logprob,
                         const struct reply_candidate *top, size_t n_top);
/* A token in front of the text that is no part of it (a BOS): null, and no characters of the offsets. */
void openai_logprobs_add_hidden(struct openai_logprobs *l, struct span piece);
void openai_logprobs_reset(struct openai_logprobs *l);
void openai_logprobs_clear(struct openai_logprobs *l);

/* eos and stop are "stop"; length and context are "length"; the others keep their own name. */
const char *openai_finish_reason(enum reason reason);

/* Without stream: begin, one choice each, end. finish NULL: null. logprobs NULL: null. */
void openai_reply_begin(struct buffer *b, const struct openai_reply *reply);
void openai_reply_choice(struct buffer *b, size_t index, struct span text, const struct openai_logprobs *logprobs,
                         const char *finish);
void openai_reply_end(struct buffer *b, size_t prompt_tokens, size_t generated_tokens);

/* With stream: server-sent events ("data: {...}\n\n"), then done ("data: [DONE]\n\n"). */
#define OPENAI_STREAM_CONTENT_TYPE "text/event-stream"
void openai_event_choice(struct buffer *b, const struct openai_reply *reply, size_t index, struct span text,
                         const struct openai_logprobs *logprobs, const char *finish);
void openai_event_usage(struct buffer *b, const struct openai_reply *reply, size_t prompt_tokens,
                        size_t generated_tokens);
void openai_event_problem(struct buffer *b, const struct problem *problem);
void openai_event_done(struct buffer *b);

void openai_models(struct buffer *b, const char *name, int64_t created);

#endif
