/* Any text over any vocabulary: the input is read as a vocabulary (kind, word splitter, tokens, merges, a few keys) and
 * the text behind it. Ids are in range, two calls agree, a limit gives a prefix. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/buffer.h"
#include "engine/base/utf8.h"
#include "engine/tokenizer/pretok.h"
#include "engine/tokenizer/tokenizer.h"
#include "tests/fuzz/memory_file.h"

struct input {
    const uint8_t *at;
    size_t left;
};

static uint8_t take(struct input *in)
{
    if (in->left == 0)
        return 0;
    in->left--;
    return *in->at++;
}

static struct span take_bytes(struct input *in, size_t n)
{
    struct span s = {(const char *)in->at, n < in->left ? n : in->left};
    in->at += s.size;
    in->left -= s.size;
    return s;
}

/* ---- a GGUF file ---- */

static void put(struct buffer *b, uint64_t value, size_t bytes)
{
    buffer_append(b, &value, bytes);
}

static void put_string(struct buffer *b, struct span s)
{
    put(b, s.size, 8);
    buffer_append(b, s.data, s.size);
}

static void put_key(struct buffer *b, const char *name, uint32_t type)
{
    put_string(b, span_of(name));
    put(b, type, 4);
}

static void put_array(struct buffer *b, const char *name, uint32_t element, const struct buffer *items, uint64_t count)
{
    put_key(b, name, 9);
    put(b, element, 4);
    put(b, count, 8);
    buffer_append(b, items->data, items->size);
}

struct plan {
    bool bpe;
    uint64_t n_tokens, n_merges, n_keys;
    struct buffer tokens, types, scores, merges, keys;
};

static void add_token(struct plan *p, struct span text, uint32_t type, uint32_t score)
{
    put_string(&p->tokens, text);
    put(&p->types, type, 4);
    put(&p->scores, score, 4);
    p->n_tokens++;
}

static void add_byte_tokens(struct plan *p)
{
    unsigned other = 0x100;
    for (unsigned byte = 0; byte < 256; byte++) {
        char text[8];
        if (!p->bpe) {
            snprintf(text, sizeof text, "<0x%02X>", byte);
            add_token(p, span_of(text), 6, 0);
            continue;
        }
        bool itself = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
        add_token(p, (struct span){text, utf8_encode(itself ? byte : other++, text)}, 1, 0);
    }
}

static void add_key_u32(struct plan *p, const char *name, uint32_t value)
{
    put_key(&p->keys, name, 4);
    put(&p->keys, value, 4);
    p->n_keys++;
}

static void add_key_string(struct plan *p, const char *name, struct span value)
{
    put_key(&p->keys, name, 8);
    put_string(&p->keys, value);
    p->n_keys++;
}

static void read_plan(struct plan *p, struct input *in)
{
    static const char *const names[] = {"x", "phi-3", "modern-bert", "PHI3"};
    static const char *const known[] = {"</s>", "<unk>", "<s>", "<|endoftext|>", "<mask>", "[MASK]", "<|end|>", "<|call|>",
                                        "<|return|>", "\xe2\x96\x81", "\xc4\xa0", "<|channel|>", "unused<x>", "<0x0A>"};
    uint8_t kind = take(in), name = take(in), n_known = take(in) % 16, n_tokens = take(in) % 48;
    p->bpe = kind & 1;
    add_key_string(p, "tokenizer.ggml.model", span_of(p->bpe ? "gpt2" : "llama"));
    add_key_string(p, "general.name", span_of(names[name % 4]));
    if (kind & 4)
        add_key_string(p, "tokenizer.ggml.pre", span_of(pretok_at(take(in) % 90)->name));
    if (kind & 8)
        add_key_u32(p, "tokenizer.ggml.eos_token_id", take(in));
    if (kind & 2)
        add_byte_tokens(p);
    for (uint8_t i = 0; i < n_known; i++)
        add_token(p, span_of(known[i % (sizeof known / sizeof known[0])]), i % 7, i);
    for (uint8_t i = 0; i < n_tokens; i++) {
        uint8_t head = take(in);
        add_token(p, take_bytes(in, head & 7), head >> 4 & 7, (uint32_t)take(in) << 24);
    }
    for (uint8_t n = take(in) % 32; n > 0; n--, p->n_merges++)
        put_string(&p->merges, take_bytes(in, take(in) & 7));
}

