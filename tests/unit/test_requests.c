/* proto/requests and proto/openai: defaults, every limit and the value beyond it, and what is refused by name. */
#include "proto/requests.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/openai.h"
#include "tests/support/suite.h"

static const struct request_limits limits = {.n_vocab = 32000, .max_tokens = 128, .max_tokens_limit = 4096};

/* ---- one way to ask all routes ---- */

enum route { TOKENIZE, DETOKENIZE, LOGITS, GENERATE, COMPLETIONS };

static enum status read_route(enum route route, struct span body, struct problem *problem)
{
    struct tokenize_request tokenize;
    struct detokenize_request detokenize;
    struct logits_request logits;
    struct generate_request generate;
    struct openai_request completions;
    enum status status = STATUS_OK;
    *problem = (struct problem){0};
    switch (route) {
    case TOKENIZE:
        status = tokenize_request_read(body, &tokenize, problem);
        tokenize_request_clear(&tokenize);
        break;
    case DETOKENIZE:
        status = detokenize_request_read(body, &limits, &detokenize, problem);
        detokenize_request_clear(&detokenize);
        break;
    case LOGITS:
        status = logits_request_read(body, &limits, &logits, problem);
        logits_request_clear(&logits);
        break;
    case GENERATE:
        status = generate_request_read(body, &limits, &generate, problem);
        generate_request_clear(&generate);
        break;
    case COMPLETIONS:
        status = openai_request_read(body, &limits, &completions, problem);
        openai_request_clear(&completions);
        break;
    }
    return status;
}

struct case_row {
    enum route route;
    const char *body;
    const char *says; /* NULL: accepted */
    enum problem_kind kind; /* 0: INVALID_REQUEST */
};

static void run_cases(const struct case_row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct problem p;
        size_t size = strlen(rows[i].body);
        char *copy = malloc(size + 1); /* exact: ASan sees reads beyond */
        memcpy(copy, rows[i].body, size);
        enum status status = read_route(rows[i].route, (struct span){copy, size}, &p);
        free(copy);
        if (!rows[i].says) {
            if (status != STATUS_OK)
                ck_abort_msg("%s: %s", rows[i].body, p.detail);
            continue;
        }
        enum problem_kind kind = rows[i].kind ? rows[i].kind : PROBLEM_INVALID_REQUEST;
        if (status == STATUS_OK || p.kind != kind || !strstr(p.detail, rows[i].says))
            ck_abort_msg("%s: status %d, %s, \"%s\" should say \"%s\"", rows[i].body, (int)status, problem_name(p.kind),
                         p.detail, rows[i].says);
    }
}
#define RUN(rows) run_cases(rows, sizeof(rows) / sizeof(rows)[0])

/* ---- all routes ---- */

TEST(every_route_refuses_what_is_no_json_object)
{
    static const char *const bodies[] = {"", "{", "[1]x", "{\"a\":1,}", "{\"a\":01}", "{'a':1}", "{\"a\":NaN}", "\xff"};
    static const char *const values[] = {"[]", "null", "\"prompt\"", "1", "true"};
    struct problem p;
    for (int route = TOKENIZE; route <= COMPLETIONS; route++) {
        for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++)
            if (read_route((enum route)route, span_of(bodies[i]), &p) == STATUS_OK || p.kind != PROBLEM_INVALID_JSON)
                ck_abort_msg("route %d: %s", route, bodies[i]);
        for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
            if (read_route((enum route)route, span_of(values[i]), &p) == STATUS_OK ||
                p.kind != PROBLEM_INVALID_REQUEST || !strstr(p.detail, "must be an object"))
                ck_abort_msg("route %d: %s", route, values[i]);
        if (read_route((enum route)route, (struct span){0}, &p) == STATUS_OK)
            ck_abort_msg("route %d: no body", route);
    }
}
END

