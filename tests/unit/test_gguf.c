/* engine/gguf on well-formed files: every type, lookups, getters, alignment, versions, shards, big metadata. */
#include "engine/gguf/gguf.h"
#include "engine/gguf/inspect.h"
#include "engine/base/hash.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/gguf_builder.h"
#include "tests/support/patience.h"
#include "tests/support/suite.h"

static const char *tmp_path(const char *name)
{
    static char path[4096];
    snprintf(path, sizeof path, "%s/%s", suite_tmp(), name);
    return path;
}

static struct gguf *open_path(const char *path)
{
    struct gguf *g;
    struct error err = {0};
    if (gguf_open(path, NULL, &g, &err) != STATUS_OK)
        ck_abort_msg("%s", err.text);
    return g;
}

static struct gguf *open_built(struct gguf_builder *b)
{
    const char *path = tmp_path("model.gguf");
    gguf_builder_write(b, path);
    gguf_builder_free(b);
    return open_path(path);
}

static void expect_refusal(const char *path, const char *part)
{
    struct gguf *g;
    struct error err = {0};
    ck_assert_int_ne(gguf_open(path, NULL, &g, &err), STATUS_OK);
    ck_assert_ptr_null(g);
    if (!strstr(err.text, part))
        ck_abort_msg("\"%s\" not in: %s", part, err.text);
}

TEST(every_value_type_is_read_back)
{
    struct gguf_builder *b = gguf_builder_new();
    static const struct {
        enum gguf_type type;
        size_t bytes;
    } types[] = {{GGUF_U8, 1},  {GGUF_I8, 1},  {GGUF_U16, 2}, {GGUF_I16, 2}, {GGUF_U32, 4}, {GGUF_I32, 4},
                 {GGUF_F32, 4}, {GGUF_BOOL, 1}, {GGUF_U64, 8}, {GGUF_I64, 8}, {GGUF_F64, 8}};
    enum { N = sizeof types / sizeof types[0] };
    static const unsigned char bytes[24] = {1, 0, 1, 1, 0, 1, 0, 0, 1, 1, 1, 0, 1, 0, 0, 1, 1, 0, 1, 1, 0, 1, 1, 1};
    char name[32];
    for (int i = 0; i < N; i++) {
        snprintf(name, sizeof name, "scalar.%d", i);
        gguf_builder_raw(b, span_of(name), types[i].type, bytes, types[i].bytes, true);
        snprintf(name, sizeof name, "array.%d", i);
        gguf_builder_array(b, name, types[i].type, 3, bytes, 3 * types[i].bytes);
    }
    struct gguf *g = open_built(b);
    ck_assert_uint_eq(gguf_key_count(g), 2 * N);
    for (int i = 0; i < N; i++) {
        const struct gguf_key *key = gguf_key_at(g, (size_t)i * 2);
        ck_assert_int_eq(key->type, types[i].type);
        ck_assert_uint_eq(key->count, 1);
        ck_assert_uint_eq(key->bytes, types[i].bytes);
        ck_assert_int_eq(memcmp(key->data, bytes, types[i].bytes), 0);
        snprintf(name, sizeof name, "array.%d", i);
        key = gguf_key_find(g, name);
        ck_assert_int_eq(key->type, GGUF_ARRAY);
        ck_assert_int_eq(key->element, types[i].type);
        ck_assert_uint_eq(key->count, 3);
        ck_assert_int_eq(memcmp(key->data, bytes, 3 * types[i].bytes), 0);
    }
    gguf_close(g);
}
END

