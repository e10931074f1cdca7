/* The body of POST /v1/completions; see openai.h for what is refused. */
#include "proto/openai.h"

#include <stdio.h>
#include <stdlib.h>

#include "proto/fields.h"

struct openai_reading {
    struct openai_request request;
    struct json_value prompt, stream_options;
};

/* Sampling fields at the value that leaves greedy choice alone (low); any other is refused. */
static enum status read_neutral(struct reader *r, const struct field *f, struct json_value value, void *out)
{
    int64_t number;
    (void)out;
    if (value.type != JSON_NUMBER)
        return field_refuse_value(r, value, "a number");
    if (json_integer(value, &number) && number == f->low)
        return STATUS_OK;
    return field_refuse(r, PROBLEM_INVALID_REQUEST, "generation is greedy only: must be %d or absent", (int)f->low);
}

static enum status read_ignored_string(struct reader *r, const struct field *f, struct json_value value, void *out)
{
    (void)f, (void)out;
    return value.type == JSON_STRING ? STATUS_OK : field_refuse_value(r, value, "a string");
}

static enum status read_ignored_integer(struct reader *r, const struct field *f, struct json_value value, void *out)
{
    int64_t number;
    (void)f, (void)out;
    return json_integer(value, &number) ? STATUS_OK : field_refuse_value(r, value, "an integer");
}

static enum status read_suffix(struct reader *r, const struct field *f, struct json_value value, void *out)
{
    (void)f, (void)out;
    if (json_string_is(value, (struct span){"", 0}))
        return STATUS_OK;
    return field_refuse(r, PROBLEM_INVALID_REQUEST, "insertion is not implemented: must be empty or absent");
}

static enum status read_logit_bias(struct reader *r, const struct field *f, struct json_value value, void *out)
{
    struct json_value member;
    struct json_walk walk = json_walk(value);
    (void)f, (void)out;
    if (value.type == JSON_OBJECT && !json_next(&walk, NULL, &member))
        return STATUS_OK;
    return field_refuse(r, PROBLEM_INVALID_REQUEST, "generation is greedy only: must be {} or absent");
}

static enum status read_tokens_limit(struct reader *r, const struct field *f, struct json_value value, void *out)
{
    struct field ranged = *f;
    ranged.high = r->limits->max_tokens_limit;
    return field_unsigned(r, &ranged, value, out);
}

static enum status read_logprobs(struct reader *r, const struct field *f, struct json_value value, void *out)
{
    ((struct openai_reading *)out)->request.has_logprobs = true;
    return field_unsigned(r, f, value, out);
}

static enum status read_stream_options(struct reader *r, const struct field *f, struct json_value value, void *out)
{
    static const struct field options[] = {
        {"include_usage", field_boolean, offsetof(struct openai_request, include_usage), 0, 0, false}};
    if (value.type != JSON_OBJECT)
        return field_refuse_value(r, value, "an object");
    *FIELD_TARGET(struct json_value, f, out) = value;
    return fields_read(r, value, options, N_FIELDS(options), true, &((struct openai_reading *)out)->request);
}

#define TARGET(member) offsetof(struct openai_reading, request.member)
#define NO_TARGET TARGET(max_tokens) /* checked, not stored */

static const struct field openai_fields[] = {
    {"prompt", field_value, offsetof(struct openai_reading, prompt), 0, 0, true},
    {"max_tokens", read_tokens_limit, TARGET(max_tokens), 0, 0, false},
    {"stop", field_stops, TARGET(stop), 0, 0, false},
    {"stream", field_boolean, TARGET(stream), 0, 0, false},
    {"stream_options", read_stream_options, offsetof(struct openai_reading, stream_options), 0, 0, false},
    {"logprobs", read_logprobs, TARGET(logprobs), 0, REQUEST_TOP_MAX, false},
    {"echo", field_boolean, TARGET(echo), 0, 0, false},
    {"temperature", read_neutral, NO_TARGET, 0, 0, false},
    {"top_p", read_neutral, NO_TARGET, 1, 1, false},
    {"n", read_neutral, NO_TARGET, 1, 1, false},
    {"best_of", read_neutral, NO_TARGET, 1, 1, false},
    {"presence_penalty", read_neutral, NO_TARGET, 0, 0, false},
    {"frequency_penalty", read_neutral, NO_TARGET, 0, 0, false},
    {"logit_bias", read_logit_bias, NO_TARGET, 0, 0, false},
    {"suffix", read_suffix, NO_TARGET, 0, 0, false},
    {"model", read_ignored_string, NO_TARGET, 0, 0, false},
    {"user", read_ignored_string, NO_TARGET, 0, 0, false},
    {"seed", read_ignored_integer, NO_TARGET, 0, 0, false},
};

/* ---- prompts ---- */

