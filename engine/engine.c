/* Opening a model: map, vocabulary, binding, graph, plan, and the account of memory, before anything large is taken. */
#include "engine/engine.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine/base/utf8.h"
#include "engine/engine_state.h"
#include "engine/memory.h"

enum { CONTEXT_DEFAULT = 4096, BATCH_DEFAULT = 256, BATCH_MAX = 1 << 14, THREADS_MAX = 1024, CONTEXT_MAX = 1 << 30 };

#define MIB(bytes) ((double)(bytes) / 1048576.0)

static void engine_progress(const struct engine_options *options, const char *stage, double fraction)
{
    if (options->progress)
        options->progress(options->progress_context, stage, fraction);
}

/* ---- facts for engine_info ---- */

/* Copies text with everything that is not a printable character replaced, cut at a character's end. */
static void copy_printable(struct span text, char *out, size_t size)
{
    size_t used = 0;
    for (size_t at = 0; at < text.size;) {
        uint32_t c;
        size_t n = utf8_decode(text.data + at, text.size - at, &c);
        bool bad = c == UTF8_INVALID || c == UTF8_INCOMPLETE || c < 0x20 || (c >= 0x7f && c < 0xa0);
        size_t length = bad ? 1 : n;
        if (used + length >= size)
            break;
        memcpy(out + used, bad ? "?" : text.data + at, length);
        used += length;
        at += n;
    }
    out[used] = '\0';
}

static void info_count_type(struct engine_info *info, const struct gguf_tensor *t)
{
    const size_t most = sizeof info->types / sizeof info->types[0];
    size_t i = 0;
    while (i < info->n_types && info->types[i].name != t->format->name)
        i++;
    if (i == most)
        return;
    if (i == info->n_types)
        info->types[info->n_types++] = (struct engine_type_count){.name = t->format->name};
    info->types[i].tensors++;
    info->types[i].bytes += t->bytes;
}

static enum status info_file(struct engine *e, struct error *err)
{
    struct engine_info *info = &e->info;
    struct span name = {NULL, 0}, architecture = {NULL, 0};
    enum status s = gguf_get_string(e->gguf, "general.name", false, &name, err);
    if (s == STATUS_OK)
        s = model_architecture(e->gguf, &architecture, err);
    if (s != STATUS_OK)
        return s;
    copy_printable(name, info->name, sizeof info->name);
    copy_printable(architecture, info->architecture, sizeof info->architecture);
    info->file_bytes = info->memory.file_bytes = gguf_file_bytes(e->gguf);
    info->vocabulary_only = gguf_tensor_count(e->gguf) == 0;
    for (size_t i = 0; i < gguf_tensor_count(e->gguf); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(e->gguf, i);
        info->parameters += t->dims[0] * t->dims[1] * t->dims[2] * t->dims[3];
        info_count_type(info, t);
    }
    snprintf(info->fingerprint, sizeof info->fingerprint, "%016" PRIx64, gguf_fingerprint(e->gguf));
    return STATUS_OK;
}

static void info_vocabulary(struct engine *e)
{
    const struct tokenizer_special *special = tokenizer_special(e->tokenizer);
    struct engine_info *info = &e->info;
    info->n_vocab = (uint32_t)tokenizer_size(e->tokenizer);
    info->bos = special->bos;
    info->eos = special->eos;
    info->eot = special->eot;
    info->unknown = special->unknown;
    info->padding = special->padding;
    info->add_bos = special->add_bos;
    info->add_eos = special->add_eos;
    snprintf(info->tokenizer, sizeof info->tokenizer, "%s", tokenizer_model(e->tokenizer));
    info->memory.vocabulary_bytes = tokenizer_memory(e->tokenizer);
}

static void info_model(struct engine *e)
{
    const struct hparams *h = &e->model.hparams;
    struct engine_info *info = &e->info;
    info->context_trained = h->context_trained;
    info->n_layers = h->n_layers;
    info->n_embd = h->n_embd;
    info->n_heads = h->n_heads;
    info->n_heads_kv = h->n_heads_kv;
}

/* ---- steps of opening ---- */

