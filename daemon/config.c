/* The layers of the configuration; see config.h for what is refused. */
#include "daemon/config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/options.h"
#include "proto/json.h"

#define FILE_BYTES_MAX (1u << 20)
#define PREFIX "GGUFD_"

struct loading {
    struct config *config;
    unsigned char set_by[OPTION_COUNT]; /* per option: last layer that set it, 0: the default */
    struct error *err;
};
enum layer { LAYER_DEFAULT, LAYER_FILE, LAYER_ENVIRONMENT, LAYER_COMMAND_LINE };

const char *config_key(size_t index)
{
    return index < OPTION_COUNT ? options[index].key : NULL;
}

static enum status set_text(struct loading *l, const struct option *o, const char *text, enum layer layer)
{
    size_t i = (size_t)(o - options);
    enum status status = option_set_text(o, l->config, text, layer > LAYER_DEFAULT && l->set_by[i] == layer, l->err);
    l->set_by[i] = (unsigned char)layer;
    return status;
}

/* ---- defaults ---- */

static enum status replace_string(char **member, const char *text, struct error *err)
{
    char *copy = strdup(text);
    if (!copy)
        return error_no_memory(err, strlen(text) + 1, "a setting");
    free(*member);
    *member = copy;
    return STATUS_OK;
}

static enum status load_defaults(struct loading *l)
{
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        enum status status = set_text(l, &options[i], options[i].fallback, LAYER_DEFAULT);
        if (status != STATUS_OK) {
            error_context(l->err, "default of %s", options[i].key);
            return status;
        }
    }
    return replace_string(&l->config->file, "", l->err);
}

/* ---- file ---- */

static enum status read_file(const char *path, struct buffer *out, struct error *err)
{
    FILE *f = fopen(path, "rbe");
    char chunk[4096];
    size_t n;
    if (!f)
        return error_set(err, STATUS_IO, "cannot be opened: %s", strerror(errno));
    while (out->size <= FILE_BYTES_MAX && (n = fread(chunk, 1, sizeof chunk, f)) > 0)
        buffer_append(out, chunk, n);
    int failed = ferror(f) ? errno : 0;
    fclose(f);
    if (failed)
        return error_set(err, STATUS_IO, "cannot be read: %s", strerror(failed));
    if (out->failed)
        return error_no_memory(err, out->size, "the configuration");
    if (out->size > FILE_BYTES_MAX)
        return error_set(err, STATUS_RANGE, "is larger than %u bytes", FILE_BYTES_MAX);
    return STATUS_OK;
}

static enum status apply_file(struct loading *l, const cJSON *root)
{
    const cJSON *member;
    char quoted[ERROR_QUOTE_BYTES];
    cJSON_ArrayForEach(member, root)
    {
        const struct option *o = option_find(member->string);
        if (!o)
            return error_set(l->err, STATUS_INVALID, "%s: unknown key; ggufd --help lists them",
                             error_quote(member->string, strlen(member->string), quoted));
        enum status status = option_set_json(o, l->config, member, l->err);
        if (status != STATUS_OK) {
            error_context(l->err, "%s", o->key);
            return status;
        }
        l->set_by[o - options] = LAYER_FILE;
    }
    return STATUS_OK;
}

/* cJSON cuts strings at U+0000, takes duplicates and malformed numbers: the checked reader goes first. */
static enum status check_file_text(struct span text, struct error *err)
{
    struct json_value root;
    enum status status = json_check(text, &root, err);
    if (status != STATUS_OK)
        return status;
    if (root.type != JSON_OBJECT)
        return error_set(err, STATUS_INVALID, "must be an object, not %s", json_type_text(root.type));
    if (memmem(text.data, text.size, "\\u0000", 6))
        return error_set(err, STATUS_INVALID, "must not hold U+0000");
    return STATUS_OK;
}

