/* Merge lines -> pairs of symbol numbers; the other tables of struct bpe. See bpe.h. */
#include <stdio.h>
#include <stdlib.h>

#include "engine/tokenizer/bpe.h"
#include "engine/tokenizer/byte_alphabet.h"
#include "engine/tokenizer/lenient_utf8.h"

/* Numbers for texts: tokens have theirs, others get the next free ones. */
struct numbering {
    const struct vocab *vocab;
    struct arena *arena; /* of the other texts */
    struct span *others;
    size_t n_others, capacity;
    struct text_table table; /* text -> place in others */
};

/* On failure nothing has changed: numbers are still looked for. */
static bool numbering_grow(struct numbering *m)
{
    size_t capacity = m->capacity ? m->capacity * 2 : 1024;
    struct text_table table;
    struct span *others = arena_array(m->arena, capacity, sizeof *others);
    if (!others || !text_table_init(&table, m->arena, others, capacity))
        return false;
    if (m->n_others)
        memcpy(others, m->others, m->n_others * sizeof *others);
    m->others = others;
    m->capacity = capacity;
    m->table = table;
    for (uint32_t i = 0; i < m->n_others; i++)
        text_table_add(&m->table, i);
    return true;
}

static uint32_t number_find(const struct numbering *m, struct span text)
{
    uint32_t id = vocab_find(m->vocab, text);
    if (id != TEXT_NONE)
        return id;
    id = m->n_others ? text_table_find(&m->table, text) : TEXT_NONE;
    return id == TEXT_NONE ? SYMBOL_NONE : (uint32_t)m->vocab->n + id;
}

/* `lasting`: the text stays where it is. SYMBOL_NONE: no memory. */
static uint32_t number_of(struct numbering *m, struct span text, bool lasting)
{
    uint32_t id = number_find(m, text);
    if (id != SYMBOL_NONE)
        return id;
    if (m->n_others == m->capacity && !numbering_grow(m))
        return SYMBOL_NONE;
    if (!lasting && !(text.data = arena_copy(m->arena, text.data, text.size)))
        return SYMBOL_NONE;
    m->others[m->n_others] = text;
    return (uint32_t)m->vocab->n + text_table_add(&m->table, (uint32_t)m->n_others++);
}

/* "left right", split at the first space behind the first byte; a line without one never matches. */
static bool split_line(struct span line, struct span *left, struct span *right)
{
    const char *nul = line.size ? memchr(line.data, 0, line.size) : NULL;
    size_t size = nul ? (size_t)(nul - line.data) : line.size;
    const char *space = size > 1 ? memchr(line.data + 1, ' ', size - 1) : NULL;
    if (!space)
        return false;
    *left = (struct span){line.data, (size_t)(space - line.data)};
    *right = (struct span){space + 1, size - left->size - 1};
    return true;
}

static void enter_merge(struct bpe *b, struct bpe_merge merge)
{
    size_t hash = bpe_merge_hash(merge.left, merge.right), bit = bpe_filter_bit(b, hash);
    b->merge_filter[bit / 64] |= 1ull << bit % 64;
    for (size_t i = hash & b->merge_mask;; i = (i + 1) & b->merge_mask) {
        struct bpe_merge *slot = &b->merges[i];
        if (slot->left == merge.left && slot->right == merge.right)
            return; /* of equal lines the first counts */
        if (slot->left == SYMBOL_NONE) {
            *slot = merge;
            return;
        }
    }
}

static bool read_merges(struct bpe *b, struct numbering *m)
{
    const struct gguf_key *lines = b->vocab->merges;
    const void *cursor = NULL;
    struct buffer joined;
    bool ok = true;
    buffer_init(&joined);
    for (uint64_t i = 0; ok && lines && i < lines->count; i++) {
        struct span left, right;
        if (!split_line(gguf_string_next(lines, &cursor), &left, &right))
            continue;
        joined.size = 0;
        buffer_append(&joined, left.data, left.size);
        buffer_append(&joined, right.data, right.size);
        struct bpe_merge merge = {number_of(m, left, true), number_of(m, right, true), (uint32_t)i, 0};
        merge.result = joined.failed ? SYMBOL_NONE : number_of(m, buffer_span(&joined), false);
        ok = merge.left != SYMBOL_NONE && merge.right != SYMBOL_NONE && merge.result != SYMBOL_NONE;
        if (ok)
            enter_merge(b, merge);
    }
    buffer_clear(&joined);
    return ok;
}

