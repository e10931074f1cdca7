/* See tokenizing.h. */
#include "tests/support/tokenizing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/json.h"
#include "tests/support/random.h"
#include "tests/support/suite.h"

enum status vocabulary_open(struct vocabulary_file *v, const char *path, const struct log_sink *log, struct error *err)
{
    *v = (struct vocabulary_file){0};
    enum status s = gguf_open(path, log, &v->g, err);
    if (s == STATUS_OK)
        s = tokenizer_new(v->g, log, &v->t, err);
    if (s != STATUS_OK)
        vocabulary_close(v);
    return s;
}

enum status vocabulary_build(struct vocabulary_file *v, const struct gguf_builder *b, const struct log_sink *log,
                             struct error *err)
{
    static unsigned number;
    char path[256];
    snprintf(path, sizeof path, "%s/vocabulary-%u.gguf", suite_tmp(), number++);
    gguf_builder_write(b, path);
    enum status s = vocabulary_open(v, path, log, err);
    unlink(path); /* stays mapped */
    return s;
}

void vocabulary_close(struct vocabulary_file *v)
{
    tokenizer_free(v->t);
    gguf_close(v->g);
    *v = (struct vocabulary_file){0};
}

enum status vocabulary_open_as(struct vocabulary_file *v, const char *path, const char *pre, struct error *err)
{
    size_t size = 0;
    char *image = suite_read(path, &size), copy[256];
    size_t at = image ? gguf_image_field(image, size, "key[tokenizer.ggml.pre].value") : SIZE_MAX;
    if (at == SIZE_MAX)
        abort();
    struct buffer b;
    uint64_t old, length = strlen(pre);
    buffer_init(&b);
    memcpy(&old, image + at, sizeof old);
    buffer_append(&b, image, at);
    buffer_append(&b, &length, sizeof length);
    buffer_append(&b, pre, length);
    buffer_append(&b, image + at + 8 + old, size - at - 8 - old);
    snprintf(copy, sizeof copy, "%s/pre.gguf", suite_tmp());
    gguf_image_write(b.data, b.size, copy);
    buffer_clear(&b);
    free(image);
    enum status s = vocabulary_open(v, copy, NULL, err);
    unlink(copy);
    return s;
}

/* ---- goldens ---- */

static void read_ids(struct json_value array, struct token_list *out)
{
    struct json_walk walk = json_walk(array);
    struct json_value item;
    int64_t id;
    out->count = 0;
    while (json_next(&walk, NULL, &item))
        if (json_integer(item, &id))
            token_list_push(out, (int32_t)id);
}

struct golden_row {
    struct buffer text;
    struct token_list ids[GOLDEN_KINDS];
    bool present[GOLDEN_KINDS];
};

static bool read_row(struct span line, struct golden_row *row)
{
    static const char *const names[GOLDEN_KINDS] = {"ids", "ids_parse_special", "ids_add_special"};
    struct json_value root, key, value;
    if (json_check(line, &root, NULL) != STATUS_OK)
        return false;
    row->text.size = 0;
    memset(row->present, 0, sizeof row->present);
    for (struct json_walk walk = json_walk(root); json_next(&walk, &key, &value);) {
        if (json_string_is(key, span_of("text")))
            json_unescape(value, &row->text);
        for (int kind = 0; kind < GOLDEN_KINDS; kind++)
            if (json_string_is(key, span_of(names[kind]))) {
                read_ids(value, &row->ids[kind]);
                row->present[kind] = true;
            }
    }
    return row->present[GOLDEN_PLAIN];
}

static bool same_ids(const struct token_list *a, const struct token_list *b)
{
    return a->count == b->count && (a->count == 0 || memcmp(a->data, b->data, a->count * sizeof *a->data) == 0);
}