static enum status load_file(struct loading *l, const char *path)
{
    struct buffer text = {0};
    cJSON *root = NULL;
    enum status status = read_file(path, &text, l->err);
    if (status == STATUS_OK)
        status = check_file_text(buffer_span(&text), l->err);
    if (status == STATUS_OK) {
        root = cJSON_ParseWithLength(text.data, text.size);
        status = root ? apply_file(l, root) : error_no_memory(l->err, text.size, "the configuration");
    }
    if (status != STATUS_OK) {
        char quoted[ERROR_QUOTE_BYTES];
        error_context(l->err, "%s", error_quote(path, strlen(path), quoted));
    } else {
        status = replace_string(&l->config->file, path, l->err);
    }
    cJSON_Delete(root);
    buffer_clear(&text);
    return status;
}

/* ---- environment ---- */

/* THREADS -> the option "threads". */
static const struct option *find_variable(const char *name, size_t size)
{
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        const char *key = options[i].key;
        size_t n = 0;
        while (n < size && key[n] && name[n] == (key[n] >= 'a' ? key[n] - 32 : key[n])) /* keys are [a-z0-9_] */
            n++;
        if (n == size && !key[n])
            return &options[i];
    }
    return NULL;
}

static enum status load_environment(struct loading *l, char *const *environment)
{
    for (; environment && *environment; environment++) {
        const char *name = *environment, *equals = strchr(name, '=');
        if (!equals || strncmp(name, PREFIX, sizeof PREFIX - 1) != 0)
            continue;
        const char *rest = name + sizeof PREFIX - 1;
        const struct option *o = find_variable(rest, (size_t)(equals - rest));
        size_t size = (size_t)(equals - name);
        enum status status = o ? set_text(l, o, equals + 1, LAYER_ENVIRONMENT)
                               : config_list_push(&l->config->unknown_environment, name, size, l->err);
        if (status != STATUS_OK) {
            error_context(l->err, "%.*s", (int)size, name);
            return status;
        }
    }
    return STATUS_OK;
}

/* ---- command line ---- */

struct argument {
    char name[64];     /* without --, with _ for - */
    const char *value; /* behind =, or the next word where one is needed; NULL: none */
    const char *raw;
};

static enum status refuse_argument(const char *raw, const char *why, struct error *err)
{
    char quoted[ERROR_QUOTE_BYTES];
    return error_set(err, STATUS_INVALID, "%s: %s", error_quote(raw, strlen(raw), quoted), why);
}

/* Takes the name of argv[i] apart; the value stays NULL without "=". */
static enum status parse_argument(const char *raw, struct argument *out, struct error *err)
{
    *out = (struct argument){.raw = raw};
    if (strncmp(raw, "--", 2) != 0 || !raw[2])
        return refuse_argument(raw, "unexpected; options start with --", err);
    size_t n = strcspn(raw + 2, "=");
    if (n >= sizeof out->name)
        return refuse_argument(raw, "unknown option; ggufd --help lists them", err);
    for (size_t i = 0; i < n; i++)
        out->name[i] = raw[2 + i] == '-' ? '_' : raw[2 + i];
    if (raw[2 + n] == '=')
        out->value = raw + 2 + n + 1;
    return STATUS_OK;
}

static enum status parse_prompt_tokens(struct config *config, const char *text, struct error *err)
{
    for (const char *p = text;;) {
        char *end;
        unsigned long id = strtoul(p, &end, 10);
        if (end == p || *p < '0' || id > INT32_MAX || (*end && *end != ',')) /* below '0': a sign or a blank */
            return error_set(err, STATUS_INVALID, "must be token ids with commas between, like 1,403,407");
        int32_t *ids = realloc(config->prompt_tokens, (config->n_prompt_tokens + 1) * sizeof *ids);
        if (!ids)
            return error_no_memory(err, (config->n_prompt_tokens + 1) * sizeof *ids, "prompt tokens");
        config->prompt_tokens = ids;
        ids[config->n_prompt_tokens++] = (int32_t)id;
        if (!*end)
            return STATUS_OK;
        p = end + 1;
    }
}

