/* From tensor tables to bound weights: every tensor the architecture needs is there, has the shape that the
 * hyper-parameters say and a type that its use allows; every tensor of the file is used. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine/models/bind.h"

enum { TENSOR_NAME_MAX = 96, SHAPE_MAX = 96 };

struct binder {
    struct model *model;
    const struct gguf *gguf;
    const struct gguf_tensor **bound; /* every tensor that has a use */
    size_t n_bound;
    struct error *err;
};

static uint64_t dim_size(const struct hparams *h, enum dim dim)
{
    switch (dim) {
    case DIM_EMBD:
        return h->n_embd;
    case DIM_VOCAB:
        return h->n_vocab;
    case DIM_Q:
        return (uint64_t)h->n_heads * h->head_size;
    case DIM_KV:
        return (uint64_t)h->n_heads_kv * h->head_size;
    case DIM_FF:
        return h->n_ff;
    case DIM_HEAD:
        return h->head_size;
    case DIM_ROPE:
        return h->head_size / 2;
    case DIM_EXPERTS:
        return h->n_experts;
    case DIM_NONE:
        break;
    }
    return 1;
}

static const char *shape_text(const uint64_t *dims, char out[SHAPE_MAX])
{
    int n = 4;
    while (n > 1 && dims[n - 1] == 1)
        n--;
    size_t used = 0;
    for (int i = 0; i < n; i++)
        used += (size_t)snprintf(out + used, SHAPE_MAX - used, "%s%" PRIu64, i ? " x " : "", dims[i]);
    return out;
}

static enum status bind_shape(const struct binder *b, const char *name, const struct tensor_row *row,
                              const struct gguf_tensor *t)
{
    uint64_t wanted[4] = {1, 1, 1, 1};
    bool equal = true;
    for (int i = 0; i < 4; i++) {
        if (i < 3)
            wanted[i] = dim_size(&b->model->hparams, row->dims[i]);
        equal = equal && t->dims[i] == wanted[i];
    }
    if (equal)
        return STATUS_OK;
    char is[SHAPE_MAX], must[SHAPE_MAX];
    return error_set(b->err, STATUS_INVALID, "tensor %s has shape %s, must have %s", name, shape_text(t->dims, is),
                     shape_text(wanted, must));
}

static enum status bind_vector(const struct binder *b, const char *name, struct weight *w)
{
    const struct gguf_tensor *t = w->tensor;
    if (t->format != format_by_name("F32"))
        return error_set(b->err, STATUS_UNSUPPORTED, "tensor %s is stored as %s, must be F32", name, t->format->name);
    if ((uintptr_t)t->data % sizeof(float))
        return error_set(b->err, STATUS_UNSUPPORTED,
                         "tensor %s does not start at a multiple of 4 bytes; general.alignment must be 4 or more",
                         name);
    w->vector = t->data;
    return STATUS_OK;
}

static enum status bind_matrix(const struct binder *b, const char *name, struct weight *w)
{
    const struct gguf_tensor *t = w->tensor;
    if (t->dims[0] % t->format->block_elements)
        return error_set(b->err, STATUS_INVALID,
                         "tensor %s: rows of %" PRIu64 " values are no multiple of %s's %" PRIu32, name,
                         t->dims[0], t->format->name, t->format->block_elements);
    w->matrix = (struct matrix){.format = t->format, .data = t->data, .data_end = t->mapping_end,
                                .n_cols = (size_t)t->dims[0], .n_rows = (size_t)(t->dims[1] * t->dims[2])};
    return STATUS_OK;
}

static bool row_applies(const struct tensor_row *row, const struct hparams *h)
{
    return row->when == ALWAYS || (row->when == EXPERTS) == (h->n_experts > 0);
}

static enum status bind_tensor(struct binder *b, const char *name, const struct tensor_row *row, struct weight *w)
{
    const struct gguf_tensor *t = gguf_tensor_find(b->gguf, name);
    if (!t)
        return row->need == OPTIONAL ? STATUS_OK
                                     : error_set(b->err, STATUS_INVALID, "tensor %s is missing, %s needs it", name,
                                                 b->model->architecture->name);
    w->tensor = t;
    b->bound[b->n_bound++] = t;
    enum status s = bind_shape(b, name, row, t);
    if (s != STATUS_OK)
        return s;
    return row->dims[1] == DIM_NONE ? bind_vector(b, name, w) : bind_matrix(b, name, w);
}

static enum status bind_table(struct binder *b, const struct tensor_row *table, const char *prefix, void *slots)
{
    for (const struct tensor_row *row = table; row->name; row++) {
        if (!row_applies(row, &b->model->hparams))
            continue;
        char name[TENSOR_NAME_MAX];
        snprintf(name, sizeof name, "%s%s", prefix, row->name);
        enum status s = bind_tensor(b, name, row, (struct weight *)(void *)((char *)slots + row->offset));
        if (s != STATUS_OK)
            return s;
    }
    return STATUS_OK;
}

static size_t table_rows(const struct tensor_row *table)
{
    size_t n = 0;
    while (table[n].name)
        n++;
    return n;
}

static int compare_pointers(const void *a, const void *b)
{
    uintptr_t x = (uintptr_t) * (const void *const *)a, y = (uintptr_t) * (const void *const *)b;
    return (x > y) - (x < y);
}

