/* Table-driven reading of request fields, and the sentences of its refusals. See fields.h. */
#include "proto/fields.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- refusals ---- */

static void describe_path(const struct reader *r, char *out, size_t size)
{
    char quoted[ERROR_QUOTE_BYTES];
    int n = 0;
    *out = 0;
    if (r->field.raw.data)
        n = snprintf(out, size, "%s", error_quote(r->field.raw.data + 1, r->field.raw.size - 2, quoted));
    if (r->index != SIZE_MAX && (size_t)n < size)
        n += snprintf(out + n, size - (size_t)n, "[%zu]", r->index);
    if (r->member.raw.data && (size_t)n < size)
        snprintf(out + n, size - (size_t)n, ".%s", error_quote(r->member.raw.data + 1, r->member.raw.size - 2, quoted));
}

enum status field_refuse(struct reader *r, enum problem_kind kind, const char *format, ...)
{
    char text[320], path[sizeof r->problem->field];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    describe_path(r, path, sizeof path);
    enum status status = problem_set(r->problem, kind, "%s%s%s", path, *path ? ": " : "", text);
    memcpy(r->problem->field, path, sizeof path);
    return status;
}

enum status field_refuse_value(struct reader *r, struct json_value value, const char *expected)
{
    char quoted[ERROR_QUOTE_BYTES];
    const char *got = json_type_text(value.type);
    if (value.type == JSON_NUMBER)
        got = error_quote(value.raw.data, value.raw.size, quoted);
    return field_refuse(r, PROBLEM_INVALID_REQUEST, "must be %s, not %s", expected, got);
}

enum status field_no_memory(struct reader *r)
{
    field_refuse(r, PROBLEM_INTERNAL, "out of memory while the request was read");
    return STATUS_NO_MEMORY;
}

/* ---- the walk ---- */

static const struct field *find_field(const struct field *fields, size_t n, struct json_value key)
{
    for (size_t i = 0; i < n; i++)
        if (json_string_is(key, span_of(fields[i].name)))
            return &fields[i];
    return NULL;
}

/* "a, b, c" of the fields that a request may have: rows without a target stand for refusals. */
static void list_fields(const struct field *fields, size_t n, char *out, size_t size)
{
    size_t at = 0;
    *out = 0;
    for (size_t i = 0; i < n && at < size; i++)
        if (fields[i].offset != SIZE_MAX)
            at += (size_t)snprintf(out + at, size - at, "%s%s", at ? ", " : "", fields[i].name);
}

static enum status check_required(struct reader *r, const struct field *fields, size_t n, uint64_t seen)
{
    for (size_t i = 0; i < n; i++)
        if (fields[i].required && !(seen >> i & 1)) {
            char text[80];
            snprintf(text, sizeof text, "\"%s\"", fields[i].name);
            struct json_value missing = {JSON_STRING, span_of(text)};
            if (r->index == SIZE_MAX)
                r->field = missing;
            else
                r->member = missing;
            return field_refuse(r, PROBLEM_INVALID_REQUEST, "is required");
        }
    return STATUS_OK;
}

enum status fields_read(struct reader *r, struct json_value object, const struct field *fields, size_t n, bool nested,
                        void *out)
{
    assert(n <= 64);
    struct json_walk walk = json_walk(object);
    struct json_value key, value;
    uint64_t seen = 0;
    while (json_next(&walk, &key, &value)) {
        *(nested ? &r->member : &r->field) = key;
        const struct field *f = find_field(fields, n, key);
        if (!f) {
            char known[256];
            list_fields(fields, n, known, sizeof known);
            return field_refuse(r, PROBLEM_INVALID_REQUEST, "is not a field of this request (%s)", known);
        }
        if (value.type == JSON_NULL && r->null_is_absent)
            continue;
        enum status status = f->read(r, f, value, out);
        if (status != STATUS_OK)
            return status;
        seen |= UINT64_C(1) << (f - fields);
    }
    *(nested ? &r->member : &r->field) = (struct json_value){0};
    return check_required(r, fields, n, seen);
}

enum status fields_read_body(struct reader *r, struct span body, const struct field *fields, size_t n, void *out)
{
    struct json_value root;
    struct error err;
    assert(body.size <= UINT32_MAX); /* prompt parts count in 32 bits; max_body ends at 1 GiB */
    r->index = SIZE_MAX;
    enum status status = json_check(body, &root, &err);
    if (status == STATUS_NO_MEMORY)
        return field_no_memory(r);
    if (status != STATUS_OK)
        return problem_set(r->problem, PROBLEM_INVALID_JSON, "%s", err.text);
    if (root.type != JSON_OBJECT)
        return problem_set(r->problem, PROBLEM_INVALID_REQUEST, "the body must be an object, not %s",
                           json_type_text(root.type));
    return fields_read(r, root, fields, n, false, out);
}

