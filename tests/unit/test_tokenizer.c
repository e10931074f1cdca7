/* The tokenizer on small vocabularies of its own: what files may hold, what texts may hold, special tokens, limits.
 * Needs nothing outside the repository. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/tokenizer/pretok.h"
#include "engine/tokenizer/text_order.h"
#include "tests/support/random.h"
#include "tests/support/suite.h"
#include "tests/support/tokenizing.h"

enum { NORMAL = 1, UNKNOWN, CONTROL, USER, UNUSED, BYTE };

/* ---- vocabularies ---- */

struct tokens {
    struct span text[600];
    float score[600];
    int32_t type[600];
    size_t n;
};

static int32_t add(struct tokens *v, const char *text, size_t size, float score, int32_t type)
{
    v->text[v->n] = (struct span){memcpy(malloc(size + 1), text, size), size};
    v->score[v->n] = score;
    v->type[v->n] = type;
    return (int32_t)v->n++;
}

static int32_t token(struct tokens *v, const char *text, float score, int32_t type)
{
    return add(v, text, strlen(text), score, type);
}

static void free_tokens(struct tokens *v)
{
    for (size_t i = 0; i < v->n; i++)
        free((void *)(uintptr_t)v->text[i].data);
}

static struct gguf_builder *builder(const struct tokens *v, const char *model)
{
    struct gguf_builder *b = gguf_builder_new();
    gguf_builder_string(b, "general.architecture", "llama");
    gguf_builder_string(b, "tokenizer.ggml.model", model);
    gguf_builder_strings(b, "tokenizer.ggml.tokens", v->text, v->n);
    gguf_builder_array(b, "tokenizer.ggml.scores", GGUF_F32, v->n, v->score, v->n * sizeof *v->score);
    gguf_builder_array(b, "tokenizer.ggml.token_type", GGUF_I32, v->n, v->type, v->n * sizeof *v->type);
    return b;
}

/* <unk> <s> </s>, 256 byte tokens from id 3 on: <0x00> is 3, <0x0A> 13, <0x41> 68. */
static struct tokens spm_tokens(void)
{
    struct tokens v = {0};
    token(&v, "<unk>", 0, UNKNOWN);
    token(&v, "<s>", 0, CONTROL);
    token(&v, "</s>", 0, CONTROL);
    for (unsigned byte = 0; byte < 256; byte++) {
        char text[8];
        snprintf(text, sizeof text, "<0x%02X>", byte);
        token(&v, text, 0, BYTE);
    }
    return v;
}

enum { BLANK_ID = 259 }; /* first id behind the bytes */

/* The byte alphabet in byte order (ids 0 to 255), then what the test adds. */
static struct tokens bpe_tokens(void)
{
    struct tokens v = {0};
    unsigned other = 0x100;
    for (unsigned byte = 0; byte < 256; byte++) {
        bool itself = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
        unsigned c = itself ? byte : other++;
        char text[3] = {(char)c, 0, 0};
        if (c >= 0x80) {
            text[0] = (char)(0xc0 | c >> 6);
            text[1] = (char)(0x80 | (c & 0x3f));
        }
        token(&v, text, 0, NORMAL);
    }
    return v;
}

static struct gguf_builder *bpe_builder(const struct tokens *v, const char *pre, const char *const *merges, size_t n)
{
    struct span lines[64];
    struct gguf_builder *b = builder(v, "gpt2");
    for (size_t i = 0; i < n; i++)
        lines[i] = span_of(merges[i]);
    if (pre)
        gguf_builder_string(b, "tokenizer.ggml.pre", pre);
    gguf_builder_strings(b, "tokenizer.ggml.merges", lines, n);
    return b;
}

/* ---- checking ---- */

static struct vocabulary_file open_built(struct gguf_builder *b, struct tokens *v)
{
    struct vocabulary_file f;
    struct error err;
    if (vocabulary_build(&f, b, NULL, &err) != STATUS_OK)
        ck_abort_msg("refused: %s", err.text);
    gguf_builder_free(b);
    free_tokens(v);
    return f;
}

static void refuse_built(struct gguf_builder *b, enum status status, const char *part)
{
    struct vocabulary_file f;
    struct error err = {0};
    enum status got = vocabulary_build(&f, b, NULL, &err);
    if (got != status || !strstr(err.text, part))
        ck_abort_msg("status %d, \"%s\" instead of %d, \"%s\"", got, err.text, status, part);
}

/* expect(..., n, id...): ids of a text. */
static void expect(const struct tokenizer *t, struct span text, unsigned flags, int n, ...)
{
    struct token_list ids = {0};
    struct error err;
    char got[1024] = "";
    va_list want;
    if (tokenizer_encode(t, text, flags, SIZE_MAX, &ids, &err) != STATUS_OK)
        ck_abort_msg("%s", err.text);
    bool same = ids.count == (size_t)n;
    va_start(want, n);
    for (size_t i = 0, used = 0; i < ids.count && used < sizeof got - 16; i++) {
        same = same && ids.data[i] == va_arg(want, int);
        used += (size_t)snprintf(got + used, sizeof got - used, "%d ", ids.data[i]);
    }
    va_end(want);
    if (!same)
        ck_abort_msg("\"%.*s\" gave %s", (int)text.size, text.data, got);
    free(ids.data);
}

static void expect_piece(const struct tokenizer *t, int32_t id, struct span want)
{
    if (!span_equal(tokenizer_piece(t, id), want))
        ck_abort_msg("token %d", id);
}

#define PARSE TOKENIZE_PARSE_SPECIAL

/* ---- SentencePiece ---- */

TEST(spm_merges_the_best_score_and_the_leftmost_of_equals)
{
    struct tokens v = spm_tokens();
    int32_t blank = token(&v, "\xe2\x96\x81", -1, NORMAL), a = token(&v, "a", -2, NORMAL), b = token(&v, "b", -2, NORMAL);
    int32_t ab = token(&v, "ab", -3, NORMAL), ba = token(&v, "ba", -3, NORMAL), aba = token(&v, "aba", -9, NORMAL);
    int32_t blank_a = token(&v, "\xe2\x96\x81" "a", -20, NORMAL);
    struct vocabulary_file f = open_built(builder(&v, "llama"), &v);
    ck_assert_int_eq(blank, BLANK_ID);
    expect(f.t, span_of("bab"), 0, 3, blank, ba, b);
    expect(f.t, span_of("abab"), 0, 3, blank, ab, ab);
    expect(f.t, span_of("aab"), 0, 2, blank_a, ab);
    expect(f.t, span_of("aba"), 0, 2, blank, aba);
    expect(f.t, span_of("a"), TOKENIZE_NO_PREFIX, 1, a);
    expect(f.t, span_of(""), 0, 0);
    expect(f.t, span_of(" "), 0, 2, blank, blank);
    vocabulary_close(&f);
}
END

