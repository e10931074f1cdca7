/* See spm.h. A fragment is first cut wherever no token has the two characters side by side: no merge can cross such a
 * place, so the parts are independent "words", which are short in ordinary text and can be remembered. */
#include "engine/tokenizer/spm.h"

#include <stdio.h>

#include "engine/tokenizer/lenient_utf8.h"

/* Cut by the lead byte's high nibble, or by the end of the text. */
static inline size_t character_size(const char *p, size_t left)
{
    size_t n = lenient_length((unsigned char)*p);
    return n < left ? n : left;
}

static inline uint32_t character_key(const char *p, size_t n)
{
    uint32_t key = 0;
    for (size_t i = 0; i < n; i++)
        key = key << 8 | (unsigned char)p[i];
    return key;
}

static inline uint64_t pair_bit(const struct spm *s, uint32_t left, uint32_t right)
{
    return text_hash_step(left, right * 0x9e3779b1ull) & s->joined_mask;
}

static void join_characters(struct spm *s, struct span text)
{
    uint32_t last = 0;
    for (size_t i = 0; i < text.size;) {
        size_t n = character_size(text.data + i, text.size - i);
        uint32_t key = character_key(text.data + i, n);
        if (i > 0) {
            uint64_t bit = pair_bit(s, last, key);
            s->joined[bit / 64] |= 1ull << bit % 64;
        }
        last = key;
        i += n;
    }
}

static inline bool is_joined(const struct spm *s, uint32_t left, uint32_t right)
{
    uint64_t bit = pair_bit(s, left, right);
    return s->joined[bit / 64] >> bit % 64 & 1;
}

enum status spm_init(struct spm *s, struct vocab *v, struct error *err)
{
    s->vocab = v;
    for (unsigned b = 0; b < 256; b++) {
        char name[8], byte = (char)b;
        snprintf(name, sizeof name, "<0x%02X>", b);
        uint32_t own = vocab_find(v, (struct span){&byte, 1});
        uint32_t id = vocab_find(v, span_of(name));
        if (b < 128)
            s->ascii_id[b] = own;
        if (id == TEXT_NONE)
            id = own;
        if (id == TEXT_NONE) /* never absent: its default is 0 */
            id = (uint32_t)v->special.unknown;
        s->byte_id[b] = id;
    }
    uint64_t bits = 1 << 16; /* 8 KiB to 2 MiB: about 32 bits a token keep false neighbours rare */
    while (bits < v->n * 32 && bits < 1 << 24)
        bits *= 2;
    s->joined_mask = bits - 1;
    s->joined = arena_alloc(&v->arena, bits / 8);
    if (!s->joined)
        return error_no_memory(err, bits / 8, "the vocabulary");
    for (size_t i = 0; i < v->n; i++)
        join_characters(s, v->text[i]);
    return STATUS_OK;
}

static uint32_t spm_pair(const void *rules, const char *text, struct symbol left, struct symbol right, uint32_t end,
                         uint32_t *result)
{
    const struct vocab *v = ((const struct spm *)rules)->vocab;
    (void)right;
    if (end - left.start > v->text_max)
        return RANK_NONE;
    *result = vocab_find(v, (struct span){text + left.start, end - left.start});
    return *result == TEXT_NONE ? RANK_NONE : v->rank[*result];
}

static bool push_bytes(const struct spm *s, struct encoder *e, struct span text)
{
    for (size_t i = 0; i < text.size; i++)
        if (!encoder_push(e, s->byte_id[(unsigned char)text.data[i]]))
            return false;
    return true;
}

/* Merges the symbols that are in e->merge and appends what is left; false: no memory. */
static bool encode_symbols(const struct spm *s, struct encoder *e, const char *text)
{
    struct merge_scratch *m = &e->merge;
    if (!merge_word(m, s, text, spm_pair))
        return false;
    for (size_t i = 0; i < m->n; i++) {
        struct symbol symbol = m->symbols[i];
        struct span bytes = {text + symbol.start, m->symbols[i + 1].start - symbol.start};
        if (symbol.id == SYMBOL_NONE ? !push_bytes(s, e, bytes) : !encoder_push(e, symbol.id))
            return false;
    }
    return true;
}

/* Appends the ids of text[start..end), whose characters already stand in e->merge; false: no memory. */
static bool encode_word(const struct spm *s, struct encoder *e, struct span text, size_t start, size_t end)
{
    bool known;
    struct span word = {text.data + start, end - start};
    struct word_slot *slot = encoder_word_slot(e, word, text.size - start, &known);
    if (slot && known)
        return encoder_repeat(e, slot);
    size_t at = e->out->count;
    if (!encode_symbols(s, e, text.data))
        return false;
    if (slot)
        encoder_remember(e, slot, at, word.size);
    return true;
}

static inline uint32_t character_id(const struct spm *s, const char *p, size_t n)
{
    if (n == 1 && (unsigned char)*p < 128)
        return s->ascii_id[(unsigned char)*p];
    return vocab_find(s->vocab, (struct span){p, n});
}

static bool escape(struct buffer *out, struct span fragment, bool prefix)
{
    out->size = 0;
    if (prefix)
        buffer_append(out, VOCAB_BLANK, 3);
    for (size_t i = 0; i < fragment.size;) {
        const char *space = memchr(fragment.data + i, ' ', fragment.size - i);
        size_t plain = space ? (size_t)(space - fragment.data) - i : fragment.size - i;
        buffer_append(out, fragment.data + i, plain);
        if (space)
            buffer_append(out, VOCAB_BLANK, 3);
        i += plain + 1;
    }
    return !out->failed;
}

/* Cuts the escaped text into words; false: no memory. */
static bool encode_words(const struct spm *s, struct encoder *e, struct span text)
{
    struct merge_scratch *m = &e->merge;
    uint32_t last = 0;
    size_t start = 0, i = 0;
    m->n = 0;
    while (i < text.size) {
        size_t n = character_size(text.data + i, text.size - i);
        uint32_t key = character_key(text.data + i, n);
        if (m->n && !is_joined(s, last, key)) {
            m->symbols[m->n].start = (uint32_t)i;
            if (!encode_word(s, e, text, start, i))
                return false;
            if (encoder_is_full(e))
                return true;
            start = i;
            m->n = 0;
        }
        if (!merge_reserve(m, m->n + 1))
            return false;
        m->symbols[m->n++] = (struct symbol){(uint32_t)i, character_id(s, text.data + i, n)};
        last = key;
        i += n;
    }
    m->symbols[m->n].start = (uint32_t)text.size;
    return encode_word(s, e, text, start, text.size);
}

enum status spm_encode(const struct spm *s, struct encoder *e, struct span fragment, bool prefix, struct error *err)
{
    if (!escape(&e->side, fragment, prefix) || !encode_words(s, e, buffer_span(&e->side)))
        return error_no_memory(err, fragment.size * 16, "a text");
    return STATUS_OK;
}
