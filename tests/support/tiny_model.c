/* Small complete models with random weights: no meaning, but every step of the engine runs on them. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine/base/f16.h"
#include "engine/base/utf8.h"
#include "tests/support/gguf_builder.h"

uint64_t test_random(uint64_t *state) /* splitmix64 */
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

float test_random_float(uint64_t *state, float low, float high)
{
    return low + (high - low) * (float)(test_random(state) >> 40) * 0x1p-24f;
}

/* ---- vocabulary ---- */

/* Pieces in merge order: each is one character, or two earlier ones joined. "_" stands for the blank. */
static const char *const pieces[] = {
    "_",  "e",  "t",   "a",   "o",   "i",   "n",   "s",   "h",    "r",   "d",    "l",   "u",    "c",   "m",     "w",
    "f",  "g",  "y",   "p",   "b",   "v",   "k",   "x",   "j",    "q",   "z",    ".",   ",",    "!",   "?",     "'",
    "0",  "1",  "2",   "3",   "4",   "5",   "6",   "7",   "8",    "9",   "O",    "T",   "H",    "W",   "_t",    "he",
    "in", "_a", "er",  "nd",  "_th", "_the", "_s", "on",  "_w",   "ou",  "_and", "re",  "_i",   "is",  "at",    "en",
    "_o", "ll", "_b",  "ed",  "ing", "_he", "or",  "_was", "it",  "_f",  "_to",  "es",  "_d",   "ly",  "_in",   "_c",
    "_m", "an", "_p",  "_l",  "_h",  "_g",  "_it", "_ll", "_on",  "el",  "_her", "la",  "_re",  "lo",  "hel",   "hello",
};
#define N_PIECES (sizeof pieces / sizeof pieces[0])
#define PIECE_BYTES 24

struct vocabulary {
    char (*text)[PIECE_BYTES];
    size_t n;
    float *scores;
    int32_t *types;
};

static void add_token(struct vocabulary *v, const char *text, float score, int32_t type)
{
    v->text = realloc(v->text, (v->n + 1) * sizeof *v->text);
    v->scores = realloc(v->scores, (v->n + 1) * sizeof *v->scores);
    v->types = realloc(v->types, (v->n + 1) * sizeof *v->types);
    if (!v->text || !v->scores || !v->types)
        abort();
    snprintf(v->text[v->n], PIECE_BYTES, "%s", text);
    v->scores[v->n] = score;
    v->types[v->n++] = type;
}

/* Text with every "_" replaced. */
static const char *with_blank(const char *text, const char *blank, char *out)
{
    size_t n = 0;
    for (; *text; text++)
        n += (size_t)snprintf(out + n, PIECE_BYTES - n, "%.*s", *text == '_' ? 9 : 1, *text == '_' ? blank : text);
    return out;
}

static void store_vocabulary(struct gguf_builder *b, struct vocabulary *v)
{
    struct span *texts = malloc(v->n * sizeof *texts);
    if (!texts)
        abort();
    for (size_t i = 0; i < v->n; i++)
        texts[i] = span_of(v->text[i]);
    gguf_builder_strings(b, "tokenizer.ggml.tokens", texts, v->n);
    gguf_builder_array(b, "tokenizer.ggml.scores", GGUF_F32, v->n, v->scores, v->n * sizeof *v->scores);
    gguf_builder_array(b, "tokenizer.ggml.token_type", GGUF_I32, v->n, v->types, v->n * sizeof *v->types);
    free(texts);
    free(v->text);
    free(v->scores);
    free(v->types);
}

static size_t add_spm(struct gguf_builder *b)
{
    struct vocabulary v = {0};
    char text[PIECE_BYTES];
    add_token(&v, "<unk>", 0, 2);
    add_token(&v, "<s>", 0, 3);
    add_token(&v, "</s>", 0, 3);
    for (unsigned i = 0; i < 256; i++) {
        snprintf(text, sizeof text, "<0x%02X>", i);
        add_token(&v, text, 0, 6);
    }
    for (size_t i = 0; i < N_PIECES; i++)
        add_token(&v, with_blank(pieces[i], "\xe2\x96\x81", text), -(float)i, 1);
    size_t n = v.n;
    gguf_builder_string(b, "tokenizer.ggml.model", "llama");
    store_vocabulary(b, &v);
    gguf_builder_u32(b, "tokenizer.ggml.bos_token_id", 1);
    gguf_builder_u32(b, "tokenizer.ggml.eos_token_id", 2);
    gguf_builder_u32(b, "tokenizer.ggml.unknown_token_id", 0);
    return n;
}