static enum status choose_action(struct config *config, enum config_action action, struct error *err)
{
    if (config->action != CONFIG_SERVE)
        return error_set(err, STATUS_INVALID,
                         "only one of --check, --inspect, --prompt and --prompt-tokens can be given, once");
    config->action = action;
    return STATUS_OK;
}

/* Options that are no keys. value: whether one follows. */
enum command { COMMAND_CONFIG, COMMAND_CHECK, COMMAND_INSPECT, COMMAND_JSON, COMMAND_PROMPT, COMMAND_PROMPT_TOKENS };
static const struct {
    const char *name;
    bool value;
} commands[] = {
    [COMMAND_CONFIG] = {"config", true},   [COMMAND_CHECK] = {"check", false},
    [COMMAND_INSPECT] = {"inspect", true}, [COMMAND_JSON] = {"json", false},
    [COMMAND_PROMPT] = {"prompt", true},   [COMMAND_PROMPT_TOKENS] = {"prompt_tokens", true},
};
#define N_COMMANDS (sizeof commands / sizeof commands[0])

static size_t find_command(const char *name)
{
    size_t i = 0;
    while (i < N_COMMANDS && strcmp(commands[i].name, name) != 0)
        i++;
    return i;
}

static enum status run_command(struct loading *l, enum command command, const char *value)
{
    struct config *config = l->config;
    enum status status = STATUS_OK;
    switch (command) {
    case COMMAND_CONFIG: /* read before the environment */
        break;
    case COMMAND_JSON:
        config->json = true;
        break;
    case COMMAND_CHECK:
        return choose_action(config, CONFIG_CHECK, l->err);
    case COMMAND_INSPECT:
        status = choose_action(config, CONFIG_INSPECT, l->err);
        return status == STATUS_OK ? replace_string(&config->inspect, value, l->err) : status;
    case COMMAND_PROMPT:
        status = choose_action(config, CONFIG_ONE_SHOT, l->err);
        return status == STATUS_OK ? replace_string(&config->prompt, value, l->err) : status;
    case COMMAND_PROMPT_TOKENS:
        status = choose_action(config, CONFIG_ONE_SHOT, l->err);
        return status == STATUS_OK ? parse_prompt_tokens(config, value, l->err) : status;
    }
    return status;
}

/* Gives the argument its value from the next word where it needs one. */
static enum status take_value(struct argument *a, const struct option *o, size_t command, char *const *argv, int argc,
                              int *i, struct error *err)
{
    const char *next = *i + 1 < argc ? argv[*i + 1] : NULL;
    if (!o && command == N_COMMANDS)
        return refuse_argument(a->raw, "unknown option; ggufd --help lists them", err);
    if (!o && !commands[command].value)
        return a->value ? refuse_argument(a->raw, "takes no value", err) : STATUS_OK;
    if (a->value)
        return STATUS_OK;
    if (o && o->type == OPTION_boolean) {
        bool word = next && (strcmp(next, "true") == 0 || strcmp(next, "false") == 0);
        *i += word;
        a->value = word ? next : "true";
        return STATUS_OK;
    }
    if (!next)
        return refuse_argument(a->raw, "wants a value", err);
    ++*i;
    a->value = next;
    return STATUS_OK;
}

/* The whole command line; only_file: just finds --config, --help and --version. */
static enum status load_arguments(struct loading *l, int argc, char *const *argv, const char **file)
{
    for (int i = 1; i < argc; i++) {
        struct argument a;
        enum status status = parse_argument(argv[i], &a, l->err);
        if (status != STATUS_OK)
            return status;
        const struct option *o = option_find(a.name);
        size_t command = find_command(a.name);
        status = take_value(&a, o, command, argv, argc, &i, l->err);
        if (status != STATUS_OK)
            return status;
        if (file) {
            if (command == COMMAND_CONFIG)
                *file = a.value;
            continue;
        }
        status = o ? set_text(l, o, a.value, LAYER_COMMAND_LINE) : run_command(l, (enum command)command, a.value);
        if (status != STATUS_OK) {
            char quoted[ERROR_QUOTE_BYTES];
            error_context(l->err, "--%s", error_quote(a.raw + 2, strcspn(a.raw + 2, "="), quoted));
            return status;
        }
    }
    return STATUS_OK;
}

