/* What a generation must give: prompts with their greedy continuation, evaluated once by an engine in this process, and
 * the outcome that follows from a request's limits. The daemon under stress is compared with this. */
#ifndef GGUFD_TESTS_STRESS_REFERENCE_H
#define GGUFD_TESTS_STRESS_REFERENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/buffer.h"

enum { STRESS_PROMPTS = 24, STRESS_TOKENS_MAX = 96, STRESS_CONTEXT = 1024, STRESS_STOPS = 4 };

extern const char *const stress_stops[STRESS_STOPS][3]; /* sets of stop strings, NULL behind the last */

struct stress_prompt {
    char *json;                 /* value of the request's "prompt" */
    int32_t *ids;
    size_t n;
    int32_t next[STRESS_TOKENS_MAX]; /* greedy, end of generation ignored */
    size_t n_next;
    struct buffer logits;       /* of the last position, float32 as the engine has them */
};

/* The limits of one request. */
struct stress_ask {
    unsigned prompt;            /* number below STRESS_PROMPTS */
    bool stream, ignore_eos, progress, cache;
    unsigned max_tokens, logprobs;
    int stops;                  /* set of stop strings; -1: none */
    int32_t stop_token;         /* -1: none */
    unsigned long deadline_ms;  /* 0: none */
};

struct stress_outcome {
    const char *reason;         /* of a generation that nothing disturbs */
    size_t n_shown, n_generated;
    const char *stop;           /* the string; NULL: none */
    struct buffer text;         /* UTF-8, terminated */
};

const char *stress_model(void); /* path; the file is made once */
/* Evaluates every prompt. False when the engine fails. */
bool stress_reference_open(void);
void stress_reference_close(void);
const struct stress_prompt *stress_prompt(unsigned number);
size_t stress_vocabulary(void);
/* The outcome after at most `shown` tokens (SIZE_MAX: the whole generation; text is right either way). Clear text. */
struct stress_outcome stress_expect(const struct stress_ask *ask, size_t shown);

#endif
