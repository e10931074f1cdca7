/* See bpe.h. */
#include "engine/tokenizer/bpe.h"

#include "engine/tokenizer/lenient_utf8.h"

static inline uint32_t bpe_pair(const void *rules, const char *text, struct symbol left, struct symbol right,
                                uint32_t end, uint32_t *result)
{
    const struct bpe *b = rules;
    if (end - left.start == 2 && b->byte_pairs) {
        const unsigned char *bytes = (const unsigned char *)text + left.start;
        const struct byte_pair *pair = &b->byte_pairs[bytes[0] << 8 | bytes[1]];
        *result = pair->result;
        return pair->rank;
    }
    if (left.id == SYMBOL_NONE || right.id == SYMBOL_NONE)
        return RANK_NONE;
    const struct bpe_merge *merge = bpe_merge_find(b, left.id, right.id);
    if (!merge)
        return RANK_NONE;
    *result = merge->result;
    return merge->rank;
}

/* One call's work on one fragment. */
struct bpe_run {
    const struct bpe *bpe;
    struct encoder *encoder;
    struct span text;
    bool no_memory;
};

static bool is_newlines(struct span word)
{
    for (size_t i = 0; i < word.size; i++)
        if (word.data[i] != '\n')
            return false;
    return true;
}

/* The token that is the whole word where the vocabulary asks for that; TEXT_NONE: merge. */
static uint32_t whole_word(const struct bpe *b, struct span word)
{
    unsigned flags = b->vocab->pre->flags;
    if (word.size <= b->vocab->text_max &&
        (flags & PRE_WHOLE_WORDS || (flags & PRE_WHOLE_NEWLINES && is_newlines(word))))
        return text_table_find(&b->words, word);
    return TEXT_NONE;
}

static uint32_t character_symbol(const struct bpe *b, struct span character)
{
    uint32_t id = vocab_find(b->vocab, character);
    if (id != TEXT_NONE || !b->others.slots)
        return id;
    id = text_table_find(&b->others, character);
    return id == TEXT_NONE ? SYMBOL_NONE : (uint32_t)b->vocab->n + id;
}

static bool fill_symbols(const struct bpe *b, struct merge_scratch *m, const char *text, size_t start, size_t end)
{
    m->n = 0;
    if (!merge_reserve(m, end - start))
        return false;
    if (!(b->vocab->pre->flags & PRE_RAW)) {
        for (size_t i = start; i < end; i++)
            m->symbols[m->n++] = (struct symbol){(uint32_t)i, b->byte_symbol[(unsigned char)text[i]]};
    } else {
        for (size_t i = start, size; i < end; i += size) {
            size = lenient_length((unsigned char)text[i]);
            m->symbols[m->n++] = (struct symbol){(uint32_t)i, character_symbol(b, (struct span){text + i, size})};
        }
    }
    m->symbols[m->n].start = (uint32_t)end;
    return true;
}

/* A symbol that is no token becomes the tokens of its bytes, as far as there are any. */
static bool push_bytes(const struct bpe *b, struct encoder *e, const char *text, size_t start, size_t end)
{
    for (size_t i = start; i < end; i++)
        for (size_t k = 0; k < 2; k++) {
            uint32_t id = b->byte_tokens[(unsigned char)text[i]][k];
            if (id != TEXT_NONE && !encoder_push(e, id))
                return false;
        }
    return true;
}

static bool encode_word(const struct bpe *b, struct encoder *e, struct span text, size_t start, size_t end)
{
    uint32_t whole = whole_word(b, (struct span){text.data + start, end - start});
    if (whole != TEXT_NONE)
        return encoder_push(e, whole);
    struct merge_scratch *m = &e->merge;
    if (!fill_symbols(b, m, text.data, start, end) || !merge_word(m, b, text.data, bpe_pair))
        return false;
    for (size_t i = 0; i < m->n; i++) {
        struct symbol s = m->symbols[i];
        bool ok = s.id < b->vocab->n ? encoder_push(e, s.id)
                                     : push_bytes(b, e, text.data, s.start, m->symbols[i + 1].start);
        if (!ok)
            return false;
    }
    return true;
}

static bool take_word(void *context, size_t start, size_t end)
{
    struct bpe_run *r = context;
    struct encoder *e = r->encoder;
    bool known = false;
    struct span word = {r->text.data + start, end - start};
    struct word_slot *slot = encoder_word_slot(e, word, r->text.size - start, &known);
    if (known) {
        r->no_memory = !encoder_repeat(e, slot);
    } else {
        size_t at = e->out->count;
        r->no_memory = !encode_word(r->bpe, e, r->text, start, end);
        if (slot && !r->no_memory)
            encoder_remember(e, slot, at, word.size);
    }
    return !r->no_memory && !encoder_is_full(e);
}

static bool escape_spaces(struct buffer *out, struct span text)
{
    out->size = 0;
    for (size_t i = 0; i < text.size; i++) {
        if (text.data[i] == ' ')
            buffer_append(out, VOCAB_BLANK, 3);
        else
            buffer_byte(out, text.data[i]);
    }
    return !out->failed;
}

/* Replaces a text that is not clean by its cleaned form in e->side, where it may already stand. */
static bool clean(struct encoder *e, struct span *text)
{
    if (lenient_is_clean(*text))
        return true;
    struct buffer cleaned;
    buffer_init(&cleaned);
    lenient_clean(*text, &cleaned);
    if (cleaned.failed) {
        buffer_clear(&cleaned);
        return false;
    }
    buffer_clear(&e->side);
    e->side = cleaned;
    *text = buffer_span(&e->side);
    return true;
}

enum status bpe_encode(const struct bpe *b, struct encoder *e, struct span fragment, struct error *err)
{
    struct bpe_run run = {b, e, fragment, false};
    if (b->vocab->pre->flags & PRE_ESCAPE) {
        run.no_memory = !escape_spaces(&e->side, fragment);
        run.text = buffer_span(&e->side);
    }
    if (!run.no_memory && !clean(e, &run.text))
        run.no_memory = true;
    if (!run.no_memory)
        pretok_split(b->pretok, run.text, take_word, &run);
    return run.no_memory ? error_no_memory(err, fragment.size * 16, "a text") : STATUS_OK;
}