TEST(spm_spells_unknown_characters_in_bytes)
{
    struct tokens v = spm_tokens();
    int32_t blank = token(&v, "\xe2\x96\x81", -1, NORMAL);
    struct vocabulary_file f = open_built(builder(&v, "llama"), &v);
    expect(f.t, span_of("\xc3\xa9"), 0, 3, blank, 3 + 0xc3, 3 + 0xa9);
    expect(f.t, (struct span){"\0", 1}, 0, 2, blank, 3);
    expect(f.t, span_of("\xf0\x9f"), 0, 3, blank, 3 + 0xf0, 3 + 0x9f); /* cut by the text's end */
    expect(f.t, span_of("<0x41>"), PARSE, 7, blank, 3 + '<', 3 + '0', 3 + 'x', 3 + '4', 3 + '1', 3 + '>');
    expect_piece(f.t, 3, (struct span){"\0", 1});
    expect_piece(f.t, blank, span_of(" "));
    vocabulary_close(&f);
}
END

static void rename_token(struct tokens *v, size_t id, const char *text)
{
    free((void *)(uintptr_t)v->text[id].data);
    v->text[id] = (struct span){strdup(text), strlen(text)};
}

TEST(a_missing_byte_token_is_replaced)
{
    struct tokens v = spm_tokens();
    int32_t tab = token(&v, "\t", -1, NORMAL);
    rename_token(&v, 3 + '\n', "<0xZZ>");
    rename_token(&v, 3 + '\t', "<0x-1>");
    struct vocabulary_file f = open_built(builder(&v, "llama"), &v);
    expect(f.t, span_of("\n"), TOKENIZE_NO_PREFIX, 1, 0);   /* by the unknown token */
    expect(f.t, span_of("\t"), TOKENIZE_NO_PREFIX, 1, tab); /* by the byte itself */
    expect_piece(f.t, 3 + '\n', (struct span){"\0", 1});    /* no hexadecimal digit: zero */
    vocabulary_close(&f);
    v = (struct tokens){0};
    token(&v, "a", 0, NORMAL);
    f = open_built(builder(&v, "llama"), &v);
    expect(f.t, span_of("b"), TOKENIZE_NO_PREFIX, 1, 0); /* token 0 is the unknown one by default */
    vocabulary_close(&f);
}
END

TEST(spm_puts_a_blank_in_front_of_text_at_the_start_and_after_special_tokens)
{
    struct tokens v = spm_tokens();
    int32_t blank = token(&v, "\xe2\x96\x81", -1, NORMAL), a = token(&v, "a", -2, NORMAL);
    struct gguf_builder *b = builder(&v, "llama");
    struct vocabulary_file f;
    struct error err;
    ck_assert_int_eq(vocabulary_build(&f, b, NULL, &err), STATUS_OK);
    expect(f.t, span_of("a</s>a"), PARSE, 5, blank, a, 2, blank, a);
    expect(f.t, span_of("a</s>a"), PARSE | TOKENIZE_NO_PREFIX, 4, a, 2, blank, a);
    expect(f.t, span_of("</s> a"), PARSE, 4, 2, blank, blank, a);
    expect(f.t, span_of("</s>"), PARSE | TOKENIZE_NO_PREFIX, 1, 2);
    vocabulary_close(&f);
    gguf_builder_bool(b, "tokenizer.ggml.add_space_prefix", false);
    f = open_built(b, &v);
    expect(f.t, span_of("a</s>a"), PARSE, 3, a, 2, a);
    vocabulary_close(&f);
}
END

/* ---- special tokens ---- */

TEST(user_defined_tokens_match_always_and_control_tokens_on_request)
{
    struct tokens v = spm_tokens();
    int32_t x = token(&v, "x", -1, NORMAL), y = token(&v, "y", -1, NORMAL);
    int32_t user = token(&v, "<a>", 0, USER), both = token(&v, "<a><b>", 0, USER), control = token(&v, "<c>", 0, CONTROL);
    struct gguf_builder *b = builder(&v, "llama");
    gguf_builder_bool(b, "tokenizer.ggml.add_space_prefix", false);
    struct vocabulary_file f = open_built(b, &v);
    expect(f.t, span_of("x<a><b><c>y"), PARSE, 4, x, both, control, y);
    expect(f.t, span_of("x<a><b><c>y"), 0, 6, x, both, 3 + '<', 3 + 'c', 3 + '>', y);
    expect(f.t, span_of("<a><a><b"), 0, 4, user, user, 3 + '<', 3 + 'b');
    expect(f.t, span_of("<unk>"), 0, 5, 3 + '<', 3 + 'u', 3 + 'n', 3 + 'k', 3 + '>');
    expect(f.t, span_of("<unk>"), PARSE, 1, 0);
    vocabulary_close(&f);
}
END

/* "longest first" is over the whole text: a long token further right wins over a short one that begins earlier. */
TEST(the_longest_token_of_the_whole_text_claims_first)
{
    struct tokens v = spm_tokens();
    int32_t ab = token(&v, "ab", 0, USER), bcd = token(&v, "bcd", 0, USER), a = token(&v, "a", 0, USER);
    int32_t ccc = token(&v, "ccc", 0, USER), cc = token(&v, "cc", 0, USER), c = token(&v, "c", 0, NORMAL);
    struct gguf_builder *b = builder(&v, "llama");
    gguf_builder_bool(b, "tokenizer.ggml.add_space_prefix", false);
    struct vocabulary_file f = open_built(b, &v);
    expect(f.t, span_of("abcd"), 0, 2, a, bcd);
    expect(f.t, span_of("abc"), 0, 2, ab, c);
    expect(f.t, span_of("cccccccc"), 0, 3, ccc, ccc, cc);
    expect(f.t, span_of("bcdcccbcd"), 0, 3, bcd, ccc, bcd);
    vocabulary_close(&f);
}
END

