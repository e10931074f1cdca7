/* daemon/config: precedence, every key in every place, limits, refusals; the example, the help and the docs against the
 * table. daemon/address along with it. */
#include "daemon/config.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/address.h"
#include "daemon/listener.h"
#include "daemon/options.h"
#include "tests/support/suite.h"

#define ARGUMENTS_MAX 16
static char *const no_environment[] = {NULL};

/* Arguments split at blanks ('_' stays); the caller clears. */
static enum status load(struct config *config, const char *arguments, char *const *environment, struct error *err)
{
    static char text[4096];
    char *argv[ARGUMENTS_MAX + 2] = {"ggufd"};
    int argc = 1;
    snprintf(text, sizeof text, "%s", arguments);
    for (char *word = strtok(text, " "); word && argc <= ARGUMENTS_MAX; word = strtok(NULL, " "))
        argv[argc++] = word;
    return config_load(config, argc, argv, environment, err);
}

static void expect_good(struct config *config, const char *arguments, char *const *environment)
{
    struct error err;
    if (load(config, arguments, environment, &err) != STATUS_OK)
        ck_abort_msg("%s: %s", arguments, err.text);
}

static void expect_refusal(const char *arguments, char *const *environment, const char *says)
{
    struct config config;
    struct error err;
    if (load(&config, arguments, environment, &err) == STATUS_OK)
        ck_abort_msg("accepted: %s", arguments);
    if (!strstr(err.text, says))
        ck_abort_msg("%s: \"%s\" does not say \"%s\"", arguments, err.text, says);
    if (config.model)
        ck_abort_msg("%s: not cleared", arguments);
}

static const char *write_file(const char *text)
{
    static char path[4][256];
    static int next;
    char *p = path[next++ % 4];
    snprintf(p, 256, "%s/c%d.json", suite_tmp(), next);
    FILE *f = fopen(p, "w");
    fputs(text, f);
    fclose(f);
    return p;
}

static const char *with_file(const char *text, const char *more)
{
    static char arguments[512];
    snprintf(arguments, sizeof arguments, "--config %s %s", write_file(text), more);
    return arguments;
}

TEST(defaults_are_those_of_the_contract)
{
    struct config c;
    expect_good(&c, "--model m.gguf", no_environment);
    ck_assert_str_eq(c.model, "m.gguf");
    ck_assert(c.listen.count == 1 && strcmp(c.listen.items[0], "127.0.0.1:8080") == 0);
    ck_assert_uint_eq(c.socket_mode, 0660);
    ck_assert(c.context == 0 && c.batch == 256 && c.threads == 0 && c.queue == 16 && c.max_tokens == 128 &&
              c.max_tokens_limit == 0 && c.max_body == 1048576 && c.body_memory == 67108864 && c.max_connections == 1024);
    ck_assert(c.max_queue_wait_ms == 60000 && c.header_timeout_ms == 10000 && c.body_timeout_ms == 30000 &&
              c.write_timeout_ms == 10000 && c.keepalive_timeout_ms == 75000 && c.drain_timeout_ms == 30000 &&
              c.stall_timeout_ms == 60000);
    ck_assert_str_eq(c.tier, "auto");
    ck_assert_str_eq(c.log_format, "text");
    ck_assert_str_eq(c.log_level, "info");
    ck_assert(!*c.api_key_file && !*c.log_file && !*c.file && c.allowed_origins.count == 0 && c.allowed_hosts.count == 0);
    ck_assert(!c.prefault && !c.lock_memory && !c.log_prompts && c.page && c.action == CONFIG_SERVE && !c.json);
    config_clear(&c);
    config_clear(&c);
}
END