static void make_file(const struct plan *p, struct buffer *out)
{
    buffer_append(out, "GGUF", 4);
    put(out, 3, 4);
    put(out, 0, 8);
    put(out, p->n_keys + 4, 8);
    buffer_append(out, p->keys.data, p->keys.size);
    put_array(out, "tokenizer.ggml.tokens", 8, &p->tokens, p->n_tokens);
    put_array(out, "tokenizer.ggml.token_type", 5, &p->types, p->n_tokens);
    put_array(out, "tokenizer.ggml.scores", 6, &p->scores, p->n_tokens);
    put_array(out, "tokenizer.ggml.merges", 8, &p->merges, p->n_merges);
}

/* ---- checks ---- */

static void require(bool held)
{
    if (!held)
        abort();
}

static bool starts_with(const struct token_list *a, const struct token_list *b)
{
    return a->count >= b->count && (b->count == 0 || memcmp(a->data, b->data, b->count * sizeof *b->data) == 0);
}

static void check_text(const struct tokenizer *t, struct span text, unsigned flags)
{
    struct token_list all = {0}, again = {0};
    struct error err;
    require(tokenizer_encode(t, text, flags, SIZE_MAX, &all, &err) == STATUS_OK);
    for (size_t i = 0; i < all.count; i++)
        require(all.data[i] >= 0 && (size_t)all.data[i] < tokenizer_size(t));
    require(tokenizer_encode(t, text, flags, all.count, &again, &err) == STATUS_OK);
    require(again.count == all.count && starts_with(&all, &again));
    again.count = 0;
    if (all.count) {
        require(tokenizer_encode(t, text, flags, all.count / 2, &again, &err) == STATUS_OVERFLOW);
        require(again.count > all.count / 2 && starts_with(&all, &again));
    }
    struct buffer back;
    buffer_init(&back);
    tokenizer_decode(t, all.data, all.count, &back);
    require(!back.failed);
    buffer_clear(&back);
    free(all.data);
    free(again.data);
}

static void check_tokenizer(const struct tokenizer *t, struct span text)
{
    for (int32_t id = 0; (size_t)id < tokenizer_size(t); id++) {
        (void)tokenizer_is_eog(t, id);
        require(tokenizer_text(t, id).size > 0 && tokenizer_piece(t, id).data != NULL);
    }
    for (unsigned flags = 0; flags < 4; flags++) {
        check_text(t, text, flags);
        check_text(t, (struct span){text.data, text.size / 2}, flags);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {data, size};
    struct plan p = {0};
    struct buffer file = {0};
    struct gguf *g = NULL;
    struct tokenizer *t = NULL;
    struct error err;
    read_plan(&p, &in);
    make_file(&p, &file);
    if (gguf_open(memory_file((const uint8_t *)file.data, file.size), NULL, &g, &err) != STATUS_OK)
        require(p.n_tokens == 0 || err.text[0]);
    else if (tokenizer_new(g, NULL, &t, &err) != STATUS_OK)
        require(err.text[0] != 0);
    else
        check_tokenizer(t, (struct span){(const char *)in.at, in.left});
    tokenizer_free(t);
    gguf_close(g);
    buffer_clear(&file);
    buffer_clear(&p.tokens);
    buffer_clear(&p.types);
    buffer_clear(&p.scores);
    buffer_clear(&p.merges);
    buffer_clear(&p.keys);
    return 0;
}
