/* Memory ends at each allocation in its turn: opening a model file, building a tokenizer, encoding a text. Each ends with
 * STATUS_NO_MEMORY and a message, or does without, and loses nothing (under ASan). The linker leads the calls here
 * (tests/module.mk); those of libraries among themselves are not counted. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/suite.h"
#include "tests/support/tokenizing.h"

/* ---- the calls ---- */

static unsigned long calls, fail_at; /* fail_at 0: none is counted */

static bool fails(void)
{
    return fail_at && ++calls == fail_at;
}

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
int __wrap_asprintf(char **out, const char *format, ...) __attribute__((format(printf, 2, 3)));
int __wrap___asprintf_chk(char **out, int flag, const char *format, ...) __attribute__((format(printf, 3, 4)));

void *__wrap_malloc(size_t n)
{
    return fails() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
    return fails() ? NULL : __real_realloc(p, n);
}

int __wrap_asprintf(char **out, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = fails() ? -1 : vasprintf(out, format, args);
    va_end(args);
    return n;
}

int __wrap___asprintf_chk(char **out, int flag, const char *format, ...)
{
    va_list args;
    (void)flag;
    va_start(args, format);
    int n = fails() ? -1 : vasprintf(out, format, args);
    va_end(args);
    return n;
}

/* ---- sweeping ---- */

/* One attempt; *same: its result is the one without a fault. */
typedef enum status attempt(void *context, bool *same, struct error *err);

static unsigned long n_swept;

/* Repeats the attempt until the fault comes too late. */
static void sweep(const char *what, attempt *action, void *context)
{
    unsigned long refused = 0;
    for (unsigned long n = 1;; n++) {
        struct error err = {0};
        bool same = false;
        calls = 0;
        fail_at = n;
        enum status s = action(context, &same, &err);
        bool reached = calls >= n;
        fail_at = 0;
        if (s == STATUS_OK ? !same : !reached || s != STATUS_NO_MEMORY || !strstr(err.text, "memory"))
            ck_abort_msg("%s, allocation %lu: status %d, \"%s\"", what, n, s, err.text);
        refused += s != STATUS_OK;
        if (!reached) {
            ck_assert_uint_gt(refused, 0);
            n_swept += n - 1;
            return;
        }
    }
}

/* ---- files ---- */

static enum status open_file(void *context, bool *same, struct error *err)
{
    struct gguf *g;
    enum status s = gguf_open(context, NULL, &g, err);
    *same = s == STATUS_OK && gguf_tensor_count(g) == 21;
    gguf_close(g);
    return s;
}

TEST(a_file_and_its_shards_open_or_are_refused)
{
    char stem[200], path[256];
    snprintf(stem, sizeof stem, "%s/m", suite_tmp());
    struct gguf_builder *b = gguf_builder_tiny(&(struct tiny_model){.type = 8});
    for (unsigned n = 1; n <= 4; n += 3) {
        gguf_builder_write_shards(b, stem, n);
        snprintf(path, sizeof path, "%s-00001-of-%05u.gguf", stem, n);
        sweep("opening shards", open_file, path);
    }
    gguf_builder_free(b);
}
END

/* ---- vocabularies: large enough that each of their tables takes blocks of its own ---- */

enum { NORMAL = 1, UNKNOWN, CONTROL, USER, UNUSED, BYTE, TOKENS = 17000, MERGES = 3000 };

struct tokens {
    char *text[TOKENS];
    struct span span[TOKENS];
    float score[TOKENS];
    int32_t type[TOKENS];
    size_t n;
};