static void fill_bytes(struct bpe *b, const struct numbering *m)
{
    bool raw = b->vocab->pre->flags & PRE_RAW;
    for (unsigned byte = 0; byte < 256; byte++) {
        char text[8];
        size_t size = lenient_encode(byte_alphabet_character((unsigned char)byte), text);
        b->byte_symbol[byte] = number_find(m, (struct span){text, size});
        for (size_t i = 0; i < 2; i++)
            b->byte_tokens[byte][i] = i < size ? vocab_find(b->vocab, (struct span){text + i, 1}) : TEXT_NONE;
        if (raw) {
            snprintf(text, sizeof text, "<0x%02X>", byte);
            b->byte_tokens[byte][0] = vocab_find(b->vocab, span_of(text));
            b->byte_tokens[byte][1] = TEXT_NONE;
        }
    }
}

/* Needs byte_symbol. false: no memory. */
static bool fill_byte_pairs(struct bpe *b, struct vocab *v)
{
    if (v->pre->flags & PRE_RAW)
        return true;
    b->byte_pairs = arena_array(&v->arena, 65536, sizeof *b->byte_pairs);
    for (size_t i = 0; b->byte_pairs && i < 65536; i++) {
        uint32_t left = b->byte_symbol[i >> 8], right = b->byte_symbol[i & 255];
        const struct bpe_merge *m = NULL;
        if (left != SYMBOL_NONE && right != SYMBOL_NONE)
            m = bpe_merge_find(b, left, right);
        b->byte_pairs[i] = m ? (struct byte_pair){m->rank, m->result} : (struct byte_pair){RANK_NONE, 0};
    }
    return b->byte_pairs;
}

/* The bytes that token i stands for as a whole word; no data: none, because some character is not in the alphabet, or
 * no memory. Nearly always the text or the piece has them already. */
static struct span word_of(struct vocab *v, uint32_t i)
{
    struct span text = v->text[i], none = {NULL, 0};
    size_t n = 0, size;
    if (!lenient_is_clean(text))
        return none;
    for (size_t at = 0; at < text.size; at += size, n++)
        if (byte_alphabet_inverse(lenient_character(text.data + at, &size)) < 0)
            return none;
    if (n == text.size)
        return text;
    if (v->attribute[i] & TOKEN_NORMAL && !(v->attribute[i] & (TOKEN_UNKNOWN | TOKEN_CONTROL | TOKEN_USER_DEFINED)))
        return v->piece[i];
    char *bytes = arena_alloc(&v->arena, n);
    for (size_t at = 0, k = 0; bytes && at < text.size; at += size)
        bytes[k++] = (char)byte_alphabet_inverse(lenient_character(text.data + at, &size));
    return (struct span){bytes, n};
}

static bool fill_words(struct bpe *b, struct vocab *v)
{
    if (v->pre->flags & PRE_RAW || !(v->pre->flags & PRE_WHOLE_WORDS)) {
        b->words = v->ids;
        return true;
    }
    struct span *words = arena_array(&v->arena, v->n, sizeof *words);
    if (!words || !text_table_init(&b->words, &v->arena, words, v->n))
        return false;
    for (uint32_t i = 0; i < v->n; i++) {
        words[i] = word_of(v, i);
        if (words[i].data)
            text_table_add(&b->words, i);
    }
    return true;
}

enum status bpe_init(struct bpe *b, struct vocab *v, struct error *err)
{
    size_t lines = v->merges ? (size_t)v->merges->count : 0, slots = 16;
    if (lines >= UINT32_MAX / 4)
        return error_set(err, STATUS_RANGE, "tokenizer.ggml.merges has %zu entries, allowed are %u", lines,
                         UINT32_MAX / 4 - 1);
    while (slots < lines + lines / 2)
        slots *= 2;
    *b = (struct bpe){.vocab = v, .merge_mask = slots - 1, .filter_mask = slots * 8 - 1};
    b->merges = arena_array(&v->arena, slots, sizeof *b->merges);
    b->merge_filter = arena_alloc(&v->arena, slots);
    b->pretok = pretok_new(v->pre->program, &v->arena);
    if (!b->merges || !b->merge_filter || !b->pretok)
        return error_no_memory(err, slots * sizeof *b->merges, "merges");
    memset(b->merges, 0xff, slots * sizeof *b->merges);
    /* what merges know besides tokens is needed later on only where symbols are characters */
    struct arena temporary = {0};
    struct numbering m = {.vocab = v, .arena = v->pre->flags & PRE_RAW ? &v->arena : &temporary};
    bool ok = read_merges(b, &m) && fill_words(b, v);
    if (ok) {
        fill_bytes(b, &m);
        ok = fill_byte_pairs(b, v);
    }
    if (v->pre->flags & PRE_RAW)
        b->others = m.table;
    arena_clear(&temporary);
    return ok ? STATUS_OK : error_no_memory(err, lines * 16, "merges");
}
