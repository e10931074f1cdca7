/* Request bodies as structs. Every field is a row in requests.c with its type, range and default; unknown fields,
 * duplicates, wrong types and values out of range are refused with a problem that names the field and what is allowed.
 *
 * *_read gives STATUS_OK, or STATUS_INVALID / _UNSUPPORTED / _NO_MEMORY with *problem filled in; the request is then
 * already cleared. Any thread. Free with *_clear (a zeroed struct is fine). */
#ifndef GGUFD_PROTO_REQUESTS_H
#define GGUFD_PROTO_REQUESTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/buffer.h"
#include "engine/base/span.h"
#include "proto/problem.h"

#define REQUEST_TOP_MAX 100
#define REQUEST_STOPS_MAX 16
#define REQUEST_STOP_BYTES_MAX 256
#define REQUEST_ID_BYTES_MAX 64
#define REQUEST_DEADLINE_MS_MAX 86400000

/* What the running daemon adds to the contract's own ranges. */
struct request_limits {
    uint32_t n_vocab;          /* ids are 0..n_vocab-1 */
    uint32_t max_tokens;       /* default of max_tokens, at most max_tokens_limit */
    uint32_t max_tokens_limit; /* largest max_tokens accepted */
};

struct request_ids {
    int32_t *data;
    size_t count, capacity;
};

/* A run of text or of ids. */
struct prompt_part {
    uint32_t start, count; /* bytes of prompt.text, or ids of prompt.ids */
    bool is_ids;
    bool parse_special;    /* text only: the part's own choice, or the request's */
};

/* parts are in order; neighbouring ids share one part; a text part may be empty. */
struct prompt {
    struct prompt_part *parts;
    size_t n_parts, capacity;
    struct buffer text;     /* every text part's bytes, one behind the other; may hold U+0000 */
    struct request_ids ids; /* checked against n_vocab */
    bool add_special;       /* BOS where the prompt starts with text, EOS where it also ends with text */
};
static inline struct span prompt_part_text(const struct prompt *p, const struct prompt_part *part)
{
    return (struct span){p->text.data ? p->text.data + part->start : NULL, part->count};
}
static inline const int32_t *prompt_part_ids(const struct prompt *p, const struct prompt_part *part)
{
    return p->ids.data + part->start;
}
void prompt_clear(struct prompt *p);
/* A prompt that came to no token at all. */
enum status prompt_refuse_empty(struct problem *problem);

struct tokenize_request {
    struct buffer content;
    bool add_special, parse_special, with_pieces;
};
enum status tokenize_request_read(struct span body, struct tokenize_request *out, struct problem *problem);
void tokenize_request_clear(struct tokenize_request *r);

struct detokenize_request {
    struct request_ids tokens;
};
enum status detokenize_request_read(struct span body, const struct request_limits *limits,
                                    struct detokenize_request *out, struct problem *problem);
void detokenize_request_clear(struct detokenize_request *r);

enum logits_positions { POSITIONS_LAST, POSITIONS_ALL, POSITIONS_LIST };

struct logits_request {
    struct prompt prompt;
    enum logits_positions positions;
    struct request_ids list; /* POSITIONS_LIST: ascending, unique, not negative, at least one */
    uint32_t top;            /* 0..REQUEST_TOP_MAX */
    bool f32;                /* format: raw float32 instead of JSON */
    bool cache_prompt;
};
enum status logits_request_read(struct span body, const struct request_limits *limits, struct logits_request *out,
                                struct problem *problem);
/* Once the prompt's length is known: the listed positions must lie inside it. */
enum status logits_request_check(const struct logits_request *r, size_t n_tokens, struct problem *problem);
void logits_request_clear(struct logits_request *r);

/* Stop strings, one behind the other. */
struct stop_strings {
    struct buffer bytes;
    struct {
        uint16_t start, size;
    } at[REQUEST_STOPS_MAX];
    size_t count;
};
static inline struct span stop_string(const struct stop_strings *s, size_t i)
{
    return (struct span){s->bytes.data + s->at[i].start, s->at[i].size};
}

struct generate_request {
    struct prompt prompt;
    uint32_t max_tokens;
    struct stop_strings stop;
    struct request_ids stop_tokens; /* ascending, unique */
    bool ignore_eos, stream, progress, cache_prompt;
    uint32_t logprobs;              /* 0..REQUEST_TOP_MAX; 0: none asked */
    uint32_t deadline_ms;           /* 0: none */
    char id[REQUEST_ID_BYTES_MAX + 1]; /* [A-Za-z0-9._-]{1,64}; "" when not given */
};
enum status generate_request_read(struct span body, const struct request_limits *limits, struct generate_request *out,
                                  struct problem *problem);
void generate_request_clear(struct generate_request *r);

/* True for [A-Za-z0-9._-]{1,64}: job ids and X-Request-Id. */
bool request_id_is_valid(struct span id);
/* Binary search in an ascending list. */
bool request_ids_has(const struct request_ids *ids, int32_t id);

#endif