TEST(every_route_refuses_unknown_missing_and_duplicate_fields)
{
    static const struct case_row rows[] = {
        {TOKENIZE, "{}", "content: is required", 0},
        {DETOKENIZE, "{}", "tokens: is required", 0},
        {LOGITS, "{}", "prompt: is required", 0},
        {GENERATE, "{}", "prompt: is required", 0},
        {COMPLETIONS, "{}", "prompt: is required", 0},
        {TOKENIZE, "{\"content\":\"a\",\"contents\":1}", "contents: is not a field of this request (content, add_special, parse_special, with_pieces)", 0},
        {DETOKENIZE, "{\"tokens\":[],\"x\":{\"y\":[1]}}", "x: is not a field", 0},
        {LOGITS, "{\"prompt\":\"a\",\"stream\":true}", "stream: is not a field", 0},
        {GENERATE, "{\"prompt\":\"a\",\"max_token\":1}", "max_token: is not a field", 0},
        {GENERATE, "{\"prompt\":\"a\",\"positions\":\"all\"}", "positions: is not a field", 0},
        {COMPLETIONS, "{\"prompt\":\"a\",\"top_k\":1}", "top_k: is not a field", 0},
        {COMPLETIONS, "{\"prompt\":\"a\",\"messages\":[]}", "messages: is not a field", 0},
        {GENERATE, "{\"prompt\":\"a\",\"\\u001b[2J\":1}", "\\x5cu001b[2J: is not a field", 0},
        {GENERATE, "{\"prompt\":\"a\",\"prompt\":\"b\"}", "prompt: a duplicate key", PROBLEM_INVALID_JSON},
        {GENERATE, "{\"prompt\":\"a\",\"pr\\u006fmpt\":\"b\"}", "a duplicate key", PROBLEM_INVALID_JSON},
        {GENERATE, "{\"pr\\u006fmpt\":\"b\"}", NULL, 0},
        {GENERATE, "{\"prompt\":[{\"text\":\"a\",\"text\":\"a\"}]}", "a duplicate key", PROBLEM_INVALID_JSON},
    };
    RUN(rows);
}
END