TEST(strip_flags_take_white_space_beside_a_token)
{
    struct tokens v = spm_tokens();
    token(&v, "<|endoftext|>", 0, CONTROL);
    int32_t end = token(&v, "<|end|>", 0, CONTROL), a = token(&v, "a", 0, NORMAL);
    int32_t blank = token(&v, "\xe2\x96\x81", 0, NORMAL);
    struct gguf_builder *b = builder(&v, "llama");
    gguf_builder_string(b, "general.name", "My PHI-3 mini");
    gguf_builder_bool(b, "tokenizer.ggml.add_space_prefix", false);
    struct vocabulary_file f;
    struct error err;
    ck_assert_int_eq(vocabulary_build(&f, b, NULL, &err), STATUS_OK);
    expect(f.t, span_of("a <|end|> \n\t\v\f\ra"), PARSE, 4, a, blank, end, a);
    expect(f.t, span_of("<|end|>  <|end|>  "), PARSE, 2, end, end);
    expect(f.t, span_of("<s> a"), PARSE, 3, 1, blank, a); /* <s> does not strip */
    expect(f.t, span_of("<|end|> a"), 0, 9, 3 + '<', 3 + '|', 3 + 'e', 3 + 'n', 3 + 'd', 3 + '|', 3 + '>', blank, a);
    vocabulary_close(&f);
    gguf_builder_string(b, "general.name", "x");
    f = open_built(b, &v);
    expect(f.t, span_of("<|end|> a"), PARSE, 3, end, blank, a);
    vocabulary_close(&f);
    v = spm_tokens(); /* phi-3 without <|endoftext|> */
    b = builder(&v, "llama");
    gguf_builder_string(b, "general.name", "phi3");
    refuse_built(b, STATUS_INVALID, "<|endoftext|>");
    gguf_builder_free(b);
    free_tokens(&v);
}
END

TEST(a_mask_token_strips_to_its_left)
{
    struct tokens v = bpe_tokens();
    int32_t mask = token(&v, "<mask>", 0, CONTROL), newlines = token(&v, "\n\n", 0, USER);
    struct vocabulary_file f = open_built(bpe_builder(&v, "jina-v2-de", NULL, 0), &v);
    expect(f.t, span_of("a <mask> b"), PARSE, 4, 'a', mask, ' ', 'b');
    /* the longer <mask> claims the newlines before "\n\n" can */
    expect(f.t, span_of("a\n\n<mask>\n\n"), PARSE, 3, 'a', mask, newlines);
    vocabulary_close(&f);
}
END

