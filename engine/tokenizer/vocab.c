/* Metadata keys -> struct vocab. Every key has exactly one type; what is refused is named. See vocab.h. */
#include "engine/tokenizer/vocab.h"

#include <stdio.h>

#include "engine/base/f16.h"

#define KEY(name) "tokenizer.ggml." name

/* Each id in the order in which the reference reads them: an older name comes after the newer one and wins. */
static const struct id_key {
    const char *key;
    size_t field;
} id_keys[] = {
#define ID(key, field) {KEY(key), offsetof(struct tokenizer_special, field)}
    ID("bos_token_id", bos),          ID("eos_token_id", eos),           ID("eot_token_id", eot),
    ID("eom_token_id", eom),          ID("unknown_token_id", unknown),   ID("seperator_token_id", separator),
    ID("padding_token_id", padding),  ID("mask_token_id", mask),         ID("fim_pre_token_id", fim_pre),
    ID("fim_suf_token_id", fim_suf),  ID("fim_mid_token_id", fim_mid),   ID("fim_pad_token_id", fim_pad),
    ID("fim_rep_token_id", fim_rep),  ID("fim_sep_token_id", fim_sep),   ID("prefix_token_id", fim_pre),
    ID("suffix_token_id", fim_suf),   ID("middle_token_id", fim_mid),
#undef ID
};

/* token_type of the file -> attribute; every other number has none. */
static const uint16_t type_attribute[] = {
    [1] = TOKEN_NORMAL, [2] = TOKEN_UNKNOWN, [3] = TOKEN_CONTROL, [4] = TOKEN_USER_DEFINED, [5] = TOKEN_UNUSED,
    [6] = TOKEN_BYTE,
};

static enum status no_memory(size_t size, struct error *err)
{
    return error_no_memory(err, size, "the vocabulary");
}

/* What llama.cpp sees of a string: it passes through a C string. */
static struct span cut_at_nul(struct span s)
{
    const char *nul = s.size ? memchr(s.data, 0, s.size) : NULL;
    return nul ? (struct span){s.data, (size_t)(nul - s.data)} : s;
}

static enum status read_model(struct vocab *v, const struct gguf *g, struct error *err)
{
    struct span model = {0};
    enum status s = gguf_get_string(g, KEY("model"), true, &model, err);
    if (s != STATUS_OK)
        return s;
    if (span_is(model, "llama")) {
        v->model = VOCAB_SPM;
    } else if (span_is(model, "gpt2")) {
        v->model = VOCAB_BPE;
    } else {
        char quoted[ERROR_QUOTE_BYTES];
        return error_set(err, STATUS_UNSUPPORTED, KEY("model") " \"%s\": vocabularies of this kind are not supported "
                         "(have: llama, gpt2)", error_quote(model.data, model.size, quoted));
    }
    return gguf_get_string(g, KEY("pre"), false, &v->pre_name, err);
}

static enum status read_pre(struct vocab *v, const struct gguf *g, const struct log_sink *log, struct error *err)
{
    if (v->model != VOCAB_BPE)
        return STATUS_OK;
    struct span name = v->pre_name;
    if (name.size == 0) {
        log_note(log, LOG_LEVEL_WARN, KEY("pre") " is missing: words are split as \"default\" does; ids may differ from "
                 "those the model was trained with");
        name = span_of("default");
    }
    enum status s = pretok_find(name, &v->pre, err);
    if (s == STATUS_OK)
        s = gguf_get_array(g, KEY("merges"), GGUF_STRING, !(v->pre->flags & PRE_NO_MERGES), &v->merges, err);
    return s;
}

static void set_defaults(struct vocab *v)
{
    bool spm = v->model == VOCAB_SPM;
    v->special = (struct tokenizer_special){
        spm ? 1 : 11, spm ? 2 : 11, TOKEN_NONE, TOKEN_NONE, spm ? 0 : TOKEN_NONE, TOKEN_NONE, TOKEN_NONE, TOKEN_NONE,
        TOKEN_NONE, TOKEN_NONE, TOKEN_NONE, TOKEN_NONE, TOKEN_NONE, TOKEN_NONE, spm, false, spm};
    if (!spm && v->pre->flags & PRE_NO_BOS)
        v->special.bos = TOKEN_NONE;
    if (!spm)
        v->special.add_bos = v->pre->flags & (PRE_ADD_BOS | PRE_FORCE_BOS);
}

