/* The prompt of /logits and /generate: a string, ids, or parts. Refuses anything else by index and value. */
#include "proto/fields.h"

#include <stdlib.h>
#include <string.h>

void prompt_clear(struct prompt *p)
{
    free(p->parts);
    buffer_clear(&p->text);
    free(p->ids.data);
    *p = (struct prompt){0};
}

static struct prompt_part *push_part(struct prompt *p)
{
    if (p->n_parts == p->capacity) {
        size_t capacity = p->capacity ? p->capacity * 2 : 4;
        struct prompt_part *parts = realloc(p->parts, capacity * sizeof *parts);
        if (!parts)
            return NULL;
        p->parts = parts;
        p->capacity = capacity;
    }
    return &p->parts[p->n_parts++];
}

enum status prompt_append_text(struct reader *r, struct prompt *p, struct json_value string, bool parse_special)
{
    size_t start = p->text.size;
    json_unescape(string, &p->text);
    struct prompt_part *part = p->text.failed ? NULL : push_part(p);
    if (!part)
        return field_no_memory(r);
    *part = (struct prompt_part){
        .start = (uint32_t)start, .count = (uint32_t)(p->text.size - start), .parse_special = parse_special};
    return STATUS_OK;
}

enum status prompt_append_id(struct reader *r, struct prompt *p, int32_t id)
{
    struct prompt_part *part = p->n_parts ? &p->parts[p->n_parts - 1] : NULL;
    if (!part || !part->is_ids) {
        part = push_part(p);
        if (!part)
            return field_no_memory(r);
        *part = (struct prompt_part){.start = (uint32_t)p->ids.count, .is_ids = true};
    }
    part->count++;
    return request_ids_push(r, &p->ids, id);
}

struct text_part {
    struct json_value text;
    bool parse_special;
};

static enum status read_part_text(struct reader *r, const struct field *f, struct json_value value, void *out)
{
    if (value.type != JSON_STRING)
        return field_refuse_value(r, value, "a string");
    return field_value(r, f, value, out);
}

static const struct field part_fields[] = {
    {"text", read_part_text, offsetof(struct text_part, text), 0, 0, true},
    {"parse_special", field_boolean, offsetof(struct text_part, parse_special), 0, 0, false},
};

static enum status read_part(struct reader *r, struct json_value value, bool parse_special, struct prompt *out)
{
    if (value.type == JSON_STRING)
        return prompt_append_text(r, out, value, parse_special);
    if (value.type == JSON_NUMBER) {
        int32_t id;
        enum status status = field_token(r, value, &id);
        return status == STATUS_OK ? prompt_append_id(r, out, id) : status;
    }
    if (value.type != JSON_OBJECT)
        return field_refuse_value(r, value, "a string, a token id, or {\"text\": ..., \"parse_special\": ...}");
    struct text_part part = {.parse_special = parse_special};
    enum status status = fields_read(r, value, part_fields, N_FIELDS(part_fields), true, &part);
    return status == STATUS_OK ? prompt_append_text(r, out, part.text, part.parse_special) : status;
}

enum status prompt_refuse_empty(struct problem *problem)
{
    enum status status = problem_set(problem, PROBLEM_INVALID_REQUEST, "prompt: holds no token");
    strcpy(problem->field, "prompt");
    return status;
}

enum status prompt_read(struct reader *r, struct json_value value, bool parse_special, struct prompt *out)
{
    static const char field_name[] = "\"prompt\"";
    struct json_value element;
    r->field = (struct json_value){JSON_STRING, {field_name, sizeof field_name - 1}};
    if (value.type == JSON_STRING)
        return prompt_append_text(r, out, value, parse_special);
    if (value.type != JSON_ARRAY)
        return field_refuse_value(r, value, "a string or an array of strings, token ids and text parts");
    for (struct json_walk walk = json_walk(value); json_next(&walk, NULL, &element);) {
        r->index = walk.index;
        enum status status = read_part(r, element, parse_special, out);
        if (status != STATUS_OK)
            return status;
    }
    r->index = SIZE_MAX;
    return out->n_parts ? STATUS_OK : prompt_refuse_empty(r->problem);
}