TEST(getters_keep_defaults_and_refuse_other_types)
{
    struct gguf_builder *b = gguf_builder_new();
    static const uint32_t same[] = {7, 7, 7}, differing[] = {7, 7, 8};
    static const int32_t negative[] = {-1, -1}, positive[] = {5, 5};
    gguf_builder_u32(b, "u32", 4000000000u);
    gguf_builder_i32(b, "i32", 5);
    gguf_builder_f32(b, "f32", 0.5f);
    gguf_builder_bool(b, "bool", true);
    gguf_builder_bytes(b, "string", (struct span){"a\0b", 3});
    gguf_builder_array(b, "same", GGUF_U32, 3, same, sizeof same);
    gguf_builder_array(b, "differing", GGUF_U32, 3, differing, sizeof differing);
    gguf_builder_array(b, "negative", GGUF_I32, 2, negative, sizeof negative);
    gguf_builder_array(b, "positive", GGUF_I32, 2, positive, sizeof positive);
    gguf_builder_array(b, "floats", GGUF_F32, 1, &(float){1}, sizeof(float));
    gguf_builder_array(b, "empty", GGUF_U32, 0, NULL, 0);
    struct gguf *g = open_built(b);
    struct error err = {0};
    uint32_t u = 1;
    float f = 1;
    bool flag = false;
    struct span s = {0};
    const struct gguf_key *key;
    ck_assert_int_eq(gguf_get_u32(g, "u32", true, &u, &err), STATUS_OK);
    ck_assert_uint_eq(u, 4000000000u);
    ck_assert_int_eq(gguf_get_u32(g, "absent", false, &u, &err), STATUS_OK);
    ck_assert_uint_eq(u, 4000000000u);
    ck_assert_int_eq(gguf_get_u32(g, "absent", true, &u, &err), STATUS_INVALID);
    ck_assert_ptr_nonnull(strstr(err.text, "key \"absent\" is missing"));
    ck_assert_int_eq(gguf_get_u32(g, "i32", false, &u, &err), STATUS_INVALID);
    ck_assert_ptr_nonnull(strstr(err.text, "key \"i32\" has type i32, must be u32"));
    ck_assert_int_eq(gguf_get_f32(g, "f32", true, &f, &err), STATUS_OK);
    ck_assert(f == 0.5f);
    ck_assert_int_eq(gguf_get_bool(g, "bool", true, &flag, &err), STATUS_OK);
    ck_assert(flag);
    ck_assert_int_eq(gguf_get_bool(g, "u32", true, &flag, &err), STATUS_INVALID);
    ck_assert_int_eq(gguf_get_string(g, "string", true, &s, &err), STATUS_OK);
    ck_assert(span_equal(s, (struct span){"a\0b", 3}));
    ck_assert_int_eq(gguf_get_string(g, "absent", false, &s, &err), STATUS_OK);
    ck_assert_int_eq(gguf_get_string(g, "u32", false, &s, &err), STATUS_INVALID);
    ck_assert(span_equal(s, (struct span){"a\0b", 3}));
    ck_assert_int_eq(gguf_get_u32_uniform(g, "same", true, &u, &err), STATUS_OK);
    ck_assert_uint_eq(u, 7);
    ck_assert_int_eq(gguf_get_u32_uniform(g, "u32", true, &u, &err), STATUS_OK);
    ck_assert_uint_eq(u, 4000000000u);
    ck_assert_int_eq(gguf_get_u32_uniform(g, "differing", true, &u, &err), STATUS_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(err.text, "layer 2"));
    ck_assert_int_eq(gguf_get_u32_uniform(g, "negative", true, &u, &err), STATUS_RANGE);
    ck_assert_int_eq(gguf_get_u32_uniform(g, "positive", true, &u, &err), STATUS_OK);
    ck_assert_uint_eq(u, 5);
    ck_assert_int_eq(gguf_get_u32_uniform(g, "absent", false, &u, &err), STATUS_OK);
    ck_assert_uint_eq(u, 5);
    ck_assert_int_eq(gguf_get_u32_uniform(g, "absent", true, &u, &err), STATUS_INVALID);
    ck_assert_int_eq(gguf_get_u32_uniform(g, "floats", true, &u, &err), STATUS_INVALID);
    ck_assert_str_eq(err.text, "key \"floats\" is an array of f32, must be of u32 or i32");
    ck_assert_int_eq(gguf_get_u32_uniform(g, "empty", true, &u, &err), STATUS_INVALID);
    ck_assert_int_eq(gguf_get_array(g, "same", GGUF_U32, true, &key, &err), STATUS_OK);
    ck_assert_uint_eq(key->count, 3);
    ck_assert_int_eq(gguf_get_array(g, "same", GGUF_F32, true, &key, &err), STATUS_INVALID);
    ck_assert_ptr_null(key);
    ck_assert_int_eq(gguf_get_array(g, "absent", GGUF_F32, false, &key, &err), STATUS_OK);
    ck_assert_ptr_null(key);
    gguf_close(g);
}
END

/* FNV-1a is 0 behind these eight bytes, and stays 0 over every zero byte; the two names of 8 bytes collide as well. */
TEST(names_that_hash_alike_are_told_apart)
{
    static const char zero[] = "\xd5\x6b\xb9\x53\x42\x87\x08\x36\0\0", other[] = "\xd5\x6b\xb9\x53\x42\x87\x08\x37";
    struct gguf_builder *b = gguf_builder_new();
    for (uint32_t i = 0; i < 3; i++)
        gguf_builder_raw(b, (struct span){zero, 10 - i}, GGUF_U32, &i, sizeof i, true);
    gguf_builder_raw(b, (struct span){other, 8}, GGUF_U32, &(uint32_t){3}, sizeof(uint32_t), true);
    ck_assert_uint_eq(hash_bytes(HASH_SEED, zero, 8), 0);
    ck_assert_uint_eq(hash_bytes(HASH_SEED, zero, 10), 0);
    struct gguf *g = open_built(b);
    uint32_t value;
    ck_assert_int_eq(gguf_get_u32(g, zero, true, &value, NULL), STATUS_OK); /* a C string: the shortest of the three */
    ck_assert_uint_eq(value, 2);
    ck_assert_int_eq(gguf_get_u32(g, other, true, &value, NULL), STATUS_OK);
    ck_assert_uint_eq(value, 3);
    gguf_close(g);
}
END