static void compare_row(const struct tokenizer *t, const struct golden_row *row, const char *jsonl,
                        struct golden_counts *counts)
{
    struct token_list got = {0};
    struct error err = {0};
    for (int kind = 0; kind < GOLDEN_KINDS; kind++) {
        got.count = 0;
        enum status s = tokenizer_encode_whole(t, buffer_span(&row->text), kind == GOLDEN_ADD_SPECIAL,
                                               kind == GOLDEN_PARSE_SPECIAL ? TOKENIZE_PARSE_SPECIAL : 0, SIZE_MAX, &got,
                                               &err);
        const struct token_list *want = &row->ids[row->present[kind] ? kind : GOLDEN_PLAIN];
        if (s == STATUS_OK && same_ids(&got, want))
            counts->passed[kind]++;
        else if (counts->passed[kind] == counts->total)
            printf("note: %s: line %zu, kind %d differs %s\n", jsonl, counts->total + 1, kind, err.text);
    }
    counts->total++;
    free(got.data);
}

bool golden_compare(const struct tokenizer *t, const char *jsonl, struct golden_counts *counts)
{
    size_t size = 0;
    char *lines = suite_read(jsonl, &size);
    struct golden_row row = {0};
    bool ok = lines != NULL;
    *counts = (struct golden_counts){0};
    for (char *line = lines; ok && line < lines + size;) {
        char *end = memchr(line, '\n', (size_t)(lines + size - line));
        end = end ? end : lines + size;
        ok = read_row((struct span){line, (size_t)(end - line)}, &row);
        if (ok)
            compare_row(t, &row, jsonl, counts);
        line = end + 1;
    }
    free(lines);
    buffer_clear(&row.text);
    for (int kind = 0; kind < GOLDEN_KINDS; kind++)
        free(row.ids[kind].data);
    return ok;
}

/* ---- random texts ---- */

static const char *const characters[] = {
    "abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "0123456789", " ", " ", "\t\n\r ", ".,;:!?-_()[]{}<>/\\|`~@#$%^&*+='\"",
    "'stmdrevl", "éÉßñÖöæ", "приветМИР", "漢字仮名カナ", "한국어ㄱㅏ", "नमस्तेภาษาไทย", "😀🦙👍🏽", "€£→∑—‘’“”…、。", "٠١٢३४५²½",
    "\xc2\xa0\xe2\x80\x83\xe3\x80\x80\xc2\x85\xe2\x80\x8b", "\xcc\x81\xcc\x88\xe2\x83\xa3", "▁Ġ\x7f\x01"};
static const char *const phrases[] = {
    "don't", "I'LL", "<sentinel:12>", "IMGIMGABCZ", "\r\n\r\n", "HTMLParser", "a/\nb", "<|im_start|>", "<|endoftext|>",
    "<s>", "</s>", "<unk>", "[INST]", "<0x41>", "<mask>", "<|eot_id|>", "the ", " of the", "return ", "1234567"};
static const char *const broken_bytes[] = {"\xff", "\xc1\x81", "\xe0\x80\xa0", "\xed\xa0\x80", "\xe6\xad", "\xf0\x9f\x98",
                                           "\x80", "\xf4\x90\x80\x80", "\xc3"};

#define PICK(state, a) (a)[random_below(state, sizeof(a) / sizeof(a)[0])]

static void random_characters(uint64_t *state, struct buffer *out)
{
    const char *all = PICK(state, characters);
    size_t size = strlen(all), n = 1 + random_below(state, 8);
    for (size_t i = 0; i < n; i++) {
        size_t at = random_below(state, size), end = at + 1;
        while (at > 0 && ((unsigned char)all[at] & 0xc0) == 0x80)
            at--;
        while ((unsigned char)all[at] >= 0xc0 && end < size && ((unsigned char)all[end] & 0xc0) == 0x80)
            end++;
        buffer_append(out, all + at, end - at);
    }
}

void random_text(uint64_t *state, bool broken, struct buffer *out)
{
    size_t parts = 1 + random_below(state, 12);
    out->size = 0;
    for (size_t i = 0; i < parts; i++) {
        size_t kind = random_below(state, 32);
        if (kind < 5)
            buffer_text(out, PICK(state, phrases));
        else if (kind == 5 && broken)
            buffer_text(out, PICK(state, broken_bytes));
        else if (kind == 6)
            buffer_byte(out, 0);
        else
            random_characters(state, out);
    }
}
