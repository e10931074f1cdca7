/* --check: would serving start? Opens the model as the daemon does and prints what it needs; see commands.h. */
#include <inttypes.h>
#include <stdio.h>

#include "daemon/commands.h"
#include "daemon/config.h"
#include "daemon/address.h"
#include "daemon/auth.h"
#include "daemon/engine_thread.h"
#include "daemon/server.h"
#include "engine/engine.h"
#include "proto/json.h"

static void print_text(const struct config *config, const struct engine_info *i)
{
    const struct engine_memory *m = &i->memory;
    printf("model         %s\n", config->model);
    printf("name          %s\n", i->name[0] ? i->name : "(none)");
    printf("architecture  %s%s, %" PRIu64 " parameters\n", i->architecture,
           i->vocabulary_only ? " (vocabulary only)" : "", i->parameters);
    printf("fingerprint   %s\n", i->fingerprint);
    printf("context       %" PRIu32 " tokens (the model was trained with %" PRIu32 ")\n", i->context, i->context_trained);
    printf("tier          %s\n", i->tier);
    printf("threads       %u (%s)\n", i->threads, i->threads_reason);
    printf("memory        file %" PRIu64 " bytes mapped; %" PRIu64 " of its own: KV cache %" PRIu64 ", working memory %" PRIu64
           ", vocabulary %" PRIu64 "\n", m->file_bytes, m->anonymous_bytes, m->kv_bytes, m->arena_bytes,
           m->vocabulary_bytes);
    if (m->available_bytes)
        printf("available     %" PRIu64 " bytes\n", m->available_bytes);
    printf("ok\n");
}

static void write_number(struct buffer *b, const char *key, uint64_t value)
{
    json_write_key(b, key);
    json_write_unsigned(b, value);
}

static void write_text(struct buffer *b, const char *key, const char *value)
{
    json_write_key(b, key);
    json_write_string(b, span_of(value));
}

static void print_json(const struct config *config, const struct engine_info *i)
{
    struct buffer b = {0};
    const struct engine_memory *m = &i->memory;
    buffer_byte(&b, '{');
    write_text(&b, "model", config->model);
    write_text(&b, "name", i->name);
    write_text(&b, "architecture", i->architecture);
    json_write_key(&b, "vocabulary_only");
    json_write_boolean(&b, i->vocabulary_only);
    write_number(&b, "parameters", i->parameters);
    write_text(&b, "fingerprint", i->fingerprint);
    write_number(&b, "context", i->context);
    write_number(&b, "context_trained", i->context_trained);
    write_text(&b, "tier", i->tier);
    write_number(&b, "threads", i->threads);
    write_text(&b, "threads_reason", i->threads_reason);
    write_number(&b, "file_bytes", m->file_bytes);
    write_number(&b, "kv_bytes", m->kv_bytes);
    write_number(&b, "arena_bytes", m->arena_bytes);
    write_number(&b, "vocabulary_bytes", m->vocabulary_bytes);
    write_number(&b, "anonymous_bytes", m->anonymous_bytes);
    write_number(&b, "available_bytes", m->available_bytes);
    buffer_text(&b, "}\n");
    fwrite(b.data, 1, b.size, stdout);
    buffer_clear(&b);
}

/* What serving would refuse before it opens the model. */
static enum status check_surroundings(const struct config *config, struct error *err)
{
    struct address address;
    struct auth_keys *keys = NULL;
    enum status status = server_check_config(config, err);
    for (size_t i = 0; i < config->listen.count && !status; i++)
        status = address_parse(config->listen.items[i], &address, err);
    if (!status)
        status = auth_keys_load(config->api_key_file, &keys, err);
    auth_keys_free(keys);
    return status;
}

int command_check(const struct config *config)
{
    struct engine_options options = engine_options_from(config);
    struct engine *engine = NULL;
    struct session *session = NULL;
    struct error err;
    enum status status = check_surroundings(config, &err);
    if (!status)
        status = engine_open(&options, &engine, &err);
    if (!status && !engine_info(engine)->vocabulary_only)
        status = session_new(engine, &session, &err);
    if (status)
        fprintf(stderr, "ggufd: %s\n", err.text);
    else if (config->json)
        print_json(config, engine_info(engine));
    else
        print_text(config, engine_info(engine));
    session_free(session);
    engine_close(engine);
    return status ? EXIT_REFUSED : fflush(stdout) ? EXIT_RUNTIME : EXIT_ORDERLY;
}