static enum status open_processor(struct engine *e, const struct engine_options *options, struct error *err)
{
    struct engine_info *info = &e->info;
    enum status s = cpu_tier_parse(options->tier ? options->tier : "auto", &e->tier, err);
    if (s != STATUS_OK)
        return s;
    if (options->threads > THREADS_MAX)
        return error_set(err, STATUS_RANGE, "threads is %u, must be at most %d", options->threads, THREADS_MAX);
    cpu_cores_find(&e->cores);
    info->tier = cpu_tier_name(e->tier);
    info->threads = options->threads ? options->threads : e->cores.usable;
    if (options->threads)
        snprintf(info->threads_reason, sizeof info->threads_reason, "%u as set; usable %.72s", options->threads,
                 e->cores.reason);
    else
        snprintf(info->threads_reason, sizeof info->threads_reason, "%s", e->cores.reason);
    if (options->threads > e->cores.usable)
        log_note(&e->log, LOG_LEVEL_WARN, "%u threads on %u usable cores: slower than %u", options->threads,
                 e->cores.usable, e->cores.usable);
    return STATUS_OK;
}

static enum status open_sizes(struct engine *e, const struct engine_options *options, struct error *err)
{
    struct engine_info *info = &e->info;
    uint32_t trained = e->model.hparams.context_trained;
    if (options->context > CONTEXT_MAX)
        return error_set(err, STATUS_RANGE, "context is %u, must be at most %d", options->context, CONTEXT_MAX);
    if (options->batch > BATCH_MAX)
        return error_set(err, STATUS_RANGE, "batch is %u, must be at most %d", options->batch, BATCH_MAX);
    info->context = options->context ? options->context : trained < CONTEXT_DEFAULT ? trained : CONTEXT_DEFAULT;
    info->batch = options->batch ? options->batch : BATCH_DEFAULT;
    if (info->batch > info->context)
        info->batch = info->context;
    if (info->context > trained)
        log_note(&e->log, LOG_LEVEL_WARN, "context %u is longer than the %u tokens the model was trained for",
                 info->context, trained);
    return STATUS_OK;
}

static enum status open_memory(struct engine *e, struct error *err)
{
    struct engine_memory *m = &e->info.memory;
    size_t kv = kv_bytes(&e->graph.kv);
    if (kv == SIZE_MAX)
        return error_set(err, STATUS_RANGE, "the KV cache of %u tokens exceeds the address space", e->info.context);
    m->kv_bytes = kv;
    m->arena_bytes = e->graph.arena_bytes;
    m->anonymous_bytes = m->kv_bytes + m->arena_bytes + m->vocabulary_bytes;
    m->available_bytes = memory_available("");
    if (m->available_bytes && m->anonymous_bytes > m->available_bytes)
        return error_set(err, STATUS_NO_MEMORY,
                         "%.1f MiB needed (KV cache of %u tokens %.1f, arena for batches of %u tokens %.1f, vocabulary "
                         "%.1f), %.1f MiB available; a smaller context or batch needs less",
                         MIB(m->anonymous_bytes), e->info.context, MIB(m->kv_bytes), e->info.batch, MIB(m->arena_bytes),
                         MIB(m->vocabulary_bytes), MIB(m->available_bytes));
    if (m->available_bytes && m->file_bytes > m->available_bytes - m->anonymous_bytes)
        log_note(&e->log, LOG_LEVEL_WARN,
                 "the model's %.1f MiB do not fit into the %.1f MiB that remain: pages will be read again and again",
                 MIB(m->file_bytes), MIB(m->available_bytes - m->anonymous_bytes));
    return STATUS_OK;
}

static enum status open_model(struct engine *e, const struct engine_options *options, struct error *err)
{
    enum status s = model_init(&e->model, e->gguf, tokenizer_size(e->tokenizer), &e->log, err);
    if (s != STATUS_OK)
        return s;
    info_model(e);
    engine_progress(options, "plan", 0);
    s = open_sizes(e, options, err);
    if (s == STATUS_OK)
        s = model_graph(&e->model, e->tier, &e->graph, err);
    if (s == STATUS_OK)
        s = graph_plan(&e->graph, e->info.batch, e->info.context, e->info.threads, err);
    if (s == STATUS_OK)
        s = open_memory(e, err);
    return s;
}

static void prefault_progress(void *context, double fraction)
{
    engine_progress(context, "read", fraction);
}