/* Why a tensor that the reference would read is not read here; "" for all others. */
static const char *unused_hint(struct span name)
{
    static const struct {
        const char *end, *hint;
    } hints[] = {
        {"attn_qkv.weight", " (fused Q, K and V are not supported: store them apart)"},
        {"attn_qkv.bias", " (fused Q, K and V are not supported: store them apart)"},
        {".scale", " (scales beside a matrix are not supported)"},
        {".lora_a", " (this is an adapter)"},
        {".lora_b", " (this is an adapter)"},
    };
    for (size_t i = 0; i < sizeof hints / sizeof hints[0]; i++) {
        size_t n = strlen(hints[i].end);
        if (name.size >= n && memcmp(name.data + name.size - n, hints[i].end, n) == 0)
            return hints[i].hint;
    }
    return "";
}

static enum status bind_unused(struct binder *b)
{
    size_t n = gguf_tensor_count(b->gguf), unused = 0;
    if (n == b->n_bound)
        return STATUS_OK;
    qsort(b->bound, b->n_bound, sizeof *b->bound, compare_pointers);
    struct span first = {NULL, 0};
    for (size_t i = 0; i < n; i++) {
        const struct gguf_tensor *t = gguf_tensor_at(b->gguf, i);
        if (bsearch(&t, b->bound, b->n_bound, sizeof *b->bound, compare_pointers))
            continue;
        if (unused++ == 0)
            first = t->name;
    }
    char quoted[ERROR_QUOTE_BYTES], more[48] = "";
    if (unused > 1)
        snprintf(more, sizeof more, " and %zu more", unused - 1);
    return error_set(b->err, STATUS_UNSUPPORTED, "tensor %s%s has no use in %s of %" PRIu32 " layers%s",
                     error_quote(first.data, first.size, quoted), more, b->model->architecture->name,
                     b->model->hparams.n_layers, unused_hint(first));
}

/* Both say how many tokens there are; the reference demands that they agree. */
static enum status bind_vocabulary(struct binder *b, size_t n_tokens)
{
    const struct gguf_tensor *t = gguf_tensor_find(b->gguf, "token_embd.weight");
    if (t && t->dims[1] != n_tokens)
        return error_set(b->err, STATUS_INVALID,
                         "the vocabulary has %zu tokens, but token_embd.weight has %" PRIu64 " rows", n_tokens,
                         t->dims[1]);
    char key[96];
    uint32_t stated = (uint32_t)n_tokens;
    snprintf(key, sizeof key, "%s.vocab_size", b->model->architecture->name);
    enum status s = gguf_get_u32(b->gguf, key, false, &stated, b->err);
    if (s == STATUS_OK && stated != n_tokens)
        s = error_set(b->err, STATUS_INVALID, "key \"%s\" is %" PRIu32 ", but the vocabulary has %zu tokens", key,
                      stated, n_tokens);
    b->model->hparams.n_vocab = (uint32_t)n_tokens;
    return s;
}

/* A zero or non-finite factor would make every angle infinite or NaN. */
static enum status bind_rope_freqs(const struct binder *b)
{
    const float *factors = b->model->rope_freqs.vector;
    for (uint32_t i = 0; factors && i < b->model->hparams.head_size / 2; i++)
        if (!isfinite(factors[i]) || factors[i] == 0)
            return error_set(b->err, STATUS_RANGE, "tensor rope_freqs.weight: value %" PRIu32 " is %g, must be finite "
                             "and not 0", i, (double)factors[i]);
    b->model->hparams.rope.frequency_factors = factors;
    return STATUS_OK;
}

enum status model_bind(struct model *m, const struct gguf *g, size_t n_tokens, struct error *err)
{
    const struct architecture *a = m->architecture;
    size_t n_layers = m->hparams.n_layers;
    size_t most = table_rows(a->tensors) + n_layers * table_rows(a->layer_tensors);
    struct binder b = {.model = m, .gguf = g, .err = err, .bound = malloc(most * sizeof *b.bound)};
    m->layers = calloc(n_layers, sizeof *m->layers);
    enum status s = STATUS_OK;
    if (!b.bound || !m->layers)
        s = error_no_memory(err, n_layers * sizeof *m->layers + most * sizeof *b.bound, "binding tensors");
    if (s == STATUS_OK)
        s = bind_vocabulary(&b, n_tokens);
    if (s == STATUS_OK)
        s = bind_table(&b, a->tensors, "", m);
    for (size_t i = 0; i < n_layers && s == STATUS_OK; i++) {
        char prefix[32];
        snprintf(prefix, sizeof prefix, "blk.%zu.", i);
        s = bind_table(&b, a->layer_tensors, prefix, &m->layers[i]);
    }
    if (s == STATUS_OK)
        s = bind_unused(&b);
    if (s == STATUS_OK)
        s = bind_rope_freqs(&b);
    free(b.bound);
    return s;
}

static enum status weights_used(const struct graph *g, const struct tensor_row *table, const void *slots,
                                struct error *err)
{
    for (const struct tensor_row *row = table; row->name; row++) {
        const struct weight *w = (const struct weight *)(const void *)((const char *)slots + row->offset);
        if (w->tensor && !graph_uses(g, w->tensor->data))
            return error_set(err, STATUS_INVALID, "tensor %s is bound, but no graph node reads it", row->name);
    }
    return STATUS_OK;
}

enum status model_check_use(const struct model *m, const struct graph *g, struct error *err)
{
    enum status s = weights_used(g, m->architecture->tensors, m, err);
    for (size_t i = 0; i < m->hparams.n_layers && s == STATUS_OK; i++)
        s = weights_used(g, m->architecture->layer_tensors, &m->layers[i], err);
    return s;
}