TEST(a_refusal_needs_no_message)
{
    struct gguf_builder *b = gguf_builder_new();
    struct gguf *g;
    gguf_builder_tensor(b, "t", 31, 1, (uint64_t[]){32}, NULL, 18);
    gguf_builder_write(b, tmp_path("model.gguf"));
    gguf_builder_free(b);
    ck_assert_int_eq(gguf_open(tmp_path("model.gguf"), NULL, &g, NULL), STATUS_UNSUPPORTED);
    ck_assert_ptr_null(g);
}
END

TEST(strings_of_an_array_are_walked_in_order)
{
    static const struct span strings[] = {{"one", 3}, {"", 0}, {"t\0o", 3}, {"\xff", 1}};
    struct gguf_builder *b = gguf_builder_new();
    gguf_builder_strings(b, "list", strings, 4);
    struct gguf *g = open_built(b);
    const struct gguf_key *key = gguf_key_find(g, "list");
    const void *cursor = NULL;
    for (size_t i = 0; i < 4; i++)
        ck_assert(span_equal(gguf_string_next(key, &cursor), strings[i]));
    ck_assert_ptr_eq(cursor, (const char *)key->data + key->bytes);
    gguf_close(g);
}
END

static void check_tensors_at(uint32_t alignment)
{
    struct gguf_builder *b = gguf_builder_new();
    float values[3] = {1, 2, 3};
    unsigned char block[34];
    memset(block, 0x5a, sizeof block);
    gguf_builder_alignment(b, alignment);
    gguf_builder_tensor(b, "first", 0, 1, (uint64_t[]){3}, values, sizeof values);
    gguf_builder_tensor(b, "second", 8, 4, (uint64_t[]){32, 1, 1, 1}, block, sizeof block);
    gguf_builder_tensor(b, "third", 0, 2, (uint64_t[]){1, 3}, values, sizeof values);
    struct gguf *g = open_built(b);
    ck_assert_uint_eq(gguf_tensor_count(g), 3);
    const struct gguf_tensor *t = gguf_tensor_at(g, 0);
    ck_assert(span_is(t->name, "first"));
    ck_assert_uint_eq(t->bytes, sizeof values);
    ck_assert_int_eq(memcmp(t->data, values, sizeof values), 0);
    t = gguf_tensor_find(g, "second");
    ck_assert_uint_eq(t->n_dims, 4);
    ck_assert_str_eq(t->format->name, "Q8_0");
    ck_assert_int_eq(memcmp(t->data, block, sizeof block), 0);
    t = gguf_tensor_find(g, "third");
    ck_assert_uint_eq(t->dims[0], 1);
    ck_assert_uint_eq(t->dims[1], 3);
    ck_assert_uint_eq(t->dims[3], 1);
    ck_assert_int_eq(memcmp(t->data, values, sizeof values), 0);
    ck_assert((const char *)t->data + t->bytes <= (const char *)t->mapping_end);
    ck_assert_ptr_null(gguf_tensor_find(g, "fourth"));
    gguf_close(g);
}

TEST(tensors_are_found_at_every_alignment)
{
    for (uint32_t alignment = 1; alignment <= 4096; alignment *= 2)
        check_tensors_at(alignment);
}
END

TEST(the_padding_behind_the_last_tensor_may_be_missing)
{
    struct gguf_builder *b = gguf_builder_new();
    struct buffer image = {0};
    struct gguf *g;
    gguf_builder_tensor(b, "t", 0, 1, (uint64_t[]){3}, NULL, 0);
    gguf_builder_image(b, &image);
    size_t end = gguf_image_field(image.data, image.size, "data") + 12;
    const char *path = tmp_path("cut.gguf");
    gguf_image_write(image.data, end, path);
    g = open_path(path);
    ck_assert_ptr_eq((const char *)gguf_tensor_at(g, 0)->data + 12, gguf_tensor_at(g, 0)->mapping_end);
    gguf_close(g);
    gguf_image_write(image.data, end - 1, path);
    expect_refusal(path, "tensor \"t\": data at 64 + offset 0 + 12 bytes exceeds the file size 75");
    buffer_clear(&image);
    gguf_builder_free(b);
}
END

TEST(a_vocabulary_only_file_opens)
{
    struct gguf *g = open_built(gguf_builder_tiny(&(struct tiny_model){.vocabulary_only = true}));
    ck_assert_uint_eq(gguf_tensor_count(g), 0);
    ck_assert_ptr_nonnull(gguf_key_find(g, "tokenizer.ggml.tokens"));
    gguf_close(g);
}
END

TEST(version_2_opens)
{
    struct gguf_builder *b = gguf_builder_tiny(&(struct tiny_model){.type = 8});
    gguf_builder_version(b, 2);
    struct gguf *g = open_built(b);
    ck_assert_uint_eq(gguf_version(g), 2);
    gguf_close(g);
}
END