/* Before the prefault, so that what was read stays. A refused lock is a note. */
static void open_residency(struct engine *e, const struct engine_options *options)
{
    struct error refusal;
    if (options->lock_memory && gguf_lock(e->gguf, &refusal) != STATUS_OK)
        log_note(&e->log, LOG_LEVEL_WARN, "%s", refusal.text);
    if (options->prefault) {
        struct engine_options copy = *options;
        gguf_prefault(e->gguf, prefault_progress, &copy);
    }
}

static enum status open_contents(struct engine *e, const struct engine_options *options, struct error *err)
{
    enum status s = info_file(e, err);
    if (s == STATUS_OK && !e->info.vocabulary_only)
        s = model_choose(&e->model, e->gguf, err); /* before its vocabulary, which may be as foreign as itself */
    if (s != STATUS_OK)
        return s;
    engine_progress(options, "vocabulary", 0);
    s = tokenizer_new(e->gguf, &e->log, &e->tokenizer, err);
    if (s != STATUS_OK)
        return s;
    info_vocabulary(e);
    return e->info.vocabulary_only ? STATUS_OK : open_model(e, options, err);
}

enum status engine_open(const struct engine_options *options, struct engine **out, struct error *err)
{
    *out = NULL;
    struct engine *e = calloc(1, sizeof *e);
    if (!e)
        return error_no_memory(err, sizeof *e, "the engine");
    e->log = options->log;
    engine_progress(options, "map", 0);
    enum status s = open_processor(e, options, err);
    if (s == STATUS_OK)
        s = gguf_open(options->model, &e->log, &e->gguf, err);
    if (s != STATUS_OK)
        goto fail;
    s = open_contents(e, options, err);
    if (s != STATUS_OK) {
        error_context(err, "%s", gguf_label(e->gguf));
        goto fail;
    }
    open_residency(e, options);
    engine_progress(options, "ready", 1);
    *out = e;
    return STATUS_OK;
fail:
    engine_close(e);
    return s;
}

void engine_close(struct engine *e)
{
    if (!e)
        return;
    graph_clear(&e->graph);
    model_clear(&e->model);
    tokenizer_free(e->tokenizer);
    gguf_close(e->gguf);
    free(e);
}

const struct engine_info *engine_info(const struct engine *e)
{
    return &e->info;
}

bool engine_model_changed(struct engine *e, const char **why)
{
    return gguf_has_changed(e->gguf, why);
}

/* ---- vocabulary ---- */

void engine_ids_clear(struct engine_ids *ids)
{
    free(ids->data);
    *ids = (struct engine_ids){0};
}

/* The two lists have one shape: the public header does not show the tokenizer's. */
_Static_assert(sizeof(struct engine_ids) == sizeof(struct token_list), "engine_ids is a token_list");

bool engine_ids_push(struct engine_ids *ids, int32_t id)
{
    struct token_list list = {ids->data, ids->count, ids->capacity};
    bool ok = token_list_push(&list, id);
    *ids = (struct engine_ids){list.data, list.count, list.capacity};
    return ok;
}

enum status engine_tokenize(const struct engine *e, struct span text, unsigned flags, size_t limit,
                            struct engine_ids *ids, struct error *err)
{
    struct token_list list = {ids->data, ids->count, ids->capacity};
    unsigned own = (flags & ENGINE_PARSE_SPECIAL ? TOKENIZE_PARSE_SPECIAL : 0u) |
                   (flags & ENGINE_NO_PREFIX ? TOKENIZE_NO_PREFIX : 0u);
    enum status s = tokenizer_encode(e->tokenizer, text, own, limit, &list, err);
    *ids = (struct engine_ids){list.data, list.count, list.capacity};
    return s;
}

struct span engine_piece(const struct engine *e, int32_t id)
{
    return tokenizer_piece(e->tokenizer, id);
}

bool engine_is_eog(const struct engine *e, int32_t id)
{
    return tokenizer_is_eog(e->tokenizer, id);
}

bool engine_is_special(const struct engine *e, int32_t id)
{
    return (tokenizer_attributes(e->tokenizer, id) & (TOKEN_CONTROL | TOKEN_UNKNOWN)) != 0;
}