TEST(command_line_over_environment_over_file_over_default)
{
    struct config c;
    char *const environment[] = {"GGUFD_THREADS=2", "GGUFD_BATCH=20", "GGUFD_LISTEN=127.0.0.1:2,127.0.0.1:3", "PATH=/bin", NULL};
    const char *text = "{\"model\":\"f.gguf\",\"threads\":1,\"batch\":10,\"queue\":5,\"listen\":[\"127.0.0.1:1\"],\"page\":false}";
    expect_good(&c, with_file(text, "--threads 3 --listen 127.0.0.1:4 --listen=127.0.0.1:5,unix:/x"), environment);
    ck_assert_str_eq(c.model, "f.gguf");
    ck_assert(c.threads == 3 && c.batch == 20 && c.queue == 5 && c.context == 0 && !c.page);
    ck_assert(c.listen.count == 3 && strcmp(c.listen.items[0], "127.0.0.1:4") == 0 && strcmp(c.listen.items[2], "unix:/x") == 0);
    ck_assert_ptr_nonnull(strstr(c.file, ".json"));
    config_clear(&c);
    expect_good(&c, with_file(text, ""), environment);
    ck_assert(c.threads == 2 && c.listen.count == 2 && strcmp(c.listen.items[1], "127.0.0.1:3") == 0);
    config_clear(&c);
    expect_good(&c, with_file(text, ""), no_environment);
    ck_assert(c.threads == 1 && c.batch == 10 && c.listen.count == 1 && strcmp(c.listen.items[0], "127.0.0.1:1") == 0);
    config_clear(&c);
}
END

/* A value for each type that differs from every default, as text and as JSON. */
static const char *other_value(const struct option *o, bool json)
{
    static char text[64];
    switch (o->type) {
    case OPTION_path: return json ? "\"/other\"" : "/other";
    case OPTION_mode: return json ? "\"0600\"" : "0600";
    case OPTION_integer: return "33";
    case OPTION_seconds: return "2.5";
    case OPTION_boolean: return strcmp(o->fallback, "true") == 0 ? "false" : "true";
    case OPTION_list: {
        const char *item = strcmp(o->key, "listen") == 0            ? "unix:/s"
                           : strcmp(o->key, "allowed_origins") == 0 ? "https://a.example:8443"
                                                                    : "a.example";
        snprintf(text, sizeof text, json ? "[\"%s\"]" : "%s", item);
        return text;
    }
    case OPTION_choice: {
        const char *last = strrchr(o->argument, '|') + 1;
        snprintf(text, sizeof text, json ? "\"%s\"" : "%s", last);
        return text;
    }
    }
    return "";
}

static void check_value(const struct config *c, const struct option *o, const char *place)
{
    struct buffer got = {0};
    option_write_json(o, c, &got);
    if (!span_is(buffer_span(&got), other_value(o, true)))
        ck_abort_msg("%s from %s: %.*s not %s", o->key, place, (int)got.size, got.data, other_value(o, true));
    buffer_clear(&got);
}

TEST(every_key_works_in_every_place)
{
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        const struct option *o = &options[i];
        struct config c;
        char text[256], name[64], variable[256];
        const char *model = i == OPTION_AT_model ? "" : "--model m";
        snprintf(name, sizeof name, "%s", o->key);
        for (char *p = name; *p; p++)
            *p = *p == '_' ? '-' : *p;
        snprintf(text, sizeof text, "%s --%s %s", model, name, other_value(o, false));
        expect_good(&c, text, no_environment);
        check_value(&c, o, "command line");
        config_clear(&c);
        snprintf(text, sizeof text, "%s --%s=%s", model, o->key, other_value(o, false)); /* _ is taken too */
        expect_good(&c, text, no_environment);
        check_value(&c, o, "command line with =");
        config_clear(&c);
        size_t n = (size_t)snprintf(variable, sizeof variable, "GGUFD_%s=", o->key);
        for (char *p = variable; *p && *p != '='; p++)
            *p = *p >= 'a' && *p <= 'z' ? (char)(*p - 32) : *p;
        snprintf(variable + n, sizeof variable - n, "%s", other_value(o, false));
        char *const environment[] = {variable, NULL};
        expect_good(&c, model, environment);
        check_value(&c, o, "environment");
        ck_assert_uint_eq(c.unknown_environment.count, 0);
        config_clear(&c);
        snprintf(text, sizeof text, "{\"%s\":%s}", o->key, other_value(o, true));
        expect_good(&c, with_file(text, model), no_environment);
        check_value(&c, o, "file");
        config_clear(&c);
        ck_assert_str_eq(config_key(i), o->key);
    }
    ck_assert_ptr_null(config_key(OPTION_COUNT));
}
END