static enum status read_flags(struct vocab *v, const struct gguf *g, struct error *err)
{
    bool ignored = false;
    uint32_t ignored_count = 0;
    enum status s;
    if ((s = gguf_get_bool(g, KEY("add_space_prefix"), false, &v->special.add_space_prefix, err)) ||
        (s = gguf_get_bool(g, KEY("add_bos_token"), false, &v->special.add_bos, err)) ||
        (s = gguf_get_bool(g, KEY("add_eos_token"), false, &v->special.add_eos, err)) ||
        (s = gguf_get_bool(g, KEY("add_sep_token"), false, &ignored, err)) ||
        (s = gguf_get_bool(g, KEY("remove_extra_whitespaces"), false, &ignored, err)) ||
        (s = gguf_get_u32(g, KEY("token_type_count"), false, &ignored_count, err)))
        return s;
    const struct gguf_key *suppressed; /* for a sampler; greedy decoding has no use for it */
    if ((s = gguf_get_array(g, KEY("suppress_tokens"), GGUF_I32, false, &suppressed, err)))
        return s;
    if (v->pre && v->pre->flags & PRE_FORCE_BOS)
        v->special.add_bos = true;
    return STATUS_OK;
}

static enum status read_ids(struct vocab *v, const struct gguf *g, struct error *err)
{
    for (size_t i = 0; i < sizeof id_keys / sizeof id_keys[0]; i++) {
        int32_t *id = (int32_t *)((char *)&v->special + id_keys[i].field);
        if (*id != TOKEN_NONE && (size_t)*id >= v->n)
            *id = TOKEN_NONE;
        uint32_t value = UINT32_MAX;
        enum status s = gguf_get_u32(g, id_keys[i].key, false, &value, err);
        if (s != STATUS_OK)
            return s;
        if (value < v->n) /* one beyond the vocabulary is ignored */
            *id = (int32_t)value;
    }
    return STATUS_OK;
}

static enum status read_texts(struct vocab *v, const struct gguf *g, struct error *err)
{
    const struct gguf_key *tokens;
    enum status s = gguf_get_array(g, KEY("tokens"), GGUF_STRING, true, &tokens, err);
    if (s != STATUS_OK)
        return s;
    if (tokens->count == 0 || tokens->count >= INT32_MAX)
        return error_set(err, STATUS_RANGE, KEY("tokens") " has %llu entries, allowed are 1 to %d",
                         (unsigned long long)tokens->count, INT32_MAX - 1);
    v->n = (size_t)tokens->count;
    v->text = arena_array(&v->arena, v->n, sizeof *v->text);
    if (!v->text)
        return no_memory(v->n * sizeof *v->text, err);
    const void *cursor = NULL;
    for (size_t i = 0; i < v->n; i++) {
        v->text[i] = cut_at_nul(gguf_string_next(tokens, &cursor));
        if (v->text[i].size == 0) {
            char name[32];
            int size = snprintf(name, sizeof name, "[EMPTY_%zu]", i);
            v->text[i] = (struct span){arena_copy(&v->arena, name, (size_t)size), (size_t)size};
            if (!v->text[i].data)
                return no_memory((size_t)size, err);
        }
        if (v->text[i].size > v->text_max)
            v->text_max = v->text[i].size;
    }
    return STATUS_OK;
}

static enum status index_texts(struct vocab *v, const struct log_sink *log, struct error *err)
{
    if (!text_table_init(&v->ids, &v->arena, v->text, v->n))
        return no_memory(v->n * 2 * sizeof(struct text_slot), err);
    size_t doubles = 0, first = 0, of = 0;
    for (size_t i = 0; i < v->n; i++) {
        uint32_t known = text_table_add(&v->ids, (uint32_t)i);
        if (known != i && doubles++ == 0) {
            first = i;
            of = known;
        }
    }
    if (doubles) {
        char quoted[ERROR_QUOTE_BYTES];
        log_note(log, LOG_LEVEL_WARN, "%zu tokens repeat the text of a lower id, which stands for it, the first is %zu "
                 "(of %zu, \"%s\")", doubles, first, of, error_quote(v->text[of].data, v->text[of].size, quoted));
    }
    return STATUS_OK;
}