/* Which of the two masks strips is said by three different keys. */
TEST(names_and_architectures_say_which_mask_strips)
{
    static const struct {
        const char *name, *architecture, *pre;
        bool mask, MASK;
    } cases[] = {
        {"A Modern-BERT", "llama", "gpt-2", false, true},  {"x", "nomic-bert-moe", "gpt-2", true, false},
        {"x", "jina-bert-v3", "gpt-2", true, false},       {"x", "llama", "jina-v2-es", true, false},
        {"x", "llama", "jina-v2-code", true, false},       {"modern", "llama", "gpt-2", false, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct tokens v = bpe_tokens();
        int32_t mask = token(&v, "<mask>", 0, CONTROL), MASK = token(&v, "[MASK]", 0, CONTROL);
        struct gguf_builder *b = bpe_builder(&v, cases[i].pre, NULL, 0);
        gguf_builder_string(b, "general.name", cases[i].name);
        gguf_builder_string(b, "general.architecture", cases[i].architecture);
        struct vocabulary_file f = open_built(b, &v);
        ck_assert_uint_eq(tokenizer_attributes(f.t, mask), TOKEN_CONTROL | (cases[i].mask ? TOKEN_LSTRIP : 0u));
        ck_assert_uint_eq(tokenizer_attributes(f.t, MASK), TOKEN_CONTROL | (cases[i].MASK ? TOKEN_LSTRIP : 0u));
        vocabulary_close(&f);
    }
    struct tokens v = bpe_tokens(); /* no such token; a name that is no string is no name */
    struct gguf_builder *b = bpe_builder(&v, "jina-v2-de", NULL, 0);
    gguf_builder_u32(b, "general.name", 1);
    struct vocabulary_file f = open_built(b, &v);
    expect(f.t, span_of("a <mask>"), PARSE, 8, 'a', ' ', '<', 'm', 'a', 's', 'k', '>');
    vocabulary_close(&f);
}
END

/* Lengths that drive libstdc++'s quicksort to its limit of depth, with equal ones among them; the order is what its
 * std::sort leaves. */
TEST(tokens_are_ordered_by_length_as_the_standard_library_does)
{
    static const unsigned char sizes[64] = {
        15, 50, 9,  49, 4,  48, 11, 46, 7,  44, 13, 43, 2,  42, 14, 40, 8,  39, 16, 37, 5,  36, 34, 35, 3,  4,  6,  8,  8,  10, 12, 13,
        51, 49, 48, 47, 45, 43, 42, 41, 39, 38, 36, 36, 17, 20, 19, 22, 21, 22, 22, 24, 23, 26, 25, 28, 27, 30, 29, 32, 31, 33, 33, 18};
    static const unsigned char order[64] = {
        32, 1,  3,  33, 5,  34, 35, 7,  36, 9,  11, 37, 13, 38, 39, 15, 17, 40, 41, 19, 21, 43, 42, 23, 22, 61, 62, 59, 60, 57, 58, 55,
        56, 53, 54, 51, 52, 47, 49, 50, 48, 45, 46, 63, 44, 18, 0,  14, 31, 10, 30, 6,  29, 2,  16, 27, 28, 8,  26, 20, 4,  25, 24, 12};
    struct span texts[64];
    uint32_t ids[64];
    for (uint32_t i = 0; i < 64; i++) {
        texts[i] = (struct span){"", sizes[i]}; /* only lengths are looked at */
        ids[i] = i;
    }
    text_order_by_length(ids, 64, texts);
    for (size_t i = 0; i < 64; i++)
        ck_assert_uint_eq(ids[i], order[i]);
}
END

/* The reference's way, literally: token by token over all fragments. */
static void split_slowly(const struct tokenizer *t, const int32_t *list, size_t n, struct span text, int32_t *at)
{
    for (size_t i = 0; i < text.size; i++)
        at[i] = -1; /* free */
    for (size_t k = 0; k < n; k++) {
        struct span s = tokenizer_text(t, list[k]);
        for (size_t i = 0; i + s.size <= text.size;) {
            bool fits = memcmp(text.data + i, s.data, s.size) == 0;
            for (size_t j = i; j < i + s.size && fits; j++)
                fits = at[j] == -1;
            for (size_t j = i; j < i + s.size && fits; j++)
                at[j] = j == i ? list[k] : -2;
            i += fits ? s.size : 1;
        }
    }
}

static int by_length(const void *a, const void *b)
{
    const char *const *s = a, *const *t = b;
    size_t m = strlen(*s), n = strlen(*t);
    return m != n ? (m < n ? 1 : -1) : 0;
}

TEST(one_pass_splits_as_the_list_in_order_does)
{
    uint64_t state = 1;
    for (int round = 0; round < 30; round++) {
        struct tokens v = spm_tokens();
        const char *texts[12];
        char store[12][8];
        size_t n = 1 + random_below(&state, 12);
        for (size_t i = 0; i < n; i++) {
            size_t size = 1 + random_below(&state, 6), k = 0;
            for (; k < size; k++)
                store[i][k] = "ab"[random_below(&state, 2)];
            store[i][k] = 0;
            texts[i] = store[i];
        }
        qsort(texts, n, sizeof texts[0], by_length); /* at most 16: equal lengths keep id order */
        int32_t list[12];
        size_t kept = 0;
        for (size_t i = 0; i < n; i++) {
            bool again = false;
            for (size_t k = 0; k < i; k++)
                again |= strcmp(texts[i], texts[k]) == 0;
            if (!again)
                list[kept++] = token(&v, texts[i], 0, USER);
        }
        struct gguf_builder *b = builder(&v, "llama");
        gguf_builder_bool(b, "tokenizer.ggml.add_space_prefix", false);
        struct vocabulary_file f = open_built(b, &v);
        for (int k = 0; k < 100; k++) {
            char text[40];
            int32_t at[40];
            size_t size = 1 + random_below(&state, sizeof text - 1);
            for (size_t i = 0; i < size; i++)
                text[i] = "aaabbbc"[random_below(&state, 7)];
            split_slowly(f.t, list, kept, (struct span){text, size}, at);
            struct token_list ids = {0};
            tokenizer_encode(f.t, (struct span){text, size}, 0, SIZE_MAX, &ids, NULL);
            size_t used = 0;
            for (size_t i = 0; i < size; i++) {
                int32_t want = at[i] == -1 ? 3 + text[i] : at[i];
                if (want != -2 && (used == ids.count || ids.data[used++] != want))
                    ck_abort_msg("round %d: %.*s", round, (int)size, text);
            }
            if (used != ids.count)
                ck_abort_msg("round %d: %.*s", round, (int)size, text);
            free(ids.data);
        }
        vocabulary_close(&f);
    }
}
END

/* ---- byte-level BPE ---- */

TEST(bpe_merges_by_rank_and_drops_what_no_token_spells)
{
    static const char *const merges[] = {"b c", "a b", "no-space", "", " x y", "bc d", "a b", "\xc4\xa0 a", "q  r"};
    struct tokens v = bpe_tokens();
    int32_t bc = token(&v, "bc", 0, NORMAL), ab = token(&v, "ab", 0, NORMAL), blank_a = token(&v, "\xc4\xa0" "a", 0, NORMAL);
    struct vocabulary_file f = open_built(bpe_builder(&v, "gpt-2", merges, sizeof merges / sizeof merges[0]), &v);
    expect(f.t, span_of("abc"), 0, 2, 'a', bc);
    expect(f.t, span_of("abab"), 0, 2, ab, ab);
    expect(f.t, span_of("ab a"), 0, 2, ab, blank_a);
    expect(f.t, span_of("bcd"), 0, 3, 'b', 'c', 'd'); /* merged although "bcd" is no token, then spelt in bytes */
    expect(f.t, span_of("\xff"), 0, 3, 0xef, 0xbf, 0xbd); /* ill-formed: U+FFFD */
    expect(f.t, (struct span){"a\0b", 3}, 0, 3, 'a', 0, 'b');
    expect_piece(f.t, blank_a, span_of(" a"));
    vocabulary_close(&f);
}
END

TEST(ill_formed_bytes_become_replacement_characters_one_by_one)
{
    struct tokens v = bpe_tokens();
    struct vocabulary_file f = open_built(bpe_builder(&v, "gpt-2", NULL, 0), &v);
    expect(f.t, span_of("\xc3("), 0, 4, 0xef, 0xbf, 0xbd, '(');
    expect(f.t, span_of("\xe2\x82("), 0, 7, 0xef, 0xbf, 0xbd, 0xef, 0xbf, 0xbd, '(');
    expect(f.t, span_of("\xf4\x90\x80\x80"), 0, 12, 0xef, 0xbf, 0xbd, 0xef, 0xbf, 0xbd, 0xef, 0xbf, 0xbd, 0xef, 0xbf, 0xbd);
    expect(f.t, span_of("\xf4\x8f\xbf\xbf"), 0, 4, 0xf4, 0x8f, 0xbf, 0xbf);
    expect(f.t, span_of("\xc1\x81"), 0, 1, 'A'); /* an overlong form counts, in its shortest form */
    vocabulary_close(&f);
}
END

/* Texts above 256 bytes remember their words: those of every length must come out as they do alone. */
TEST(remembered_words_are_those_that_were_seen)
{
    static const char *const merges[] = {"a b", "ab a", "b b", "c c", "cc cc", "\xc4\xa0 a"};
    static const char *const texts[] = {"ab", "aba", "bb", "cc", "cccc", ("\xc4\xa0" "a")};
    struct tokens v = bpe_tokens();
    for (size_t i = 0; i < 6; i++)
        token(&v, texts[i], 0, NORMAL);
    struct vocabulary_file f = open_built(bpe_builder(&v, "gpt-2", merges, 6), &v);
    uint64_t state = 3;
    for (int round = 0; round < 20; round++) {
        struct token_list all = {0}, alone = {0};
        struct buffer text;
        buffer_init(&text);
        for (int i = 0; i < 300; i++) {
            char word[24] = " ";
            size_t size = 2 + random_below(&state, 20);
            for (size_t k = 1; k < size; k++)
                word[k] = "abc"[random_below(&state, size < 5 ? 2 : 3)];
            for (int again = 0; again < 2; again++) {
                buffer_append(&text, word, size);
                ck_assert_int_eq(tokenizer_encode(f.t, (struct span){word, size}, 0, SIZE_MAX, &alone, NULL), STATUS_OK);
            }
        }
        ck_assert_int_eq(tokenizer_encode(f.t, buffer_span(&text), 0, SIZE_MAX, &all, NULL), STATUS_OK);
        ck_assert_uint_eq(all.count, alone.count);
        ck_assert_mem_eq(all.data, alone.data, all.count * sizeof *all.data);
        /* appended to a list that holds ids already */
        ck_assert_int_eq(tokenizer_encode(f.t, buffer_span(&text), 0, SIZE_MAX, &all, NULL), STATUS_OK);
        ck_assert_uint_eq(all.count, 2 * alone.count);
        ck_assert_mem_eq(all.data + alone.count, alone.data, alone.count * sizeof *all.data);
        free(all.data);
        free(alone.data);
        buffer_clear(&text);
    }
    vocabulary_close(&f);
}
END

/* Vocabularies whose symbols are characters: what merges know need not be a token, newlines are taken whole. */
TEST(raw_vocabularies_merge_characters_that_are_no_tokens)
{
    struct tokens v = {0};
    for (unsigned byte = 0; byte < 256; byte++) {
        char text[8];
        snprintf(text, sizeof text, "<0x%02X>", byte);
        token(&v, text, 0, BYTE);
    }
    int32_t ab = token(&v, "ab", 0, NORMAL), blank = token(&v, "\xe2\x96\x81", 0, NORMAL);
    int32_t newline = token(&v, "\n", 0, NORMAL), three = token(&v, "\n\n\n", 0, NORMAL);
    struct gguf_builder *b = bpe_builder(&v, "gemma4", (const char *const[]){"a b", "a b", "b c"}, 3);
    gguf_builder_bool(b, "tokenizer.ggml.add_bos_token", false);
    struct vocabulary_file f = open_built(b, &v);
    ck_assert(tokenizer_special(f.t)->add_bos); /* whatever the key says */
    expect(f.t, span_of("ab"), 0, 1, ab);
    expect(f.t, span_of("bc"), 0, 2, 'b', 'c'); /* merged, but no token */
    expect(f.t, span_of("b d"), 0, 3, 'b', blank, 'd');
    expect(f.t, span_of("\n\n\n"), 0, 1, three);
    expect(f.t, span_of("\n\n"), 0, 2, newline, newline);
    expect(f.t, span_of("\xd0\x96"), 0, 2, 0xd0, 0x96);
    vocabulary_close(&f);
}
END

/* A whole word is looked for by the bytes that a token spells, whatever its type. */
TEST(whole_words_are_tokens_that_spell_them)
{
    struct tokens v = bpe_tokens();
    int32_t control = token(&v, "\xc4\xa0" "ctl", 0, CONTROL), user = token(&v, "\xc4\xa0\xc3\x90", 0, UNUSED);
    token(&v, "\xd0\x96", 0, NORMAL); /* outside the alphabet */
    token(&v, "\xff\xff", 0, NORMAL); /* no text at all */
    struct vocabulary_file f = open_built(bpe_builder(&v, "llama-bpe", NULL, 0), &v);
    expect(f.t, span_of(" ctl"), 0, 1, control);
    expect(f.t, span_of(" \xd0"), 0, 4, ' ', 0xef, 0xbf, 0xbd);
    expect(f.t, span_of("\xd0\x96"), 0, 2, 0xd0, 0x96);
    expect(f.t, span_of(" ct"), 0, 3, ' ', 'c', 't');
    ck_assert(span_is(tokenizer_piece(f.t, control), "\xc4\xa0" "ctl"));
    ck_assert_uint_eq(tokenizer_piece(f.t, user).size, 0);
    vocabulary_close(&f);
}
END

TEST(a_whole_word_is_taken_without_merging_where_the_name_says_so)
{
    static const char *const merges[] = {"b c"};
    struct tokens v = bpe_tokens();
    int32_t bc = token(&v, "bc", 0, NORMAL), abc = token(&v, "\xc4\xa0" "abc", 0, NORMAL);
    struct tokens copy = bpe_tokens();
    token(&copy, "bc", 0, NORMAL);
    token(&copy, "\xc4\xa0" "abc", 0, NORMAL);
    struct vocabulary_file f = open_built(bpe_builder(&v, "llama-bpe", merges, 1), &v);
    expect(f.t, span_of(" abc"), 0, 1, abc);
    ck_assert(tokenizer_special(f.t)->add_bos);
    vocabulary_close(&f);
    f = open_built(bpe_builder(&copy, "gpt-2", merges, 1), &copy);
    expect(f.t, span_of(" abc"), 0, 3, ' ', 'a', bc);
    ck_assert(!tokenizer_special(f.t)->add_bos);
    vocabulary_close(&f);
}
END

TEST(a_giant_word_merges_as_a_short_one_does)
{
    static const char *const merges[] = {"a a", "aa aa", "aaaa aaaa"};
    struct tokens v = bpe_tokens();
    int32_t aa = token(&v, "aa", 0, NORMAL), aaaa = token(&v, "aaaa", 0, NORMAL), eight = token(&v, "aaaaaaaa", 0, NORMAL);
    struct vocabulary_file f = open_built(bpe_builder(&v, "gpt-2", merges, 3), &v);
    char text[1000];
    memset(text, 'a', sizeof text);
    for (size_t size = 1; size < sizeof text; size += 1 + size / 16) {
        struct token_list ids = {0};
        tokenizer_encode(f.t, (struct span){text, size}, 0, SIZE_MAX, &ids, NULL);
        size_t i = 0;
        for (; i < size / 8; i++)
            ck_assert_int_eq(ids.data[i], eight);
        if (size & 4)
            ck_assert_int_eq(ids.data[i++], aaaa);
        if (size & 2)
            ck_assert_int_eq(ids.data[i++], aa);
        ck_assert_uint_eq(ids.count, i + (size & 1));
        free(ids.data);
    }
    vocabulary_close(&f);
}
END

TEST(every_name_of_a_word_splitter_round_trips_or_is_refused_by_name)
{
    struct buffer text, back;
    uint64_t state = 5;
    buffer_init(&text);
    buffer_init(&back);
    size_t n = 0;
    for (const struct pretok_row *row; (row = pretok_at(n)) != NULL; n++) {
        if (row->flags & (PRE_RAW | PRE_ESCAPE))
            continue; /* the byte alphabet does not spell their words */
        struct tokens v = bpe_tokens();
        struct vocabulary_file f = open_built(bpe_builder(&v, row->name, (const char *const[]){"t h", "th e"}, 2), &v);
        for (int i = 0; i < 40; i++) {
            struct token_list ids = {0};
            random_text(&state, false, &text);
            tokenizer_encode(f.t, buffer_span(&text), 0, SIZE_MAX, &ids, NULL);
            back.size = 0;
            tokenizer_decode(f.t, ids.data, ids.count, &back);
            if (!span_equal(buffer_span(&text), buffer_span(&back)))
                ck_abort_msg("%s: text %d", row->name, i);
            free(ids.data);
        }
        vocabulary_close(&f);
    }
    ck_assert_uint_eq(n, 90);
    buffer_clear(&text);
    buffer_clear(&back);
    struct tokens v = bpe_tokens();
    struct gguf_builder *b = bpe_builder(&v, "llama5", NULL, 0);
    refuse_built(b, STATUS_UNSUPPORTED, "\"llama5\": splitting words in this way is not supported (90 names are; nearest: llama3");
    gguf_builder_string(b, "tokenizer.ggml.pre", "\033[1m");
    refuse_built(b, STATUS_UNSUPPORTED, "\\x1b[1m");
    gguf_builder_free(b);
    free_tokens(&v);
}
END

/* ---- what files may hold ---- */

struct note_counter {
    int n;
    char last[512];
};

static void count_note(void *context, enum log_level level, const char *text)
{
    struct note_counter *c = context;
    if (level == LOG_LEVEL_WARN) {
        c->n++;
        snprintf(c->last, sizeof c->last, "%s", text);
    }
}

TEST(a_missing_pre_warns_and_takes_the_default)
{
    struct tokens v = bpe_tokens();
    struct gguf_builder *b = bpe_builder(&v, NULL, NULL, 0);
    struct note_counter notes = {0};
    struct log_sink log = {count_note, &notes};
    struct vocabulary_file f;
    struct error err;
    ck_assert_int_eq(vocabulary_build(&f, b, &log, &err), STATUS_OK);
    ck_assert_int_eq(notes.n, 1);
    ck_assert_ptr_nonnull(strstr(notes.last, "tokenizer.ggml.pre is missing"));
    vocabulary_close(&f);
    gguf_builder_free(b);
    free_tokens(&v);
}
END

TEST(of_equal_texts_the_lowest_id_wins_with_one_warning)
{
    struct tokens v = spm_tokens();
    int32_t a = token(&v, "a", 0, NORMAL);
    token(&v, "a", 0, NORMAL);
    int32_t user = token(&v, "<u>", 0, USER);
    token(&v, "<u>", 0, USER);
    struct gguf_builder *b = builder(&v, "llama");
    struct note_counter notes = {0};
    struct log_sink log = {count_note, &notes};
    struct vocabulary_file f;
    struct error err;
    ck_assert_int_eq(vocabulary_build(&f, b, &log, &err), STATUS_OK);
    ck_assert_int_eq(notes.n, 1);
    ck_assert_ptr_nonnull(strstr(notes.last, "2 tokens repeat"));
    expect(f.t, span_of("a<u>"), TOKENIZE_NO_PREFIX, 2, a, user);
    vocabulary_close(&f);
    gguf_builder_free(b);
    free_tokens(&v);
}
END

TEST(empty_texts_and_texts_with_nul_get_a_name)
{
    struct tokens v = spm_tokens();
    int32_t empty = token(&v, "", 0, NORMAL), nul = add(&v, "\0x", 2, 0, NORMAL), cut = add(&v, "ab\0c", 4, 0, NORMAL);
    token(&v, "a", 0, NORMAL);
    token(&v, "b", 0, NORMAL);
    struct vocabulary_file f = open_built(builder(&v, "llama"), &v);
    ck_assert(span_is(tokenizer_text(f.t, empty), "[EMPTY_259]"));
    ck_assert(span_is(tokenizer_text(f.t, nul), "[EMPTY_260]"));
    expect(f.t, span_of("ab"), TOKENIZE_NO_PREFIX, 1, cut);
    vocabulary_close(&f);
}
END

TEST(special_ids_outside_the_vocabulary_are_ignored)
{
    struct tokens v = spm_tokens();
    struct gguf_builder *b = builder(&v, "llama");
    gguf_builder_u32(b, "tokenizer.ggml.eos_token_id", 0xffffffff);
    gguf_builder_u32(b, "tokenizer.ggml.bos_token_id", 259);
    gguf_builder_u32(b, "tokenizer.ggml.padding_token_id", 258);
    gguf_builder_u32(b, "tokenizer.ggml.fim_pre_token_id", 5);
    gguf_builder_u32(b, "tokenizer.ggml.prefix_token_id", 6);
    struct vocabulary_file f = open_built(b, &v);
    const struct tokenizer_special *s = tokenizer_special(f.t);
    ck_assert_int_eq(s->eos, 2);
    ck_assert_int_eq(s->bos, 1);
    ck_assert_int_eq(s->padding, 258);
    ck_assert_int_eq(s->fim_pre, 6);
    ck_assert_int_eq(s->eot, TOKEN_NONE);
    ck_assert(tokenizer_is_eog(f.t, 2));
    ck_assert(!tokenizer_is_eog(f.t, 1));
    vocabulary_close(&f);
    struct tokens one = {0};
    token(&one, "a", 0, NORMAL);
    f = open_built(builder(&one, "llama"), &one);
    ck_assert_int_eq(tokenizer_special(f.t)->bos, TOKEN_NONE); /* the default 1 does not exist */
    struct token_list ids = {0};
    struct error err;
    ck_assert_int_eq(tokenizer_encode_whole(f.t, span_of("a"), true, 0, SIZE_MAX, &ids, &err), STATUS_INVALID);
    ck_assert_ptr_nonnull(strstr(err.text, "add_bos_token"));
    free(ids.data);
    vocabulary_close(&f);
}
END

TEST(texts_name_special_ids_and_ends)
{
    struct tokens v = bpe_tokens();
    int32_t end = token(&v, "<|end|>", 0, CONTROL), call = token(&v, "<|call|>", 0, CONTROL);
    int32_t back = token(&v, "<|return|>", 0, CONTROL), channel = token(&v, "<|channel|>", 0, CONTROL);
    int32_t fim = token(&v, "<|fim_prefix|>", 0, NORMAL), s = token(&v, "</s>", 0, NORMAL);
    struct vocabulary_file f = open_built(bpe_builder(&v, "gpt-2", NULL, 0), &v);
    ck_assert_int_eq(tokenizer_special(f.t)->eot, end);
    ck_assert_int_eq(tokenizer_special(f.t)->fim_pre, fim);
    ck_assert_uint_eq(tokenizer_attributes(f.t, fim), TOKEN_NORMAL | TOKEN_CONTROL);
    ck_assert(tokenizer_is_eog(f.t, call) && tokenizer_is_eog(f.t, back) && tokenizer_is_eog(f.t, s));
    ck_assert(!tokenizer_is_eog(f.t, end)); /* call and return end, so this one does not */
    ck_assert_uint_eq(tokenizer_attributes(f.t, end), TOKEN_USER_DEFINED);
    ck_assert_uint_eq(tokenizer_attributes(f.t, channel), TOKEN_USER_DEFINED);
    vocabulary_close(&f);
}
END

/* Attributes and end of "<|end|>" and "</s>" beside other texts. */
TEST(texts_beside_each_other_take_an_end_back)
{
    static const struct {
        const char *texts[4];
        bool end, s;
    } cases[] = {
        {{"<|end|>", "<|calls|>", "<|flush|>"}, false, true}, {{"<|end|>", "<|calls|>", "<|return|>"}, false, true},
        {{"<|end|>", "<|call|>"}, true, true},                {{"<|end|>", "<|return|>"}, true, true},
        {{"<|end|>", "<|tool_response>"}, true, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct tokens v = bpe_tokens();
        int32_t s = token(&v, "</s>", 0, CONTROL), end = (int32_t)v.n;
        for (size_t k = 0; cases[i].texts[k]; k++)
            token(&v, cases[i].texts[k], 0, CONTROL);
        int32_t unused = token(&v, "<unused7>", 0, CONTROL);
        struct vocabulary_file f = open_built(bpe_builder(&v, "gpt-2", NULL, 0), &v);
        ck_assert_int_eq(tokenizer_is_eog(f.t, end), cases[i].end);
        ck_assert_uint_eq(tokenizer_attributes(f.t, end), cases[i].end ? TOKEN_CONTROL : TOKEN_USER_DEFINED);
        ck_assert_int_eq(tokenizer_is_eog(f.t, s), cases[i].s);
        ck_assert_uint_eq(tokenizer_attributes(f.t, s), cases[i].s ? TOKEN_CONTROL : TOKEN_NORMAL);
        ck_assert_uint_eq(tokenizer_attributes(f.t, unused), TOKEN_CONTROL | TOKEN_UNUSED);
        vocabulary_close(&f);
    }
}
END

TEST(other_kinds_of_vocabulary_are_refused_by_name)
{
    static const char *const others[] = {"bert", "t5", "rwkv", "plamo2", "none", ""};
    struct tokens v = spm_tokens();
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        struct gguf_builder *b = builder(&v, others[i]);
        char part[64];
        snprintf(part, sizeof part, "tokenizer.ggml.model \"%s\"", others[i]);
        refuse_built(b, STATUS_UNSUPPORTED, part);
        gguf_builder_free(b);
    }
    free_tokens(&v);
}
END

TEST(keys_of_a_wrong_type_or_length_are_refused)
{
    struct tokens v = spm_tokens();
    int64_t zeros[300] = {0};
    static const struct {
        const char *key;
        enum gguf_type element; /* GGUF_TYPE_COUNT: scalar i32 */
        size_t short_by;
    } cases[] = {
        {"tokenizer.ggml.scores", GGUF_U8, 0},       {"tokenizer.ggml.scores", GGUF_F64, 0},
        {"tokenizer.ggml.scores", GGUF_TYPE_COUNT, 0}, {"tokenizer.ggml.add_eos_token", GGUF_TYPE_COUNT, 0},
        {"tokenizer.ggml.add_space_prefix", GGUF_TYPE_COUNT, 0},
        {"tokenizer.ggml.scores", GGUF_F32, 1},      {"tokenizer.ggml.token_type", GGUF_U32, 0},
        {"tokenizer.ggml.token_type", GGUF_I32, 1},  {"tokenizer.ggml.tokens", GGUF_I32, 0},
        {"tokenizer.ggml.tokens", GGUF_TYPE_COUNT, 0}, {"tokenizer.ggml.pre", GGUF_TYPE_COUNT, 0},
        {"tokenizer.ggml.bos_token_id", GGUF_TYPE_COUNT, 0}, {"tokenizer.ggml.mask_token_id", GGUF_TYPE_COUNT, 0},
        {"tokenizer.ggml.add_bos_token", GGUF_TYPE_COUNT, 0}, {"tokenizer.ggml.add_sep_token", GGUF_TYPE_COUNT, 0},
        {"tokenizer.ggml.remove_extra_whitespaces", GGUF_TYPE_COUNT, 0},
        {"tokenizer.ggml.suppress_tokens", GGUF_U32, 0},
    };
    static const size_t width[] = {[GGUF_U8] = 1, [GGUF_F64] = 8, [GGUF_F32] = 4, [GGUF_U32] = 4, [GGUF_I32] = 4};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct gguf_builder *b = builder(&v, "llama");
        if (cases[i].element == GGUF_TYPE_COUNT)
            gguf_builder_i32(b, cases[i].key, 1);
        else
            gguf_builder_array(b, cases[i].key, cases[i].element, v.n - cases[i].short_by, zeros,
                               (v.n - cases[i].short_by) * width[cases[i].element]);
        struct vocabulary_file f;
        struct error err = {0};
        if (vocabulary_build(&f, b, NULL, &err) == STATUS_OK || !strstr(err.text, cases[i].key))
            ck_abort_msg("case %zu: %s", i, err.text);
        gguf_builder_free(b);
    }
    /* i32 scores and extra entries are fine; merges are required, except for one name */
    struct gguf_builder *b = builder(&v, "llama");
    gguf_builder_array(b, "tokenizer.ggml.scores", GGUF_I32, v.n + 5, zeros, (v.n + 5) * 4);
    struct vocabulary_file f = open_built(b, &v);
    vocabulary_close(&f);
    v = bpe_tokens();
    b = builder(&v, "gpt2");
    gguf_builder_string(b, "tokenizer.ggml.pre", "gpt-2");
    refuse_built(b, STATUS_INVALID, "tokenizer.ggml.merges");
    gguf_builder_string(b, "tokenizer.ggml.pre", "kimi-k2");
    f = open_built(b, &v);
    vocabulary_close(&f);
}
END

