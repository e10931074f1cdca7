/* Hyper-parameters from metadata keys: types, ranges, and how they must fit together. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "engine/models/architecture.h"

enum { KEY_NAME_MAX = 128 };

struct key_reader {
    const struct architecture *architecture;
    const struct gguf *gguf;
    struct hparams *h;
    struct error *err;
};

static const char *key_name(const struct architecture *a, const char *name, char out[KEY_NAME_MAX])
{
    snprintf(out, KEY_NAME_MAX, "%s.%s", a->name, name);
    return out;
}

static enum status key_range(const struct key_reader *r, const char *name, double value, const struct key_row *row)
{
    if (value >= row->low && value <= row->high)
        return STATUS_OK;
    return error_set(r->err, STATUS_RANGE, "key \"%s\" is %.10g, must be %.10g to %.10g", name, value, row->low,
                     row->high);
}

static enum status key_u32(const struct key_reader *r, const char *name, const struct key_row *row)
{
    uint32_t *out = (uint32_t *)(void *)((char *)r->h + row->offset), value = *out;
    enum status s = row->type == KEY_UNIFORM
                        ? gguf_get_u32_uniform(r->gguf, name, row->need == REQUIRED, &value, r->err)
                        : gguf_get_u32(r->gguf, name, row->need == REQUIRED, &value, r->err);
    if (s == STATUS_OK && gguf_key_find(r->gguf, name)) {
        s = key_range(r, name, value, row);
        *out = value;
    }
    return s;
}

static enum status key_f32(const struct key_reader *r, const char *name, const struct key_row *row)
{
    float *out = (float *)(void *)((char *)r->h + row->offset), value = *out;
    enum status s = gguf_get_f32(r->gguf, name, row->need == REQUIRED, &value, r->err);
    if (s == STATUS_OK && gguf_key_find(r->gguf, name)) {
        s = key_range(r, name, (double)value, row);
        *out = value;
    }
    return s;
}

static enum status key_scaling(const struct key_reader *r, const char *name)
{
    struct span type = span_of("linear");
    enum status s = gguf_get_string(r->gguf, name, false, &type, r->err);
    if (s != STATUS_OK)
        return s;
    char quoted[ERROR_QUOTE_BYTES];
    if (span_is(type, "linear"))
        r->h->rope.scaling = ROPE_SCALING_LINEAR;
    else if (span_is(type, "none"))
        r->h->rope.scaling = ROPE_SCALING_NONE;
    else if (span_is(type, "yarn"))
        r->h->rope.scaling = ROPE_SCALING_YARN;
    else
        return error_set(r->err, STATUS_UNSUPPORTED, "key \"%s\" is \"%s\"; supported are none, linear, yarn", name,
                         error_quote(type.data, type.size, quoted));
    return STATUS_OK;
}

static enum status key_read(const struct key_reader *r, const struct key_row *row)
{
    char name[KEY_NAME_MAX];
    key_name(r->architecture, row->name, name);
    switch (row->type) {
    case KEY_U32:
    case KEY_UNIFORM:
        return key_u32(r, name, row);
    case KEY_F32:
        return key_f32(r, name, row);
    case KEY_SCALING:
        return key_scaling(r, name);
    case KEY_END:
        break;
    }
    return STATUS_OK;
}

/* An array of one value a layer must have one entry a layer. */
static enum status key_array_length(const struct key_reader *r, const struct key_row *row)
{
    char name[KEY_NAME_MAX];
    const struct gguf_key *key = gguf_key_find(r->gguf, key_name(r->architecture, row->name, name));
    if (row->type == KEY_UNIFORM && key && key->type == GGUF_ARRAY && key->count != r->h->n_layers)
        return error_set(r->err, STATUS_INVALID, "key \"%s\" has %" PRIu64 " entries for %" PRIu32 " layers", name,
                         key->count, r->h->n_layers);
    return STATUS_OK;
}

/* ---- how they fit together ---- */

static enum status heads_check(struct hparams *h, const struct architecture *a, struct error *err)
{
    if (h->n_heads_kv == 0)
        h->n_heads_kv = h->n_heads;
    if (h->n_heads % h->n_heads_kv)
        return error_set(err, STATUS_INVALID,
                         "%s.attention.head_count %" PRIu32 " is no multiple of attention.head_count_kv %" PRIu32,
                         a->name, h->n_heads, h->n_heads_kv);
    if (h->head_size == 0)
        h->head_size = h->n_embd / h->n_heads;
    if (h->value_size == 0)
        h->value_size = h->n_embd / h->n_heads;
    if (h->head_size != h->value_size)
        return error_set(err, STATUS_UNSUPPORTED,
                         "%s.attention.key_length %" PRIu32 " and attention.value_length %" PRIu32 " must be equal",
                         a->name, h->head_size, h->value_size);
    if (h->head_size < 2 || h->head_size % 2)
        return error_set(err, STATUS_UNSUPPORTED,
                         "%s: head size %" PRIu32 " (embedding_length %" PRIu32 ", head_count %" PRIu32
                         ", attention.key_length) must be even and at least 2",
                         a->name, h->head_size, h->n_embd, h->n_heads);
    return STATUS_OK;
}

