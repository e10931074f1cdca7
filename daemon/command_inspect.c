/* --inspect: metadata, memory need, and every tensor with checksum and values that are not finite; see commands.h.
 * Exit status 2 also for a file that opens but holds such values: its logits could not be trusted. */
#include <inttypes.h>
#include <stdio.h>

#include "daemon/commands.h"
#include "daemon/config.h"
#include "daemon/engine_thread.h"
#include "engine/engine.h"
#include "proto/json.h"

struct report {
    struct buffer out;
    bool json;
    uint64_t tensors, non_finite;
};

/* Lines are written as they come: a scan of a large file takes minutes. */
static void flush(struct report *r)
{
    fwrite(r->out.data, 1, r->out.size, stdout);
    r->out.size = 0;
}

static void write_text(struct buffer *b, const char *key, const char *value)
{
    json_write_key(b, key);
    json_write_string(b, span_of(value));
}

static void write_number(struct buffer *b, const char *key, uint64_t value)
{
    json_write_key(b, key);
    json_write_unsigned(b, value);
}

static void report_key(void *context, const struct engine_key *k)
{
    struct report *r = context;
    struct buffer *b = &r->out;
    if (!r->json) {
        if (k->is_array)
            buffer_printf(b, "  %-44s %s[%" PRIu64 "]\n", k->name, k->type, k->count);
        else
            buffer_printf(b, "  %-44s %s %s\n", k->name, k->type, k->value);
        return;
    }
    json_write_comma(b);
    buffer_byte(b, '{');
    write_text(b, "key", k->name);
    write_text(b, "type", k->type);
    if (k->is_array)
        write_number(b, "count", k->count);
    else
        write_text(b, "value", k->value);
    buffer_byte(b, '}');
}

static void report_tensor(void *context, const struct engine_tensor *t)
{
    struct report *r = context;
    struct buffer *b = &r->out;
    char shape[96] = "", checksum[17];
    for (uint32_t i = 0, n = 0; i < t->n_dims; i++)
        n += (uint32_t)snprintf(shape + n, sizeof shape - n, "%s%" PRIu64, i ? "," : "", t->dims[i]);
    snprintf(checksum, sizeof checksum, "%016" PRIx64, t->checksum);
    r->non_finite += t->non_finite;
    if (!r->json) {
        buffer_printf(b, "  %-32s %-8s %-20s %12" PRIu64 " %s", t->name, t->type, shape, t->bytes, checksum);
        if (t->non_finite)
            buffer_printf(b, "  %" PRIu64 " values not finite, first at %" PRIu64, t->non_finite, t->first_non_finite);
        buffer_byte(b, '\n');
        flush(r);
        return;
    }
    buffer_text(b, r->tensors++ ? ",{" : "{");
    write_text(b, "name", t->name);
    write_text(b, "type", t->type);
    buffer_printf(b, ",\"shape\":[%s]", shape);
    write_number(b, "bytes", t->bytes);
    write_text(b, "checksum", checksum);
    write_number(b, "non_finite", t->non_finite);
    buffer_byte(b, '}');
    flush(r);
}

static void report_head(struct report *r, const char *path, const struct engine_info *i)
{
    struct buffer *b = &r->out;
    if (!r->json) {
        buffer_printf(b, "file          %s, %" PRIu64 " bytes, fingerprint %s\n", path, i->file_bytes, i->fingerprint);
        buffer_printf(b, "model         %s, %s, %" PRIu64 " parameters, context %" PRIu32 "\n", i->name, i->architecture,
                      i->parameters, i->context_trained);
        buffer_printf(b, "memory        %" PRIu64 " bytes of its own with a context of %" PRIu32 " (KV cache %" PRIu64 ")\n",
                      i->memory.anonymous_bytes, i->context, i->memory.kv_bytes);
        buffer_text(b, "metadata\n");
        return;
    }
    buffer_byte(b, '{');
    write_text(b, "file", path);
    write_number(b, "file_bytes", i->file_bytes);
    write_text(b, "fingerprint", i->fingerprint);
    write_text(b, "name", i->name);
    write_text(b, "architecture", i->architecture);
    write_number(b, "parameters", i->parameters);
    write_number(b, "context_trained", i->context_trained);
    write_number(b, "context", i->context);
    write_number(b, "anonymous_bytes", i->memory.anonymous_bytes);
    write_number(b, "kv_bytes", i->memory.kv_bytes);
    buffer_text(b, ",\"metadata\":[");
}

static enum status inspect(struct report *r, struct engine *e, const char *path, struct error *err)
{
    report_head(r, path, engine_info(e));
    engine_metadata(e, report_key, r);
    buffer_text(&r->out, r->json ? "],\"tensors\":[" : "tensors (type, shape, bytes, checksum)\n");
    flush(r);
    enum status status = engine_inspect(e, report_tensor, r, err);
    if (r->json)
        buffer_printf(&r->out, "],\"complete\":%s,\"non_finite\":%" PRIu64 "}\n", status ? "false" : "true", r->non_finite);
    else
        buffer_printf(&r->out, "%s: %" PRIu64 " values are not finite\n",
                      status ? "broken off" : r->non_finite ? "unsound" : "sound", r->non_finite);
    flush(r);
    return status;
}

int command_inspect(const struct config *config)
{
    struct engine_options options = engine_options_from(config);
    struct engine *engine = NULL;
    struct error err;
    struct report report = {.json = config->json};
    options.model = config->inspect;
    enum status status = engine_open(&options, &engine, &err);
    if (!status)
        status = inspect(&report, engine, config->inspect, &err);
    if (status)
        fprintf(stderr, "ggufd: %s\n", err.text);
    buffer_clear(&report.out);
    engine_close(engine);
    if (status || report.non_finite)
        return EXIT_REFUSED;
    return fflush(stdout) ? EXIT_RUNTIME : EXIT_ORDERLY;
}