TEST(the_fingerprint_covers_metadata_and_directory_but_not_data)
{
    struct gguf_builder *b = gguf_builder_tiny(&(struct tiny_model){.type = 8});
    const char *path = tmp_path("f.gguf");
    gguf_builder_write(b, path);
    struct gguf *g = open_path(path);
    uint64_t first = gguf_fingerprint(g);
    gguf_close(g);
    gguf_builder_tensor_data(b, "output.weight", NULL)[0] ^= 1;
    gguf_builder_write(b, path);
    g = open_path(path);
    ck_assert_uint_eq(gguf_fingerprint(g), first);
    gguf_close(g);
    gguf_builder_f32(b, "llama.rope.freq_base", 10001);
    gguf_builder_write(b, path);
    g = open_path(path);
    ck_assert_uint_ne(gguf_fingerprint(g), first);
    gguf_close(g);
    gguf_builder_free(b);
}
END

struct notes {
    int warnings;
    size_t longest;
    char last_warning[512];
};

static void take_note(void *context, enum log_level level, const char *text)
{
    struct notes *n = context;
    if (strlen(text) > n->longest)
        n->longest = strlen(text);
    for (const char *p = text; *p; p++)
        if ((unsigned char)*p < 0x20 || (unsigned char)*p > 0x7e)
            ck_abort_msg("unprintable byte %d in a note", *p);
    if (level == LOG_LEVEL_WARN) {
        n->warnings++;
        snprintf(n->last_warning, sizeof n->last_warning, "%s", text);
    }
}

TEST(bytes_behind_the_last_tensor_are_noted)
{
    struct gguf_builder *b = gguf_builder_tiny(&(struct tiny_model){.type = 8});
    struct buffer image = {0};
    struct notes notes = {0};
    struct log_sink sink = {take_note, &notes};
    struct error err;
    struct gguf *g;
    gguf_builder_image(b, &image);
    const char *path = tmp_path("m.gguf");
    gguf_image_write(image.data, image.size, path);
    ck_assert_int_eq(gguf_open(path, &sink, &g, &err), STATUS_OK);
    gguf_close(g);
    ck_assert_int_eq(notes.warnings, 0);
    buffer_append(&image, "tail", 4);
    gguf_image_write(image.data, image.size, path);
    ck_assert_int_eq(gguf_open(path, &sink, &g, &err), STATUS_OK);
    gguf_close(g);
    ck_assert_int_eq(notes.warnings, 1);
    ck_assert_ptr_nonnull(strstr(notes.last_warning, "4 bytes behind the last tensor"));
    buffer_clear(&image);
    gguf_builder_free(b);
}
END

/* A million keys of few bytes each: neither finding duplicates nor anything else may be quadratic. */
TEST(a_million_tiny_keys_open_fast)
{
    enum { N = 1000000 };
    struct gguf_builder *b = gguf_builder_new();
    struct buffer image = {0};
    uint64_t count = N;
    gguf_builder_image(b, &image);
    memcpy(image.data + 16, &count, sizeof count);
    image.size = 24;
    for (uint32_t i = 0; i < N; i++) {
        char key[8 + 7 + 4 + 1] = {7};
        snprintf(key + 8, 8, "%07u", i);
        key[15] = GGUF_U8;
        memset(key + 16, 0, 4);
        buffer_append(&image, key, sizeof key);
    }
    const char *path = tmp_path("keys.gguf");
    gguf_image_write(image.data, image.size, path);
    double start = thread_cpu_ms();
    struct gguf *g = open_path(path);
    double took = thread_cpu_ms() - start;
    ck_assert_uint_eq(gguf_key_count(g), N);
    ck_assert_ptr_eq(gguf_key_find(g, "0777777"), gguf_key_at(g, 777777));
    gguf_close(g);
    if (!suite_sanitized())
        ck_assert_msg(in_time(took, 1000), "%.0f ms", took); /* quadratic: a quarter of an hour */
    memcpy(image.data + 24 + 20 * 999999 + 8, "0000000", 7);
    gguf_image_write(image.data, image.size, path);
    expect_refusal(path, "key \"0000000\": duplicate name (numbers 0 and 999999)");
    buffer_clear(&image);
    gguf_builder_free(b);
}
END