TEST(a_byte_token_needs_three_bytes_of_text)
{
    struct tokens v = spm_tokens();
    token(&v, "zz", 0, BYTE);
    struct gguf_builder *b = builder(&v, "llama");
    refuse_built(b, STATUS_INVALID, "token 259");
    gguf_builder_free(b);
    free_tokens(&v);
}
END

/* Each character outside the alphabet repeats the whole text: 2000 of them 2000 times 4 KB. */
TEST(a_text_that_spells_out_too_much_is_refused)
{
    struct tokens v = bpe_tokens();
    char *text = malloc(1 << 16);
    for (size_t i = 0; i < 1 << 16; i += 2)
        memcpy(text + i, "\xd0\x96", 2);
    add(&v, text, 1 << 16, 0, NORMAL);
    struct gguf_builder *b = bpe_builder(&v, "gpt-2", NULL, 0);
    refuse_built(b, STATUS_NO_MEMORY, "token 256");
    gguf_builder_free(b);
    free_tokens(&v);
    free(text);
}
END

/* ---- limits ---- */

static void expect_limits_kept(struct vocabulary_file f, const char *period)
{
    char text[4000];
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = period[i % strlen(period)];
    struct token_list all = {0}, some = {0};
    struct error err;
    struct span s = {text, sizeof text};
    ck_assert_int_eq(tokenizer_encode(f.t, s, 0, SIZE_MAX, &all, &err), STATUS_OK);
    ck_assert_uint_eq(all.count, sizeof text);
    ck_assert_int_eq(tokenizer_encode(f.t, s, 0, all.count, &some, &err), STATUS_OK);
    for (size_t limit = 0; limit < all.count; limit += 97) {
        some.count = 0;
        ck_assert_int_eq(tokenizer_encode(f.t, s, 0, limit, &some, &err), STATUS_OVERFLOW);
        ck_assert_uint_gt(some.count, limit);
        ck_assert_uint_le(some.count, limit + 10);
        ck_assert_mem_eq(some.data, all.data, some.count * sizeof *some.data);
    }
    free(all.data);
    free(some.data);
    vocabulary_close(&f);
}

