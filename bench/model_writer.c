/* Writes a GGUF model of a real model's shape with random weights, for benchmarks: same tensors, types and vocabulary
 * size as the published file, but nothing in it means anything.
 *
 *   bench/model_writer SHAPE MIX FILE       SHAPE: 1B 0.5B 3B    MIX: Q4_K_M Q5_K_M Q8_0 Q6_K Q4_0 F16
 *
 * The mix rules are llama.cpp's quantizer's: some matrices of a _M mix get Q6_K, output matrices get Q6_K, and rows that
 * are no multiple of 256 fall back to 32-weight formats. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/buffer.h"
#include "engine/quant/quant.h"
#include "tests/support/encode.h"

struct shape {
    const char *name, *architecture, *pre;
    uint32_t n_embd, n_layers, n_heads, n_heads_kv, head_size, n_ff, n_vocab, context;
    float rope_base, epsilon;
    bool qkv_bias, yarn;
};

static const struct shape shapes[] = {
    {"1B", "llama", "llama-bpe", 2048, 16, 32, 8, 64, 8192, 128256, 131072, 500000.0f, 1e-5f, false, false},
    {"0.5B", "qwen2", "qwen2", 896, 24, 14, 2, 64, 4864, 151936, 32768, 1000000.0f, 1e-6f, true, false},
    {"3B", "mistral3", "tekken", 3072, 26, 32, 8, 128, 9216, 131072, 262144, 1000000.0f, 1e-5f, false, true},
};

/* Formats of ordinary matrices, of the better ones, and of the output matrix. */
struct mix {
    const char *name, *base, *more, *output;
    bool shapes_layers; /* better formats for V and down in some layers */
};

static const struct mix mixes[] = {
    {"Q4_K_M", "Q4_K", "Q6_K", "Q6_K", true}, {"Q5_K_M", "Q5_K", "Q6_K", "Q6_K", true},
    {"Q8_0", "Q8_0", "Q8_0", "Q8_0", false},  {"Q6_K", "Q6_K", "Q6_K", "Q6_K", false},
    {"Q4_0", "Q4_0", "Q4_0", "Q6_K", false},  {"F16", "F16", "F16", "F16", false},
};

static void die(const char *what)
{
    fprintf(stderr, "bench/model_writer: %s\n", what);
    exit(1);
}

/* ---- keys ---- */

enum { TYPE_U32 = 4, TYPE_I32 = 5, TYPE_F32 = 6, TYPE_BOOL = 7, TYPE_STRING = 8, TYPE_ARRAY = 9 };

static void put(struct buffer *b, const void *p, size_t n)
{
    buffer_append(b, p, n);
}

static void put_u32(struct buffer *b, uint32_t v)
{
    put(b, &v, sizeof v);
}

static void put_u64(struct buffer *b, uint64_t v)
{
    put(b, &v, sizeof v);
}

static void put_string(struct buffer *b, const char *s)
{
    put_u64(b, strlen(s));
    put(b, s, strlen(s));
}

struct header {
    struct buffer keys, tensors;
    uint64_t n_keys, n_tensors, data_bytes;
    const char *architecture;
};

static void key(struct header *h, const char *name, uint32_t type)
{
    char full[128];
    bool global = strncmp(name, "general.", 8) == 0 || strncmp(name, "tokenizer.", 10) == 0;
    snprintf(full, sizeof full, "%s%s%s", global ? "" : h->architecture, global ? "" : ".", name);
    put_string(&h->keys, full);
    put_u32(&h->keys, type);
    h->n_keys++;
}

static void key_u32(struct header *h, const char *name, uint32_t v)
{
    key(h, name, TYPE_U32);
    put_u32(&h->keys, v);
}

static void key_f32(struct header *h, const char *name, float v)
{
    key(h, name, TYPE_F32);
    put(&h->keys, &v, sizeof v);
}

static void key_string(struct header *h, const char *name, const char *v)
{
    key(h, name, TYPE_STRING);
    put_string(&h->keys, v);
}

static void key_array(struct header *h, const char *name, uint32_t type, uint64_t count)
{
    key(h, name, TYPE_ARRAY);
    put_u32(&h->keys, type);
    put_u64(&h->keys, count);
}

