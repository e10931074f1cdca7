/* The public face: builds the parts, cuts a text into fragments and hands each to its model. See tokenizer.h. */
#include "engine/tokenizer/tokenizer.h"

#include <stdlib.h>

#include "engine/tokenizer/bpe.h"
#include "engine/tokenizer/encoder.h"
#include "engine/tokenizer/partition.h"
#include "engine/tokenizer/spm.h"
#include "engine/tokenizer/vocab.h"

struct tokenizer {
    struct vocab vocab;
    struct partition partition;
    union {
        struct spm spm;
        struct bpe bpe;
    } model;
};

enum { TEXT_BYTES_MAX = 1 << 30 }; /* positions are 32 bits wide, escaped spaces take three times their room */

enum status tokenizer_new(const struct gguf *g, const struct log_sink *log, struct tokenizer **out, struct error *err)
{
    struct tokenizer *t = calloc(1, sizeof *t);
    if (!t)
        return error_no_memory(err, sizeof *t, "the tokenizer");
    enum status s = vocab_read(&t->vocab, g, log, err);
    if (s == STATUS_OK)
        s = vocab_complete(&t->vocab, err);
    if (s == STATUS_OK)
        s = partition_init(&t->partition, &t->vocab, err);
    if (s == STATUS_OK)
        s = t->vocab.model == VOCAB_SPM ? spm_init(&t->model.spm, &t->vocab, err)
                                        : bpe_init(&t->model.bpe, &t->vocab, err);
    if (s != STATUS_OK) {
        tokenizer_free(t);
        return s;
    }
    *out = t;
    return STATUS_OK;
}

void tokenizer_free(struct tokenizer *t)
{
    if (t)
        vocab_clear(&t->vocab);
    free(t);
}

size_t tokenizer_size(const struct tokenizer *t)
{
    return t->vocab.n;
}

const char *tokenizer_model(const struct tokenizer *t)
{
    return t->vocab.model == VOCAB_SPM ? "llama" : "gpt2";
}

const struct tokenizer_special *tokenizer_special(const struct tokenizer *t)
{
    return &t->vocab.special;
}

unsigned tokenizer_attributes(const struct tokenizer *t, int32_t id)
{
    return t->vocab.attribute[id];
}

bool tokenizer_is_eog(const struct tokenizer *t, int32_t id)
{
    return t->vocab.is_eog[id];
}

struct span tokenizer_text(const struct tokenizer *t, int32_t id)
{
    return t->vocab.text[id];
}

struct span tokenizer_piece(const struct tokenizer *t, int32_t id)
{
    return t->vocab.piece[id];
}

size_t tokenizer_memory(const struct tokenizer *t)
{
    return sizeof *t + t->vocab.arena.bytes;
}

bool token_list_push(struct token_list *list, int32_t id)
{
    if (list->count == list->capacity) {
        size_t capacity = list->capacity ? list->capacity * 2 : 64;
        int32_t *data = realloc(list->data, capacity * sizeof *data);
        if (!data)
            return false;
        list->data = data;
        list->capacity = capacity;
    }
    list->data[list->count++] = id;
    return true;
}

/* A cache that costs less than the text; short texts do without. */
static void encoder_open(struct encoder *e, struct token_list *out, size_t limit, size_t text_bytes)
{
    *e = (struct encoder){.out = out, .first = out->count, .limit = limit};
    buffer_init(&e->side);
    size_t slots = WORD_CACHE_MIN;
    while (slots < WORD_CACHE_MAX && slots * 16 < text_bytes)
        slots *= 2;
    if (text_bytes >= 256 && (e->words = calloc(slots, sizeof *e->words)))
        e->word_mask = slots - 1;
}

static void encoder_close(struct encoder *e)
{
    merge_clear(&e->merge);
    buffer_clear(&e->side);
    free(e->words);
}

static enum status encode_fragments(const struct tokenizer *t, struct encoder *e, struct span text, bool prefix,
                                    const struct fragment_list *list, struct error *err)
{
    enum status s = STATUS_OK;
    for (size_t i = 0; i < list->n && s == STATUS_OK && !encoder_is_full(e); i++) {
        struct fragment f = list->data[i];
        if (f.id != TOKEN_NONE) {
            prefix = t->vocab.special.add_space_prefix;
            if (!encoder_push(e, (uint32_t)f.id))
                s = error_no_memory(err, e->out->count * 8, "token ids");
            continue;
        }
        struct span raw = {text.data + f.start, f.end - f.start};
        s = t->vocab.model == VOCAB_SPM ? spm_encode(&t->model.spm, e, raw, prefix, err)
                                        : bpe_encode(&t->model.bpe, e, raw, err);
        prefix = false;
    }
    return s;
}

enum status tokenizer_encode(const struct tokenizer *t, struct span text, unsigned flags, size_t limit,
                             struct token_list *out, struct error *err)
{
    if (text.size > TEXT_BYTES_MAX)
        return error_set(err, STATUS_RANGE, "a text of %zu bytes can not be tokenized at once, allowed are %d", text.size,
                         TEXT_BYTES_MAX);
    struct fragment_list list = {0};
    struct encoder e;
    encoder_open(&e, out, limit, text.size);
    bool prefix = t->vocab.special.add_space_prefix && !(flags & TOKENIZE_NO_PREFIX);
    enum status s = partition_split(&t->partition, text, flags & TOKENIZE_PARSE_SPECIAL, &list, err);
    if (s == STATUS_OK)
        s = encode_fragments(t, &e, text, prefix, &list, err);
    if (s == STATUS_OK && encoder_is_full(&e))
        s = error_set(err, STATUS_OVERFLOW, "the text has more than %zu tokens", limit);
    encoder_close(&e);
    fragment_list_clear(&list);
    return s;
}

static enum status push_required(struct token_list *out, int32_t id, const char *flag, const char *key,
                                 struct error *err)
{
    if (id == TOKEN_NONE)
        return error_set(err, STATUS_INVALID, "tokenizer.ggml.%s asks for a token, but the vocabulary has no %s", flag,
                         key);
    return token_list_push(out, id) ? STATUS_OK : error_no_memory(err, out->count * 8, "token ids");
}

enum status tokenizer_encode_whole(const struct tokenizer *t, struct span text, bool add_special, unsigned flags,
                                   size_t limit, struct token_list *out, struct error *err)
{
    const struct tokenizer_special *special = &t->vocab.special;
    size_t first = out->count;
    enum status s = STATUS_OK;
    if (add_special && special->add_bos)
        s = push_required(out, special->bos, "add_bos_token", "bos_token_id", err);
    if (s == STATUS_OK) {
        size_t added = out->count - first;
        s = tokenizer_encode(t, text, flags, limit == SIZE_MAX ? limit : limit < added ? 0 : limit - added, out, err);
    }
    if (s == STATUS_OK && add_special && special->add_eos)
        s = push_required(out, special->eos, "add_eos_token", "eos_token_id", err);
    if (s == STATUS_OK && out->count - first > limit)
        s = error_set(err, STATUS_OVERFLOW, "the text has more than %zu tokens", limit);
    return s;
}

void tokenizer_decode(const struct tokenizer *t, const int32_t *ids, size_t n, struct buffer *out)
{
    for (size_t i = 0; i < n; i++)
        buffer_append(out, t->vocab.piece[ids[i]].data, t->vocab.piece[ids[i]].size);
}