TEST(a_limit_stops_early_and_leaves_the_first_ids)
{
    static const char *const names[] = {"gpt-2", "superbpe", "tiny_aya", "afmoe"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct tokens v = bpe_tokens();
        expect_limits_kept(open_built(bpe_builder(&v, names[i], NULL, 0), &v), i == 0 ? " aaaa" : "12345678 ");
    }
    struct tokens v = spm_tokens();
    token(&v, "\xe2\x96\x81", 0, NORMAL);
    token(&v, "a", 0, NORMAL);
    struct gguf_builder *b = builder(&v, "llama");
    gguf_builder_bool(b, "tokenizer.ggml.add_space_prefix", false);
    expect_limits_kept(open_built(b, &v), " aaaa");
}
END

TEST(a_text_above_a_gibibyte_is_refused)
{
    struct tokens v = spm_tokens();
    struct vocabulary_file f = open_built(builder(&v, "llama"), &v);
    struct token_list ids = {0};
    struct error err;
    struct span text = {"", ((size_t)1 << 30) + 1}; /* refused before it is read */
    ck_assert_int_eq(tokenizer_encode(f.t, text, 0, SIZE_MAX, &ids, &err), STATUS_RANGE);
    ck_assert_str_eq(err.text, "a text of 1073741825 bytes can not be tokenized at once, allowed are 1073741824");
    vocabulary_close(&f);
}
END

