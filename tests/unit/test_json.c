/* proto/json: what is JSON is read exactly, what is not is refused with its place; cJSON serves as a second opinion. */
#include <cjson/cJSON.h>
#include <malloc.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/f16.h"
#include "proto/json.h"
#include "tests/support/comma_locale.h"
#include "tests/support/patience.h"
#include "tests/support/suite.h"

static enum status check(struct span text, struct json_value *root, struct error *err)
{
    return json_check(text, root, err);
}

static void accept(const char *text)
{
    struct json_value root;
    struct error err;
    if (check(span_of(text), &root, &err) != STATUS_OK)
        ck_abort_msg("%s: %s", text, err.text);
}

/* `says` is part of the message. */
static void refuse_bytes(const char *text, size_t size, const char *says)
{
    struct json_value root;
    struct error err;
    /* A copy without a byte behind it: ASan sees a read beyond the end. */
    char *copy = malloc(size ? size : 1);
    memcpy(copy, text, size);
    if (check((struct span){copy, size}, &root, &err) != STATUS_INVALID)
        ck_abort_msg("accepted: %s", text);
    if (!strstr(err.text, says))
        ck_abort_msg("%s: \"%s\" does not say \"%s\"", text, err.text, says);
    free(copy);
}

static void refuse(const char *text, const char *says)
{
    refuse_bytes(text, strlen(text), says);
}

