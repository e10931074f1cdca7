/* Random texts: the pieces of their ids are the text again, over every vocabulary of the fixtures (needs ../shared) and
 * over small ones. GGUFD_LONG=1: 100,000 texts a vocabulary. Also: the generated character table is the one its source
 * gives. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/suite.h"
#include "tests/support/tokenizing.h"

static size_t text_count(void)
{
    return getenv("GGUFD_LONG") ? 100000 : suite_sanitized() ? 300 : 5000;
}

/* SentencePiece writes a space as U+2581, so one that was typed comes back as a space; and a space behind an unfinished
 * character loses its first byte to it, so that it comes back as the bytes of U+2581. */
static void typed_blanks_to_spaces(struct buffer *text)
{
    size_t n = 0;
    for (size_t i = 0; i < text->size; n++) {
        bool blank = text->size - i >= 3 && memcmp(text->data + i, "\xe2\x96\x81", 3) == 0;
        text->data[n] = blank ? ' ' : text->data[i];
        i += blank ? 3 : 1;
    }
    text->size = n;
}

static bool comes_back(const struct tokenizer *t, struct span text, unsigned flags, struct token_list *ids,
                       struct buffer *back)
{
    bool spm = strcmp(tokenizer_model(t), "llama") == 0;
    ids->count = 0;
    back->size = 0;
    if (tokenizer_encode(t, text, flags, SIZE_MAX, ids, NULL) != STATUS_OK)
        return false;
    tokenizer_decode(t, ids->data, ids->count, back);
    if (spm)
        typed_blanks_to_spaces(back);
    return span_equal(buffer_span(back), text);
}

static size_t round_trip(const struct tokenizer *t, const char *name)
{
    bool spm = strcmp(tokenizer_model(t), "llama") == 0;
    struct buffer text, back;
    struct token_list ids = {0};
    uint64_t state = 11;
    size_t n = text_count();
    buffer_init(&text);
    buffer_init(&back);
    for (size_t i = 0; i < n; i++) {
        random_text(&state, spm, &text);
        if (spm)
            typed_blanks_to_spaces(&text);
        unsigned flags = spm ? TOKENIZE_NO_PREFIX : i & 1 ? TOKENIZE_PARSE_SPECIAL : 0;
        if (!comes_back(t, buffer_span(&text), flags, &ids, &back))
            ck_abort_msg("%s: text %zu \"%.*s\"", name, i, (int)text.size, text.data);
    }
    free(ids.data);
    buffer_clear(&text);
    buffer_clear(&back);
    return n;
}

static int is_gguf(const struct dirent *e)
{
    size_t n = strlen(e->d_name);
    return n > 5 && strcmp(e->d_name + n - 5, ".gguf") == 0;
}

TEST(every_vocabulary_gives_texts_back)
{
    const char *folder = suite_shared("fixtures/vocab");
    struct dirent **entries;
    int n = folder ? scandir(folder, &entries, is_gguf, alphasort) : 0;
    if (n <= 0)
        SKIP("../shared/fixtures/vocab is missing");
    size_t texts = 0;
    for (int i = 0; i < n; i++) {
        char path[4096];
        struct vocabulary_file v;
        struct error err;
        snprintf(path, sizeof path, "%s/%s", suite_shared("fixtures/vocab"), entries[i]->d_name);
        if (vocabulary_open(&v, path, NULL, &err) != STATUS_OK)
            ck_abort_msg("%s: %s", path, err.text);
        texts += round_trip(v.t, entries[i]->d_name);
        vocabulary_close(&v);
        free(entries[i]);
    }
    free(entries);
    printf("note: %zu random texts came back from %d vocabularies\n", texts, n);
    fflush(stdout);
}
END

TEST(small_vocabularies_give_texts_back)
{
    for (int bpe = 0; bpe < 2; bpe++) {
        struct vocabulary_file v;
        struct error err;
        struct gguf_builder *b = gguf_builder_tiny(&(struct tiny_model){.bpe = bpe, .vocabulary_only = true, .seed = 1});
        if (vocabulary_build(&v, b, NULL, &err) != STATUS_OK)
            ck_abort_msg("%s", err.text);
        gguf_builder_free(b);
        round_trip(v.t, bpe ? "byte-level BPE" : "SentencePiece");
        vocabulary_close(&v);
    }
}
END

TEST(the_character_table_is_what_its_source_gives)
{
    if (system("command -v python3 > /dev/null") != 0)
        SKIP("python3 is missing");
    char command[8192];
    snprintf(command, sizeof command, "cd '%s/engine/tokenizer' && python3 make_unicode.py < unicode.txt > '%s/table'",
             suite_root("."), suite_tmp());
    ck_assert_int_eq(system(command), 0);
    size_t made_size = 0, kept_size = 0;
    snprintf(command, sizeof command, "%s/table", suite_tmp());
    char *made = suite_read(command, &made_size);
    char *kept = suite_read(suite_root("engine/tokenizer/unicode_table.inc"), &kept_size);
    ck_assert(made && kept);
    ck_assert(made_size == kept_size && memcmp(made, kept, made_size) == 0);
    free(made);
    free(kept);
}
END

SUITE(tokenizer_random, T_SLOW(every_vocabulary_gives_texts_back, 3000), T(small_vocabularies_give_texts_back),
      T(the_character_table_is_what_its_source_gives))
