/* Configuration: command line over environment over file over default, one row a key in options.def.
 *
 * Unknown keys, wrong types and values out of range are refused with the place they came from, the key and what is
 * allowed. The file is JSON, checked by proto/json.h (so no duplicates, no U+0000) and read with cJSON. */
#ifndef GGUFD_DAEMON_CONFIG_H
#define GGUFD_DAEMON_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/buffer.h"
#include "engine/base/error.h"

/* Exit status of the process; units use RestartPreventExitStatus=2. */
enum { EXIT_ORDERLY = 0, EXIT_RUNTIME = 1, EXIT_REFUSED = 2 };

struct config_list {
    char **items;
    size_t count;
};

enum config_action {
    CONFIG_SERVE,
    CONFIG_HELP,     /* --help: print config_help, exit 0 */
    CONFIG_VERSION,  /* --version */
    CONFIG_CHECK,    /* --check: the configuration is good, and the model opens */
    CONFIG_INSPECT,  /* --inspect MODEL: path in `inspect` */
    CONFIG_ONE_SHOT  /* --prompt TEXT or --prompt-tokens 1,2,3: generate max_tokens to stdout, no server */
};

#define CONFIG_MEMBER_path(key) char *key
#define CONFIG_MEMBER_choice(key) char *key
#define CONFIG_MEMBER_list(key) struct config_list key
#define CONFIG_MEMBER_mode(key) unsigned key
#define CONFIG_MEMBER_integer(key) int64_t key
#define CONFIG_MEMBER_seconds(key) int64_t key##_ms
#define CONFIG_MEMBER_boolean(key) bool key

/* Of an item of allowed_origins. */
#define CONFIG_ORIGIN_BYTES_MAX 255

/* Strings are never NULL; "" is "none". */
struct config {
#define OPTION(type, key, fallback, low, high, argument, help) CONFIG_MEMBER_##type(key);
#include "daemon/options.def"
#undef OPTION
    enum config_action action;
    char *inspect;
    char *prompt;              /* one-shot text, NULL: prompt_tokens */
    int32_t *prompt_tokens;
    size_t n_prompt_tokens;
    bool json;                 /* --json: output of --inspect, --check and one-shot as JSON */
    char *file;                /* --config, or "" */
    bool api_key_from_credentials; /* api_key_file is $CREDENTIALS_DIRECTORY/api_key */
    struct config_list unknown_environment; /* GGUFD_ variables that are no key: log them once */
};

/* Reads everything. environment is a NULL-terminated list of NAME=VALUE (environ). STATUS_INVALID, _IO, _NO_MEMORY:
 * config is cleared and the process ends with EXIT_REFUSED. A missing model is refused only for the actions that need
 * one (serve, check, one-shot). */
enum status config_load(struct config *config, int argc, char *const *argv, char *const *environment,
                        struct error *err);
void config_clear(struct config *config);

/* The text of --help: at most 80 columns and 44 lines. */
void config_help(struct buffer *out);
/* Effective values as a configuration file (config.example.json is that of the defaults). */
void config_write_json(const struct config *config, struct buffer *out);
/* The table of docs/configuration.md. */
void config_write_markdown(struct buffer *out);

/* Keys of the table in order, for tests; NULL past the end. */
const char *config_key(size_t index);

#endif
