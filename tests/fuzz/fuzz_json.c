/* Any bytes as JSON: what the reader accepts, cJSON accepts too and sees the same values; strings survive the writer.
 *
 * cJSON is the laxer reader, except for U+0000 in strings, which it cannot hold, and numbers beyond its 63 bytes. */
#include <cJSON.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "proto/json.h"

enum { CJSON_NUMBER_BYTES = 63 };

static void must(bool condition)
{
    if (!condition)
        abort();
}

static char *terminated(struct span s)
{
    char *copy = malloc(s.size + 1);
    must(copy != NULL);
    memcpy(copy, s.data, s.size);
    copy[s.size] = 0;
    return copy;
}

/* True when the value, its strings and numbers are of the kind that cJSON can hold. */
static bool suits_cjson(struct json_value v)
{
    if (v.type == JSON_NUMBER)
        return v.raw.size <= CJSON_NUMBER_BYTES;
    if (v.type == JSON_STRING)
        return !memmem(v.raw.data, v.raw.size, "\\u0000", 6);
    struct json_value key, value;
    for (struct json_walk walk = json_walk(v); json_next(&walk, &key, &value);)
        if ((v.type == JSON_OBJECT && !suits_cjson(key)) || !suits_cjson(value))
            return false;
    return true;
}

static void compare_string(struct json_value v, const char *other)
{
    struct buffer text = {0}, written = {0};
    struct json_value again;
    json_unescape(v, &text);
    must(!text.failed && text.size == strlen(other) && (text.size == 0 || memcmp(text.data, other, text.size) == 0));
    must(json_string_is(v, buffer_span(&text)));
    json_write_string(&written, buffer_span(&text));
    must(json_check(buffer_span(&written), &again, NULL) == STATUS_OK && again.type == JSON_STRING);
    must(json_string_is(again, buffer_span(&text)));
    buffer_clear(&written);
    buffer_clear(&text);
}

static void compare_number(struct json_value v, double other)
{
    int64_t integer;
    char *text = terminated(v.raw), *end;
    double number = strtod(text, &end);
    must(end == text + v.raw.size && !(number < other) && !(number > other));
    if (json_integer(v, &integer) && fabs(other) < 0x1p53)
        must((double)integer <= other && (double)integer >= other);
    free(text);
}

static void compare(struct json_value v, const cJSON *other)
{
    static const int types[] = {cJSON_NULL, cJSON_False, cJSON_True, cJSON_Number, cJSON_String, cJSON_Array,
                                cJSON_Object};
    must((other->type & 0xff) == types[v.type]);
    if (v.type == JSON_STRING)
        compare_string(v, other->valuestring);
    if (v.type == JSON_NUMBER)
        compare_number(v, other->valuedouble);
    const cJSON *child = other->child;
    struct json_value key, value;
    for (struct json_walk walk = json_walk(v); json_next(&walk, &key, &value); child = child->next) {
        must(child != NULL);
        if (v.type == JSON_OBJECT)
            compare_string(key, child->string);
        compare(value, child);
    }
    must(v.type < JSON_ARRAY || child == NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct json_value root;
    struct error err;
    char *text = malloc(size ? size : 1); /* of exactly this size, so that a read beyond it is seen */
    must(text != NULL);
    memcpy(text, data, size);
    if (json_check((struct span){text, size}, &root, &err) != STATUS_OK) {
        must(err.text[0] && memchr(err.text, 0, sizeof err.text));
    } else if (suits_cjson(root)) {
        char *copy = terminated((struct span){text, size});
        cJSON *other = cJSON_Parse(copy);
        must(other != NULL);
        compare(root, other);
        cJSON_Delete(other);
        free(copy);
    }
    free(text);
    return 0;
}
