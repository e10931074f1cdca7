/* Time and memory of the tokenizer on texts that others choke on: 1 MB of each, below 1 s of CPU, at most 2.5 times the
 * time of half the text, memory below 50 times the text. Thresholds on time hold for release builds only. Vocabularies
 * of ../shared where present (GGUFD_LONG=1: two more), otherwise small ones of its own. */
#include <malloc.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/patience.h"
#include "tests/support/random.h"
#include "tests/support/suite.h"
#include "tests/support/tokenizing.h"

enum { MEGABYTE = 1000000 };

static bool is_release(void)
{
    const char *mode = getenv("GGUFD_MODE");
    return !suite_sanitized() && mode && strcmp(mode, "release") == 0;
}

/* ---- texts ---- */

static void repeat(struct buffer *out, size_t size, const char *unit)
{
    size_t n = strlen(unit);
    while (out->size < size)
        buffer_append(out, unit, n);
}

static void base64(struct buffer *out, size_t size)
{
    uint64_t state = 3;
    while (out->size < size)
        buffer_byte(out, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"[random_below(&state, 64)]);
}

static void minified_json(struct buffer *out, size_t size)
{
    uint64_t state = 4;
    while (out->size < size)
        buffer_printf(out, "{\"id\":%zu,\"name\":\"user%zu\",\"tags\":[\"a\",\"b%zu\"],\"ok\":true,\"x\":%zu.%zu},",
                      random_below(&state, 100000), random_below(&state, 1000), random_below(&state, 50),
                      random_below(&state, 1000), random_below(&state, 1000));
}

static void source_code(struct buffer *out, size_t size)
{
    size_t n = 0;
    char *own = suite_read(suite_root("engine/tokenizer/pretok.c"), &n);
    while (own && out->size < size)
        buffer_append(out, own, n < size - out->size ? n : size - out->size);
    free(own);
}

static void mixed(struct buffer *out, size_t size)
{
    uint64_t state = 5;
    struct buffer text;
    buffer_init(&text);
    while (out->size < size) {
        random_text(&state, true, &text);
        buffer_append(out, text.data, text.size);
    }
    buffer_clear(&text);
}

static const struct kind {
    const char *name, *unit;
    void (*make)(struct buffer *out, size_t size);
} kinds[] = {
    {"one letter", "a", NULL},      {"one digit", "7", NULL},       {"spaces", " ", NULL},
    {"newlines", "\n", NULL},       {"symbols", "!", NULL},         {"one letter of two bytes", "\xc3\xa9", NULL},
    {"emoji", "\xf0\x9f\x98\x80", NULL}, {"alternating case", "aA", NULL}, {"'s", "'s", NULL},
    {"upper case", "Z", NULL},      {"space newline", " \n", NULL}, {"ill-formed UTF-8", "\xff", NULL},
    {"special tokens", "<|im_start|>user\nhello<|im_end|>\n", NULL},
    {"base64", NULL, base64},       {"minified JSON", NULL, minified_json}, {"source code", NULL, source_code},
    {"random mixture", NULL, mixed},
};

/* ---- measuring ---- */

static double encode_ms(const struct tokenizer *t, struct span text, size_t *n_ids)
{
    struct token_list ids = {0};
    struct error err;
    double start = thread_cpu_ms();
    if (tokenizer_encode(t, text, TOKENIZE_PARSE_SPECIAL, SIZE_MAX, &ids, &err) != STATUS_OK)
        ck_abort_msg("%s", err.text);
    double took = thread_cpu_ms() - start;
    *n_ids = ids.count;
    free(ids.data);
    return took;
}

/* Peak of the heap over one call, in bytes: what malloc holds is sampled through its own peak statistics. */
static size_t resident_peak_kb(void)
{
    char line[256];
    size_t kb = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "VmHWM: %zu", &kb) == 1)
            break;
    if (f)
        fclose(f);
    return kb;
}

static void reset_peak(void)
{
    malloc_trim(0);
    FILE *f = fopen("/proc/self/clear_refs", "w");
    if (f) {
        fputs("5", f);
        fclose(f);
    }
}

struct measured {
    double single_ms, factor, memory; /* memory: times the text, where an ill-formed byte is U+FFFD, three bytes */
};

/* Below 10 ms a factor says more about the clock than about the growth. */
static bool is_quick(const struct measured *m)
{
    return in_time(m->single_ms, 1000) && (m->factor <= 2.5 || m->single_ms <= 10);
}

/* Runs again, keeping the least, while a figure looks bad: a busy machine must not decide. */
static struct measured measure(const struct tokenizer *t, const struct kind *k, size_t size)
{
    struct buffer text;
    struct measured m = {1e9, 1e9, 0};
    double half = 1e9;
    size_t ignored;
    buffer_init(&text);
    if (k->make)
        k->make(&text, size);
    else
        repeat(&text, size, k->unit);
    reset_peak();
    size_t before = resident_peak_kb();
    for (int run = 0; run < ATTEMPTS && (run == 0 || (is_release() && !is_quick(&m))); run++) {
        double whole = encode_ms(t, buffer_span(&text), &ignored);
        if (run == 0)
            m.memory = (double)(resident_peak_kb() - before) * 1024 / (double)(k->unit && *k->unit == '\xff' ? 3 * size : size);
        double part = encode_ms(t, (struct span){text.data, text.size / 2}, &ignored);
        m.single_ms = whole < m.single_ms ? whole : m.single_ms;
        half = part < half ? part : half;
        m.factor = fmin(m.factor, fmin(whole / part, m.single_ms / half));
    }
    buffer_clear(&text);
    return m;
}