TEST(ten_megabyte_strings_and_escapes_are_data)
{
    struct gguf_builder *b = gguf_builder_new();
    size_t size = 10 << 20;
    char *text = malloc(size);
    struct notes notes = {0};
    struct log_sink sink = {take_note, &notes};
    struct error err;
    struct gguf *g;
    struct span s;
    memset(text, '\n', size);
    memcpy(text, "\033[31mred", 8);
    gguf_builder_bytes(b, "general.architecture", (struct span){text, size});
    gguf_builder_raw(b, (struct span){text, 65535}, GGUF_U8, "", 1, true);
    const char *path = tmp_path("a\nb\033c.gguf");
    gguf_builder_write(b, path);
    ck_assert_int_eq(gguf_open(path, &sink, &g, &err), STATUS_OK);
    ck_assert_int_eq(gguf_get_string(g, "general.architecture", true, &s, &err), STATUS_OK);
    ck_assert_uint_eq(s.size, size);
    ck_assert_uint_lt(notes.longest, 400);
    ck_assert_ptr_nonnull(strstr(gguf_label(g), "a\\x0ab\\x1bc.gguf"));
    gguf_close(g);
    gguf_builder_raw(b, (struct span){text, 65535}, GGUF_U8, "", 1, true);
    gguf_builder_write(b, path);
    expect_refusal(path, "key \"\\x1b[31mred\\x0a");
    free(text);
    gguf_builder_free(b);
}
END

/* ---- shards ---- */

static struct gguf_builder *shard_model(void)
{
    return gguf_builder_tiny(&(struct tiny_model){.type = 8, .seed = 3});
}

static const char *stem(void)
{
    static char path[4096];
    snprintf(path, sizeof path, "%s/m", suite_tmp());
    return path;
}

TEST(shards_load_as_one_model)
{
    for (unsigned n = 1; n <= 7; n++) {
        struct gguf_builder *b = shard_model();
        char name[64];
        snprintf(name, sizeof name, "m-00001-of-%05u.gguf", n);
        gguf_builder_write_shards(b, stem(), n);
        struct gguf *g = open_path(tmp_path(name));
        ck_assert_uint_eq(gguf_tensor_count(g), 21);
        size_t bytes;
        const char *data = gguf_builder_tensor_data(b, "output.weight", &bytes);
        const struct gguf_tensor *t = gguf_tensor_find(g, "output.weight");
        ck_assert_uint_eq(t->bytes, bytes);
        ck_assert_int_eq(memcmp(t->data, data, bytes), 0);
        ck_assert_ptr_nonnull(gguf_key_find(g, "tokenizer.ggml.tokens"));
        const char *why;
        ck_assert(!gguf_has_changed(g, &why));
        struct error err;
        gguf_prefault(g, NULL, NULL);
        (void)gguf_lock(g, &err);
        gguf_close(g);
        gguf_builder_free(b);
    }
}
END

TEST(a_missing_shard_is_named)
{
    struct gguf_builder *b = shard_model();
    gguf_builder_write_shards(b, stem(), 3);
    unlink(tmp_path("m-00002-of-00003.gguf"));
    expect_refusal(tmp_path("m-00001-of-00003.gguf"), "shard 2 of 3: ");
    expect_refusal(tmp_path("m-00001-of-00003.gguf"), "m-00002-of-00003.gguf: cannot be opened: No such file");
    gguf_builder_free(b);
}
END

TEST(a_later_shard_is_refused_naming_the_first)
{
    struct gguf_builder *b = shard_model();
    gguf_builder_write_shards(b, stem(), 3);
    expect_refusal(tmp_path("m-00002-of-00003.gguf"), "is shard 2 of 3; give the first shard: ");
    expect_refusal(tmp_path("m-00003-of-00003.gguf"), "m-00001-of-00003.gguf");
    gguf_builder_free(b);
}
END

TEST(mixed_shards_are_refused_by_name)
{
    struct gguf_builder *b = shard_model(), *other = shard_model();
    char from[4096];
    gguf_builder_write_shards(b, stem(), 3);
    /* Shard 3 in the place of shard 2. */
    snprintf(from, sizeof from, "%s-00003-of-00003.gguf", stem());
    ck_assert_int_eq(rename(from, tmp_path("m-00002-of-00003.gguf")), 0);
    expect_refusal(tmp_path("m-00001-of-00003.gguf"), "m-00002-of-00003.gguf: split.no is 2, its file name says 1");
    /* A shard of a model with another number of tensors. */
    gguf_builder_remove_tensor(other, "output.weight");
    gguf_builder_write_shards(other, stem(), 3);
    snprintf(from, sizeof from, "%s-00002-of-00003.gguf", stem());
    ck_assert_int_eq(rename(from, tmp_path("keep")), 0);
    gguf_builder_write_shards(b, stem(), 3);
    snprintf(from, sizeof from, "%s/keep", suite_tmp());
    ck_assert_int_eq(rename(from, tmp_path("m-00002-of-00003.gguf")), 0);
    expect_refusal(tmp_path("m-00001-of-00003.gguf"),
                   "m-00002-of-00003.gguf: split.tensors.count is 20, the first shard says 21");
    /* A tensor in two shards. */
    gguf_builder_write_shards(b, stem(), 21);
    gguf_builder_free(other);
    other = shard_model();
    gguf_builder_rename_tensor(other, "blk.0.attn_q.weight", "token_embd.weight");
    gguf_builder_write_shards(other, stem(), 21);
    expect_refusal(tmp_path("m-00001-of-00021.gguf"), "tensor \"token_embd.weight\": duplicate name");
    gguf_builder_free(other);
    gguf_builder_free(b);
}
END