static enum status add_prompt(struct reader *r, struct openai_request *out, struct prompt **prompt)
{
    if (out->n_prompts == OPENAI_PROMPTS_MAX) {
        r->index = SIZE_MAX;
        return field_refuse(r, PROBLEM_INVALID_REQUEST, "must hold at most %d prompts", OPENAI_PROMPTS_MAX);
    }
    struct prompt *prompts = realloc(out->prompts, (out->n_prompts + 1) * sizeof *prompts);
    if (!prompts)
        return field_no_memory(r);
    out->prompts = prompts;
    *prompt = &prompts[out->n_prompts++];
    **prompt = (struct prompt){.add_special = true};
    return STATUS_OK;
}

static enum status read_text_prompt(struct reader *r, struct json_value value, struct openai_request *out)
{
    struct prompt *prompt;
    enum status status = add_prompt(r, out, &prompt);
    return status == STATUS_OK ? prompt_append_text(r, prompt, value, true) : status;
}

/* An array of ids, the prompt `batch` of several or, with SIZE_MAX, the only one. */
static enum status read_ids_prompt(struct reader *r, struct json_value value, size_t batch, struct openai_request *out)
{
    char name[40];
    struct prompt *prompt;
    struct json_value element;
    enum status status = add_prompt(r, out, &prompt);
    if (batch != SIZE_MAX) { /* ids stand at prompt[batch][index] */
        snprintf(name, sizeof name, "\"prompt[%zu]\"", batch);
        r->field = (struct json_value){JSON_STRING, span_of(name)};
    }
    for (struct json_walk walk = json_walk(value); status == STATUS_OK && json_next(&walk, NULL, &element);) {
        int32_t id;
        r->index = walk.index;
        status = field_token(r, element, &id);
        if (status == STATUS_OK)
            status = prompt_append_id(r, prompt, id);
    }
    r->index = SIZE_MAX;
    if (status == STATUS_OK && prompt->n_parts == 0)
        status = field_refuse(r, PROBLEM_INVALID_REQUEST, "holds no token");
    r->field = (struct json_value){0}; /* name ends here */
    return status;
}

static enum status read_batch(struct reader *r, struct json_value value, enum json_type type,
                              struct openai_request *out)
{
    static const char name[] = "\"prompt\"";
    struct json_value element;
    for (struct json_walk walk = json_walk(value); json_next(&walk, NULL, &element);) {
        r->field = (struct json_value){JSON_STRING, {name, sizeof name - 1}};
        r->index = walk.index;
        if (element.type != type)
            return field_refuse_value(r, element, type == JSON_STRING ? "a string, like the prompts before it"
                                                                      : "an array of ids, like the prompts before it");
        enum status status = type == JSON_STRING ? read_text_prompt(r, element, out)
                                                 : read_ids_prompt(r, element, walk.index, out);
        if (status != STATUS_OK)
            return status;
    }
    return STATUS_OK;
}

static enum status read_prompts(struct reader *r, struct json_value value, struct openai_request *out)
{
    static const char name[] = "\"prompt\"";
    struct json_value first;
    struct json_walk walk = json_walk(value);
    r->field = (struct json_value){JSON_STRING, {name, sizeof name - 1}};
    r->index = SIZE_MAX;
    if (value.type == JSON_STRING)
        return read_text_prompt(r, value, out);
    if (value.type != JSON_ARRAY)
        return field_refuse_value(r, value, "a string, or an array of strings, of ids or of arrays of ids");
    if (!json_next(&walk, NULL, &first))
        return prompt_refuse_empty(r->problem);
    if (first.type == JSON_STRING || first.type == JSON_ARRAY)
        return read_batch(r, value, first.type, out);
    return read_ids_prompt(r, value, SIZE_MAX, out);
}

enum status openai_request_read(struct span body, const struct request_limits *limits, struct openai_request *out,
                                struct problem *problem)
{
    struct reader r = {.limits = limits, .problem = problem, .null_is_absent = true};
    struct openai_reading reading = {.request.max_tokens = OPENAI_MAX_TOKENS < limits->max_tokens_limit
                                                               ? OPENAI_MAX_TOKENS
                                                               : limits->max_tokens_limit};
    enum status status = fields_read_body(&r, body, openai_fields, N_FIELDS(openai_fields), &reading);
    if (status == STATUS_OK && reading.stream_options.raw.data && !reading.request.stream)
        status = problem_set(problem, PROBLEM_INVALID_REQUEST, "stream_options: only with \"stream\": true");
    if (status == STATUS_OK)
        status = read_prompts(&r, reading.prompt, &reading.request);
    *out = reading.request;
    if (status != STATUS_OK)
        openai_request_clear(out);
    return status;
}

void openai_request_clear(struct openai_request *r)
{
    for (size_t i = 0; i < r->n_prompts; i++)
        prompt_clear(&r->prompts[i]);
    free(r->prompts);
    buffer_clear(&r->stop.bytes);
    *r = (struct openai_request){0};
}