static bool open_shared(struct vocabulary_file *v, const char *name)
{
    char relative[128];
    struct error err;
    snprintf(relative, sizeof relative, "fixtures/vocab/%s.gguf", name);
    const char *path = suite_shared(relative);
    if (!path)
        return false;
    if (vocabulary_open(v, path, NULL, &err) != STATUS_OK)
        ck_abort_msg("%s", err.text);
    return true;
}

static void open_own(struct vocabulary_file *v, bool bpe)
{
    struct error err;
    struct gguf_builder *b = gguf_builder_tiny(&(struct tiny_model){.bpe = bpe, .vocabulary_only = true, .seed = 1});
    if (vocabulary_build(v, b, NULL, &err) != STATUS_OK)
        ck_abort_msg("%s", err.text);
    gguf_builder_free(b);
}

/* One line a kind of text, all vocabularies side by side: ms for 1 MB, factor over half of it, memory over text. */
TEST(one_megabyte_of_anything_stays_below_a_second)
{
    static const char *const names[] = {"llama-spm", "llama-bpe", "tekken", "qwen2", "deepseek-llm"};
    enum { N = sizeof names / sizeof names[0] };
    struct vocabulary_file files[N];
    size_t n = 0, size = suite_sanitized() ? MEGABYTE / 20 : MEGABYTE;
    size_t wanted = getenv("GGUFD_LONG") ? N : 3;
    while (n < wanted && open_shared(&files[n], names[n]))
        n++;
    if (n == 0) {
        open_own(&files[0], false);
        open_own(&files[1], true);
        n = 2;
    }
    if (is_release())
        printf("note: ms a MB, factor over half a MB, memory over text, for %s\n",
               n >= 3 ? "llama-spm, llama-bpe, tekken (qwen2, deepseek-llm)" : "two small vocabularies");
    int slow = 0;
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        char line[512];
        size_t used = (size_t)snprintf(line, sizeof line, "note: %-24s", kinds[k].name);
        for (size_t i = 0; i < n; i++) {
            struct measured m = measure(files[i].t, &kinds[k], size);
            used += (size_t)snprintf(line + used, sizeof line - used, " %5.0f %.2f %2.0f%s", m.single_ms, m.factor, m.memory,
                                     i + 1 < n ? " |" : "");
            if (!is_quick(&m) || m.memory >= 50)
                slow++;
        }
        if (is_release())
            puts(line);
    }
    fflush(stdout);
    for (size_t i = 0; i < n; i++)
        vocabulary_close(&files[i]);
    if (is_release())
        ck_assert_int_eq(slow, 0);
}
END

/* A vocabulary with 1,000 added tokens, 1 MB of chat: looking for them is a small part of tokenizing. */
TEST(a_thousand_special_tokens_cost_little)
{
    struct vocabulary_file v;
    struct gguf_builder *b = gguf_builder_new();
    struct span texts[1300];
    float scores[1300] = {0};
    int32_t types[1300];
    size_t n = 0;
    static char store[1300][32];
    for (; n < 259; n++) {
        snprintf(store[n], sizeof store[n], "<0x%02zX>", n < 3 ? n + 256 : n - 3);
        types[n] = n < 3 ? 3 : 6;
    }
    for (; n < 1259; n++) {
        snprintf(store[n], sizeof store[n], "<|%s_%zu|>", n % 2 ? "reserved" : "im", n);
        types[n] = 3;
    }
    for (size_t i = 0; i < n; i++)
        texts[i] = span_of(store[i]);
    gguf_builder_string(b, "tokenizer.ggml.model", "llama");
    gguf_builder_strings(b, "tokenizer.ggml.tokens", texts, n);
    gguf_builder_array(b, "tokenizer.ggml.scores", GGUF_F32, n, scores, n * 4);
    gguf_builder_array(b, "tokenizer.ggml.token_type", GGUF_I32, n, types, n * 4);
    struct error err;
    ck_assert_int_eq(vocabulary_build(&v, b, NULL, &err), STATUS_OK);
    gguf_builder_free(b);
    struct buffer text;
    buffer_init(&text);
    for (size_t i = 0; text.size < MEGABYTE; i++)
        buffer_printf(&text, "<|im_%zu|>user\nhello < there <| you<|reserved_%zu|>\n", 260 + i % 900 / 2 * 2, 261 + i % 900 / 2 * 2);
    double best = 1e9;
    size_t n_ids = 0;
    for (int run = 0; run < ATTEMPTS && (run < 3 || !in_time(best, 100)); run++) {
        double took = encode_ms(v.t, buffer_span(&text), &n_ids);
        best = took < best ? took : best;
    }
    printf("note: 1,000 special tokens over 1 MB: %.0f ms\n", best);
    fflush(stdout);
    if (is_release())
        ck_assert(in_time(best, 100));
    buffer_clear(&text);
    vocabulary_close(&v);
}
END

SUITE(tokenizer_speed, T_SLOW(one_megabyte_of_anything_stays_below_a_second, 3000), T(a_thousand_special_tokens_cost_little))