static void add(struct tokens *v, int32_t type, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void add(struct tokens *v, int32_t type, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (vasprintf(&v->text[v->n], format, args) < 0)
        abort();
    va_end(args);
    v->span[v->n] = span_of(v->text[v->n]);
    v->score[v->n] = -(float)v->n;
    v->type[v->n++] = type;
}

static void add_special(struct tokens *v)
{
    add(v, CONTROL, "<|eot_id|>");
    add(v, CONTROL, "<|im_end|>"); /* two names of one id: the order of an unordered_map decides */
    add(v, USER, "xyz");
    add(v, USER, "zzzz");
}

/* Empty texts get a name each. */
static void fill_up(struct tokens *v)
{
    while (v->n < TOKENS)
        add(v, NORMAL, "%s", "");
}

static struct gguf_builder *builder(struct tokens *v, const char *model)
{
    struct gguf_builder *b = gguf_builder_new();
    gguf_builder_string(b, "tokenizer.ggml.model", model);
    gguf_builder_strings(b, "tokenizer.ggml.tokens", v->span, v->n);
    gguf_builder_array(b, "tokenizer.ggml.scores", GGUF_F32, v->n, v->score, v->n * sizeof *v->score);
    gguf_builder_array(b, "tokenizer.ggml.token_type", GGUF_I32, v->n, v->type, v->n * sizeof *v->type);
    for (size_t i = 0; i < v->n; i++)
        free(v->text[i]);
    return b;
}

static void add_bytes(struct tokens *v)
{
    for (unsigned byte = 0; byte < 256; byte++)
        add(v, BYTE, "<0x%02X>", byte);
}

static struct gguf_builder *spm_builder(void)
{
    static struct tokens v;
    v.n = 0;
    add(&v, UNKNOWN, "<unk>");
    add(&v, CONTROL, "<s>");
    add(&v, CONTROL, "</s>");
    add_bytes(&v);
    add_special(&v);
    add(&v, NORMAL, "\xe2\x96\x81");
    for (char c = 'a'; c <= 'd'; c++)
        add(&v, NORMAL, "%c", c);
    add(&v, NORMAL, "aa");
    add(&v, NORMAL, "aaaa");
    for (unsigned i = 0; v.n < TOKENS / 2; i++)
        add(&v, NORMAL, "\xe2\x96\x81word%u", i); /* whose piece is another text */
    fill_up(&v);
    return builder(&v, "llama");
}

static void add_alphabet(struct tokens *v)
{
    unsigned other = 0x100;
    for (unsigned byte = 0; byte < 256; byte++) {
        bool itself = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
        unsigned c = itself ? byte : other++;
        if (c < 0x80)
            add(v, NORMAL, "%c", (char)c);
        else
            add(v, NORMAL, "%c%c", (char)(0xc0 | c >> 6), (char)(0x80 | (c & 0x3f)));
    }
}

/* `pre` with whole words, or with symbols that are characters. */
static struct gguf_builder *bpe_builder(const char *pre, bool raw)
{
    static struct tokens v;
    static struct span lines[MERGES];
    static char line[MERGES][32];
    v.n = 0;
    if (raw)
        add_bytes(&v);
    else
        add_alphabet(&v);
    add_special(&v);
    add(&v, NORMAL, "aa");
    add(&v, NORMAL, "aaaa");
    for (unsigned i = 0; v.n < TOKENS / 2; i++)
        add(&v, i % 2 ? CONTROL : NORMAL, "\xc4\xa0word%u", i); /* of control tokens the word is not the piece */
    fill_up(&v);
    static const char *const first[] = {"m n", "a mn", "mn a", "a a", "aa aa", "q r", "b b", "bb bb"}; /* few are tokens */
    for (size_t i = 0; i < MERGES; i++) { /* more texts that only merges know than there is room for at first */
        snprintf(line[i], sizeof line[i], "left%zu right%zu", i, i);
        if (i < sizeof first / sizeof first[0])
            snprintf(line[i], sizeof line[i], "%s", first[i]);
        lines[i] = span_of(line[i]);
    }
    struct gguf_builder *b = builder(&v, "gpt2");
    gguf_builder_string(b, "tokenizer.ggml.pre", pre);
    gguf_builder_strings(b, "tokenizer.ggml.merges", lines, MERGES);
    return b;
}

static enum status build_tokenizer(void *context, bool *same, struct error *err)
{
    struct tokenizer *t = NULL;
    enum status s = tokenizer_new(context, NULL, &t, err);
    *same = s == STATUS_OK && tokenizer_size(t) >= TOKENS;
    tokenizer_free(t);
    return s;
}

/* Even one byte a token is more than the rest of any block. */
TEST(a_vocabulary_of_tables_is_built_or_refused)
{
    enum { N = 70000 };
    struct span *texts = malloc(N * sizeof *texts);
    for (size_t i = 0; i < N; i++)
        texts[i] = span_of("a");
    struct gguf_builder *b = gguf_builder_new();
    gguf_builder_string(b, "tokenizer.ggml.model", "llama");
    gguf_builder_strings(b, "tokenizer.ggml.tokens", texts, N);
    struct vocabulary_file f;
    ck_assert_int_eq(vocabulary_build(&f, b, NULL, NULL), STATUS_OK);
    sweep("tables", build_tokenizer, f.g);
    ck_assert_uint_ge(n_swept, 10);
    vocabulary_close(&f);
    gguf_builder_free(b);
    free(texts);
}
END

/* ---- texts ---- */

struct encoding {
    const struct tokenizer *t;
    struct span text;
    size_t n_before; /* ids that stand in the list already */
    struct token_list expected;
};

static enum status encode(void *context, bool *same, struct error *err)
{
    const struct encoding *e = context;
    struct token_list ids = {0};
    unsigned long wanted = fail_at;
    fail_at = 0;
    for (size_t i = 0; i < e->n_before; i++)
        ck_assert(token_list_push(&ids, 7));
    fail_at = wanted;
    enum status s = tokenizer_encode_whole(e->t, e->text, true, TOKENIZE_PARSE_SPECIAL, SIZE_MAX, &ids, err);
    fail_at = 0;
    *same = ids.count == e->n_before + e->expected.count &&
            (ids.count == e->n_before || memcmp(ids.data + e->n_before, e->expected.data,
                                                e->expected.count * sizeof *ids.data) == 0);
    free(ids.data);
    return s;
}

static void sweep_texts(const struct tokenizer *t)
{
    static const char *const periods[] = {
        "a",               /* one giant word, or one of the white space in front of it */
        "<|eot_id|>",      /* nothing but special tokens */
        "xyzzzz",          /* overlapping ones */
        "\xff",            /* ill-formed */
        "\xd0\x96",        /* spelt in bytes */
        " qr",             /* merged into what is no token */
        "b",               /* the same in one giant word */
        " word1 word2 wo", /* words that are remembered */
        " ", "1234 ",
        /* 64 pairs fill the heap of a word; the first merge, in the middle, takes one out and puts two in */
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" "mn" "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    };
    for (size_t i = 0; i < sizeof periods / sizeof periods[0]; i++)
        for (size_t n_before = 0; n_before < 256; n_before = n_before ? n_before * 2 : 64) {
            char text[600];
            struct encoding e = {.t = t, .n_before = n_before};
            size_t size = strlen(periods[i]);
            for (size_t k = 0; k < sizeof text; k++)
                text[k] = periods[i][k % size];
            e.text = (struct span){text, size > 60 ? size : n_before == 128 ? size * 3 : sizeof text / size * size};
            ck_assert_int_eq(tokenizer_encode_whole(t, e.text, true, TOKENIZE_PARSE_SPECIAL, SIZE_MAX, &e.expected, NULL),
                             STATUS_OK);
            char what[64];
            snprintf(what, sizeof what, "text %zu behind %zu ids", i, n_before);
            sweep(what, encode, &e);
            free(e.expected.data);
        }
}

static void sweep_vocabulary(const char *name, struct gguf_builder *b)
{
    struct vocabulary_file f;
    struct error err;
    gguf_builder_bool(b, "tokenizer.ggml.add_bos_token", true);
    gguf_builder_bool(b, "tokenizer.ggml.add_eos_token", true);
    gguf_builder_u32(b, "tokenizer.ggml.eos_token_id", 2);
    if (vocabulary_build(&f, b, NULL, &err) != STATUS_OK)
        ck_abort_msg("%s: %s", name, err.text);
    gguf_builder_free(b);
    sweep(name, build_tokenizer, f.g);
    sweep_texts(f.t);
    vocabulary_close(&f);
    printf("note: %s: each of %lu allocations failed\n", name, n_swept);
}

TEST(a_sentencepiece_vocabulary_is_built_and_used_or_refused)
{
    sweep_vocabulary("llama", spm_builder());
}
END

TEST(a_byte_level_vocabulary_is_built_and_used_or_refused)
{
    sweep_vocabulary("llama-bpe", bpe_builder("llama-bpe", false));
}
END

TEST(a_vocabulary_of_characters_is_built_and_used_or_refused)
{
    sweep_vocabulary("gemma4", bpe_builder("gemma4", true));
}
END

SUITE(no_memory, T(a_file_and_its_shards_open_or_are_refused), T(a_vocabulary_of_tables_is_built_or_refused),
      T(a_sentencepiece_vocabulary_is_built_and_used_or_refused),
      T(a_byte_level_vocabulary_is_built_and_used_or_refused), T(a_vocabulary_of_characters_is_built_and_used_or_refused))