/* Low and high are taken, what lies beyond is refused, in every place. */
TEST(every_range_ends_where_the_table_says)
{
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        const struct option *o = &options[i];
        if (o->type != OPTION_integer && o->type != OPTION_seconds)
            continue;
        bool seconds = o->type == OPTION_seconds;
        char good[2][32], bad[2][32];
        snprintf(good[0], 32, seconds ? "%.3f" : "%.0f", o->low);
        snprintf(good[1], 32, seconds ? "%.3f" : "%.0f", o->high);
        snprintf(bad[0], 32, seconds ? "%.3f" : "%.0f", o->low - (seconds ? 0.001 : 1));
        snprintf(bad[1], 32, seconds ? "%.3f" : "%.0f", o->high + (seconds ? 0.001 : 1));
        if (seconds && o->low > 0)
            strcpy(bad[0], "0");
        for (int k = 0; k < 2; k++) {
            struct config c;
            char text[256], says[128], expected[128];
            const char *more = strcmp(o->key, "max_tokens_limit") == 0 ? "" : "--max-tokens 0";
            snprintf(text, sizeof text, "--model m %s --%s %s", o->key == options[OPTION_AT_max_tokens].key ? "" : more, o->key, good[k]);
            expect_good(&c, text, no_environment);
            config_clear(&c);
            snprintf(says, sizeof says, "%s: must be %s, not", o->key, option_expected(o, expected, sizeof expected));
            snprintf(text, sizeof text, "--model m --%s %s", o->key, bad[k]);
            expect_refusal(text, no_environment, says);
            snprintf(text, sizeof text, "{\"model\":\"m\",\"%s\":%s}", o->key, bad[k]);
            expect_refusal(with_file(text, ""), no_environment, says);
        }
    }
}
END