static enum status rope_check(struct hparams *h, const struct architecture *a, struct error *err)
{
    struct rope_options *rope = &h->rope;
    rope->kind = a->rope;
    if (rope->n_dims == 0)
        rope->n_dims = h->head_size;
    if (rope->n_dims != h->head_size)
        return error_set(err, STATUS_UNSUPPORTED,
                         "%s.rope.dimension_count %" PRIu32 " must equal the head size %" PRIu32, a->name,
                         rope->n_dims, h->head_size);
    rope->factor = !isnan(h->factor) ? h->factor : !isnan(h->scale_linear) ? h->scale_linear : 0;
    if (rope->factor != 0 && rope->factor < 1e-6f)
        return error_set(err, STATUS_RANGE, "%s.rope.%s is %g, must be 0 (off) or 1e-06 to 1e+06", a->name,
                         isnan(h->factor) ? "scale_linear" : "scaling.factor", (double)rope->factor);
    if (rope->scaling == ROPE_SCALING_YARN && rope->original_context == 0)
        return error_set(err, STATUS_RANGE,
                         "%s.rope.scaling.original_context_length is 0, must be at least 1 for YaRN", a->name);
    return STATUS_OK;
}

static enum status experts_check(const struct hparams *h, const struct architecture *a, struct error *err)
{
    if (h->n_experts_used > h->n_experts || (h->n_experts && h->n_experts_used == 0))
        return error_set(err, STATUS_INVALID, "%s.expert_used_count is %" PRIu32 ", must be %s%" PRIu32, a->name,
                         h->n_experts_used, h->n_experts ? "1 to expert_count " : "", h->n_experts);
    return STATUS_OK;
}

/* ---- keys that nobody reads ---- */

/* The part of a key's name behind the architecture's prefix, or an empty span. */
static struct span key_suffix(const struct architecture *a, struct span name)
{
    size_t n = strlen(a->name);
    if (name.size <= n + 1 || memcmp(name.data, a->name, n) != 0 || name.data[n] != '.')
        return (struct span){NULL, 0};
    return (struct span){name.data + n + 1, name.size - n - 1};
}

static bool key_is_known(const struct architecture *a, struct span suffix)
{
    for (const struct key_row *row = a->keys; row->name; row++)
        if (span_is(suffix, row->name))
            return true;
    return span_is(suffix, "vocab_size"); /* compared by the binder */
}

/* Keys that change the reference's result for every architecture (measured: any other value than the neutral one does,
 * or makes it refuse the file) and are not computed here. An architecture that reads such a key has it in its table. */
static const struct {
    const char *name;
    uint32_t neutral;
} refused[] = {
    {"attention.causal", 1},
    {"expert_group_count", 0},
    {"nextn_predict_layers", 0},
};

static enum status key_refuse(const struct architecture *a, const struct gguf_key *key, struct span suffix,
                              struct error *err)
{
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        uint32_t value = refused[i].neutral;
        if (!span_is(suffix, refused[i].name))
            continue;
        if (key->type == GGUF_U32)
            memcpy(&value, key->data, sizeof value);
        else if (key->type == GGUF_BOOL)
            value = *(const unsigned char *)key->data;
        else
            value = !value;
        if (value != refused[i].neutral)
            return error_set(err, STATUS_UNSUPPORTED, "key \"%s.%s\" is %" PRIu32 ", supported is only %" PRIu32,
                             a->name, refused[i].name, value, refused[i].neutral);
    }
    return STATUS_OK;
}

static enum status keys_unread(const struct architecture *a, const struct gguf *g, const struct log_sink *log,
                               struct error *err)
{
    char list[256] = "", quoted[ERROR_QUOTE_BYTES];
    size_t n = 0, used = 0;
    for (size_t i = 0; i < gguf_key_count(g); i++) {
        struct span suffix = key_suffix(a, gguf_key_at(g, i)->name);
        if (suffix.size == 0 || key_is_known(a, suffix))
            continue;
        enum status s = key_refuse(a, gguf_key_at(g, i), suffix, err);
        if (s != STATUS_OK)
            return s;
        if (n++ < 8 && used < sizeof list) /* truncated names are still a note */
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", used ? ", " : "",
                                     error_quote(suffix.data, suffix.size, quoted));
    }
    if (n)
        log_note(log, LOG_LEVEL_INFO, "%zu key%s of %s ha%s no effect: %s%s", n, n > 1 ? "s" : "", a->name,
                 n > 1 ? "ve" : "s", list, n > 8 ? ", ..." : "");
    return STATUS_OK;
}

enum status hparams_read(struct hparams *h, const struct architecture *a, const struct gguf *g,
                         const struct log_sink *log, struct error *err)
{
    *h = (struct hparams){.factor = NAN, .scale_linear = NAN, .rope = ROPE_OPTIONS_DEFAULT};
    h->rope.original_context = UINT32_MAX;
    struct key_reader r = {.architecture = a, .gguf = g, .h = h, .err = err};
    enum status s = STATUS_OK;
    for (const struct key_row *row = a->keys; s == STATUS_OK && row->name; row++)
        s = key_read(&r, row);
    for (const struct key_row *row = a->keys; s == STATUS_OK && row->name; row++)
        s = key_array_length(&r, row);
    if (h->rope.original_context == UINT32_MAX)
        h->rope.original_context = h->context_trained;
    if (s == STATUS_OK)
        s = heads_check(h, a, err);
    if (s == STATUS_OK)
        s = rope_check(h, a, err);
    if (s == STATUS_OK)
        s = experts_check(h, a, err);
    if (s == STATUS_OK && a->check)
        s = a->check(h, err);
    return s == STATUS_OK ? keys_unread(a, g, log, err) : s;
}