/* The character that stands for a byte in byte-level vocabularies. */
static void byte_character(unsigned byte, char *out)
{
    bool itself = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
    unsigned others = 0;
    for (unsigned i = 0; i < byte; i++)
        others += !((i >= 0x21 && i <= 0x7e) || (i >= 0xa1 && i <= 0xac) || i >= 0xae);
    out[utf8_encode(itself ? byte : 0x100 + others, out)] = 0;
}

static bool is_known(const struct vocabulary *v, const char *text)
{
    for (size_t i = 0; i < v->n; i++)
        if (strcmp(v->text[i], text) == 0)
            return true;
    return false;
}

/* "LEFT RIGHT" for the first cut of text into two known pieces; false if there is none. */
static bool find_merge(const struct vocabulary *v, const char *text, char *out)
{
    char left[PIECE_BYTES];
    for (size_t cut = 1; cut < strlen(text); cut++) {
        snprintf(left, sizeof left, "%.*s", (int)cut, text);
        if (is_known(v, left) && is_known(v, text + cut)) {
            snprintf(out, 2 * PIECE_BYTES, "%s %s", left, text + cut);
            return true;
        }
    }
    return false;
}

static size_t add_bpe(struct gguf_builder *b)
{
    static char merges[N_PIECES][2 * PIECE_BYTES];
    struct span merge_spans[N_PIECES];
    struct vocabulary v = {0};
    char text[PIECE_BYTES];
    size_t n_merges = 0;
    for (unsigned i = 0; i < 256; i++) {
        byte_character(i, text);
        add_token(&v, text, 0, 1);
    }
    for (size_t i = 0; i < N_PIECES; i++) {
        with_blank(pieces[i], "\xc4\xa0", text);
        if (!is_known(&v, text) && find_merge(&v, text, merges[n_merges])) {
            merge_spans[n_merges] = span_of(merges[n_merges]);
            n_merges++;
            add_token(&v, text, 0, 1);
        }
    }
    uint32_t end = (uint32_t)v.n;
    add_token(&v, "<|endoftext|>", 0, 3);
    add_token(&v, "<|im_start|>", 0, 3);
    add_token(&v, "<|im_end|>", 0, 3);
    size_t n = v.n;
    gguf_builder_string(b, "tokenizer.ggml.model", "gpt2");
    gguf_builder_string(b, "tokenizer.ggml.pre", "qwen2");
    store_vocabulary(b, &v);
    gguf_builder_strings(b, "tokenizer.ggml.merges", merge_spans, n_merges);
    gguf_builder_u32(b, "tokenizer.ggml.bos_token_id", end);
    gguf_builder_u32(b, "tokenizer.ggml.eos_token_id", end + 2);
    gguf_builder_bool(b, "tokenizer.ggml.add_bos_token", false);
    return n;
}

/* ---- weights ---- */

static void fill_f32(char *out, size_t n, uint64_t *state, float low, float high)
{
    for (size_t i = 0; i < n; i++) {
        float x = test_random_float(state, low, high);
        memcpy(out + i * sizeof x, &x, sizeof x);
    }
}

static void fill_f16(char *out, size_t n, uint64_t *state, float scale)
{
    for (size_t i = 0; i < n; i++) {
        uint16_t x = f16_from_float(test_random_float(state, -scale, scale));
        memcpy(out + i * sizeof x, &x, sizeof x);
    }
}

/* Blocks of 32: an F16 scale, then 32 signed bytes. */
static void fill_q8_0(char *out, size_t n, uint64_t *state, float scale)
{
    for (size_t i = 0; i < n / 32; i++, out += 34) {
        uint16_t d = f16_from_float(test_random_float(state, 0.5f, 1.0f) * scale / 127);
        memcpy(out, &d, sizeof d);
        for (int j = 0; j < 32; j++)
            out[2 + j] = (char)((int)(test_random(state) % 255) - 127);
    }
}

static void add_matrix(struct gguf_builder *b, const char *name, uint32_t type, uint32_t columns, size_t rows,
                       uint64_t *state)
{
    uint64_t dims[2] = {columns, rows};
    float scale = 1.7f / sqrtf((float)columns);
    gguf_builder_tensor(b, name, type, 2, dims, NULL, 0);
    char *data = gguf_builder_tensor_data(b, name, NULL);
    if (type == 0)
        fill_f32(data, columns * rows, state, -scale, scale);
    else if (type == 1)
        fill_f16(data, columns * rows, state, scale);
    else if (type == 8)
        fill_q8_0(data, columns * rows, state, scale);
    else
        abort();
}

static void add_vector(struct gguf_builder *b, const char *name, uint32_t n, uint64_t *state, float low, float high)
{
    uint64_t dims[1] = {n};
    gguf_builder_tensor(b, name, 0, 1, dims, NULL, 0);
    fill_f32(gguf_builder_tensor_data(b, name, NULL), n, state, low, high);
}