static void shape_keys(struct header *h, const struct shape *s)
{
    key_string(h, "general.architecture", s->architecture);
    key_string(h, "general.name", "benchmark, random weights");
    key_u32(h, "context_length", s->context);
    key_u32(h, "embedding_length", s->n_embd);
    key_u32(h, "block_count", s->n_layers);
    key_u32(h, "feed_forward_length", s->n_ff);
    key_u32(h, "attention.head_count", s->n_heads);
    key_u32(h, "attention.head_count_kv", s->n_heads_kv);
    key_u32(h, "attention.key_length", s->head_size);
    key_u32(h, "attention.value_length", s->head_size);
    key_f32(h, "attention.layer_norm_rms_epsilon", s->epsilon);
    key_u32(h, "rope.dimension_count", s->head_size);
    key_f32(h, "rope.freq_base", s->rope_base);
    key_u32(h, "vocab_size", s->n_vocab);
    if (!s->yarn)
        return;
    key_string(h, "rope.scaling.type", "yarn");
    key_f32(h, "rope.scaling.factor", 16.0f);
    key_u32(h, "rope.scaling.original_context_length", 16384);
    key_f32(h, "rope.scaling.yarn_beta_fast", 32.0f);
    key_f32(h, "rope.scaling.yarn_beta_slow", 1.0f);
    key_f32(h, "rope.scaling.yarn_log_multiplier", 1.0f);
    key_f32(h, "attention.temperature_scale", 0.1f);
}

/* ---- vocabulary: byte-level BPE over printable ASCII ---- */

enum { PRINTABLE = 94, FIRST_PRINTABLE = 33, N_BYTES = 256, N_PAIRS = PRINTABLE * PRINTABLE, N_CONTROL = 4 };