TEST(wrong_types_are_refused_by_field)
{
    static const struct {
        enum route route;
        const char *base, *fields, *accepts; /* accepts: kinds of values, a letter each */
    } rows[] = {
        {TOKENIZE, "", "content", "s"},
        {TOKENIZE, "\"content\":\"a\",", "add_special,parse_special,with_pieces", "b"},
        {DETOKENIZE, "", "tokens", "a"},
        {LOGITS, "\"prompt\":\"a\",", "add_special,parse_special,cache_prompt", "b"},
        {LOGITS, "\"prompt\":\"a\",", "top", "i"},
        {LOGITS, "\"prompt\":\"a\",", "format,positions", ""},
        {GENERATE, "\"prompt\":\"a\",", "add_special,parse_special,cache_prompt,ignore_eos,stream,progress", "b"},
        {GENERATE, "\"prompt\":\"a\",", "max_tokens,n_predict,logprobs,deadline_ms", "i"},
        {GENERATE, "\"prompt\":\"a\",", "stop", "sa"},
        {GENERATE, "\"prompt\":\"a\",", "stop_tokens", "a"},
        {GENERATE, "\"prompt\":\"a\",", "id", "s"},
        {COMPLETIONS, "\"prompt\":\"a\",", "echo,stream", "bn"},
        {COMPLETIONS, "\"prompt\":\"a\",", "max_tokens,logprobs,seed", "in"},
        {COMPLETIONS, "\"prompt\":\"a\",", "stop", "san"},
        {COMPLETIONS, "\"prompt\":\"a\",", "model,user", "sn"},
        {COMPLETIONS, "\"prompt\":\"a\",", "temperature,top_p,n,best_of,presence_penalty,frequency_penalty,suffix,logit_bias,stream_options", "n"},
    };
    static const struct {
        char kind;
        const char *text;
    } values[] = {{'s', "\"x\""}, {'b', "true"}, {'i', "3"}, {'a', "[]"}, {'n', "null"}, {'o', "{\"a\":1}"}, {'f', "1.5"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        for (const char *field = rows[i].fields; *field; field += strcspn(field, ",") + (field[strcspn(field, ",")] != 0))
            for (size_t v = 0; v < sizeof values / sizeof values[0]; v++) {
                char body[256], name[64];
                struct problem p;
                snprintf(name, sizeof name, "%.*s", (int)strcspn(field, ","), field);
                snprintf(body, sizeof body, "{%s\"%s\":%s}", rows[i].base, name, values[v].text);
                bool good = strchr(rows[i].accepts, values[v].kind);
                enum status status = read_route(rows[i].route, span_of(body), &p);
                if ((status == STATUS_OK) != good)
                    ck_abort_msg("%s: %s", body, p.detail);
                if (!good && (strncmp(p.detail, name, strlen(name)) != 0 || strncmp(p.field, name, strlen(name)) != 0))
                    ck_abort_msg("%s: \"%s\" (%s) does not name the field", body, p.detail, p.field);
            }
}
END

/* ---- prompts ---- */

TEST(a_prompt_keeps_text_ids_and_their_order)
{
    struct generate_request r;
    struct problem p;
    static const char body[] = "{\"prompt\":[\"a\\u0000b\",1,2.0,31999,{\"text\":\"<|x|>\",\"parse_special\":false},\"\",7,"
                               "{\"parse_special\":true,\"text\":\"z\"},{\"text\":\"d\"}],\"parse_special\":false,\"add_special\":false}";
    ck_assert_int_eq(generate_request_read(span_of(body), &limits, &r, &p), STATUS_OK);
    static const struct {
        bool is_ids, parse_special;
        const char *text;
        size_t n;
    } want[] = {{false, false, "a\0b", 3}, {true, false, NULL, 3}, {false, false, "<|x|>", 5}, {false, false, "", 0},
                {true, false, NULL, 1}, {false, true, "z", 1}, {false, false, "d", 1}};
    ck_assert_uint_eq(r.prompt.n_parts, 7);
    ck_assert(!r.prompt.add_special);
    for (size_t i = 0; i < 7; i++) {
        const struct prompt_part *part = &r.prompt.parts[i];
        ck_assert(part->is_ids == want[i].is_ids && part->parse_special == want[i].parse_special && part->count == want[i].n);
        if (!part->is_ids)
            ck_assert(span_equal(prompt_part_text(&r.prompt, part), (struct span){want[i].text, want[i].n}));
    }
    static const int32_t ids[] = {1, 2, 31999, 7};
    ck_assert_uint_eq(r.prompt.ids.count, 4);
    ck_assert(memcmp(r.prompt.ids.data, ids, sizeof ids) == 0);
    ck_assert_ptr_eq(prompt_part_ids(&r.prompt, &r.prompt.parts[4]), r.prompt.ids.data + 3);
    generate_request_clear(&r);
}
END

TEST(a_default_may_stand_behind_the_prompt_it_is_for)
{
    static const char *const bodies[] = {"{\"prompt\":\"a\",\"parse_special\":false}", "{\"parse_special\":false,\"prompt\":\"a\"}"};
    for (size_t i = 0; i < 2; i++) {
        struct logits_request r;
        struct problem p;
        ck_assert_int_eq(logits_request_read(span_of(bodies[i]), &limits, &r, &p), STATUS_OK);
        ck_assert(r.prompt.n_parts == 1 && !r.prompt.parts[0].parse_special && r.prompt.add_special);
        logits_request_clear(&r);
    }
}
END

TEST(a_bad_prompt_is_refused_by_index_and_value)
{
    for (int route = LOGITS; route <= GENERATE; route++) {
        const struct case_row rows[] = {
            {(enum route)route, "{\"prompt\":\"\"}", NULL, 0}, /* a BOS may make it a prompt */
            {(enum route)route, "{\"prompt\":[\"\"]}", NULL, 0},
            {(enum route)route, "{\"prompt\":[]}", "prompt: holds no token", 0},
            {(enum route)route, "{\"prompt\":[0]}", NULL, 0},
            {(enum route)route, "{\"prompt\":[31999]}", NULL, 0},
            {(enum route)route, "{\"prompt\":[32000]}", "prompt[0]: must be a token id in 0..31999, not 32000", 0},
            {(enum route)route, "{\"prompt\":[1,-1]}", "prompt[1]: must be a token id in 0..31999, not -1", 0},
            {(enum route)route, "{\"prompt\":[1,2,1e30]}", "prompt[2]: must be a token id in 0..31999, not 1e30", 0},
            {(enum route)route, "{\"prompt\":[4294967297]}", "prompt[0]: must be a token id", 0},
            {(enum route)route, "{\"prompt\":[1.5]}", "prompt[0]: must be a token id in 0..31999, not 1.5", 0},
            {(enum route)route, "{\"prompt\":[[1]]}", "prompt[0]: must be a string, a token id", 0},
            {(enum route)route, "{\"prompt\":[[-1]]}", "prompt[0]: must be", 0},
            {(enum route)route, "{\"prompt\":[null]}", "prompt[0]: must be", 0},
            {(enum route)route, "{\"prompt\":[true]}", "not a boolean", 0},
            {(enum route)route, "{\"prompt\":{\"text\":\"a\"}}", "prompt: must be a string or an array", 0},
            {(enum route)route, "{\"prompt\":null}", "prompt: must be", 0},
            {(enum route)route, "{\"prompt\":5}", "prompt: must be", 0},
            {(enum route)route, "{\"prompt\":[\"a\",{}]}", "prompt[1].text: is required", 0},
            {(enum route)route, "{\"prompt\":[{\"text\":1}]}", "prompt[0].text: must be a string, not 1", 0},
            {(enum route)route, "{\"prompt\":[{\"text\":\"a\",\"special\":true}]}", "prompt[0].special: is not a field", 0},
            {(enum route)route, "{\"prompt\":[{\"text\":\"a\",\"parse_special\":1}]}", "prompt[0].parse_special: must be a boolean", 0},
        };
        RUN(rows);
    }
    struct problem p;
    read_route(GENERATE, span_of("{\"prompt\":[1,-1]}"), &p);
    ck_assert_str_eq(p.field, "prompt[1]");
}
END

/* ---- each route ---- */

TEST(tokenize_has_the_defaults_of_llama_server)
{
    struct tokenize_request r;
    struct problem p;
    ck_assert_int_eq(tokenize_request_read(span_of("{\"content\":\"a\\u0000b\"}"), &r, &p), STATUS_OK);
    ck_assert(span_equal(buffer_span(&r.content), (struct span){"a\0b", 3}));
    ck_assert(!r.add_special && r.parse_special && !r.with_pieces);
    tokenize_request_clear(&r);
    ck_assert_int_eq(tokenize_request_read(
                         span_of("{\"with_pieces\":true,\"add_special\":true,\"parse_special\":false,\"content\":\"\"}"), &r, &p),
                     STATUS_OK);
    ck_assert(r.add_special && !r.parse_special && r.with_pieces && r.content.size == 0);
    tokenize_request_clear(&r);
}
END

TEST(detokenize_takes_ids_of_the_vocabulary)
{
    struct detokenize_request r;
    struct problem p;
    ck_assert_int_eq(detokenize_request_read(span_of("{\"tokens\":[403,407,0]}"), &limits, &r, &p), STATUS_OK);
    ck_assert(r.tokens.count == 3 && r.tokens.data[0] == 403 && r.tokens.data[2] == 0);
    detokenize_request_clear(&r);
    static const struct case_row rows[] = {
        {DETOKENIZE, "{\"tokens\":[]}", NULL, 0},
        {DETOKENIZE, "{\"tokens\":[1,32000]}", "tokens[1]: must be a token id in 0..31999, not 32000", 0},
        {DETOKENIZE, "{\"tokens\":[\"a\"]}", "tokens[0]: must be a token id in 0..31999, not a string", 0},
        {DETOKENIZE, "{\"tokens\":[[1]]}", "tokens[0]: must be", 0},
    };
    RUN(rows);
}
END

TEST(logits_defaults_and_limits)
{
    struct logits_request r;
    struct problem p;
    ck_assert_int_eq(logits_request_read(span_of("{\"prompt\":\"a\"}"), &limits, &r, &p), STATUS_OK);
    ck_assert(r.positions == POSITIONS_LAST && r.top == 10 && !r.f32 && r.cache_prompt && r.prompt.parts[0].parse_special);
    logits_request_clear(&r);
    ck_assert_int_eq(logits_request_read(span_of("{\"prompt\":[5,6,7],\"positions\":[0,2],\"top\":100,\"format\":\"f32\","
                                                 "\"cache_prompt\":false}"), &limits, &r, &p), STATUS_OK);
    ck_assert(r.positions == POSITIONS_LIST && r.list.count == 2 && r.list.data[1] == 2 && r.top == 100 && r.f32 &&
              !r.cache_prompt);
    ck_assert_int_eq(logits_request_check(&r, 3, &p), STATUS_OK);
    ck_assert_int_eq(logits_request_check(&r, 2, &p), STATUS_INVALID);
    ck_assert_str_eq(p.detail, "positions[1]: must be in 0..1 for this prompt, not 2");
    ck_assert_int_eq(problem_member_value(&p, "prompt_tokens", 0), 2);
    logits_request_clear(&r);
    static const struct case_row rows[] = {
        {LOGITS, "{\"prompt\":\"a\",\"top\":0}", NULL, 0},
        {LOGITS, "{\"prompt\":\"a\",\"top\":100.0}", NULL, 0},
        {LOGITS, "{\"prompt\":\"a\",\"top\":101}", "top: must be an integer in 0..100, not 101", 0},
        {LOGITS, "{\"prompt\":\"a\",\"top\":-1}", "top: must be an integer in 0..100, not -1", 0},
        {LOGITS, "{\"prompt\":\"a\",\"top\":0.5}", "top: must be an integer in 0..100, not 0.5", 0},
        {LOGITS, "{\"prompt\":\"a\",\"positions\":\"all\"}", NULL, 0},
        {LOGITS, "{\"prompt\":\"a\",\"positions\":\"last\"}", NULL, 0},
        {LOGITS, "{\"prompt\":\"a\",\"positions\":null}", "positions: must be \"last\", \"all\"", 0},
        {LOGITS, "{\"prompt\":\"a\",\"positions\":\"first\"}", "positions: must be \"last\", \"all\"", 0},
        {LOGITS, "{\"prompt\":\"a\",\"positions\":[]}", "positions: must hold at least one", 0},
        {LOGITS, "{\"prompt\":\"a\",\"positions\":[0]}", NULL, 0},
        {LOGITS, "{\"prompt\":\"a\",\"positions\":[0,0]}", "positions[1]: must be above the position before it: 0 is not above 0", 0},
        {LOGITS, "{\"prompt\":\"a\",\"positions\":[3,1]}", "positions[1]: must be above", 0},
        {LOGITS, "{\"prompt\":\"a\",\"positions\":[-1]}", "positions[0]: must be a position", 0},
        {LOGITS, "{\"prompt\":\"a\",\"positions\":[2147483647]}", NULL, 0},
        {LOGITS, "{\"prompt\":\"a\",\"positions\":[2147483648]}", "positions[0]: must be a position", 0},
        {LOGITS, "{\"prompt\":\"a\",\"positions\":[1.5]}", "positions[0]: must be a position: an integer, at least 0, not 1.5", 0},
        {LOGITS, "{\"prompt\":\"a\",\"format\":\"F32\"}", "format: must be \"json\" or \"f32\"", 0},
        {LOGITS, "{\"prompt\":\"a\",\"format\":\"json\"}", NULL, 0},
    };
    RUN(rows);
}
END

TEST(generate_has_its_defaults)
{
    struct generate_request r;
    struct problem p;
    ck_assert_int_eq(generate_request_read(span_of("{\"prompt\":\"a\"}"), &limits, &r, &p), STATUS_OK);
    ck_assert(r.max_tokens == 128 && r.stream && r.cache_prompt && !r.ignore_eos && !r.progress && r.logprobs == 0 &&
              r.deadline_ms == 0 && r.stop.count == 0 && r.stop_tokens.count == 0 && r.id[0] == 0 && r.prompt.add_special);
    generate_request_clear(&r);
    static const char body[] = "{\"id\":\"job-7\",\"prompt\":\"a\",\"max_tokens\":0,\"stop\":[\"\\n\\n\",\"\\u0000\"],"
                               "\"stop_tokens\":[5,2,5,2,9],\"ignore_eos\":true,\"stream\":false,\"logprobs\":3,\"progress\":true,"
                               "\"deadline_ms\":1500,\"cache_prompt\":false,\"temperature\":0}";
    ck_assert_int_eq(generate_request_read(span_of(body), &limits, &r, &p), STATUS_OK);
    ck_assert(r.max_tokens == 0 && !r.stream && !r.cache_prompt && r.ignore_eos && r.progress && r.logprobs == 3 &&
              r.deadline_ms == 1500);
    ck_assert_str_eq(r.id, "job-7");
    ck_assert_uint_eq(r.stop.count, 2);
    ck_assert(span_is(stop_string(&r.stop, 0), "\n\n") && span_equal(stop_string(&r.stop, 1), (struct span){"\0", 1}));
    ck_assert_uint_eq(r.stop_tokens.count, 3);
    ck_assert(request_ids_has(&r.stop_tokens, 2) && request_ids_has(&r.stop_tokens, 9) && !request_ids_has(&r.stop_tokens, 3));
    generate_request_clear(&r);
}
END

TEST(generate_limits)
{
    static const struct case_row rows[] = {
        {GENERATE, "{\"prompt\":\"a\",\"max_tokens\":4096}", NULL, 0},
        {GENERATE, "{\"prompt\":\"a\",\"max_tokens\":4097}", "max_tokens: must be an integer in 0..4096, not 4097", 0},
        {GENERATE, "{\"prompt\":\"a\",\"max_tokens\":-1}", "max_tokens: must be an integer in 0..4096, not -1", 0},
        {GENERATE, "{\"prompt\":\"a\",\"max_tokens\":128.0}", NULL, 0},
        {GENERATE, "{\"prompt\":\"a\",\"max_tokens\":1.5}", "max_tokens: must be an integer in 0..4096, not 1.5", 0},
        {GENERATE, "{\"prompt\":\"a\",\"n_predict\":4096}", NULL, 0},
        {GENERATE, "{\"prompt\":\"a\",\"n_predict\":4097}", "n_predict: must be an integer", 0},
        {GENERATE, "{\"prompt\":\"a\",\"n_predict\":-1}", "n_predict: must be an integer in 0..4096, not -1", 0},
        {GENERATE, "{\"prompt\":\"a\",\"n_predict\":1,\"max_tokens\":1}", "max_tokens: max_tokens and n_predict are names of one field", 0},
        {GENERATE, "{\"prompt\":\"a\",\"max_tokens\":1,\"n_predict\":1}", "n_predict: max_tokens and n_predict are names of one field", 0},
        {GENERATE, "{\"prompt\":\"a\",\"logprobs\":100}", NULL, 0},
        {GENERATE, "{\"prompt\":\"a\",\"logprobs\":101}", "logprobs: must be an integer in 0..100, not 101", 0},
        {GENERATE, "{\"prompt\":\"a\",\"deadline_ms\":86400000}", NULL, 0},
        {GENERATE, "{\"prompt\":\"a\",\"deadline_ms\":86400001}", "deadline_ms: must be an integer in 0..86400000", 0},
        {GENERATE, "{\"prompt\":\"a\",\"stop\":\"\"}", "stop: must have 1..256 bytes, not 0", 0},
        {GENERATE, "{\"prompt\":\"a\",\"stop\":[\"a\",\"\"]}", "stop[1]: must have 1..256 bytes, not 0", 0},
        {GENERATE, "{\"prompt\":\"a\",\"stop\":[]}", NULL, 0},
        {GENERATE, "{\"prompt\":\"a\",\"stop\":[1]}", "stop[0]: must be a string, not 1", 0},
        {GENERATE, "{\"prompt\":\"a\",\"stop_tokens\":[]}", NULL, 0},
        {GENERATE, "{\"prompt\":\"a\",\"stop_tokens\":[31999]}", NULL, 0},
        {GENERATE, "{\"prompt\":\"a\",\"stop_tokens\":[0,32000]}", "stop_tokens[1]: must be a token id in 0..31999, not 32000", 0},
        {GENERATE, "{\"prompt\":\"a\",\"id\":\"\"}", "id: must be a string matching", 0},
        {GENERATE, "{\"prompt\":\"a\",\"id\":\"a b\"}", "id: must be a string matching", 0},
        {GENERATE, "{\"prompt\":\"a\",\"id\":\"a\\u0000\"}", "id: must be a string matching", 0},
        {GENERATE, "{\"prompt\":\"a\",\"id\":\"A.z_0-9\"}", NULL, 0},
    };
    RUN(rows);
    char body[8192], text[300];
    struct problem p;
    for (size_t n = 256; n <= 257; n++) {
        memset(text, 'x', n);
        text[n] = 0;
        snprintf(body, sizeof body, "{\"prompt\":\"a\",\"stop\":\"%s\"}", text);
        ck_assert_int_eq(read_route(GENERATE, span_of(body), &p) == STATUS_OK, n == 256);
    }
    for (size_t n = 64; n <= 65; n++) {
        text[n] = 0;
        memset(text, 'x', n);
        snprintf(body, sizeof body, "{\"prompt\":\"a\",\"id\":\"%s\"}", text);
        ck_assert_int_eq(read_route(GENERATE, span_of(body), &p) == STATUS_OK, n == 64);
    }
    for (size_t n = 16; n <= 17; n++) {
        size_t at = (size_t)snprintf(body, sizeof body, "{\"prompt\":\"a\",\"stop\":[\"s\"");
        for (size_t i = 1; i < n; i++)
            at += (size_t)snprintf(body + at, sizeof body - at, ",\"s\"");
        snprintf(body + at, sizeof body - at, "]}");
        ck_assert_int_eq(read_route(GENERATE, span_of(body), &p) == STATUS_OK, n == 16);
    }
    ck_assert_str_eq(p.detail, "stop: must hold at most 16 strings");
}
END

TEST(sampling_is_refused_by_name)
{
    static const char *const fields[] = {"top_k", "top_p", "min_p", "typical_p", "seed", "repeat_penalty", "mirostat",
                                         "grammar", "json_schema", "logit_bias", "presence_penalty", "samplers", "dry_base"};
    struct problem p;
    char body[128], says[128];
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        snprintf(body, sizeof body, "{\"prompt\":\"a\",\"%s\":1}", fields[i]);
        snprintf(says, sizeof says, "%s: generation is greedy", fields[i]);
        ck_assert_int_eq(read_route(GENERATE, span_of(body), &p), STATUS_UNSUPPORTED);
        ck_assert_int_eq(p.kind, PROBLEM_NOT_IMPLEMENTED);
        ck_assert_int_eq(strncmp(p.detail, says, strlen(says)), 0);
    }
    static const struct case_row rows[] = {
        {GENERATE, "{\"prompt\":\"a\",\"temperature\":0}", NULL, 0},
        {GENERATE, "{\"prompt\":\"a\",\"temperature\":0.0}", NULL, 0},
        {GENERATE, "{\"prompt\":\"a\",\"temperature\":-0e5}", NULL, 0},
        {GENERATE, "{\"prompt\":\"a\",\"temperature\":0.8}", "only 0 is accepted", PROBLEM_NOT_IMPLEMENTED},
        {GENERATE, "{\"prompt\":\"a\",\"temperature\":1e-400}", "only 0 is accepted", PROBLEM_NOT_IMPLEMENTED},
        {GENERATE, "{\"prompt\":\"a\",\"temperature\":1}", "only 0 is accepted", PROBLEM_NOT_IMPLEMENTED},
        {GENERATE, "{\"prompt\":\"a\",\"temperature\":\"0\"}", "temperature: must be 0, not a string", 0},
    };
    RUN(rows);
}
END

/* ---- OpenAI's interface ---- */

TEST(completions_take_prompts_in_four_forms)
{
    static const struct {
        const char *prompt;
        size_t n, parts; /* parts of the last prompt */
        bool ids;
        const char *last; /* text of the last prompt */
        size_t n_ids;
    } rows[] = {{"\"a\"", 1, 1, false, "a", 0},           {"\"\"", 1, 1, false, "", 0},
                {"[\"a\",\"bc\"]", 2, 1, false, "bc", 0}, {"[1,2,3]", 1, 1, true, "", 3},
                {"[[1],[2,3]]", 2, 1, true, "", 2}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct openai_request r;
        struct problem p;
        char body[128];
        snprintf(body, sizeof body, "{\"prompt\":%s}", rows[i].prompt);
        ck_assert_int_eq(openai_request_read(span_of(body), &limits, &r, &p), STATUS_OK);
        ck_assert_uint_eq(r.n_prompts, rows[i].n);
        const struct prompt *last = &r.prompts[r.n_prompts - 1];
        ck_assert(last->n_parts == rows[i].parts && last->parts[0].is_ids == rows[i].ids && last->ids.count == rows[i].n_ids);
        ck_assert(span_is((struct span){last->text.data ? last->text.data : "", last->text.size}, rows[i].last));
        ck_assert(last->add_special);
        openai_request_clear(&r);
    }
    static const struct case_row bad[] = {
        {COMPLETIONS, "{\"prompt\":[]}", "prompt: holds no token", 0},
        {COMPLETIONS, "{\"prompt\":[[]]}", "prompt[0]: holds no token", 0},
        {COMPLETIONS, "{\"prompt\":[[1],[]]}", "prompt[1]: holds no token", 0},
        {COMPLETIONS, "{\"prompt\":[1,\"a\"]}", "prompt[1]: must be a token id in 0..31999, not a string", 0},
        {COMPLETIONS, "{\"prompt\":[\"a\",1]}", "prompt[1]: must be a string, like the prompts before it", 0},
        {COMPLETIONS, "{\"prompt\":[[1],2]}", "prompt[1]: must be an array of ids", 0},
        {COMPLETIONS, "{\"prompt\":[[1],[2,-1]]}", "prompt[1][1]: must be a token id in 0..31999, not -1", 0},
        {COMPLETIONS, "{\"prompt\":[32000]}", "prompt[0]: must be a token id in 0..31999, not 32000", 0},
        {COMPLETIONS, "{\"prompt\":{\"text\":\"a\"}}", "prompt: must be a string, or an array", 0},
        {COMPLETIONS, "{\"prompt\":null}", "prompt: is required", 0},
    };
    RUN(bad);
    for (size_t n = OPENAI_PROMPTS_MAX; n <= OPENAI_PROMPTS_MAX + 1; n++) {
        struct buffer b = {0};
        struct problem p;
        buffer_text(&b, "{\"prompt\":[");
        for (size_t i = 0; i < n; i++)
            buffer_text(&b, i ? ",\"a\"" : "\"a\"");
        buffer_text(&b, "]}");
        ck_assert_int_eq(read_route(COMPLETIONS, buffer_span(&b), &p) == STATUS_OK, n == OPENAI_PROMPTS_MAX);
        buffer_clear(&b);
    }
}
END

TEST(completions_are_greedy_only)
{
    static const struct case_row rows[] = {
        {COMPLETIONS, "{\"prompt\":\"a\",\"temperature\":0,\"top_p\":1,\"n\":1,\"best_of\":1,\"presence_penalty\":0,"
                      "\"frequency_penalty\":0.0,\"logit_bias\":{},\"suffix\":\"\",\"model\":\"m\",\"user\":\"u\",\"seed\":-5}", NULL, 0},
        {COMPLETIONS, "{\"prompt\":\"a\",\"temperature\":null,\"top_p\":null,\"n\":null,\"best_of\":null,\"max_tokens\":null,"
                      "\"logprobs\":null,\"echo\":null,\"stop\":null,\"stream\":null,\"stream_options\":null,\"suffix\":null,"
                      "\"logit_bias\":null,\"user\":null,\"seed\":null,\"model\":null}", NULL, 0},
        {COMPLETIONS, "{\"prompt\":\"a\",\"temperature\":0.7}", "temperature: generation is greedy only: must be 0 or absent", 0},
        {COMPLETIONS, "{\"prompt\":\"a\",\"temperature\":1}", "greedy only", 0},
        {COMPLETIONS, "{\"prompt\":\"a\",\"top_p\":0.9}", "top_p: generation is greedy only: must be 1 or absent", 0},
        {COMPLETIONS, "{\"prompt\":\"a\",\"n\":2}", "n: generation is greedy only", 0},
        {COMPLETIONS, "{\"prompt\":\"a\",\"best_of\":2}", "best_of: generation", 0},
        {COMPLETIONS, "{\"prompt\":\"a\",\"logit_bias\":{\"5\":1}}", "logit_bias: generation", 0},
        {COMPLETIONS, "{\"prompt\":\"a\",\"suffix\":\"b\"}", "suffix: insertion is not implemented", 0},
        {COMPLETIONS, "{\"prompt\":\"a\",\"logprobs\":100}", NULL, 0},
        {COMPLETIONS, "{\"prompt\":\"a\",\"logprobs\":101}", "logprobs: must be an integer in 0..100", 0},
        {COMPLETIONS, "{\"prompt\":\"a\",\"max_tokens\":4096}", NULL, 0},
        {COMPLETIONS, "{\"prompt\":\"a\",\"max_tokens\":4097}", "max_tokens: must be an integer in 0..4096", 0},
        {COMPLETIONS, "{\"prompt\":\"a\",\"stream\":true,\"stream_options\":{\"include_usage\":true}}", NULL, 0},
        {COMPLETIONS, "{\"prompt\":\"a\",\"stream\":true,\"stream_options\":{\"x\":true}}", "stream_options.x: is not a field", 0},
        {COMPLETIONS, "{\"prompt\":\"a\",\"stream_options\":{\"include_usage\":true}}", "stream_options: only with", 0},
    };
    RUN(rows);
    struct openai_request r;
    struct problem p;
    ck_assert_int_eq(openai_request_read(span_of("{\"prompt\":\"a\"}"), &limits, &r, &p), STATUS_OK);
    ck_assert(r.max_tokens == 16 && !r.has_logprobs && !r.echo && !r.stream && !r.include_usage && r.stop.count == 0);
    openai_request_clear(&r);
    ck_assert_int_eq(openai_request_read(span_of("{\"prompt\":\"a\",\"logprobs\":0,\"echo\":true,\"stream\":true,\"stop\":\"x\","
                                                 "\"max_tokens\":0,\"stream_options\":{\"include_usage\":true}}"), &limits, &r, &p),
                     STATUS_OK);
    ck_assert(r.max_tokens == 0 && r.has_logprobs && r.logprobs == 0 && r.echo && r.stream && r.include_usage && r.stop.count == 1);
    openai_request_clear(&r);
    struct request_limits few = {.n_vocab = 10, .max_tokens = 4, .max_tokens_limit = 8};
    ck_assert_int_eq(openai_request_read(span_of("{\"prompt\":\"a\"}"), &few, &r, &p), STATUS_OK);
    ck_assert_uint_eq(r.max_tokens, 8);
    openai_request_clear(&r);
}
END

/* ---- cost ---- */

static size_t memory_of(const char *element, size_t bytes, size_t *body_bytes)
{
    struct buffer b = {0};
    struct generate_request r;
    struct problem p;
    buffer_reserve(&b, bytes + 256);
    buffer_text(&b, "{\"prompt\":[");
    while (b.size < bytes)
        buffer_text(&b, element);
    buffer_text(&b, "1]}");
    *body_bytes = b.size;
    size_t before = mallinfo2().uordblks + mallinfo2().hblkhd;
    ck_assert_int_eq(generate_request_read(buffer_span(&b), &limits, &r, &p), STATUS_OK);
    size_t used = mallinfo2().uordblks + mallinfo2().hblkhd - before;
    generate_request_clear(&r);
    ck_assert_uint_le(mallinfo2().uordblks + mallinfo2().hblkhd, before + 4096);
    buffer_clear(&b);
    return used;
}

TEST(a_request_takes_a_small_multiple_of_its_body)
{
    if (suite_has_sanitizer())
        SKIP("a sanitizer's allocator does not count");
    static const char *const elements[] = {"1,", "\"\",", "\"a\",1,", "\"some longer text of a part\","};
    for (size_t i = 0; i < 4; i++) {
        size_t body_bytes, used = memory_of(elements[i], 1 << 20, &body_bytes);
        ck_assert_msg(used <= 10 * body_bytes, "%s: %zu bytes for a body of %zu", elements[i], used, body_bytes);
    }
}
END

SUITE(requests, T(every_route_refuses_what_is_no_json_object), T(every_route_refuses_unknown_missing_and_duplicate_fields),
      T(wrong_types_are_refused_by_field), T(a_prompt_keeps_text_ids_and_their_order),
      T(a_default_may_stand_behind_the_prompt_it_is_for), T(a_bad_prompt_is_refused_by_index_and_value),
      T(tokenize_has_the_defaults_of_llama_server), T(detokenize_takes_ids_of_the_vocabulary), T(logits_defaults_and_limits),
      T(generate_has_its_defaults), T(generate_limits), T(sampling_is_refused_by_name),
      T(completions_take_prompts_in_four_forms), T(completions_are_greedy_only), T(a_request_takes_a_small_multiple_of_its_body))