/* ---- readers ---- */

enum status field_boolean(struct reader *r, const struct field *f, struct json_value value, void *out)
{
    if (value.type != JSON_TRUE && value.type != JSON_FALSE)
        return field_refuse_value(r, value, "a boolean");
    *FIELD_TARGET(bool, f, out) = value.type == JSON_TRUE;
    return STATUS_OK;
}

enum status field_unsigned(struct reader *r, const struct field *f, struct json_value value, void *out)
{
    int64_t number;
    if (!json_integer(value, &number) || number < f->low || number > f->high) {
        char expected[96];
        snprintf(expected, sizeof expected, "an integer in %" PRId64 "..%" PRId64, f->low, f->high);
        return field_refuse_value(r, value, expected);
    }
    *FIELD_TARGET(uint32_t, f, out) = (uint32_t)number;
    return STATUS_OK;
}

enum status field_string(struct reader *r, const struct field *f, struct json_value value, void *out)
{
    struct buffer *b = FIELD_TARGET(struct buffer, f, out);
    if (value.type != JSON_STRING)
        return field_refuse_value(r, value, "a string");
    json_unescape(value, b);
    return b->failed ? field_no_memory(r) : STATUS_OK;
}

enum status field_value(struct reader *r, const struct field *f, struct json_value value, void *out)
{
    (void)r;
    *FIELD_TARGET(struct json_value, f, out) = value;
    return STATUS_OK;
}

enum status request_ids_push(struct reader *r, struct request_ids *ids, int32_t id)
{
    if (ids->count == ids->capacity) {
        size_t capacity = ids->capacity ? ids->capacity * 2 : 16;
        int32_t *data = realloc(ids->data, capacity * sizeof *data);
        if (!data)
            return field_no_memory(r);
        ids->data = data;
        ids->capacity = capacity;
    }
    ids->data[ids->count++] = id;
    return STATUS_OK;
}

enum status field_token(struct reader *r, struct json_value value, int32_t *out)
{
    int64_t id;
    if (!json_integer(value, &id) || id < 0 || id >= r->limits->n_vocab) {
        char expected[96];
        snprintf(expected, sizeof expected, "a token id in 0..%" PRId64, (int64_t)r->limits->n_vocab - 1);
        return field_refuse_value(r, value, expected);
    }
    *out = (int32_t)id;
    return STATUS_OK;
}

enum status field_ids(struct reader *r, const struct field *f, struct json_value value, void *out)
{
    struct request_ids *ids = FIELD_TARGET(struct request_ids, f, out);
    struct json_value element;
    if (value.type != JSON_ARRAY)
        return field_refuse_value(r, value, "an array of token ids");
    for (struct json_walk walk = json_walk(value); json_next(&walk, NULL, &element);) {
        int32_t id;
        r->index = walk.index;
        enum status status = field_token(r, element, &id);
        if (status == STATUS_OK)
            status = request_ids_push(r, ids, id);
        if (status != STATUS_OK)
            return status;
    }
    r->index = SIZE_MAX;
    return STATUS_OK;
}

static enum status read_stop(struct reader *r, struct json_value value, struct stop_strings *stops)
{
    size_t start = stops->bytes.size;
    if (value.type != JSON_STRING)
        return field_refuse_value(r, value, "a string");
    json_unescape(value, &stops->bytes);
    if (stops->bytes.failed)
        return field_no_memory(r);
    size_t size = stops->bytes.size - start;
    if (size < 1 || size > REQUEST_STOP_BYTES_MAX)
        return field_refuse(r, PROBLEM_INVALID_REQUEST, "must have 1..%d bytes, not %zu", REQUEST_STOP_BYTES_MAX, size);
    stops->at[stops->count].start = (uint16_t)start;
    stops->at[stops->count++].size = (uint16_t)size;
    return STATUS_OK;
}

enum status field_stops(struct reader *r, const struct field *f, struct json_value value, void *out)
{
    struct stop_strings *stops = FIELD_TARGET(struct stop_strings, f, out);
    struct json_value element;
    if (value.type == JSON_STRING)
        return read_stop(r, value, stops);
    if (value.type != JSON_ARRAY)
        return field_refuse_value(r, value, "a string or an array of strings");
    for (struct json_walk walk = json_walk(value); json_next(&walk, NULL, &element);) {
        if (stops->count == REQUEST_STOPS_MAX) {
            r->index = SIZE_MAX;
            return field_refuse(r, PROBLEM_INVALID_REQUEST, "must hold at most %d strings", REQUEST_STOPS_MAX);
        }
        r->index = walk.index;
        enum status status = read_stop(r, element, stops);
        if (status != STATUS_OK)
            return status;
    }
    r->index = SIZE_MAX;
    return STATUS_OK;
}