/* --help and --version answer wherever they stand and whatever else is said. */
static bool find_early_action(struct config *config, int argc, char *const *argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            config->action = CONFIG_HELP;
        else if (strcmp(argv[i], "--version") == 0)
            config->action = CONFIG_VERSION;
        else
            continue;
        return true;
    }
    return false;
}

/* ---- the whole ---- */

static enum status check_whole(struct loading *l)
{
    struct config *c = l->config;
    if (c->max_tokens_limit && c->max_tokens > c->max_tokens_limit) {
        if (l->set_by[OPTION_AT_max_tokens] != LAYER_DEFAULT)
            return error_set(l->err, STATUS_INVALID, "max_tokens: %lld is above max_tokens_limit, %lld",
                             (long long)c->max_tokens, (long long)c->max_tokens_limit);
        c->max_tokens = c->max_tokens_limit;
    }
    if (!*c->model && c->action != CONFIG_INSPECT)
        return error_set(l->err, STATUS_INVALID, "model: is required (--model FILE); ggufd --help lists the options");
    if (c->json && c->action == CONFIG_SERVE)
        return error_set(l->err, STATUS_INVALID, "--json: only with --check, --inspect, --prompt or --prompt-tokens");
    return STATUS_OK;
}

/* systemd's LoadCredential=api_key:... stands for api_key_file where that is not set. */
static enum status find_credentials(struct loading *l, char *const *environment)
{
    static const char name[] = "CREDENTIALS_DIRECTORY=";
    char path[4096];
    if (*l->config->api_key_file)
        return STATUS_OK;
    for (; environment && *environment; environment++) {
        if (strncmp(*environment, name, sizeof name - 1) != 0)
            continue;
        int n = snprintf(path, sizeof path, "%s/api_key", *environment + sizeof name - 1);
        if ((size_t)n >= sizeof path)
            return error_set(l->err, STATUS_INVALID, "CREDENTIALS_DIRECTORY is longer than %zu bytes", sizeof path - 9);
        if (access(path, F_OK) != 0) {
            if (errno == ENOENT)
                return STATUS_OK;
            /* A key that is there and cannot be reached must not become a daemon without a key. */
            return error_set(l->err, STATUS_IO, "cannot look for a key in CREDENTIALS_DIRECTORY: %s", strerror(errno));
        }
        l->config->api_key_from_credentials = true;
        return replace_string(&l->config->api_key_file, path, l->err);
    }
    return STATUS_OK;
}

enum status config_load(struct config *config, int argc, char *const *argv, char *const *environment,
                        struct error *err)
{
    struct error local;
    struct loading l = {.config = config, .err = err ? err : &local};
    const char *file = NULL;
    *config = (struct config){0};
    enum status status = load_defaults(&l);
    if (status == STATUS_OK && find_early_action(config, argc, argv))
        return STATUS_OK;
    if (status == STATUS_OK)
        status = load_arguments(&l, argc, argv, &file);
    if (status == STATUS_OK && file)
        status = load_file(&l, file);
    if (status == STATUS_OK)
        status = load_environment(&l, environment);
    if (status == STATUS_OK)
        status = load_arguments(&l, argc, argv, NULL);
    if (status == STATUS_OK)
        status = check_whole(&l);
    if (status == STATUS_OK)
        status = find_credentials(&l, environment);
    if (status != STATUS_OK)
        config_clear(config);
    return status;
}

void config_clear(struct config *config)
{
    for (size_t i = 0; i < OPTION_COUNT; i++)
        option_clear(&options[i], config);
    free(config->inspect);
    free(config->prompt);
    free(config->prompt_tokens);
    free(config->file);
    config_list_clear(&config->unknown_environment);
    *config = (struct config){0};
}