TEST(bos_and_eos_come_as_the_keys_say)
{
    struct tokens v = spm_tokens();
    int32_t blank = token(&v, "\xe2\x96\x81", 0, NORMAL);
    struct gguf_builder *b = builder(&v, "llama");
    gguf_builder_bool(b, "tokenizer.ggml.add_eos_token", true);
    struct vocabulary_file f = open_built(b, &v);
    struct token_list ids = {0};
    struct error err;
    ck_assert_int_eq(tokenizer_encode_whole(f.t, span_of("<s>"), true, PARSE, SIZE_MAX, &ids, &err), STATUS_OK);
    ck_assert_uint_eq(ids.count, 3); /* twice: nothing is removed */
    ck_assert(ids.data[0] == 1 && ids.data[1] == 1 && ids.data[2] == 2);
    ids.count = 0;
    ck_assert_int_eq(tokenizer_encode_whole(f.t, span_of(" "), true, 0, 3, &ids, &err), STATUS_OVERFLOW);
    ids.count = 0;
    ck_assert_int_eq(tokenizer_encode_whole(f.t, span_of(" "), true, 0, 4, &ids, &err), STATUS_OK);
    ck_assert(ids.count == 4 && ids.data[1] == blank);
    ids.count = 0;
    ck_assert_int_eq(tokenizer_encode_whole(f.t, span_of(""), true, 0, 4, &ids, &err), STATUS_OK);
    ck_assert_uint_eq(ids.count, 2);
    free(ids.data);
    vocabulary_close(&f);
}
END

