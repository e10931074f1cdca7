/* One configuration value between text, JSON and its member. Refuses what is not of the row's type and range; see
 * options.h. Numbers are read without the C library's locale. */
#include "daemon/options.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/address.h"
#include "proto/json.h"

#define OFFSET_path(key) offsetof(struct config, key)
#define OFFSET_choice(key) offsetof(struct config, key)
#define OFFSET_list(key) offsetof(struct config, key)
#define OFFSET_mode(key) offsetof(struct config, key)
#define OFFSET_integer(key) offsetof(struct config, key)
#define OFFSET_seconds(key) offsetof(struct config, key##_ms)
#define OFFSET_boolean(key) offsetof(struct config, key)

const struct option options[OPTION_COUNT] = {
#define OPTION(type, key, fallback, low, high, argument, help) \
    {OPTION_##type, #key, OFFSET_##type(key), fallback, low, high, argument, help},
#include "daemon/options.def"
#undef OPTION
};

#define MEMBER(type, o, config) ((type *)((char *)(config) + (o)->offset))
#define CONST_MEMBER(type, o, config) ((const type *)((const char *)(config) + (o)->offset))

const struct option *option_find(const char *key)
{
    for (size_t i = 0; i < OPTION_COUNT; i++)
        if (strcmp(options[i].key, key) == 0)
            return &options[i];
    return NULL;
}

const char *option_expected(const struct option *o, char *out, size_t size)
{
    switch (o->type) {
    case OPTION_path:
        snprintf(out, size, "a string");
        break;
    case OPTION_choice:
        snprintf(out, size, "one of %s", o->argument);
        break;
    case OPTION_list:
        snprintf(out, size, "an array of strings");
        break;
    case OPTION_mode:
        snprintf(out, size, "an octal mode in 0000..%04o, as text", (unsigned)o->high);
        break;
    case OPTION_integer:
        snprintf(out, size, "an integer in %" PRId64 "..%" PRId64, (int64_t)o->low, (int64_t)o->high);
        break;
    case OPTION_seconds:
        snprintf(out, size, "seconds in %s..%" PRId64 ", at most three decimals", o->low > 0 ? "0.001" : "0",
                 (int64_t)o->high);
        break;
    case OPTION_boolean:
        snprintf(out, size, "true or false");
        break;
    }
    return out;
}

static enum status refuse(const struct option *o, const char *got, size_t got_size, struct error *err)
{
    char expected[128], quoted[ERROR_QUOTE_BYTES];
    return error_set(err, STATUS_INVALID, "must be %s, not \"%s\"", option_expected(o, expected, sizeof expected),
                     error_quote(got, got_size, quoted));
}

/* ---- lists ---- */

enum status config_list_push(struct config_list *list, const char *text, size_t size, struct error *err)
{
    char **items = realloc(list->items, (list->count + 1) * sizeof *items);
    if (!items)
        return error_no_memory(err, (list->count + 1) * sizeof *items, "a list");
    list->items = items;
    items[list->count] = strndup(text, size);
    if (!items[list->count])
        return error_no_memory(err, size + 1, "a list's item");
    list->count++;
    return STATUS_OK;
}

void config_list_clear(struct config_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        free(list->items[i]);
    free(list->items);
    *list = (struct config_list){0};
}

/* scheme://host[:port], as browsers send it. */
static enum status check_origin(const char *item, struct error *err)
{
    char quoted[ERROR_QUOTE_BYTES];
    const char *separator = strstr(item, "://");
    const char *rest = separator ? separator + 3 : "";
    if (strlen(item) > CONFIG_ORIGIN_BYTES_MAX)
        return error_set(err, STATUS_RANGE, "an origin has %zu bytes, at most %d", strlen(item), CONFIG_ORIGIN_BYTES_MAX);
    if (separator && separator != item && *rest && strcspn(rest, "/?#@ \t*") == strlen(rest) &&
        strspn(item, "abcdefghijklmnopqrstuvwxyz0123456789+.-") == (size_t)(separator - item))
        return STATUS_OK;
    return error_set(err, STATUS_INVALID, "must hold origins like https://host:port, not \"%s\"",
                     error_quote(item, strlen(item), quoted));
}

static enum status check_host(const char *item, struct error *err)
{
    char quoted[ERROR_QUOTE_BYTES];
    if (*item && strspn(item, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.-_") == strlen(item))
        return STATUS_OK;
    return error_set(err, STATUS_INVALID, "must hold host names without port, not \"%s\"",
                     error_quote(item, strlen(item), quoted));
}

static enum status check_item(const struct option *o, const char *item, struct error *err)
{
    struct address address;
    if (strcmp(o->key, "listen") == 0)
        return address_parse(item, &address, err);
    return strcmp(o->key, "allowed_origins") == 0 ? check_origin(item, err) : check_host(item, err);
}

static enum status add_item(const struct option *o, struct config_list *list, const char *text, size_t size,
                            struct error *err)
{
    enum status status = config_list_push(list, text, size, err);
    return status == STATUS_OK ? check_item(o, list->items[list->count - 1], err) : status;
}

static enum status check_length(const struct option *o, const struct config_list *list, struct error *err)
{
    if ((double)list->count >= o->low)
        return STATUS_OK;
    return error_set(err, STATUS_INVALID, "must hold at least %.0f item", o->low);
}

static enum status set_list_text(const struct option *o, struct config_list *list, const char *text, struct error *err)
{
    enum status status = STATUS_OK;
    if (!*text)
        return check_length(o, list, err);
    while (*text && status == STATUS_OK) {
        size_t n = strcspn(text, ",");
        status = add_item(o, list, text, n, err);
        text += n;
        if (*text == ',' && *++text == 0 && status == STATUS_OK)
            return error_set(err, STATUS_INVALID, "must not end with a comma");
    }
    return status;
}

static enum status set_list_json(const struct option *o, struct config_list *list, const cJSON *value,
                                 struct error *err)
{
    const cJSON *item;
    cJSON_ArrayForEach(item, value)
    {
        if (!cJSON_IsString(item))
            return error_set(err, STATUS_INVALID, "must be an array of strings");
        enum status status = add_item(o, list, item->valuestring, strlen(item->valuestring), err);
        if (status != STATUS_OK)
            return status;
    }
    return check_length(o, list, err);
}

/* ---- scalars ---- */

/* Digits with at most three decimals as thousandths; false when it is anything else or has more than 12 digits. */
static bool parse_thousandths(const char *text, int64_t *out)
{
    int64_t value = 0;
    int decimals = -1, digits = 0;
    for (; *text; text++) {
        if (*text == '.' && decimals < 0 && digits > 0) {
            decimals = 0;
            continue;
        }
        if (*text < '0' || *text > '9' || ++digits > 12 || (decimals >= 0 && ++decimals > 3))
            return false;
        value = value * 10 + (*text - '0');
    }
    if (digits == 0 || decimals == 0)
        return false;
    for (int i = decimals < 0 ? 0 : decimals; i < 3; i++)
        value *= 10;
    *out = value;
    return true;
}

static enum status set_number(const struct option *o, struct config *config, int64_t thousandths, const char *text,
                              struct error *err)
{
    bool whole = o->type == OPTION_seconds || thousandths % 1000 == 0;
    if (!whole || (double)thousandths < o->low * 1000 || (double)thousandths > o->high * 1000)
        return refuse(o, text, strlen(text), err);
    *MEMBER(int64_t, o, config) = o->type == OPTION_seconds ? thousandths : thousandths / 1000;
    return STATUS_OK;
}

static enum status set_mode(const struct option *o, struct config *config, const char *text, struct error *err)
{
    size_t n = strlen(text);
    if (n < 1 || n > 5 || strspn(text, "01234567") != n || strtoul(text, NULL, 8) > (unsigned long)o->high)
        return refuse(o, text, n, err);
    *MEMBER(unsigned, o, config) = (unsigned)strtoul(text, NULL, 8);
    return STATUS_OK;
}

static bool is_choice(const char *choices, const char *text)
{
    size_t n = strlen(text);
    for (const char *p = choices; n > 0; p++) {
        size_t length = strcspn(p, "|");
        if (length == n && memcmp(p, text, n) == 0)
            return true;
        p += length;
        if (!*p)
            break;
    }
    return false;
}

static enum status set_string(const struct option *o, struct config *config, const char *text, struct error *err)
{
    char **member = MEMBER(char *, o, config);
    if (o->type == OPTION_choice && !is_choice(o->argument, text))
        return refuse(o, text, strlen(text), err);
    char *copy = strdup(text);
    if (!copy)
        return error_no_memory(err, strlen(text) + 1, o->key);
    free(*member);
    *member = copy;
    return STATUS_OK;
}

static enum status set_boolean(const struct option *o, struct config *config, const char *text, struct error *err)
{
    bool yes = strcmp(text, "true") == 0 || strcmp(text, "1") == 0;
    if (!yes && strcmp(text, "false") != 0 && strcmp(text, "0") != 0)
        return refuse(o, text, strlen(text), err);
    *MEMBER(bool, o, config) = yes;
    return STATUS_OK;
}

enum status option_set_text(const struct option *o, struct config *config, const char *text, bool append,
                            struct error *err)
{
    int64_t thousandths;
    switch (o->type) {
    case OPTION_path:
    case OPTION_choice:
        return set_string(o, config, text, err);
    case OPTION_list:
        if (!append)
            config_list_clear(MEMBER(struct config_list, o, config));
        return set_list_text(o, MEMBER(struct config_list, o, config), text, err);
    case OPTION_mode:
        return set_mode(o, config, text, err);
    case OPTION_integer:
    case OPTION_seconds:
        if (!parse_thousandths(text, &thousandths))
            return refuse(o, text, strlen(text), err);
        return set_number(o, config, thousandths, text, err);
    case OPTION_boolean:
        break;
    }
    return set_boolean(o, config, text, err);
}

static enum status set_json_number(const struct option *o, struct config *config, double value, struct error *err)
{
    char text[32];
    snprintf(text, sizeof text, "%.9g", value);
    double thousandths = round(value * 1000);
    if (!(value >= o->low && value <= o->high) || fabs(value * 1000 - thousandths) > 1e-6)
        return refuse(o, text, strlen(text), err);
    return set_number(o, config, (int64_t)thousandths, text, err);
}

enum status option_set_json(const struct option *o, struct config *config, const cJSON *value, struct error *err)
{
    char expected[128];
    switch (o->type) {
    case OPTION_path:
    case OPTION_choice:
    case OPTION_mode:
        if (cJSON_IsString(value))
            return option_set_text(o, config, value->valuestring, false, err);
        break;
    case OPTION_list:
        if (cJSON_IsArray(value)) {
            config_list_clear(MEMBER(struct config_list, o, config));
            return set_list_json(o, MEMBER(struct config_list, o, config), value, err);
        }
        break;
    case OPTION_integer:
    case OPTION_seconds:
        if (cJSON_IsNumber(value))
            return set_json_number(o, config, value->valuedouble, err);
        break;
    case OPTION_boolean:
        if (cJSON_IsBool(value))
            return option_set_text(o, config, cJSON_IsTrue(value) ? "true" : "false", false, err);
        break;
    }
    return error_set(err, STATUS_INVALID, "must be %s", option_expected(o, expected, sizeof expected));
}

static void write_list(const struct config_list *list, struct buffer *out)
{
    buffer_byte(out, '[');
    for (size_t i = 0; i < list->count; i++) {
        if (i)
            buffer_text(out, ", ");
        json_write_string(out, span_of(list->items[i]));
    }
    buffer_byte(out, ']');
}

static void write_seconds(int64_t ms, struct buffer *out)
{
    json_write_integer(out, ms / 1000);
    int decimals = ms % 1000 == 0 ? 0 : ms % 100 == 0 ? 1 : ms % 10 == 0 ? 2 : 3;
    static const int64_t divisor[] = {1000, 100, 10, 1};
    if (decimals)
        buffer_printf(out, ".%0*" PRId64, decimals, ms % 1000 / divisor[decimals]);
}

void option_write_json(const struct option *o, const struct config *config, struct buffer *out)
{
    switch (o->type) {
    case OPTION_path:
    case OPTION_choice:
        json_write_string(out, span_of(*CONST_MEMBER(char *, o, config)));
        break;
    case OPTION_list:
        write_list(CONST_MEMBER(struct config_list, o, config), out);
        break;
    case OPTION_mode:
        buffer_printf(out, "\"%04o\"", *CONST_MEMBER(unsigned, o, config));
        break;
    case OPTION_integer:
        json_write_integer(out, *CONST_MEMBER(int64_t, o, config));
        break;
    case OPTION_seconds:
        write_seconds(*CONST_MEMBER(int64_t, o, config), out);
        break;
    case OPTION_boolean:
        json_write_boolean(out, *CONST_MEMBER(bool, o, config));
        break;
    }
}

void option_clear(const struct option *o, struct config *config)
{
    if (o->type == OPTION_path || o->type == OPTION_choice)
        free(*MEMBER(char *, o, config));
    else if (o->type == OPTION_list)
        config_list_clear(MEMBER(struct config_list, o, config));
}