TEST(every_kind_of_value_is_accepted)
{
    static const char *const texts[] = {
        "null", "true", "false", "0", "-0", "-1.5e-10", "1E+2", "123456789012345678901234567890", "\"\"", "[]", "{}",
        " [ ] ", "\t{\r\n}", "\r[\r1\r,\t{\t\"a\"\r:\t2\t}\r]\t", "[1,2,[3],{\"a\":[{}]}]", "{\"a\":1,\"b\":{\"a\":2}}", "\"\\u0000\\ud83d\\ude00\\/\"",
        "[\"a\",\"\xf0\x9f\x98\x80\",\"\x7f\"]", "{\"\":0}", "0.0", "1e400", "  1"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        accept(texts[i]);
}
END

TEST(numbers_outside_the_grammar_are_refused)
{
    static const char *const texts[] = {"01", "+1", "1.", ".5", "-", "1e", "1e+", "0x10", "Infinity", "-Infinity", "NaN",
                                        "1.e5", "--1", "-01", "1_000", "1.2.3", "1e5.5"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        char inside[64];
        refuse(texts[i], "byte");
        snprintf(inside, sizeof inside, "{\"n\":[%s]}", texts[i]);
        refuse(inside, "n[0]");
    }
}
END

TEST(structure_outside_the_grammar_is_refused)
{
    static const char *const texts[] = {
        "", " ", "\n\t", "{", "[", "]", "}", "[1", "[1,", "[1,]", "[,1]", "{\"a\"", "{\"a\":", "{\"a\":}", "{\"a\":1,}",
        "{,}", "{a:1}", "{'a':1}", "['a']", "{\"a\" 1}", "[1 2]", "[1;2]", "{\"a\":1]", "[1}", "tru", "nul", "falsee",
        "True", "// x\n1", "/* x */1", "[1]//", "1 2", "{} {}", "[]]", "\"a", "\"a\\\"", "{\"a\":1,,\"b\":2}", "undefined",
        "\"a\"\"b\"", "\v1", "{1:2}", "{null:1}"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        refuse(texts[i], "byte");
    refuse_bytes("1\0", 2, "behind the value at byte 1");
    refuse_bytes("\0", 1, "byte 0");
    refuse("\xef\xbb\xbf{}", "byte order mark at byte 0");
}
END

TEST(strings_outside_the_grammar_are_refused)
{
    static const char *const escapes[] = {"\"\\u12\"", "\"\\u12g4\"", "\"\\x41\"", "\"\\'\"", "\"\\U0041\"", "\"\\u\"",
                                          "\"\\", "\"\\u", "\"\\u000", "\"\\0\"", "\"\\\n\""};
    static const char *const surrogates[] = {"\"\\ud83d\"", "\"\\ude00\\ud83d\"", "\"\\ud83d\\u0041\"", "\"\\udc00\"",
                                             "\"\\ud83d\\ud83d\"", "\"\\ud83dx\"", "\"\\ud83d\\n\"", "\"\\uD83D\\u\""};
    static const char *const utf8[] = {"\"\xe6\xad\"", "\"\xff\"", "\"\xc0\xaf\"", "\"\xed\xa0\x80\"",
                                       "\"\xf4\x90\x80\x80\"", "\"\x80\"", "\"\xe6\xad"};
    for (size_t i = 0; i < sizeof escapes / sizeof escapes[0]; i++)
        refuse(escapes[i], "byte");
    for (size_t i = 0; i < sizeof surrogates / sizeof surrogates[0]; i++)
        refuse(surrogates[i], "lone surrogate at byte 1");
    for (size_t i = 0; i < sizeof utf8 / sizeof utf8[0]; i++)
        refuse(utf8[i], "UTF-8 at byte 1");
    for (int c = 0; c < 0x20; c++) {
        char text[4] = {'"', (char)c, '"', 0};
        refuse_bytes(text, 3, "control character");
    }
}
END

TEST(a_refusal_names_the_path_and_the_offset)
{
    refuse("{\"prompt\":[1,2,{\"text\":\"\xff\"}]}", "prompt[2].text: ill-formed UTF-8 at byte 24");
    refuse("{\"a\":{\"b\":[[],[0,x]]}}", "a.b[1][1]: \"x\" where a value is expected at byte 17");
    refuse("{\"a\\u001b[2J\":nul}", "a\\x5cu001b[2J: an unknown word");
    refuse("{\"a\":1,\"b\":2,\"\\u0061\":3}", "\\x5cu0061: a duplicate key at byte 13");
}
END

TEST(duplicate_keys_are_found_in_any_spelling_and_depth)
{
    refuse("{\"prompt\":\"a\",\"prompt\":\"b\"}", "prompt: a duplicate key at byte 14");
    refuse("{\"x\":[{\"k\":1,\"j\":2,\"k\":3}]}", "x[0].k: a duplicate key");
    refuse("{\"\xc3\xa9\":1,\"\\u00e9\":2}", "duplicate");
    refuse("{\"\\ud83d\\ude00\":1,\"\xf0\x9f\x98\x80\":2}", "duplicate");
    refuse("{\"a\\u0000\":1,\"a\\u0000\":2}", "duplicate");
    refuse("{\"\":1,\"\":2}", "duplicate");
    refuse("{\"\\/\":1,\"/\":2}", "duplicate");
    refuse("{\"\\n\":1,\"\\u000A\":2}", "duplicate");
    accept("{\"a\":1,\"a\\u0000\":2,\"A\":3,\"aa\":4,\"\":5}");
    accept("[{\"a\":1},{\"a\":1},{\"b\":{\"a\":1},\"a\":2}]");
    accept("{\"a\":{\"a\":{\"a\":1}},\"b\":{\"a\":1}}");
}
END

static char *nested(const char *open, const char *inside, const char *close, size_t n)
{
    size_t size = n * (strlen(open) + strlen(close)) + strlen(inside) + 1;
    char *text = malloc(size), *p = text;
    for (size_t i = 0; i < n; i++)
        p = stpcpy(p, open);
    p = stpcpy(p, inside);
    for (size_t i = 0; i < n; i++)
        p = stpcpy(p, close);
    return text;
}

TEST(nesting_ends_at_the_limit)
{
    static const struct {
        const char *open, *inside, *close;
    } forms[] = {{"[", "1", "]"}, {"{\"a\":", "1", "}"}, {"[{\"a\":", "[]", "}]"}};
    for (size_t i = 0; i < 2; i++) {
        char *good = nested(forms[i].open, forms[i].inside, forms[i].close, JSON_DEPTH_MAX);
        char *bad = nested(forms[i].open, forms[i].inside, forms[i].close, JSON_DEPTH_MAX + 1);
        accept(good);
        refuse(bad, "nesting deeper than 32");
        free(good);
        free(bad);
    }
    char *deep = nested(forms[2].open, forms[2].inside, forms[2].close, 16);
    refuse(deep, "nesting deeper than 32");
    free(deep);
    static const char *const endless[] = {"[", "{\"a\":", "[[{\"x\":[", "{\"x\":[1,"};
    for (size_t i = 0; i < 4; i++) {
        char *text = nested(endless[i], "", "", 1000000);
        refuse(text, "nesting deeper than 32");
        free(text);
    }
}
END

TEST(walking_gives_keys_values_and_indices)
{
    struct json_value root, key, value;
    struct error err;
    ck_assert_int_eq(check(span_of(" {\"a\" : [1 , \"]\\\"}\" ,{} , null],\"b\\n\":true , \"c\":{\"x\":-1.50}} "), &root, &err),
                     STATUS_OK);
    ck_assert_int_eq(root.type, JSON_OBJECT);
    struct json_walk walk = json_walk(root);
    ck_assert(json_next(&walk, &key, &value) && json_string_is(key, span_of("a")));
    ck_assert(value.type == JSON_ARRAY && span_is(value.raw, "[1 , \"]\\\"}\" ,{} , null]"));
    struct json_walk inner = json_walk(value);
    static const char *const raw[] = {"1", "\"]\\\"}\"", "{}", "null"};
    static const enum json_type types[] = {JSON_NUMBER, JSON_STRING, JSON_OBJECT, JSON_NULL};
    for (size_t i = 0; i < 4; i++) {
        ck_assert(json_next(&inner, NULL, &value));
        ck_assert(value.type == types[i] && span_is(value.raw, raw[i]) && inner.index == i);
    }
    ck_assert(!json_next(&inner, NULL, &value));
    ck_assert(json_next(&walk, &key, &value) && json_string_is(key, span_of("b\n")) && value.type == JSON_TRUE);
    ck_assert(json_next(&walk, &key, &value) && json_string_is(key, span_of("c")) && value.type == JSON_OBJECT);
    inner = json_walk(value);
    ck_assert(json_next(&inner, &key, &value) && span_is(value.raw, "-1.50"));
    ck_assert(!json_next(&inner, &key, &value));
    ck_assert(!json_next(&walk, &key, &value));
    struct json_walk none = json_walk(key); /* a string has no members */
    ck_assert(!json_next(&none, NULL, &value));
}
END

static void string_of(const char *text, struct buffer *out)
{
    struct json_value root;
    struct error err;
    out->size = 0;
    ck_assert_int_eq(check(span_of(text), &root, &err), STATUS_OK);
    json_unescape(root, out);
    ck_assert(json_string_is(root, buffer_span(out)));
}

TEST(strings_are_counted_and_unescaped)
{
    struct buffer b = {0};
    string_of("\"ab\\u0000cd\"", &b);
    ck_assert(span_equal(buffer_span(&b), (struct span){"ab\0cd", 5}));
    string_of("\"\\u0000\"", &b);
    ck_assert(b.size == 1 && b.data[0] == 0);
    string_of("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\u6b6a\\ud83d\\ude00\\uDBFF\\uDFFF\"", &b);
    ck_assert(span_is(buffer_span(&b), "\"\\/\b\f\n\r\t\xc3\xa9\xe6\xad\xaa\xf0\x9f\x98\x80\xf4\x8f\xbf\xbf"));
    string_of("\"\"", &b);
    ck_assert_uint_eq(b.size, 0);
    struct json_value root;
    check(span_of("\"ab\""), &root, NULL);
    ck_assert(!json_string_is(root, span_of("a")) && !json_string_is(root, span_of("abc")));
    buffer_clear(&b);
}
END

static bool integer_of(const char *text, int64_t *out)
{
    struct json_value root;
    struct error err;
    if (check(span_of(text), &root, &err) != STATUS_OK)
        ck_abort_msg("%s: %s", text, err.text);
    return json_integer(root, out);
}

TEST(integers_are_exact_however_they_are_written)
{
    static const struct {
        const char *text;
        int64_t value;
    } good[] = {{"128", 128}, {"128.0", 128}, {"1.28e2", 128}, {"12800e-2", 128}, {"-0", 0}, {"0.000", 0}, {"0e99999", 0},
                {"1e18", INT64_C(1000000000000000000)}, {"9223372036854775807", INT64_MAX},
                {"-9223372036854775808", INT64_MIN}, {"9007199254740993", INT64_C(9007199254740993)},
                {"9223372036854775807.000", INT64_MAX}, {"922337203685477580.7e1", INT64_MAX}, {"-1", -1},
                {"100000000000000000000000000000e-29", 1}, {"0.00000000000000000000000001e26", 1}, {"5E+0", 5}};
    static const char *const bad[] = {"0.5", "1e-1", "128.01", "9223372036854775808", "-9223372036854775809", "1e19", "1e400",
                                      "1e-400", "18446744073709551617", "123456789012345678901", "1e99999999999999999999",
                                      "0.1e-99999999999999999999", "1.0000000000000000000000001", "true", "\"1\"", "[]"};
    int64_t value;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        if (!integer_of(good[i].text, &value) || value != good[i].value)
            ck_abort_msg("%s", good[i].text);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (integer_of(bad[i], &value))
            ck_abort_msg("%s gave %lld", bad[i], (long long)value);
}
END

TEST(floats_read_back_as_the_same_bits)
{
    struct buffer b = {0};
    uint64_t seed = 88172645463325252u;
    for (int i = 0; i < (suite_sanitized() ? 20000 : 100000); i++) {
        seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
        float value = bits_float((uint32_t)seed);
        struct json_value root;
        b.size = 0;
        json_write_float(&b, value);
        buffer_byte(&b, 0);
        if (check((struct span){b.data, b.size - 1}, &root, NULL) != STATUS_OK)
            ck_abort_msg("%s is no JSON", b.data);
        if (!isfinite(value) ? strcmp(b.data, "null") != 0 : float_bits(strtof(b.data, NULL)) != (uint32_t)seed)
            ck_abort_msg("%08x written as %s", (unsigned)seed, b.data);
    }
    buffer_clear(&b);
}
END

TEST(numbers_keep_their_point_in_a_locale_with_a_comma)
{
    struct buffer b = {0};
    char probe[8];
    if (!comma_locale_set())
        SKIP("no locale with a decimal comma is installed and localedef cannot build one");
    snprintf(probe, sizeof probe, "%.1f", 0.5);
    ck_assert_str_eq(probe, "0,5");
    json_write_float(&b, 0.1f);
    buffer_byte(&b, ' ');
    json_write_float(&b, 1e-30f);
    buffer_byte(&b, ' ');
    json_write_fixed(&b, 1234.5678, 3);
    ck_assert(span_is(buffer_span(&b), "0.100000001 1e-30 1234.568"));
    buffer_clear(&b);
}
END

TEST(the_writer_writes_only_json)
{
    struct buffer b = {0};
    for (int first = 0; first < 256; first++)
        for (int second = 0; second < 256; second++) {
            char text[2] = {(char)first, (char)second};
            struct json_value root;
            struct error err;
            b.size = 0;
            json_write_string(&b, (struct span){text, 2});
            if (check(buffer_span(&b), &root, &err) != STATUS_OK)
                ck_abort_msg("%02x %02x: %s", first, second, err.text);
            if (first < 0x80 && second < 0x80 && !json_string_is(root, (struct span){text, 2}))
                ck_abort_msg("%02x %02x changed", first, second);
        }
    b.size = 0;
    json_write_string(&b, (struct span){"\x01\n\"\\\x7f\xe6\xad\xff\0z", 10});
    ck_assert(span_is(buffer_span(&b), "\"\\u0001\\n\\\"\\\\\\u007f\xef\xbf\xbd\xef\xbf\xbd\\u0000z\""));
    b.size = 0;
    json_write_fixed(&b, (double)NAN, 3);
    json_write_comma(&b);
    json_write_fixed(&b, (double)-INFINITY, 3);
    json_write_comma(&b);
    json_write_fixed(&b, 1e300, 0);
    ck_assert_uint_eq(b.size, 4 + 1 + 4 + 1 + 301);
    buffer_clear(&b);
}
END

/* ---- against cJSON: random documents, then with bytes changed ---- */

static uint64_t random_next(uint64_t *state)
{
    *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
    return *state;
}

static void random_value(uint64_t *state, int depth, struct buffer *out)
{
    static const char *const scalars[] = {"null", "true", "false", "0", "-1", "2.5", "1e3", "\"\"", "\"x\"", "\"\\n\\u00e9\"",
                                          "\"\xf0\x9f\x98\x80\"", "\"a\\\"b\"", "[]", "{}", "12345678901234567890"};
    uint64_t kind = random_next(state) % (depth > 0 ? 4 : 2);
    if (kind < 2) {
        buffer_text(out, scalars[random_next(state) % (sizeof scalars / sizeof scalars[0])]);
        return;
    }
    size_t n = random_next(state) % 5;
    buffer_byte(out, kind == 2 ? '[' : '{');
    for (size_t i = 0; i < n; i++) {
        if (i)
            buffer_text(out, random_next(state) % 2 ? " ,\n" : ",");
        if (kind == 3)
            buffer_printf(out, "\"k%zu\"%s:", i, random_next(state) % 2 ? " " : "");
        random_value(state, depth - 1, out);
    }
    buffer_byte(out, kind == 2 ? ']' : '}');
}

/* Same shape, strings and numbers in both readers. */
static bool same(struct json_value ours, const cJSON *theirs)
{
    struct json_value key, value;
    struct json_walk walk = json_walk(ours);
    struct buffer text = {0};
    bool good = true;
    switch (ours.type) {
    case JSON_NULL: return cJSON_IsNull(theirs);
    case JSON_FALSE: return cJSON_IsFalse(theirs);
    case JSON_TRUE: return cJSON_IsTrue(theirs);
    case JSON_NUMBER: {
        int64_t integer;
        return cJSON_IsNumber(theirs) && (!json_integer(ours, &integer) || (double)integer == theirs->valuedouble);
    }
    case JSON_STRING:
        json_unescape(ours, &text);
        good = cJSON_IsString(theirs) && text.size == strlen(theirs->valuestring) &&
               span_is(buffer_span(&text), theirs->valuestring);
        buffer_clear(&text);
        return good;
    default:
        for (const cJSON *child = theirs->child; child; child = child->next) {
            if (!json_next(&walk, &key, &value) || (ours.type == JSON_OBJECT && !json_string_is(key, span_of(child->string))))
                return false;
            good = good && same(value, child);
        }
        return good && !json_next(&walk, &key, &value);
    }
}

TEST(random_documents_read_like_cjson_reads_them)
{
    uint64_t state = 1;
    struct buffer b = {0};
    for (int i = 0; i < (suite_sanitized() ? 5000 : 20000); i++) {
        struct json_value root;
        struct error err;
        b.size = 0;
        random_value(&state, 6, &b);
        if (check(buffer_span(&b), &root, &err) != STATUS_OK)
            ck_abort_msg("%.*s: %s", (int)b.size, b.data, err.text);
        cJSON *theirs = cJSON_ParseWithLength(b.data, b.size);
        if (!theirs || !same(root, theirs))
            ck_abort_msg("%.*s", (int)b.size, b.data);
        cJSON_Delete(theirs);
    }
    buffer_clear(&b);
}
END

TEST(changed_bytes_never_read_outside_and_never_pass_what_cjson_refuses)
{
    uint64_t state = 7;
    struct buffer b = {0};
    size_t accepted = 0;
    for (int i = 0; i < (suite_sanitized() ? 20000 : 60000); i++) {
        struct json_value root;
        b.size = 0;
        random_value(&state, 4, &b);
        for (uint64_t n = 1 + random_next(&state) % 3; n > 0; n--) {
            static const char bytes[] = "\"\\{}[],:0-+.eu \x80\xe6\n";
            b.data[random_next(&state) % b.size] = bytes[random_next(&state) % (sizeof bytes - 1)];
        }
        size_t size = random_next(&state) % 4 ? b.size : random_next(&state) % (b.size + 1);
        char *copy = malloc(size + 1);
        memcpy(copy, b.data, size);
        copy[size] = 0;
        if (check((struct span){copy, size}, &root, NULL) == STATUS_OK) {
            cJSON *theirs = cJSON_ParseWithLength(copy, size);
            if (!theirs)
                ck_abort_msg("accepted: %s", copy);
            cJSON_Delete(theirs);
            accepted++;
        }
        free(copy);
    }
    ck_assert_uint_gt(accepted, 100);
    buffer_clear(&b);
}
END

/* ---- cost ---- */

/* In ms. */
static double check_cost(size_t n, const char *prefix)
{
    struct buffer b = {0};
    struct json_value root;
    struct error err;
    buffer_byte(&b, '{');
    for (size_t i = 0; i < n; i++)
        buffer_printf(&b, "%s\"%s%zx\":1", i ? "," : "", prefix, i * 2654435761u % 4294967291u);
    buffer_byte(&b, '}');
    double start = thread_cpu_ms();
    ck_assert_int_eq(check(buffer_span(&b), &root, &err), STATUS_OK);
    double cost = thread_cpu_ms() - start;
    buffer_clear(&b);
    return cost;
}

TEST(many_keys_cost_no_quadratic_time)
{
    check_cost(1000, "");
    double small = 0, large = 0;
    bool linear = false; /* squares would be 64 times as much */
    for (int i = 0; i < ATTEMPTS && !linear; i++) {
        small = check_cost(20000, "");
        large = check_cost(160000, "");
        linear = large < small * 24 + 20;
    }
    ck_assert_msg(linear, "8 times the keys: %.1f ms after %.1f ms", large, small);
    char prefix[1001];
    memset(prefix, 'x', 1000);
    prefix[1000] = 0;
    ck_assert(in_time(check_cost(1000, prefix), 1000));
}
END

TEST(a_large_body_takes_no_memory_of_its_own)
{
    struct json_value root;
    if (suite_has_sanitizer())
        SKIP("a sanitizer's allocator does not count");
    struct buffer b = {0};
    buffer_reserve(&b, 1 << 20);
    buffer_byte(&b, '[');
    while (b.size < (1 << 20) - 3)
        buffer_text(&b, "1,");
    buffer_text(&b, "1]");
    size_t before = mallinfo2().uordblks;
    double start = thread_cpu_ms();
    ck_assert_int_eq(check(buffer_span(&b), &root, NULL), STATUS_OK);
    ck_assert_uint_eq(mallinfo2().uordblks, before);
    struct json_value element;
    size_t n = 0;
    for (struct json_walk walk = json_walk(root); json_next(&walk, NULL, &element);)
        n++;
    ck_assert_uint_eq(n, (b.size - 1) / 2);
    ck_assert(in_time(thread_cpu_ms() - start, 1000));
    buffer_clear(&b);
}
END

SUITE(json, T(every_kind_of_value_is_accepted), T(numbers_outside_the_grammar_are_refused),
      T(structure_outside_the_grammar_is_refused), T(strings_outside_the_grammar_are_refused),
      T(a_refusal_names_the_path_and_the_offset), T(duplicate_keys_are_found_in_any_spelling_and_depth),
      T(nesting_ends_at_the_limit), T(walking_gives_keys_values_and_indices), T(strings_are_counted_and_unescaped),
      T(integers_are_exact_however_they_are_written), T(floats_read_back_as_the_same_bits),
      T(numbers_keep_their_point_in_a_locale_with_a_comma), T(the_writer_writes_only_json),
      T(random_documents_read_like_cjson_reads_them),
      T(changed_bytes_never_read_outside_and_never_pass_what_cjson_refuses), T(many_keys_cost_no_quadratic_time),
      T(a_large_body_takes_no_memory_of_its_own))
