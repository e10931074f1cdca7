/* Reading an object's members by a table: one row a field with its reader, range and place in a struct. Private to
 * proto/: requests.c, prompt.c and openai.c. */
#ifndef GGUFD_PROTO_FIELDS_H
#define GGUFD_PROTO_FIELDS_H

#include "proto/json.h"
#include "proto/requests.h"

struct reader {
    const struct request_limits *limits; /* NULL where no row needs them */
    struct problem *problem;
    bool null_is_absent; /* OpenAI's way */
    /* Where we are, for messages: field, field[index], field[index].member. */
    struct json_value field, member; /* keys; raw.data NULL: none */
    size_t index;                    /* SIZE_MAX: none */
};

struct field {
    const char *name;
    enum status (*read)(struct reader *r, const struct field *f, struct json_value value, void *out);
    size_t offset;     /* of the target in the struct being read */
    int64_t low, high; /* range, where the reader has one */
    bool required;
};

/* Checks body, wants an object, reads its members into out. On failure the problem is set. */
enum status fields_read_body(struct reader *r, struct span body, const struct field *fields, size_t n, void *out);
/* The members of a checked object. nested: they are members of an element, not fields of the body. */
enum status fields_read(struct reader *r, struct json_value object, const struct field *fields, size_t n, bool nested,
                        void *out);

/* Sets a problem whose detail starts with the current path, and returns its status. */
enum status field_refuse(struct reader *r, enum problem_kind kind, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* "must be EXPECTED, not a string" or, for a scalar of the right type, "not VALUE". */
enum status field_refuse_value(struct reader *r, struct json_value value, const char *expected);
enum status field_no_memory(struct reader *r);

/* Readers for rows, named after what they read: bool, uint32_t, struct buffer, struct request_ids, struct stop_strings,
 * and the struct json_value as it is. */
enum status field_boolean(struct reader *r, const struct field *f, struct json_value value, void *out);
enum status field_unsigned(struct reader *r, const struct field *f, struct json_value value, void *out);
enum status field_string(struct reader *r, const struct field *f, struct json_value value, void *out);
enum status field_ids(struct reader *r, const struct field *f, struct json_value value, void *out);
enum status field_stops(struct reader *r, const struct field *f, struct json_value value, void *out);
enum status field_value(struct reader *r, const struct field *f, struct json_value value, void *out);

enum status request_ids_push(struct reader *r, struct request_ids *ids, int32_t id);
/* One token id in 0..n_vocab-1. */
enum status field_token(struct reader *r, struct json_value value, int32_t *out);

#define FIELD_TARGET(type, f, out) ((type *)((char *)(out) + (f)->offset))
#define N_FIELDS(fields) (sizeof(fields) / sizeof(fields)[0])

/* prompt.c: the prompt field of the native routes. */
enum status prompt_read(struct reader *r, struct json_value value, bool parse_special, struct prompt *out);
enum status prompt_append_text(struct reader *r, struct prompt *p, struct json_value string, bool parse_special);
enum status prompt_append_id(struct reader *r, struct prompt *p, int32_t id);

#endif
