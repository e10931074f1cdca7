/* Greedy generation on a session: the loop that /generate, /v1/completions and the one-shot command share.
 *
 * Tokens and text are handed to a callback as they become certain. Runs on the session's thread. */
#ifndef GGUFD_DAEMON_GENERATION_H
#define GGUFD_DAEMON_GENERATION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "engine/engine.h"
#include "proto/problem.h"
#include "proto/replies.h"
#include "proto/requests.h"
#include "proto/stream.h"

struct generation_options {
    const struct engine *engine;
    size_t max_tokens;
    const struct stop_strings *stops;
    const struct request_ids *stop_tokens; /* NULL: none */
    bool ignore_eos, cache_prompt;
    bool logprobs;          /* compute them; `top` best of each step */
    size_t top;
    const atomic_bool *cancel; /* never NULL */
    uint64_t deadline_ns;   /* 0: none; looked at between tokens */
    void (*on_progress)(void *context, size_t evaluated); /* prefill; may be NULL */
    /* One shown token; false ends the generation as cancelled. step_s: seconds of its decode step, 0 for the first. */
    bool (*on_token)(void *context, const struct reply_token *token, double step_s);
    /* The end-of-generation or stop token, which is counted and not shown; may be NULL. */
    void (*on_last)(void *context, const struct reply_token *token);
    void *context;
};

struct generation_result {
    enum reason reason;     /* REASON_CANCELLED where the flag was set: the caller knows why */
    struct buffer tail;     /* text that was held back; the caller clears it */
    int stop;               /* index of the stop string that matched, -1 */
    size_t cached_tokens, generated_tokens, prefill_tokens, decode_tokens;
    double prefill_ms, decode_ms;
    uint64_t first_token_ns; /* 0: none */
};

/* Evaluates *tokens and appends what it generates to it. STATUS_OK also when cancelled. On failure *problem says why,
 * and the reason is REASON_ERROR. */
enum status generation_run(struct session *s, const struct generation_options *o, struct engine_ids *tokens,
                           struct generation_result *result, struct problem *problem);

#endif