SUITE(tokenizer, T(spm_merges_the_best_score_and_the_leftmost_of_equals), T(spm_spells_unknown_characters_in_bytes),
      T(a_missing_byte_token_is_replaced),
      T(spm_puts_a_blank_in_front_of_text_at_the_start_and_after_special_tokens),
      T(user_defined_tokens_match_always_and_control_tokens_on_request),
      T(the_longest_token_of_the_whole_text_claims_first), T(strip_flags_take_white_space_beside_a_token),
      T(a_mask_token_strips_to_its_left), T(names_and_architectures_say_which_mask_strips),
      T(tokens_are_ordered_by_length_as_the_standard_library_does), T(one_pass_splits_as_the_list_in_order_does),
      T(bpe_merges_by_rank_and_drops_what_no_token_spells),
      T(ill_formed_bytes_become_replacement_characters_one_by_one), T(remembered_words_are_those_that_were_seen),
      T(raw_vocabularies_merge_characters_that_are_no_tokens), T(whole_words_are_tokens_that_spell_them),
      T(a_whole_word_is_taken_without_merging_where_the_name_says_so), T(a_giant_word_merges_as_a_short_one_does),
      T(every_name_of_a_word_splitter_round_trips_or_is_refused_by_name), T(a_missing_pre_warns_and_takes_the_default),
      T(of_equal_texts_the_lowest_id_wins_with_one_warning), T(empty_texts_and_texts_with_nul_get_a_name),
      T(special_ids_outside_the_vocabulary_are_ignored), T(texts_name_special_ids_and_ends),
      T(texts_beside_each_other_take_an_end_back),
      T(other_kinds_of_vocabulary_are_refused_by_name), T(keys_of_a_wrong_type_or_length_are_refused),
      T(a_byte_token_needs_three_bytes_of_text), T(a_text_that_spells_out_too_much_is_refused),
      T(a_limit_stops_early_and_leaves_the_first_ids), T(a_text_above_a_gibibyte_is_refused), T(bos_and_eos_come_as_the_keys_say))