static void add_layer(struct gguf_builder *b, const struct tiny_model *m, unsigned layer, uint64_t *state)
{
    uint32_t head = m->n_embd / m->n_heads, kv = head * m->n_heads_kv;
    bool qwen2 = strcmp(m->architecture, "qwen2") == 0, qwen3 = strcmp(m->architecture, "qwen3") == 0;
    const struct {
        const char *name;
        uint32_t columns, rows; /* rows 0: a gain vector; columns 0: a bias */
        bool present;
    } tensors[] = {
        {"attn_norm.weight", m->n_embd, 0, true},
        {"attn_q.weight", m->n_embd, m->n_embd, true},
        {"attn_k.weight", m->n_embd, kv, true},
        {"attn_v.weight", m->n_embd, kv, true},
        {"attn_q.bias", 0, m->n_embd, qwen2},
        {"attn_k.bias", 0, kv, qwen2},
        {"attn_v.bias", 0, kv, qwen2},
        {"attn_q_norm.weight", head, 0, qwen3},
        {"attn_k_norm.weight", head, 0, qwen3},
        {"attn_output.weight", m->n_embd, m->n_embd, true},
        {"ffn_norm.weight", m->n_embd, 0, true},
        {"ffn_gate.weight", m->n_embd, m->n_ff, true},
        {"ffn_up.weight", m->n_embd, m->n_ff, true},
        {"ffn_down.weight", m->n_ff, m->n_embd, true},
    };
    for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%u.%s", layer, tensors[i].name);
        if (!tensors[i].present)
            continue;
        if (tensors[i].rows == 0)
            add_vector(b, name, tensors[i].columns, state, 0.8f, 1.2f);
        else if (tensors[i].columns == 0)
            add_vector(b, name, tensors[i].rows, state, -0.1f, 0.1f);
        else
            add_matrix(b, name, m->type, tensors[i].columns, tensors[i].rows, state);
    }
}

static void architecture_u32(struct gguf_builder *b, const struct tiny_model *m, const char *key, uint32_t value)
{
    char name[96];
    snprintf(name, sizeof name, "%s.%s", m->architecture, key);
    gguf_builder_u32(b, name, value);
}

static void add_parameters(struct gguf_builder *b, const struct tiny_model *m)
{
    char name[96];
    gguf_builder_string(b, "general.architecture", m->architecture);
    gguf_builder_string(b, "general.name", "tiny");
    architecture_u32(b, m, "context_length", m->context);
    architecture_u32(b, m, "embedding_length", m->n_embd);
    architecture_u32(b, m, "block_count", m->n_layers);
    architecture_u32(b, m, "feed_forward_length", m->n_ff);
    architecture_u32(b, m, "attention.head_count", m->n_heads);
    architecture_u32(b, m, "attention.head_count_kv", m->n_heads_kv);
    architecture_u32(b, m, "rope.dimension_count", m->n_embd / m->n_heads);
    snprintf(name, sizeof name, "%s.attention.layer_norm_rms_epsilon", m->architecture);
    gguf_builder_f32(b, name, 1e-5f);
    snprintf(name, sizeof name, "%s.rope.freq_base", m->architecture);
    gguf_builder_f32(b, name, 10000.0f);
}

static void set_defaults(struct tiny_model *m)
{
    m->architecture = m->architecture ? m->architecture : "llama";
    m->n_layers = m->n_layers ? m->n_layers : 2;
    m->n_embd = m->n_embd ? m->n_embd : 64;
    m->n_heads = m->n_heads ? m->n_heads : 4;
    m->n_heads_kv = m->n_heads_kv ? m->n_heads_kv : 2;
    m->n_ff = m->n_ff ? m->n_ff : 96;
    m->context = m->context ? m->context : 256;
}

struct gguf_builder *gguf_builder_tiny(const struct tiny_model *model)
{
    struct tiny_model m = *model;
    struct gguf_builder *b = gguf_builder_new();
    uint64_t state = m.seed;
    set_defaults(&m);
    add_parameters(b, &m);
    size_t n_vocab = m.bpe ? add_bpe(b) : add_spm(b);
    if (m.vocabulary_only)
        return b;
    add_matrix(b, "token_embd.weight", m.type, m.n_embd, n_vocab, &state);
    for (unsigned i = 0; i < m.n_layers; i++)
        add_layer(b, &m, i, &state);
    add_vector(b, "output_norm.weight", m.n_embd, &state, 0.8f, 1.2f);
    if (!m.tied)
        add_matrix(b, "output.weight", m.type, m.n_embd, n_vocab, &state);
    return b;
}