TEST(values_of_the_wrong_kind_are_refused)
{
    static const struct {
        const char *arguments, *says;
    } rows[] = {
        {"--model m --threads x", "--threads: must be an integer in 0..1024, not \"x\""},
        {"--model m --threads=", "--threads: must be an integer"},
        {"--model m --threads 1.5", "must be an integer"},
        {"--model m --threads +1", "must be an integer"},
        {"--model m --threads 0x10", "must be an integer"},
        {"--model m --threads 99999999999999999999", "must be an integer"},
        {"--model m --max-queue-wait 1.2345", "--max-queue-wait: must be seconds in 0..86400, at most three decimals, not \"1.2345\""},
        {"--model m --max-queue-wait 1.", "must be seconds"},
        {"--model m --max-queue-wait .5", "must be seconds"},
        {"--model m --max-queue-wait 1.2.3", "must be seconds"},
        {"--model m --max-queue-wait 1,5", "must be seconds"},
        {"--model m --max-queue-wait -1", "must be seconds"},
        {"--model m --tier sse9", "--tier: must be one of auto|scalar|avx2|avx512|neon, not \"sse9\""},
        {"--model m --tier auto|scalar", "must be one of"},
        {"--model m --tier=", "must be one of"},
        {"--model m --log-level Info", "must be one of"},
        {"--model m --socket-mode 0999", "--socket-mode: must be an octal mode in 0000..0777, as text, not \"0999\""},
        {"--model m --socket-mode 1000", "must be an octal mode"},
        {"--model m --socket-mode rw", "must be an octal mode"},
        {"--model m --socket-mode=", "must be an octal mode"},
        {"--model m --socket-mode 000660", "must be an octal mode"},
        {"--model m --page=yes", "--page: must be true or false, not \"yes\""},
        {"--model m --listen 8080", "--listen: must be HOST:PORT"},
        {"--model m --listen 127.0.0.1:1,", "must not end with a comma"},
        {"--model m --listen 127.0.0.1:1,,127.0.0.1:2", "must be HOST:PORT"},
        {"--model m --listen=", "listen: must hold at least 1 item"},
        {"--model m --allowed-origins *", "must hold origins like https://host:port, not \"*\""},
        {"--model m --allowed-origins https://a/", "must hold origins"},
        {"--model m --allowed-origins ://a.example", "must hold origins"},
        {"--model m --allowed-origins https://", "must hold origins"},
        {"--model m --allowed-origins HTTPS://a.example", "must hold origins"},
        {"--model m --allowed-origins a.example", "must hold origins"},
        {"--model m --allowed-hosts a.example:80", "must hold host names without port"},
        {"--model m --allowed-hosts *", "must hold host names"},
        {"--model m --allowed-hosts a,,b", "must hold host names without port, not \"\""},
        {"--model m --allowed-hosts *,", "must hold host names"},
        {"--model m --max-tokens 65 --max-tokens-limit 64", "max_tokens: 65 is above max_tokens_limit, 64"},
        {"", "model: is required"},
        {"--check", "model: is required"},
        {"--prompt x", "model: is required"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        expect_refusal(rows[i].arguments, no_environment, rows[i].says);
    char *const environment[] = {"GGUFD_THREADS=x", NULL};
    expect_refusal("--model m", environment, "GGUFD_THREADS: must be an integer in 0..1024, not \"x\"");
    struct config c;
    expect_good(&c, "--model m --max-tokens-limit 64", no_environment);
    ck_assert_int_eq(c.max_tokens, 64); /* a default gives way */
    config_clear(&c);
    expect_good(&c, "--model m --threads 1 --threads 2", no_environment);
    ck_assert_int_eq(c.threads, 2);
    config_clear(&c);
}
END

TEST(the_file_is_read_strictly)
{
    static const struct {
        const char *text, *says;
    } rows[] = {
        {"", "the text is empty"},
        {"[]", "must be an object, not an array"},
        {"{\"thread\":1}", "thread: unknown key"},
        {"{\"Threads\":1}", "Threads: unknown key"},
        {"{\"threads\":1,\"threads\":2}", "threads: a duplicate key"},
        {"{\"threads\":\"1\"}", "threads: must be an integer in 0..1024"},
        {"{\"threads\":1.5}", "threads: must be an integer in 0..1024, not \"1.5\""},
        {"{\"threads\":null}", "threads: must be an integer"},
        {"{\"threads\":01}", "threads: a number with a leading zero"},
        {"{\"threads\":1} x", "bytes behind the value at byte 14"},
        {"{\"threads\":1,}", "where a key in double quotes is expected"},
        {"{\"threads\":1e400}", "must be an integer"},
        {"{\"max_queue_wait\":0.0005}", "max_queue_wait: must be seconds"},
        {"{\"listen\":\"127.0.0.1:1\"}", "listen: must be an array of strings"},
        {"{\"listen\":[1]}", "listen: must be an array of strings"},
        {"{\"listen\":[\"x\"]}", "listen: must be HOST:PORT"},
        {"{\"listen\":[]}", "listen: must hold at least 1 item"},
        {"{\"page\":1}", "page: must be true or false"},
        {"{\"page\":\"true\"}", "page: must be true or false"},
        {"{\"model\":5}", "model: must be a string"},
        {"{\"model\":\"a\\u0000b\"}", "must not hold U+0000"},
        {"{\"socket_mode\":660}", "socket_mode: must be an octal mode"},
        {"{\"tier\":\"sse\"}", "tier: must be one of"},
        {"{\"model\":\"\xff\"}", "ill-formed UTF-8"},
        {"{\"config\":\"x\"}", "config: unknown key"},
        {"// comment\n{}", "byte 0"},
    };
    struct config c;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *arguments = with_file(rows[i].text, "--model m");
        expect_refusal(arguments, no_environment, rows[i].says);
        expect_refusal(arguments, no_environment, ".json: "); /* names the file */
    }
    expect_refusal("--config /nonexistent/c.json --model m", no_environment, "/nonexistent/c.json: cannot be opened: No such file");
    char directory[300];
    snprintf(directory, sizeof directory, "--model m --config %s", suite_tmp());
    expect_refusal(directory, no_environment, "cannot be read: Is a directory");
    expect_good(&c, with_file("{\"max_queue_wait\":0.25,\"threads\":2.0,\"listen\":[\"a,b:1\"]}", "--model m"), no_environment);
    ck_assert(c.max_queue_wait_ms == 250 && c.threads == 2 && strcmp(c.listen.items[0], "a,b:1") == 0);
    config_clear(&c);
}
END

TEST(a_file_of_more_than_a_mebibyte_is_refused)
{
    struct config c;
    for (int extra = 0; extra <= 1; extra++) {
        char path[256], arguments[300];
        snprintf(path, sizeof path, "%s/large.json", suite_tmp());
        FILE *f = fopen(path, "w");
        fputs("{}", f);
        for (int i = 0; i < (1 << 20) - 2 + extra; i++)
            fputc('\n', f);
        fclose(f);
        snprintf(arguments, sizeof arguments, "--model m --config %s", path);
        if (extra)
            expect_refusal(arguments, no_environment, "is larger than 1048576 bytes");
        else
            expect_good(&c, arguments, no_environment);
    }
    config_clear(&c);
}
END

TEST(options_that_are_no_options_are_refused)
{
    static const struct {
        const char *arguments, *says;
    } rows[] = {
        {"--model m --thread 1", "--thread: unknown option"}, {"model.gguf", "model.gguf: unexpected; options start with --"},
        {"--model", "--model: wants a value"},                {"--model m -t 1", "-t: unexpected"},
        {"--model m --", "--: unexpected"},                   {"--model m --check=1", "--check=1: takes no value"},
        {"--model m --config", "--config: wants a value"},    {"--model m --json", "--json: only with"},
        {"--check --inspect m", "--inspect: only one of"},    {"--model m --prompt a --prompt-tokens 1", "--prompt-tokens: only one of"},
        {"--model m --prompt a --prompt b", "only one of"},   {"--model m --no-page", "unknown option"},
        {"--model m --page maybe", "maybe: unexpected"},      {"--model m --prompt-tokens x", "--prompt-tokens: must be token ids"},
        {"--model m --prompt-tokens 1,", "must be token ids"}, {"--model m --prompt-tokens -1", "must be token ids"},
        {"--model m --prompt-tokens 2147483648", "must be token ids"}, {"--model m --prompt-tokens 1,,2", "must be token ids"},
        {"--model m --prompt-tokens=", "must be token ids"}, {"--model m --prompt-tokens 1x", "must be token ids"},
        {"--model m --prompt-tokens 99999999999999999999", "must be token ids"},  {"--model m --\033[2J 1", "--\\x1b[2J: unknown option"},
        {"--model m --aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa 1", "unknown option"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        expect_refusal(rows[i].arguments, no_environment, rows[i].says);
}
END

TEST(actions_are_told_apart)
{
    struct config c;
    expect_good(&c, "--help --nonsense", no_environment);
    ck_assert_int_eq(c.action, CONFIG_HELP);
    config_clear(&c);
    expect_good(&c, "-h", no_environment);
    ck_assert_int_eq(c.action, CONFIG_HELP);
    config_clear(&c);
    expect_good(&c, "--version", no_environment);
    ck_assert_int_eq(c.action, CONFIG_VERSION);
    config_clear(&c);
    expect_good(&c, "--model m --check --json", no_environment);
    ck_assert(c.action == CONFIG_CHECK && c.json);
    config_clear(&c);
    expect_good(&c, "--inspect x.gguf --json", no_environment);
    ck_assert(c.action == CONFIG_INSPECT && c.json && strcmp(c.inspect, "x.gguf") == 0);
    config_clear(&c);
    expect_good(&c, "--model m --prompt Once --max-tokens 5", no_environment);
    ck_assert(c.action == CONFIG_ONE_SHOT && strcmp(c.prompt, "Once") == 0 && c.max_tokens == 5 && !c.prompt_tokens);
    config_clear(&c);
    expect_good(&c, "--model m --prompt=", no_environment);
    ck_assert(c.action == CONFIG_ONE_SHOT && c.prompt && !*c.prompt);
    config_clear(&c);
    expect_good(&c, "--model m --prompt-tokens 1,403,2147483647", no_environment);
    ck_assert(c.action == CONFIG_ONE_SHOT && !c.prompt && c.n_prompt_tokens == 3 && c.prompt_tokens[1] == 403 &&
              c.prompt_tokens[2] == 2147483647);
    config_clear(&c);
    expect_good(&c, "--model m --prefault --lock-memory --page false --log-prompts=1", no_environment);
    ck_assert(c.prefault && c.lock_memory && !c.page && c.log_prompts);
    config_clear(&c);
    char *const environment[] = {"GGUFD_NONSENSE=1", "GGUFD_THREADSX=1", "GGUFDTHREADS=9", NULL};
    expect_good(&c, "--model m", environment);
    ck_assert(c.unknown_environment.count == 2 && strcmp(c.unknown_environment.items[0], "GGUFD_NONSENSE") == 0);
    config_clear(&c);
}
END

TEST(credentials_stand_in_for_the_key_file)
{
    struct config c;
    char variable[300], path[300];
    snprintf(variable, sizeof variable, "CREDENTIALS_DIRECTORY=%s", suite_tmp());
    char *const environment[] = {variable, NULL};
    expect_good(&c, "--model m", environment);
    ck_assert(!*c.api_key_file && !c.api_key_from_credentials);
    config_clear(&c);
    snprintf(path, sizeof path, "%s/api_key", suite_tmp());
    FILE *f = fopen(path, "w");
    fputs("secret\n", f);
    fclose(f);
    expect_good(&c, "--model m", environment);
    ck_assert(c.api_key_from_credentials);
    ck_assert_str_eq(c.api_key_file, path);
    config_clear(&c);
    expect_good(&c, "--model m --api-key-file /k", environment);
    ck_assert(!c.api_key_from_credentials && strcmp(c.api_key_file, "/k") == 0);
    config_clear(&c);
    /* What cannot be looked into is a refusal, never a daemon without a key. */
    char *arguments[] = {"ggufd", "--model", "m", NULL};
    struct error err;
    snprintf(variable, sizeof variable, "CREDENTIALS_DIRECTORY=%s", path);
    ck_assert_int_eq(config_load(&c, 3, arguments, environment, &err), STATUS_IO);
    ck_assert_ptr_nonnull(strstr(err.text, "CREDENTIALS_DIRECTORY"));
}
END

TEST(addresses_are_taken_apart)
{
    static const struct {
        const char *text, *host;
        int port; /* -1: refused */
    } rows[] = {{"127.0.0.1:8080", "127.0.0.1", 8080}, {"localhost:0", "localhost", 0}, {"[::1]:65535", "::1", 65535},
                {":8080", "", 8080}, {"[::]:80", "::", 80}, {"[fe80::1%eth0]:1", "fe80::1%eth0", 1},
                {"127.0.0.1", "", -1}, {"127.0.0.1:", "", -1}, {"127.0.0.1:65536", "", -1}, {"127.0.0.1:-1", "", -1},
                {"::1:80", "", -1}, {"[::1]", "", -1}, {"[::1:80", "", -1}, {"[]80:", "", -1}, {"[:80", "", -1}, {"a:b", "", -1}, {"", "", -1},
                {"a:+1", "", -1}, {"a:000080", "", -1}, {"unix:", "", -1}, {"unix:/", "", -1}, {"unix:@", "", -1},
                {"unix:relative", "", -1}, {"http://a:1", "", -1}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct address a;
        struct error err;
        enum status status = address_parse(rows[i].text, &a, &err);
        if ((status == STATUS_OK) != (rows[i].port >= 0))
            ck_abort_msg("%s", rows[i].text);
        if (status == STATUS_OK && (a.is_unix || a.port != rows[i].port || strcmp(a.host, rows[i].host) != 0))
            ck_abort_msg("%s: %s %d", rows[i].text, a.host, a.port);
    }
    struct address a;
    struct error err;
    ck_assert_int_eq(address_parse("unix:/run/x:1", &a, &err), STATUS_OK);
    ck_assert(a.is_unix && strcmp(a.path, "/run/x:1") == 0);
    ck_assert_int_eq(address_parse("unix:@name", &a, &err), STATUS_OK);
    ck_assert_str_eq(a.path, "@name");
    for (size_t n = 107; n <= 108; n++) {
        char text[128] = "unix:/";
        memset(text + 6, 'x', n - 1);
        text[5 + n] = 0;
        ck_assert_int_eq(address_parse(text, &a, &err) == STATUS_OK, n == 107);
    }
    ck_assert_ptr_nonnull(strstr(err.text, "has 108 bytes; at most 107"));
    struct listener l;
    ck_assert_int_eq(listener_bind(&l, "x", 0600, &err), STATUS_INVALID);
    ck_assert(l.fd == -1 && strstr(err.text, "there is no port"));
    for (size_t n = 255; n <= 256; n++) {
        char text[300];
        memset(text, 'h', n);
        strcpy(text + n, ":1");
        ck_assert_int_eq(address_parse(text, &a, &err) == STATUS_OK, n == 255);
    }
}
END

/* What is too long to be compared later is refused at once: it would never match. */
TEST(an_origin_has_a_longest_length)
{
    for (size_t n = CONFIG_ORIGIN_BYTES_MAX; n <= CONFIG_ORIGIN_BYTES_MAX + 1; n++) {
        struct config c;
        char arguments[400] = "--model m --allowed-origins ", origin[300] = "https://";
        memset(origin + 8, 'a', n - 8);
        strcat(arguments, origin);
        if (n > CONFIG_ORIGIN_BYTES_MAX) {
            expect_refusal(arguments, no_environment, "--allowed-origins: an origin has 256 bytes, at most 255");
            continue;
        }
        expect_good(&c, arguments, no_environment);
        ck_assert_str_eq(c.allowed_origins.items[0], origin);
        config_clear(&c);
    }
}
END

TEST(odd_environments_are_read)
{
    struct config c;
    char *const odd[] = {"GGUFD_THREADS", "nothing", "=", "GGUFD_PAGE=0", NULL}; /* an entry without "=" says nothing */
    expect_good(&c, "--model m", odd);
    ck_assert(c.threads == 0 && !c.page && c.unknown_environment.count == 0);
    config_clear(&c);
    expect_good(&c, "--model m", NULL);
    config_clear(&c);
    static char variable[5000] = "CREDENTIALS_DIRECTORY=/";
    memset(variable + strlen(variable), 'd', 4100);
    expect_refusal("--model m", (char *const[]){variable, NULL}, "CREDENTIALS_DIRECTORY is longer than");
    char *argv[] = {"ggufd", "--nonsense", NULL};
    ck_assert_int_eq(config_load(&c, 2, argv, odd, NULL), STATUS_INVALID); /* nobody asks why */
}
END

/* ---- texts made from the table ---- */

TEST(the_help_fits_a_screen_and_names_every_key)
{
    struct buffer b = {0};
    config_help(&b);
    buffer_byte(&b, 0);
    ck_assert(!b.failed);
    size_t lines = 0;
    for (char *line = b.data, *end; (end = strchr(line, '\n')); line = end + 1, lines++)
        if (end - line > 80)
            ck_abort_msg("%.*s", (int)(end - line), line);
    ck_assert_uint_le(lines, 44);
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        char name[64] = "\n  --";
        strcat(name, options[i].key);
        for (char *p = name + 4; *p; p++)
            *p = *p == '_' ? '-' : *p;
        const char *found = strstr(b.data, name);
        if (!found || found[strlen(name)] != ' ' || !strstr(found, options[i].help))
            ck_abort_msg("%s", options[i].key);
    }
    buffer_clear(&b);
}
END

TEST(the_example_is_the_table_with_its_defaults)
{
    struct config c;
    struct buffer b = {0};
    size_t size;
    char *example = suite_read(suite_root("config.example.json"), &size);
    char arguments[600];
    ck_assert_ptr_nonnull(example);
    cJSON *root = cJSON_ParseWithLength(example, size);
    ck_assert_ptr_nonnull(root);
    size_t i = 0;
    for (const cJSON *member = root->child; member; member = member->next)
        ck_assert_str_eq(member->string, config_key(i++));
    ck_assert_uint_eq(i, OPTION_COUNT);
    snprintf(arguments, sizeof arguments, "--model %s", cJSON_GetObjectItem(root, "model")->valuestring);
    expect_good(&c, arguments, no_environment);
    config_write_json(&c, &b);
    ck_assert(span_is(buffer_span(&b), example));
    config_clear(&c);
    snprintf(arguments, sizeof arguments, "--config %s", suite_root("config.example.json"));
    expect_good(&c, arguments, no_environment);
    b.size = 0;
    config_write_json(&c, &b);
    ck_assert(span_is(buffer_span(&b), example));
    config_clear(&c);
    cJSON_Delete(root);
    buffer_clear(&b);
    free(example);
}
END

TEST(values_are_written_as_they_are_read)
{
    struct config c;
    struct buffer b = {0};
    expect_good(&c, "--model m --listen 127.0.0.1:1,unix:/s --max-queue-wait 0.5 --header-timeout 0.25 --body-timeout 2.125",
                no_environment);
    config_write_json(&c, &b);
    buffer_byte(&b, 0);
    static const char *const lines[] = {"\"listen\": [\"127.0.0.1:1\", \"unix:/s\"],\n", "\"max_queue_wait\": 0.5,\n",
                                        "\"header_timeout\": 0.25,\n", "\"body_timeout\": 2.125,\n",
                                        "\"drain_timeout\": 30,\n", "\"socket_mode\": \"0660\",\n"};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
        if (!strstr(b.data, lines[i]))
            ck_abort_msg("%s is not in %s", lines[i], b.data);
    buffer_clear(&b);
    config_clear(&c);
}
END

TEST(the_documentation_holds_the_table)
{
    struct buffer b = {0};
    char *page = suite_read(suite_root("docs/configuration.md"), NULL);
    ck_assert_ptr_nonnull(page);
    config_write_markdown(&b);
    buffer_byte(&b, 0);
    if (!strstr(page, b.data))
        ck_abort_msg("docs/configuration.md lacks this table:\n%s", b.data);
    buffer_clear(&b);
    free(page);
}
END

SUITE(config, T(defaults_are_those_of_the_contract), T(command_line_over_environment_over_file_over_default),
      T(every_key_works_in_every_place), T(every_range_ends_where_the_table_says), T(values_of_the_wrong_kind_are_refused),
      T(the_file_is_read_strictly), T(a_file_of_more_than_a_mebibyte_is_refused), T(options_that_are_no_options_are_refused),
      T(actions_are_told_apart), T(credentials_stand_in_for_the_key_file), T(addresses_are_taken_apart),
      T(an_origin_has_a_longest_length), T(odd_environments_are_read), T(values_are_written_as_they_are_read),
      T(the_help_fits_a_screen_and_names_every_key), T(the_example_is_the_table_with_its_defaults),
      T(the_documentation_holds_the_table))