/* An optional array with one number a token; extra entries are ignored. */
static enum status check_count(const struct vocab *v, const struct gguf_key *k, const char *name, struct error *err)
{
    if (k && k->count < v->n)
        return error_set(err, STATUS_INVALID, "%s has %llu entries for %zu tokens", name, (unsigned long long)k->count,
                         v->n);
    return STATUS_OK;
}

/* Ascending ranks for descending scores, equal for equal scores; a score that is not a number comes last. */
static uint32_t score_rank(float score)
{
    if (score != score)
        return UINT32_MAX - 1;
    uint32_t u = float_bits(score + 0.0f); /* -0 counts as 0 */
    uint32_t ascending = u & 0x80000000 ? ~u : u | 0x80000000;
    return ~ascending;
}

static enum status read_scores(struct vocab *v, const struct gguf *g, struct error *err)
{
    const struct gguf_key *k = gguf_key_find(g, KEY("scores"));
    bool integers = k && k->type == GGUF_ARRAY && k->element == GGUF_I32;
    enum status s = STATUS_OK;
    if (!integers)
        s = gguf_get_array(g, KEY("scores"), GGUF_F32, false, &k, err);
    if (s == STATUS_OK)
        s = check_count(v, k, KEY("scores"), err);
    if (s != STATUS_OK || v->model != VOCAB_SPM)
        return s;
    v->rank = arena_array(&v->arena, v->n, sizeof *v->rank);
    if (!v->rank)
        return no_memory(v->n * sizeof *v->rank, err);
    for (size_t i = 0; i < v->n; i++) {
        uint32_t bits = k ? load_u32((const char *)k->data + 4 * i) : 0;
        v->rank[i] = score_rank(integers ? (float)(int32_t)bits : bits_float(bits));
    }
    return STATUS_OK;
}

static enum status read_types(struct vocab *v, const struct gguf *g, struct error *err)
{
    const struct gguf_key *k;
    enum status s = gguf_get_array(g, KEY("token_type"), GGUF_I32, false, &k, err);
    if (s == STATUS_OK)
        s = check_count(v, k, KEY("token_type"), err);
    if (s != STATUS_OK)
        return s;
    v->attribute = arena_array(&v->arena, v->n, sizeof *v->attribute);
    if (!v->attribute)
        return no_memory(v->n * sizeof *v->attribute, err);
    for (size_t i = 0; i < v->n; i++) {
        uint32_t type = k ? load_u32((const char *)k->data + 4 * i) : 1;
        if (type < sizeof type_attribute / sizeof type_attribute[0])
            v->attribute[i] = type_attribute[type];
    }
    return STATUS_OK;
}

static struct span string_or_empty(const struct gguf *g, const char *name)
{
    struct span s = {0};
    const struct gguf_key *k = gguf_key_find(g, name);
    if (k && k->type == GGUF_STRING)
        gguf_get_string(g, name, false, &s, NULL);
    return s;
}

enum status vocab_read(struct vocab *v, const struct gguf *g, const struct log_sink *log, struct error *err)
{
    *v = (struct vocab){0};
    v->general_name = string_or_empty(g, "general.name");
    v->architecture = string_or_empty(g, "general.architecture");
    enum status s;
    if ((s = read_model(v, g, err)) || (s = read_pre(v, g, log, err)) || (s = read_texts(v, g, err)))
        goto fail;
    set_defaults(v);
    if ((s = read_flags(v, g, err)) || (s = read_ids(v, g, err)) || (s = index_texts(v, log, err)) ||
        (s = read_scores(v, g, err)) || (s = read_types(v, g, err)))
        goto fail;
    v->is_eog = arena_array(&v->arena, v->n, sizeof *v->is_eog);
    if (v->is_eog)
        return STATUS_OK;
    s = no_memory(v->n, err);
fail:
    vocab_clear(v);
    return s;
}

void vocab_clear(struct vocab *v)
{
    arena_clear(&v->arena);
    *v = (struct vocab){0};
}
