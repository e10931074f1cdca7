/* --prompt, --prompt-tokens: one generation to standard output, without a server; see commands.h. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "daemon/commands.h"
#include "daemon/config.h"
#include "daemon/engine_thread.h"
#include "daemon/generation.h"
#include "daemon/job.h"
#include "daemon/prompt_ids.h"

static atomic_bool interrupted;

static void on_interrupt(int number)
{
    (void)number;
    atomic_store(&interrupted, true);
}

/* Text as it comes; false (and so the end) when nobody reads it any more. */
static bool print_token(void *context, const struct reply_token *token, double step_s)
{
    (void)step_s;
    struct buffer *text = context;
    if (text) {
        buffer_append(text, token->text.data, token->text.size);
        return !text->failed;
    }
    if (token->text.size)
        fwrite(token->text.data, 1, token->text.size, stdout);
    if (fflush(stdout))
        atomic_store(&interrupted, true);
    return !atomic_load(&interrupted);
}

static enum status read_prompt(const struct config *config, const struct engine *e, struct engine_ids *ids,
                               struct problem *problem)
{
    const struct engine_info *info = engine_info(e);
    if (config->prompt) {
        enum status status = text_to_ids(e, span_of(config->prompt), true, true, ids, problem);
        if (status)
            return status;
    }
    for (size_t i = 0; i < config->n_prompt_tokens; i++) {
        int32_t id = config->prompt_tokens[i];
        if ((uint32_t)id >= info->n_vocab)
            return problem_set(problem, PROBLEM_INVALID_REQUEST, "prompt-tokens[%zu]: %d is not in 0..%u", i, id,
                               info->n_vocab - 1);
        if (!engine_ids_push(ids, id))
            return problem_set(problem, PROBLEM_INTERNAL, "out of memory");
    }
    if (ids->count == 0)
        return prompt_refuse_empty(problem);
    size_t room = config->max_tokens > 0;
    if (ids->count + room > info->context)
        return problem_context_overflow(problem, ids->count, false, info->context, room != 0);
    return STATUS_OK;
}

static enum status print_json(const struct engine_info *info, const struct engine_ids *tokens, size_t n_prompt,
                       const struct generation_result *result, const struct buffer *text, struct problem *problem)
{
    struct buffer out = {0};
    struct reply_end end = {
        .text = buffer_span(text),
        .reason = result->reason,
        .prompt_tokens = n_prompt,
        .generated_tokens = result->generated_tokens,
        .timings = {0, result->prefill_ms, result->decode_ms, result->prefill_tokens, result->decode_tokens},
        .model = {info->name, info->fingerprint, ENGINE_NUMERICS_VERSION},
    };
    reply_generate(&out, &end, tokens->data + n_prompt, tokens->count - n_prompt, NULL);
    buffer_byte(&out, '\n');
    enum status status = STATUS_OK;
    if (out.failed || text->failed)
        status = problem_set(problem, PROBLEM_INTERNAL, "out of memory for the result");
    else
        fwrite(out.data, 1, out.size, stdout);
    buffer_clear(&out);
    return status;
}

static enum status generate(const struct config *config, struct engine *e, struct session *s, struct problem *problem)
{
    struct engine_ids tokens = {0};
    struct buffer text = {0};
    struct generation_result result = {0};
    enum status status = read_prompt(config, e, &tokens, problem);
    size_t n_prompt = tokens.count;
    struct generation_options options = {
        .engine = e,
        .max_tokens = (size_t)config->max_tokens,
        .cancel = &interrupted,
        .on_token = print_token,
        .context = config->json ? &text : NULL,
    };
    if (!status)
        status = generation_run(s, &options, &tokens, &result, problem);
    if (!status && config->json) {
        buffer_append(&text, result.tail.data, result.tail.size);
        status = print_json(engine_info(e), &tokens, n_prompt, &result, &text, problem);
    } else if (!status) {
        printf("%.*s\n", (int)result.tail.size, result.tail.size ? result.tail.data : "");
    }
    buffer_clear(&result.tail);
    buffer_clear(&text);
    engine_ids_clear(&tokens);
    return status;
}

int command_prompt(const struct config *config)
{
    struct engine_options options = engine_options_from(config);
    struct engine *engine = NULL;
    struct session *session = NULL;
    struct error err;
    struct problem problem = {0};
    enum status status = engine_open(&options, &engine, &err);
    if (!status)
        status = session_new(engine, &session, &err);
    if (status) {
        fprintf(stderr, "ggufd: %s\n", err.text);
        engine_close(engine);
        return EXIT_REFUSED;
    }
    signal(SIGINT, on_interrupt);
    signal(SIGTERM, on_interrupt);
    status = generate(config, engine, session, &problem);
    if (status)
        fprintf(stderr, "ggufd: %s\n", problem.detail);
    session_free(session);
    engine_close(engine);
    return status || fflush(stdout) ? EXIT_RUNTIME : EXIT_ORDERLY;
}
