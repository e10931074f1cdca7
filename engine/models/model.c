/* Choosing the architecture, and the way from a file to a checked graph. */
#include "engine/models/model.h"

#include <stdio.h>
#include <stdlib.h>

#include "engine/models/bind.h"

static const struct architecture *const architectures[] = {
#define MODEL(name) &architecture_##name,
#include "engine/models/models.def"
#undef MODEL
};
enum { ARCHITECTURES = sizeof architectures / sizeof architectures[0] };

const struct architecture *architecture_find(struct span name)
{
    for (size_t i = 0; i < ARCHITECTURES; i++)
        if (span_is(name, architectures[i]->name))
            return architectures[i];
    return NULL;
}

const char *architecture_list(char *out, size_t size)
{
    size_t used = 0;
    for (size_t i = 0; i < ARCHITECTURES && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%s", i ? ", " : "", architectures[i]->name);
    return out;
}

enum status model_architecture(const struct gguf *g, struct span *name, struct error *err)
{
    return gguf_get_string(g, "general.architecture", true, name, err);
}

/* Adapters, vision towers and the like come in the same container. */
static enum status model_check_type(const struct gguf *g, struct error *err)
{
    struct span type = span_of("model");
    enum status s = gguf_get_string(g, "general.type", false, &type, err);
    char quoted[ERROR_QUOTE_BYTES];
    if (s == STATUS_OK && !span_is(type, "model"))
        s = error_set(err, STATUS_UNSUPPORTED, "key \"general.type\" is \"%s\", must be \"model\"",
                      error_quote(type.data, type.size, quoted));
    return s;
}

enum status model_choose(struct model *m, const struct gguf *g, struct error *err)
{
    *m = (struct model){0};
    struct span name;
    enum status s = model_architecture(g, &name, err);
    if (s == STATUS_OK)
        s = model_check_type(g, err);
    if (s != STATUS_OK)
        return s;
    char quoted[ERROR_QUOTE_BYTES], list[256];
    m->architecture = architecture_find(name);
    if (!m->architecture)
        return error_set(err, STATUS_UNSUPPORTED, "architecture \"%s\" is not supported; supported are %s",
                         error_quote(name.data, name.size, quoted), architecture_list(list, sizeof list));
    return STATUS_OK;
}

enum status model_init(struct model *m, const struct gguf *g, size_t n_tokens, const struct log_sink *log,
                       struct error *err)
{
    enum status s = hparams_read(&m->hparams, m->architecture, g, log, err);
    if (s == STATUS_OK)
        s = model_bind(m, g, n_tokens, err);
    if (s != STATUS_OK)
        model_clear(m);
    return s;
}

void model_clear(struct model *m)
{
    free(m->layers);
    *m = (struct model){0};
}

enum status model_graph(const struct model *m, enum cpu_tier tier, struct graph *g, struct error *err)
{
    const struct hparams *h = &m->hparams;
    struct graph_config config = {.n_embd = h->n_embd, .n_layers = h->n_layers, .n_heads = h->n_heads,
                                  .n_heads_kv = h->n_heads_kv, .head_size = h->head_size, .n_vocab = h->n_vocab,
                                  .n_experts = h->n_experts, .n_experts_used = h->n_experts_used,
                                  .rms_epsilon = h->rms_epsilon};
    rope_init(&config.rope, &h->rope);
    graph_init(g, &config, tier);
    m->architecture->build(m, g);
    enum status s = graph_check(g, err);
    if (s == STATUS_OK)
        s = model_check_use(m, g, err);
    if (s != STATUS_OK)
        graph_clear(g);
    return s;
}