/* The character that byte-level BPE writes for a byte. */
static void byte_character(unsigned byte, char out[4])
{
    bool itself = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    unsigned c = byte, shifted = 256;
    for (unsigned b = 0; !itself && b < byte; b++)
        shifted += !((b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174);
    if (!itself)
        c = shifted;
    if (c < 128) {
        out[0] = (char)c;
        out[1] = 0;
    } else {
        out[0] = (char)(0xc0 | c >> 6);
        out[1] = (char)(0x80 | (c & 63));
        out[2] = 0;
    }
}

/* Token i: bytes, then pairs, then triples of printable characters, control tokens last. *left gets the length of the
 * merge's left part, 0 for none. */
static void token_text(uint32_t i, uint32_t n_vocab, char out[24], size_t *left)
{
    *left = 0;
    if (i >= n_vocab - N_CONTROL) {
        snprintf(out, 24, "<|control_%u|>", i - (n_vocab - N_CONTROL));
    } else if (i < N_BYTES) {
        byte_character(i, out);
    } else if (i < N_BYTES + N_PAIRS) {
        unsigned k = i - N_BYTES;
        snprintf(out, 24, "%c%c", FIRST_PRINTABLE + k / PRINTABLE, FIRST_PRINTABLE + k % PRINTABLE);
        *left = 1;
    } else {
        unsigned k = i - N_BYTES - N_PAIRS;
        snprintf(out, 24, "%c%c%c", FIRST_PRINTABLE + k / N_PAIRS, FIRST_PRINTABLE + k / PRINTABLE % PRINTABLE,
                 FIRST_PRINTABLE + k % PRINTABLE);
        *left = 2;
    }
}

static void vocabulary_keys(struct header *h, const struct shape *s)
{
    char text[24], merge[32];
    size_t left;
    key_string(h, "tokenizer.ggml.model", "gpt2");
    key_string(h, "tokenizer.ggml.pre", s->pre);
    key_array(h, "tokenizer.ggml.tokens", TYPE_STRING, s->n_vocab);
    for (uint32_t i = 0; i < s->n_vocab; i++) {
        token_text(i, s->n_vocab, text, &left);
        put_string(&h->keys, text);
    }
    key_array(h, "tokenizer.ggml.token_type", TYPE_I32, s->n_vocab);
    for (uint32_t i = 0; i < s->n_vocab; i++)
        put_u32(&h->keys, i >= s->n_vocab - N_CONTROL ? 3 : 1);
    key_array(h, "tokenizer.ggml.merges", TYPE_STRING, s->n_vocab - N_CONTROL - N_BYTES);
    for (uint32_t i = N_BYTES; i < s->n_vocab - N_CONTROL; i++) {
        token_text(i, s->n_vocab, text, &left);
        snprintf(merge, sizeof merge, "%.*s %s", (int)left, text, text + left);
        put_string(&h->keys, merge);
    }
    key_u32(h, "tokenizer.ggml.bos_token_id", s->n_vocab - N_CONTROL);
    key_u32(h, "tokenizer.ggml.eos_token_id", s->n_vocab - N_CONTROL + 1);
}

/* ---- tensors ---- */

struct tensor {
    const struct format *format;
    uint64_t n_cols, n_rows;
    float constant; /* F32 tensors: their value */
};

struct model {
    struct header header;
    struct tensor *tensors;
    size_t capacity;
};

static void add(struct model *m, const char *name, const char *format, uint64_t n_cols, uint64_t n_rows, float constant)
{
    struct header *h = &m->header;
    if (h->n_tensors == m->capacity) {
        m->capacity = m->capacity ? 2 * m->capacity : 64;
        m->tensors = realloc(m->tensors, m->capacity * sizeof *m->tensors);
        if (!m->tensors)
            die("no memory");
    }
    const struct format *f = format_by_name(format);
    put_string(&h->tensors, name);
    put_u32(&h->tensors, n_rows > 1 ? 2 : 1);
    put_u64(&h->tensors, n_cols);
    if (n_rows > 1)
        put_u64(&h->tensors, n_rows);
    put_u32(&h->tensors, f->id);
    put_u64(&h->tensors, h->data_bytes);
    m->tensors[h->n_tensors++] = (struct tensor){f, n_cols, n_rows, constant};
    h->data_bytes += (format_row_bytes(f, n_cols) * n_rows + 31) / 32 * 32;
}

/* What the quantizer takes when a row is no multiple of the super-block. */
static const char *fallback(const char *format, uint64_t n_cols)
{
    static const char *const pairs[][2] = {{"Q4_K", "Q5_0"}, {"Q5_K", "Q5_1"}, {"Q6_K", "Q8_0"}};
    for (size_t i = 0; i < 3 && n_cols % 256; i++)
        if (strcmp(format, pairs[i][0]) == 0)
            return pairs[i][1];
    return format;
}

static void add_matrix(struct model *m, const char *name, const char *format, uint64_t n_cols, uint64_t n_rows)
{
    add(m, name, fallback(format, n_cols), n_cols, n_rows, 0);
}

/* The quantizer's choice of layers that get more bits. */
static bool wants_more_bits(uint32_t layer, uint32_t n_layers)
{
    return layer < n_layers / 8 || layer >= 7 * n_layers / 8 || (layer - n_layers / 8) % 3 == 2;
}

static void add_layer(struct model *m, const struct shape *s, const struct mix *mix, uint32_t layer)
{
    char name[64];
    uint64_t n_q = (uint64_t)s->n_heads * s->head_size, n_kv = (uint64_t)s->n_heads_kv * s->head_size;
    const char *more = mix->shapes_layers && wants_more_bits(layer, s->n_layers) ? mix->more : mix->base;
#define NAME(suffix) (snprintf(name, sizeof name, "blk.%u." suffix, layer), name)
    add(m, NAME("attn_norm.weight"), "F32", s->n_embd, 1, 1.0f);
    add_matrix(m, NAME("attn_q.weight"), mix->base, s->n_embd, n_q);
    add_matrix(m, NAME("attn_k.weight"), mix->base, s->n_embd, n_kv);
    add_matrix(m, NAME("attn_v.weight"), more, s->n_embd, n_kv);
    if (s->qkv_bias) {
        add(m, NAME("attn_q.bias"), "F32", n_q, 1, 0.125f);
        add(m, NAME("attn_k.bias"), "F32", n_kv, 1, -0.0625f);
        add(m, NAME("attn_v.bias"), "F32", n_kv, 1, 0.03125f);
    }
    add_matrix(m, NAME("attn_output.weight"), mix->base, n_q, s->n_embd);
    add(m, NAME("ffn_norm.weight"), "F32", s->n_embd, 1, 1.0f);
    add_matrix(m, NAME("ffn_gate.weight"), mix->base, s->n_embd, s->n_ff);
    add_matrix(m, NAME("ffn_up.weight"), mix->base, s->n_embd, s->n_ff);
    add_matrix(m, NAME("ffn_down.weight"), more, s->n_ff, s->n_embd);
#undef NAME
}

/* Blocks of every row from a pool of encoded random values, each row from another place of it. */
static void write_tensor(FILE *out, const struct tensor *t, uint64_t *seed)
{
    static const struct format *pool_format;
    static char *pool;
    enum { POOL = 1 << 18, VALUES = 1 << 12 };
    size_t row_bytes = format_row_bytes(t->format, t->n_cols), block = t->format->block_bytes;
    size_t n_blocks = POOL / t->format->block_elements;
    if (t->n_rows == 1) {
        for (uint64_t i = 0; i < t->n_cols; i++)
            fwrite(&t->constant, sizeof t->constant, 1, out);
    } else if (t->format != pool_format) {
        static float values[VALUES];
        pool_format = t->format;
        free(pool);
        pool = malloc(n_blocks * block);
        for (size_t at = 0; pool && at < POOL; at += VALUES) {
            for (size_t i = 0; i < VALUES; i++)
                values[i] = random_float(seed) * 0.035f; /* standard deviation 0.02 */
            if (!encode_row(t->format, values, pool + at / t->format->block_elements * block, VALUES))
                die("no encoder for this format");
        }
        if (!pool)
            die("no memory");
    }
    for (uint64_t r = 0; r < t->n_rows && t->n_rows > 1; r++) {
        size_t first = random_u64(seed) % (n_blocks - row_bytes / block);
        fwrite(pool + first * block, 1, row_bytes, out);
    }
    static const char zeros[32];
    fwrite(zeros, 1, (32 - row_bytes * t->n_rows % 32) % 32, out);
}

static void write_model(const struct model *m, const char *path)
{
    const struct header *h = &m->header;
    struct buffer b;
    FILE *out = fopen(path, "wb");
    if (!out)
        die("cannot write the file");
    buffer_init(&b);
    put(&b, "GGUF", 4);
    put_u32(&b, 3);
    put_u64(&b, h->n_tensors);
    put_u64(&b, h->n_keys);
    put(&b, h->keys.data, h->keys.size);
    put(&b, h->tensors.data, h->tensors.size);
    while (b.size % 32)
        buffer_byte(&b, 0);
    if (b.failed || h->keys.failed || h->tensors.failed)
        die("no memory");
    fwrite(b.data, 1, b.size, out);
    uint64_t seed = 20;
    for (size_t i = 0; i < h->n_tensors; i++)
        write_tensor(out, &m->tensors[i], &seed);
    if (ferror(out) || fclose(out) != 0)
        die("cannot write the file");
    buffer_clear(&b);
}

int main(int argc, char **argv)
{
    const struct shape *s = NULL;
    const struct mix *mix = NULL;
    for (size_t i = 0; argc == 4 && i < sizeof shapes / sizeof shapes[0]; i++)
        s = strcmp(shapes[i].name, argv[1]) == 0 ? &shapes[i] : s;
    for (size_t i = 0; argc == 4 && i < sizeof mixes / sizeof mixes[0]; i++)
        mix = strcmp(mixes[i].name, argv[2]) == 0 ? &mixes[i] : mix;
    if (!s || !mix)
        die("usage: model_writer 1B|0.5B|3B Q4_K_M|Q5_K_M|Q8_0|Q6_K|Q4_0|F16 FILE");
    struct model m = {.header.architecture = s->architecture};
    shape_keys(&m.header, s);
    vocabulary_keys(&m.header, s);
    add_matrix(&m, "token_embd.weight", mix->output, s->n_embd, s->n_vocab); /* tied: the output matrix too */
    add(&m, "output_norm.weight", "F32", s->n_embd, 1, 1.0f);
    for (uint32_t layer = 0; layer < s->n_layers; layer++)
        add_layer(&m, s, mix, layer);
    write_model(&m, argv[3]);
    buffer_clear(&m.header.keys);
    buffer_clear(&m.header.tensors);
    free(m.tensors);
    return 0;
}
