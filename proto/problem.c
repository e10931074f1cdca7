/* The table of problems and the writer of RFC 9457 objects; see problem.h. */
#include "proto/problem.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "proto/json.h"

static const struct {
    const char *name;
    unsigned status;
    const char *title;
} rows[] = {
    {"", 200, ""},
#define PROBLEM(identifier, name, status, title) {name, status, title},
#include "proto/problems.def"
#undef PROBLEM
};

const char *problem_name(enum problem_kind kind)
{
    return rows[kind].name;
}

unsigned problem_status(enum problem_kind kind)
{
    return rows[kind].status;
}

const char *problem_title(enum problem_kind kind)
{
    return rows[kind].title;
}

static enum status status_of(enum problem_kind kind)
{
    switch (kind) {
    case PROBLEM_CONTEXT_OVERFLOW:
        return STATUS_OVERFLOW;
    case PROBLEM_NOT_IMPLEMENTED:
        return STATUS_UNSUPPORTED;
    default:
        return STATUS_INVALID;
    }
}

enum status problem_set(struct problem *p, enum problem_kind kind, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    p->kind = kind;
    p->field[0] = 0;
    p->n_members = 0;
    vsnprintf(p->detail, sizeof p->detail, format, args);
    va_end(args);
    return status_of(kind);
}

void problem_member(struct problem *p, const char *name, int64_t value)
{
    assert(p->n_members < PROBLEM_MEMBERS_MAX);
    p->members[p->n_members].name = name;
    p->members[p->n_members++].value = value;
}

int64_t problem_member_value(const struct problem *p, const char *name, int64_t otherwise)
{
    for (size_t i = 0; i < p->n_members; i++)
        if (strcmp(p->members[i].name, name) == 0)
            return p->members[i].value;
    return otherwise;
}

enum status problem_context_overflow(struct problem *p, size_t prompt_tokens, bool at_least, size_t context, bool room)
{
    enum status status = problem_set(p, PROBLEM_CONTEXT_OVERFLOW,
                                     "the prompt has %s%zu tokens; the context holds %zu%s",
                                     at_least ? "at least " : "", prompt_tokens, context,
                                     room ? ", and at least one more token is wanted" : "");
    problem_member(p, at_least ? "prompt_tokens_at_least" : "prompt_tokens", (int64_t)prompt_tokens);
    problem_member(p, "context", (int64_t)context);
    return status;
}

enum status problem_busy(struct problem *p, enum problem_kind kind, unsigned retry_after_s, const char *detail)
{
    enum status status = problem_set(p, kind, "%s", detail);
    problem_member(p, "retry_after_s", retry_after_s);
    return status;
}

enum status problem_from_error(struct problem *p, const struct error *err)
{
    switch (err->status) {
    case STATUS_NON_FINITE:
        return problem_set(p, PROBLEM_NON_FINITE_LOGITS, "%s", err->text);
    case STATUS_MODEL_CHANGED:
        return problem_busy(p, PROBLEM_MODEL_CHANGED, 5, err->text);
    case STATUS_VOCABULARY_ONLY:
        return problem_set(p, PROBLEM_VOCABULARY_ONLY, "%s", err->text);
    case STATUS_OVERFLOW:
        return problem_set(p, PROBLEM_CONTEXT_OVERFLOW, "%s", err->text);
    default:
        return problem_set(p, PROBLEM_INTERNAL, "%s", err->text);
    }
}

static void write_text(struct buffer *b, const char *key, const char *text)
{
    json_write_key(b, key);
    json_write_string(b, span_of(text));
}

static void write_openai_error(struct buffer *b, const struct problem *p)
{
    json_write_key(b, "error");
    buffer_byte(b, '{');
    write_text(b, "message", p->detail);
    write_text(b, "type", problem_status(p->kind) < 500 ? "invalid_request_error" : "server_error");
    json_write_key(b, "param");
    if (p->field[0])
        json_write_string(b, span_of(p->field));
    else
        buffer_text(b, "null");
    write_text(b, "code", problem_name(p->kind));
    buffer_byte(b, '}');
}

void problem_write(struct buffer *b, const struct problem *p, bool openai)
{
    buffer_text(b, "{\"type\":\"urn:ggufd:problem:");
    buffer_text(b, problem_name(p->kind));
    buffer_byte(b, '"');
    write_text(b, "title", problem_title(p->kind));
    json_write_key(b, "status");
    json_write_unsigned(b, problem_status(p->kind));
    write_text(b, "detail", p->detail);
    if (p->field[0])
        write_text(b, "field", p->field);
    for (size_t i = 0; i < p->n_members; i++) {
        json_write_key(b, p->members[i].name);
        json_write_integer(b, p->members[i].value);
    }
    if (openai)
        write_openai_error(b, p);
    buffer_byte(b, '}');
}
