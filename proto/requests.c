/* The native routes' request bodies, one table a route. See requests.h. */
#include "proto/requests.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/fields.h"

static void ids_clear(struct request_ids *ids)
{
    free(ids->data);
    *ids = (struct request_ids){0};
}

bool request_id_is_valid(struct span id)
{
    if (id.size < 1 || id.size > REQUEST_ID_BYTES_MAX)
        return false;
    for (size_t i = 0; i < id.size; i++) {
        char c = id.data[i];
        if (!((c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
              c == '-'))
            return false;
    }
    return true;
}

static int compare_ids(const void *left, const void *right)
{
    int32_t a = *(const int32_t *)left, b = *(const int32_t *)right;
    return a < b ? -1 : a > b;
}

bool request_ids_has(const struct request_ids *ids, int32_t id)
{
    return ids->count && bsearch(&id, ids->data, ids->count, sizeof id, compare_ids);
}

/* ---- /tokenize ---- */

static const struct field tokenize_fields[] = {
    {"content", field_string, offsetof(struct tokenize_request, content), 0, 0, true},
    {"add_special", field_boolean, offsetof(struct tokenize_request, add_special), 0, 0, false},
    {"parse_special", field_boolean, offsetof(struct tokenize_request, parse_special), 0, 0, false},
    {"with_pieces", field_boolean, offsetof(struct tokenize_request, with_pieces), 0, 0, false},
};

enum status tokenize_request_read(struct span body, struct tokenize_request *out, struct problem *problem)
{
    struct reader r = {.problem = problem};
    *out = (struct tokenize_request){.parse_special = true};
    enum status status = fields_read_body(&r, body, tokenize_fields, N_FIELDS(tokenize_fields), out);
    if (status != STATUS_OK)
        tokenize_request_clear(out);
    return status;
}

void tokenize_request_clear(struct tokenize_request *r)
{
    buffer_clear(&r->content);
    *r = (struct tokenize_request){0};
}

/* ---- /detokenize ---- */

static const struct field detokenize_fields[] = {
    {"tokens", field_ids, offsetof(struct detokenize_request, tokens), 0, 0, true},
};

enum status detokenize_request_read(struct span body, const struct request_limits *limits,
                                    struct detokenize_request *out, struct problem *problem)
{
    struct reader r = {.limits = limits, .problem = problem};
    *out = (struct detokenize_request){0};
    enum status status = fields_read_body(&r, body, detokenize_fields, N_FIELDS(detokenize_fields), out);
    if (status != STATUS_OK)
        detokenize_request_clear(out);
    return status;
}

void detokenize_request_clear(struct detokenize_request *r)
{
    ids_clear(&r->tokens);
}

/* ---- prompts of /logits and /generate: parse_special may stand behind the prompt it is the default of ---- */

struct prompt_fields {
    struct json_value prompt;
    bool add_special, parse_special;
};

static enum status take_prompt(struct reader *r, const struct prompt_fields *fields, struct prompt *out)
{
    out->add_special = fields->add_special;
    return prompt_read(r, fields->prompt, fields->parse_special, out);
}

#define PROMPT_FIELDS(type)                                                                            \
    {"prompt", field_value, offsetof(type, shared.prompt), 0, 0, true},                                \
    {"add_special", field_boolean, offsetof(type, shared.add_special), 0, 0, false},                   \
    {"parse_special", field_boolean, offsetof(type, shared.parse_special), 0, 0, false}

/* ---- /logits ---- */

struct logits_reading {
    struct logits_request request;
    struct prompt_fields shared;
};

static enum status read_position_list(struct reader *r, struct json_value value, struct request_ids *list)
{
    struct json_value element;
    for (struct json_walk walk = json_walk(value); json_next(&walk, NULL, &element);) {
        int64_t position;
        r->index = walk.index;
        if (!json_integer(element, &position) || position < 0 || position > INT32_MAX)
            return field_refuse_value(r, element, "a position: an integer, at least 0");
        if (list->count && position <= list->data[list->count - 1])
            return field_refuse(r, PROBLEM_INVALID_REQUEST, "must be above the position before it: %d is not above %d",
                                (int)position, (int)list->data[list->count - 1]);
        enum status status = request_ids_push(r, list, (int32_t)position);
        if (status != STATUS_OK)
            return status;
    }
    r->index = SIZE_MAX;
    return list->count ? STATUS_OK : field_refuse(r, PROBLEM_INVALID_REQUEST, "must hold at least one position");
}

static enum status read_positions(struct reader *r, const struct field *f, struct json_value value, void *out)
{
    struct logits_request *request = FIELD_TARGET(struct logits_request, f, out);
    if (value.type == JSON_ARRAY) {
        request->positions = POSITIONS_LIST;
        return read_position_list(r, value, &request->list);
    }
    if (json_string_is(value, span_of("last")))
        request->positions = POSITIONS_LAST;
    else if (json_string_is(value, span_of("all")))
        request->positions = POSITIONS_ALL;
    else
        return field_refuse(r, PROBLEM_INVALID_REQUEST,
                            "must be \"last\", \"all\" or an ascending array of unique positions");
    return STATUS_OK;
}

static enum status read_format(struct reader *r, const struct field *f, struct json_value value, void *out)
{
    bool f32 = json_string_is(value, span_of("f32"));
    if (!f32 && !json_string_is(value, span_of("json")))
        return field_refuse(r, PROBLEM_INVALID_REQUEST, "must be \"json\" or \"f32\"");
    *FIELD_TARGET(bool, f, out) = f32;
    return STATUS_OK;
}

static const struct field logits_fields[] = {
    PROMPT_FIELDS(struct logits_reading),
    {"positions", read_positions, offsetof(struct logits_reading, request), 0, 0, false},
    {"top", field_unsigned, offsetof(struct logits_reading, request.top), 0, REQUEST_TOP_MAX, false},
    {"format", read_format, offsetof(struct logits_reading, request.f32), 0, 0, false},
    {"cache_prompt", field_boolean, offsetof(struct logits_reading, request.cache_prompt), 0, 0, false},
};

enum status logits_request_read(struct span body, const struct request_limits *limits, struct logits_request *out,
                                struct problem *problem)
{
    struct reader r = {.limits = limits, .problem = problem};
    struct logits_reading reading = {.request = {.top = 10, .cache_prompt = true},
                                     .shared = {.add_special = true, .parse_special = true}};
    enum status status = fields_read_body(&r, body, logits_fields, N_FIELDS(logits_fields), &reading);
    if (status == STATUS_OK)
        status = take_prompt(&r, &reading.shared, &reading.request.prompt);
    *out = reading.request;
    if (status != STATUS_OK)
        logits_request_clear(out);
    return status;
}

enum status logits_request_check(const struct logits_request *r, size_t n_tokens, struct problem *problem)
{
    if (r->positions != POSITIONS_LIST || (size_t)r->list.data[r->list.count - 1] < n_tokens)
        return STATUS_OK;
    size_t i = 0;
    while ((size_t)r->list.data[i] < n_tokens)
        i++;
    enum status status = problem_set(problem, PROBLEM_INVALID_REQUEST,
                                     "positions[%zu]: must be in 0..%zu for this prompt, not %d", i, n_tokens - 1,
                                     (int)r->list.data[i]);
    snprintf(problem->field, sizeof problem->field, "positions[%zu]", i);
    problem_member(problem, "prompt_tokens", (int64_t)n_tokens);
    return status;
}

void logits_request_clear(struct logits_request *r)
{
    prompt_clear(&r->prompt);
    ids_clear(&r->list);
    *r = (struct logits_request){0};
}

/* ---- /generate ---- */

struct generate_reading {
    struct generate_request request;
    struct prompt_fields shared;
    bool has_max_tokens;
};

static enum status read_max_tokens(struct reader *r, const struct field *f, struct json_value value, void *out)
{
    struct generate_reading *reading = out;
    if (reading->has_max_tokens)
        return field_refuse(r, PROBLEM_INVALID_REQUEST, "max_tokens and n_predict are names of one field: give one of them");
    struct field ranged = *f;
    ranged.high = r->limits->max_tokens_limit;
    reading->has_max_tokens = true;
    return field_unsigned(r, &ranged, value, out);
}

static enum status read_stop_tokens(struct reader *r, const struct field *f, struct json_value value, void *out)
{
    struct request_ids *ids = FIELD_TARGET(struct request_ids, f, out);
    enum status status = field_ids(r, f, value, out);
    if (status != STATUS_OK || ids->count == 0)
        return status;
    qsort(ids->data, ids->count, sizeof *ids->data, compare_ids);
    size_t n = 1;
    for (size_t i = 1; i < ids->count; i++)
        if (ids->data[i] != ids->data[n - 1])
            ids->data[n++] = ids->data[i];
    ids->count = n;
    return STATUS_OK;
}

static enum status read_id(struct reader *r, const struct field *f, struct json_value value, void *out)
{
    char *id = FIELD_TARGET(char, f, out);
    struct buffer text = {0};
    if (value.type == JSON_STRING)
        json_unescape(value, &text);
    bool lost = text.failed, valid = !lost && request_id_is_valid(buffer_span(&text));
    if (valid) {
        memcpy(id, text.data, text.size);
        id[text.size] = 0;
    }
    buffer_clear(&text);
    if (lost)
        return field_no_memory(r);
    if (valid)
        return STATUS_OK;
    return field_refuse(r, PROBLEM_INVALID_REQUEST, "must be a string matching [A-Za-z0-9._-]{1,64}");
}

static enum status read_temperature(struct reader *r, const struct field *f, struct json_value value, void *out)
{
    int64_t number;
    (void)f, (void)out;
    if (value.type != JSON_NUMBER)
        return field_refuse_value(r, value, "0");
    if (json_integer(value, &number) && number == 0)
        return STATUS_OK;
    return field_refuse(r, PROBLEM_NOT_IMPLEMENTED,
                        "generation is greedy, sampling is not implemented: only 0 is accepted");
}

static enum status refuse_sampling(struct reader *r, const struct field *f, struct json_value value, void *out)
{
    (void)f, (void)value, (void)out;
    return field_refuse(r, PROBLEM_NOT_IMPLEMENTED, "generation is greedy, sampling is not implemented");
}

#define SAMPLING(name) {name, refuse_sampling, SIZE_MAX, 0, 0, false}
#define TARGET(member) offsetof(struct generate_reading, request.member)

static const struct field generate_fields[] = {
    PROMPT_FIELDS(struct generate_reading),
    {"max_tokens", read_max_tokens, TARGET(max_tokens), 0, 0, false},
    {"n_predict", read_max_tokens, TARGET(max_tokens), 0, 0, false},
    {"stop", field_stops, TARGET(stop), 0, 0, false},
    {"stop_tokens", read_stop_tokens, TARGET(stop_tokens), 0, 0, false},
    {"ignore_eos", field_boolean, TARGET(ignore_eos), 0, 0, false},
    {"stream", field_boolean, TARGET(stream), 0, 0, false},
    {"logprobs", field_unsigned, TARGET(logprobs), 0, REQUEST_TOP_MAX, false},
    {"progress", field_boolean, TARGET(progress), 0, 0, false},
    {"deadline_ms", field_unsigned, TARGET(deadline_ms), 0, REQUEST_DEADLINE_MS_MAX, false},
    {"cache_prompt", field_boolean, TARGET(cache_prompt), 0, 0, false},
    {"id", read_id, TARGET(id), 0, 0, false},
    {"temperature", read_temperature, TARGET(max_tokens), 0, 0, false}, /* nothing is stored */
    SAMPLING("top_k"), SAMPLING("top_p"), SAMPLING("min_p"), SAMPLING("typical_p"), SAMPLING("tfs_z"),
    SAMPLING("top_n_sigma"), SAMPLING("seed"), SAMPLING("repeat_penalty"), SAMPLING("repeat_last_n"),
    SAMPLING("penalize_nl"), SAMPLING("presence_penalty"), SAMPLING("frequency_penalty"), SAMPLING("mirostat"),
    SAMPLING("mirostat_tau"), SAMPLING("mirostat_eta"), SAMPLING("dynatemp_range"), SAMPLING("dynatemp_exponent"),
    SAMPLING("dry_multiplier"), SAMPLING("dry_base"), SAMPLING("dry_allowed_length"), SAMPLING("dry_penalty_last_n"),
    SAMPLING("dry_sequence_breakers"), SAMPLING("xtc_probability"), SAMPLING("xtc_threshold"), SAMPLING("logit_bias"),
    SAMPLING("samplers"), SAMPLING("grammar"), SAMPLING("json_schema"), SAMPLING("n"), SAMPLING("best_of"),
};
_Static_assert(N_FIELDS(generate_fields) <= 64, "fields_read keeps seen fields in 64 bits");

enum status generate_request_read(struct span body, const struct request_limits *limits, struct generate_request *out,
                                  struct problem *problem)
{
    struct reader r = {.limits = limits, .problem = problem};
    struct generate_reading reading = {
        .request = {.max_tokens = limits->max_tokens, .stream = true, .cache_prompt = true},
        .shared = {.add_special = true, .parse_special = true}};
    enum status status = fields_read_body(&r, body, generate_fields, N_FIELDS(generate_fields), &reading);
    if (status == STATUS_OK)
        status = take_prompt(&r, &reading.shared, &reading.request.prompt);
    *out = reading.request;
    if (status != STATUS_OK)
        generate_request_clear(out);
    return status;
}

void generate_request_clear(struct generate_request *r)
{
    prompt_clear(&r->prompt);
    buffer_clear(&r->stop.bytes);
    ids_clear(&r->stop_tokens);
    *r = (struct generate_request){0};
}
