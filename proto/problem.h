/* Problems: what an error reply says (RFC 9457). One row each in problems.def: name, HTTP status, title. */
#ifndef GGUFD_PROTO_PROBLEM_H
#define GGUFD_PROTO_PROBLEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/buffer.h"
#include "engine/base/error.h"

#define PROBLEM_CONTENT_TYPE "application/problem+json"

enum problem_kind {
    PROBLEM_NONE,
#define PROBLEM(identifier, name, status, title) PROBLEM_##identifier,
#include "proto/problems.def"
#undef PROBLEM
    PROBLEM_COUNT
};

/* "context-overflow"; "" for PROBLEM_NONE. */
const char *problem_name(enum problem_kind kind);
unsigned problem_status(enum problem_kind kind);
const char *problem_title(enum problem_kind kind);

#define PROBLEM_MEMBERS_MAX 4
struct problem {
    enum problem_kind kind;
    char detail[512]; /* a sentence for people: what, where, which value, what is allowed */
    char field[128];  /* path of the request's field at fault, "" if none: member "field" */
    size_t n_members;
    struct {
        const char *name; /* static */
        int64_t value;
    } members[PROBLEM_MEMBERS_MAX];
};

/* Sets kind and formatted detail, no field and no members; returns the status code that goes with the kind, so that a
 * line can say `return problem_set(...)`. Outside bytes enter only through error_quote(). p must not be NULL. */
enum status problem_set(struct problem *p, enum problem_kind kind, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Adds an integer member; name must be static. */
void problem_member(struct problem *p, const char *name, int64_t value);

/* context-overflow with its numbers; at_least: counting stopped there. room: tokens that the request wants behind the
 * prompt (0 or 1), named in the sentence. */
enum status problem_context_overflow(struct problem *p, size_t prompt_tokens, bool at_least, size_t context, bool room);
/* A 503 with retry_after_s; the HTTP side reads it back for Retry-After. */
enum status problem_busy(struct problem *p, enum problem_kind kind, unsigned retry_after_s, const char *detail);
/* The member's value, or `otherwise`. */
int64_t problem_member_value(const struct problem *p, const char *name, int64_t otherwise);
/* An engine's failure as a problem: STATUS_NON_FINITE, _MODEL_CHANGED (retry 5 s), _VOCABULARY_ONLY, _OVERFLOW have
 * their own kinds, everything else is internal. */
enum status problem_from_error(struct problem *p, const struct error *err);

/* {"type":"urn:ggufd:problem:NAME","title":...,"status":...,"detail":...,members}, no newline. openai: also
 * "error":{"message","type","param","code"}, for the routes below /v1. */
void problem_write(struct buffer *b, const struct problem *p, bool openai);

#endif