/* One file that announces shards in a way that cannot be: values of the three keys, the file's name, the complaint. */
TEST(split_keys_and_names_must_agree)
{
    static const struct {
        int count, number, tensors;
        const char *name, *part;
    } cases[] = {
        {2, 0, 21, "whole.gguf", "split.count is 2, but the file is not named NAME-00001-of-00002.gguf"},
        {2, 0, 21, "m-00001-of-00003.gguf", "split.count is 2, but the file name says 3 shards"},
        {1, 0, 21, "m-00001-of-00003.gguf", "split.count is 1, but the file name says 3 shards"},
        {-1, -1, -1, "m-00001-of-00003.gguf", "split.count is 1, but the file name says 3 shards"},
        {-1, -1, -1, "m-00002-of-00003.gguf", "is shard 2 of 3; give the first shard: "},
        {2, 1, 21, "whole.gguf", "is shard 2 of 2; give the first shard"},
        {2, 2, 21, "m-00001-of-00002.gguf", "key \"split.no\": 2 is not below split.count 2"},
        {0, 0, 21, "whole.gguf", "key \"split.count\": 0 is outside 1..256"},
        {60000, 0, 21, "whole.gguf", "key \"split.count\": 60000 is outside 1..256"},
        {2, -1, 21, "m-00001-of-00002.gguf", "key \"split.no\" is missing"},
        {2, 0, -1, "m-00001-of-00002.gguf", "key \"split.tensors.count\" is missing"},
        {1, 0, 22, "whole.gguf", "split.tensors.count is 22, the 1 shards hold 21 tensors"},
        {1, 0, 21, "whole.gguf", NULL},
        {1, 0, 21, "m-00001-of-00001.gguf", NULL},
        {-1, -1, -1, "m-00001-of-00001.gguf", NULL},
        {-1, -1, -1, "m-0001-of-0003.gguf", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct gguf_builder *b = shard_model();
        if (cases[i].count >= 0)
            gguf_builder_u16(b, "split.count", (uint16_t)cases[i].count);
        if (cases[i].number >= 0)
            gguf_builder_u16(b, "split.no", (uint16_t)cases[i].number);
        if (cases[i].tensors >= 0)
            gguf_builder_i32(b, "split.tensors.count", cases[i].tensors);
        const char *path = tmp_path(cases[i].name);
        gguf_builder_write(b, path);
        gguf_builder_free(b);
        if (cases[i].part)
            expect_refusal(path, cases[i].part);
        else
            gguf_close(open_path(path));
    }
    struct gguf_builder *b = shard_model();
    gguf_builder_u32(b, "split.count", 2);
    gguf_builder_write(b, tmp_path("whole.gguf"));
    expect_refusal(tmp_path("whole.gguf"), "key \"split.count\" has type u32, must be u16");
    gguf_builder_free(b);
}
END

/* Shard 2 of 2 as it should be: split keys, and the second of two tensors. */
static struct gguf_builder *second_shard(void)
{
    struct gguf_builder *b = gguf_builder_new();
    gguf_builder_u16(b, "split.no", 1);
    gguf_builder_u16(b, "split.count", 2);
    gguf_builder_i32(b, "split.tensors.count", 2);
    gguf_builder_tensor(b, "second", 0, 1, (uint64_t[]){1}, NULL, 0);
    return b;
}

static void write_first_shard(void)
{
    struct gguf_builder *b = gguf_builder_new();
    gguf_builder_u16(b, "split.no", 0);
    gguf_builder_u16(b, "split.count", 2);
    gguf_builder_i32(b, "split.tensors.count", 2);
    gguf_builder_u32(b, "general.alignment", 32);
    gguf_builder_u32(b, "number", 7);
    gguf_builder_string(b, "text", "seven");
    gguf_builder_array(b, "numbers", GGUF_U32, 1, &(uint32_t){7}, 4);
    gguf_builder_tensor(b, "first", 0, 1, (uint64_t[]){1}, NULL, 0);
    gguf_builder_write(b, tmp_path("m-00001-of-00002.gguf"));
    gguf_builder_free(b);
}

/* NULL: opens. Frees b. */
static void expect_with_second(struct gguf_builder *b, const char *part)
{
    gguf_builder_write(b, tmp_path("m-00002-of-00002.gguf"));
    gguf_builder_free(b);
    if (part)
        expect_refusal(tmp_path("m-00001-of-00002.gguf"), part);
    else
        gguf_close(open_path(tmp_path("m-00001-of-00002.gguf")));
}

TEST(a_later_shard_repeats_what_the_first_says)
{
    struct gguf_builder *b;
    write_first_shard();
    expect_with_second(second_shard(), NULL);
    b = second_shard();
    gguf_builder_u32(b, "number", 7);
    gguf_builder_string(b, "text", "seven");
    gguf_builder_array(b, "numbers", GGUF_U32, 1, &(uint32_t){7}, 4);
    gguf_builder_string(b, "another", "may stand here");
    expect_with_second(b, NULL);
    b = second_shard();
    gguf_builder_alignment(b, 64); /* each file's own */
    expect_with_second(b, NULL);
    b = second_shard();
    gguf_builder_u32(b, "number", 8);
    expect_with_second(b, "m-00002-of-00002.gguf: key \"number\" disagrees with the first shard");
    b = second_shard();
    gguf_builder_i32(b, "number", 7);
    expect_with_second(b, "key \"number\" disagrees with the first shard");
    b = second_shard();
    gguf_builder_string(b, "text", "seve");
    expect_with_second(b, "key \"text\" disagrees with the first shard");
    b = second_shard();
    gguf_builder_array(b, "numbers", GGUF_I32, 1, &(uint32_t){7}, 4);
    expect_with_second(b, "key \"numbers\" disagrees with the first shard");
    b = second_shard();
    gguf_builder_u16(b, "split.count", 3);
    expect_with_second(b, "m-00002-of-00002.gguf: split.count is 3, the first shard says 2");
    b = second_shard();
    gguf_builder_u32(b, "split.count", 2);
    expect_with_second(b, "m-00002-of-00002.gguf: key \"split.count\" has type u32, must be u16");
}
END

TEST(shard_numbers_are_read_only_where_they_stand)
{
    static const char *const names[] = {"m-0000!-of-00003.gguf", "m-00001-of-0000x.gguf", "m-00002-xx-00003.gguf",
                                        "m-00002-of-00003.gguF", "m_00002-of-00003.gguf"};
    ck_assert_int_eq(chdir(suite_tmp()), 0); /* a whole path is longer than the shortest form */
    for (size_t i = 0; i < sizeof names / sizeof names[0] + 1; i++) {
        const char *name = i ? names[i - 1] : "m.gguf";
        struct gguf_builder *b = shard_model();
        gguf_builder_write(b, name);
        gguf_builder_free(b);
        gguf_close(open_path(name));
    }
}
END

TEST(a_check_finds_damaged_values_and_sums_the_data)
{
    struct gguf_builder *b = gguf_builder_tiny(&(struct tiny_model){.type = 8, .n_ff = 8192 + 32});
    size_t bytes;
    char *data = gguf_builder_tensor_data(b, "blk.1.ffn_down.weight", &bytes);
    uint64_t expected = hash_bytes(HASH_SEED, data, bytes);
    struct tensor_check check;
    gguf_builder_write(b, tmp_path("model.gguf"));
    struct gguf *g = open_path(tmp_path("model.gguf"));
    tensor_check(gguf_tensor_find(g, "blk.1.ffn_down.weight"), &check);
    ck_assert_uint_eq(check.checksum, expected);
    ck_assert_uint_eq(check.non_finite, 0);
    gguf_close(g);
    memcpy(data + 34 * 300, (uint16_t[]){0x7c00}, 2); /* an infinite scale: every value but those that are 0 times it */
    memset(data + 34 * 300 + 2, 1, 32);
    float nan = NAN;
    memcpy(gguf_builder_tensor_data(b, "output_norm.weight", NULL) + 4 * 63, &nan, 4);
    gguf_builder_write(b, tmp_path("model.gguf"));
    g = open_path(tmp_path("model.gguf"));
    tensor_check(gguf_tensor_find(g, "blk.1.ffn_down.weight"), &check);
    ck_assert_uint_ne(check.checksum, expected);
    ck_assert_uint_eq(check.non_finite, 32);
    ck_assert_uint_eq(check.first_non_finite, 32 * 300);
    tensor_check(gguf_tensor_find(g, "output_norm.weight"), &check);
    ck_assert_uint_eq(check.non_finite, 1);
    ck_assert_uint_eq(check.first_non_finite, 63);
    gguf_close(g);
    gguf_builder_free(b);
}
END

static void count_progress(void *context, double fraction)
{
    double *last = context;
    ck_assert(fraction > *last && fraction <= 1.0);
    *last = fraction;
}

TEST(prefault_reports_progress_up_to_one)
{
    struct gguf *g = open_built(gguf_builder_tiny(&(struct tiny_model){.n_embd = 512, .n_heads = 8, .n_ff = 4096}));
    double last = 0;
    gguf_prefault(g, count_progress, &last);
    ck_assert(last == 1.0);
    ck_assert(!gguf_has_changed(g, NULL));
    gguf_close(g);
}
END

static size_t locked_kb(void)
{
    char line[256];
    size_t kb = SIZE_MAX;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        sscanf(line, "VmLck: %zu kB", &kb);
    fclose(f);
    return kb;
}

/* Status of gguf_lock by a user who may lock `bytes`. */
static enum status lock_within(struct gguf *g, size_t bytes, struct error *err)
{
    struct rlimit limit = {bytes, bytes};
    bool root = geteuid() == 0; /* who may lock anything, unless he gives the capability away */
    ck_assert_int_eq(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
    if (root)
        ck_assert_int_eq(seteuid(65534), 0);
    enum status s = gguf_lock(g, err);
    if (root)
        ck_assert_int_eq(seteuid(0), 0);
    return s;
}

TEST(a_lock_that_the_second_shard_is_refused_is_undone)
{
    if (suite_has_sanitizer())
        SKIP("the sanitizers turn mlock into nothing");
    struct gguf_builder *b = shard_model();
    struct error err;
    gguf_builder_write_shards(b, stem(), 2);
    gguf_builder_free(b);
    struct gguf *g = open_path(tmp_path("m-00001-of-00002.gguf"));
    struct stat st;
    ck_assert_int_eq(stat(tmp_path("m-00001-of-00002.gguf"), &st), 0);
    size_t page = (size_t)sysconf(_SC_PAGESIZE), first = ((size_t)st.st_size + page - 1) / page * page;
    struct rlimit now;
    bool possible = getrlimit(RLIMIT_MEMLOCK, &now) == 0 && (geteuid() == 0 || now.rlim_max >= first);
    if (possible) {
        ck_assert_int_eq(lock_within(g, first, &err), STATUS_NO_MEMORY);
        ck_assert_uint_eq(locked_kb(), 0);
        ck_assert_ptr_nonnull(strstr(err.text, "locking the model needs "));
    }
    gguf_close(g);
    if (!possible)
        SKIP("this user may lock less than the first shard");
}
END

TEST(a_refused_lock_says_needed_and_allowed_bytes)
{
    if (suite_has_sanitizer())
        SKIP("the sanitizers turn mlock into nothing");
    struct gguf *g = open_built(gguf_builder_tiny(&(struct tiny_model){.type = 8}));
    struct error err;
    ck_assert_int_eq(lock_within(g, 4096, &err), STATUS_NO_MEMORY);
    char expected[128];
    snprintf(expected, sizeof expected, "needs %llu bytes, allowed are 4096 ", (unsigned long long)gguf_file_bytes(g));
    if (!strstr(err.text, expected))
        ck_abort_msg("%s", err.text);
    gguf_close(g);
}
END

/* A seed that is refused at the door teaches the fuzzer nothing. */
TEST(every_seed_of_the_fuzzers_opens)
{
    static const char *const seeds[] = {"gguf/types", "gguf/formats", "model/llama", "model/mistral3", "model/qwen2",
                                        "model/qwen3"};
    for (size_t i = 0; i < sizeof seeds / sizeof seeds[0]; i++) {
        char name[64];
        snprintf(name, sizeof name, "tests/fuzz/seeds/%s", seeds[i]);
        gguf_close(open_path(suite_root(name)));
    }
}
END

TEST(every_fixture_opens)
{
    static const char *const some[] = {"fixtures/models/stories260K-q8_0.gguf", "fixtures/models/qwen3-q8_0.gguf",
                                       "fixtures/models/llama-moe-q8_0.gguf", "fixtures/vocab/tekken.gguf"};
    for (size_t i = 0; i < sizeof some / sizeof some[0]; i++) {
        const char *path = suite_shared(some[i]);
        if (!path)
            SKIP("../shared/fixtures is not here");
        gguf_close(open_path(path));
    }
}
END

SUITE(gguf, T(every_value_type_is_read_back), T(getters_keep_defaults_and_refuse_other_types),
      T(names_that_hash_alike_are_told_apart), T(a_refusal_needs_no_message),
      T(strings_of_an_array_are_walked_in_order), T(tensors_are_found_at_every_alignment),
      T(the_padding_behind_the_last_tensor_may_be_missing), T(a_vocabulary_only_file_opens), T(version_2_opens),
      T(the_fingerprint_covers_metadata_and_directory_but_not_data), T(bytes_behind_the_last_tensor_are_noted),
      T(a_million_tiny_keys_open_fast), T(ten_megabyte_strings_and_escapes_are_data), T(shards_load_as_one_model),
      T(a_missing_shard_is_named), T(a_later_shard_is_refused_naming_the_first), T(mixed_shards_are_refused_by_name),
      T(split_keys_and_names_must_agree), T(a_later_shard_repeats_what_the_first_says),
      T(shard_numbers_are_read_only_where_they_stand), T(a_check_finds_damaged_values_and_sums_the_data),
      T(prefault_reports_progress_up_to_one),
      T(a_lock_that_the_second_shard_is_refused_is_undone), T(a_refused_lock_says_needed_and_allowed_bytes), T(every_seed_of_the_fuzzers_opens),
      T(every_fixture_opens))
