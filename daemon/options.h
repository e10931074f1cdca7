/* The rows of options.def as a table, and one value at a time between text, JSON and struct config. Private to the
 * configuration's files. */
#ifndef GGUFD_DAEMON_OPTIONS_H
#define GGUFD_DAEMON_OPTIONS_H

#include <cjson/cJSON.h>

#include "daemon/config.h"

enum option_type {
    OPTION_path, OPTION_choice, OPTION_list, OPTION_mode, OPTION_integer, OPTION_seconds, OPTION_boolean
};

struct option {
    enum option_type type;
    const char *key;
    size_t offset; /* of the member of struct config */
    const char *fallback;
    double low, high;
    const char *argument, *help;
};

enum option_index {
#define OPTION(type, key, fallback, low, high, argument, help) OPTION_AT_##key,
#include "daemon/options.def"
#undef OPTION
    OPTION_COUNT
};
extern const struct option options[OPTION_COUNT];

/* NULL when there is none. */
const struct option *option_find(const char *key);
/* "an integer in 0..1024": what the option's value must be. */
const char *option_expected(const struct option *o, char *out, size_t size);

/* Sets the member from text (command line, environment, default) or from a JSON value. `append`: a list keeps what it
 * holds. The error text starts with "must be". */
enum status option_set_text(const struct option *o, struct config *config, const char *text, bool append,
                            struct error *err);
enum status option_set_json(const struct option *o, struct config *config, const cJSON *value, struct error *err);
/* The value as JSON. */
void option_write_json(const struct option *o, const struct config *config, struct buffer *out);
void option_clear(const struct option *o, struct config *config);

enum status config_list_push(struct config_list *list, const char *text, size_t size, struct error *err);
void config_list_clear(struct config_list *list);

#endif
