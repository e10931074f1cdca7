/* proto/stream against a naive reference, and proto/replies, openai replies and problems byte for byte. */
#include "proto/replies.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/json.h"
#include "proto/openai.h"
#include "proto/stream.h"
#include "tests/support/patience.h"
#include "tests/support/suite.h"

static void equals(struct buffer *b, const char *want)
{
    if (b->failed || !span_is(buffer_span(b), want))
        ck_abort_msg("got  %.*s\nwant %s", (int)b->size, b->data ? b->data : "", want);
    b->size = 0;
}

/* Also JSON to the checked reader and to cJSON. */
static void equals_json(struct buffer *b, const char *want)
{
    struct json_value root;
    struct error err;
    if (json_check(buffer_span(b), &root, &err) != STATUS_OK)
        ck_abort_msg("%.*s: %s", (int)b->size, b->data, err.text);
    cJSON *theirs = cJSON_ParseWithLength(b->data, b->size);
    ck_assert_ptr_nonnull(theirs);
    cJSON_Delete(theirs);
    equals(b, want);
}

/* ---- the text of a generation ---- */

static void add_stop(struct stop_strings *s, const char *data, size_t size)
{
    s->at[s->count].start = (uint16_t)s->bytes.size;
    s->at[s->count++].size = (uint16_t)size;
    buffer_append(&s->bytes, data, size);
}

/* Pieces "a|b|c"; gives each push's output with "|" between, then "#" and what finish gives. */
static int run_stream(const struct stop_strings *stops, const char *pieces, struct buffer *out)
{
    struct text_stream s;
    struct error err;
    ck_assert_int_eq(text_stream_init(&s, stops, &err), STATUS_OK);
    bool stopped = false;
    for (const char *p = pieces; !stopped; p++) {
        size_t n = strcspn(p, "|");
        stopped = text_stream_push(&s, (struct span){p, n}, out);
        buffer_byte(out, '|');
        p += n;
        if (!*p)
            break;
    }
    buffer_byte(out, '#');
    text_stream_finish(&s, out);
    int stop = s.stop;
    ck_assert_int_eq(stop >= 0, stopped);
    text_stream_clear(&s);
    return stop;
}

TEST(text_waits_only_for_characters_and_stops)
{
    static const struct {
        const char *stops[3];
        const char *pieces, *want;
        int stop;
    } rows[] = {
        {{NULL}, "Once| upon| a", "Once| upon| a|#", -1},
        {{NULL}, "\xf0|\x9f|\x98|\x80!|x", "|||\xf0\x9f\x98\x80!|x|#", -1},
        {{NULL}, "a\xe6\xad", "a|#\xef\xbf\xbd", -1},
        {{NULL}, "\xe6\xad|A", "|\xef\xbf\xbd" "A|#", -1},
        {{NULL}, "\xff|\xfe", "\xef\xbf\xbd|\xef\xbf\xbd|#", -1},
        {{NULL}, "\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd|#", -1},
        {{"\n\n"}, "a\n|b\n|\nc", "a|\nb||#", 0},
        {{"\n\n"}, "a\n|", "a||#\n", -1},
        {{"STOP"}, "xS|TO|Py", "x|||#", 0},
        {{"STOP"}, "xS|TO|Q", "x||STOQ|#", -1},
        {{"aab"}, "aaaaab", "aaa|#", 0},
        {{"abab", "b"}, "xabab", "xa|#", 1},
        {{"bc", "abc", "c"}, "xabc", "x|#", 1},      /* all complete at one byte: the longest */
        {{"abcd", "bc"}, "xabcd", "xa|#", 1},        /* the earlier completion */
        {{"abcd", "bd"}, "abc|e", "|abce|#", -1},
        {{"\xf0\x9f\x98\x80"}, "a\xf0\x9f|\x98\x80", "a||#", 0},
        {{"\xf0\x9f\x98\x80"}, "a\xf0\x9f|\x98\x81", "a|\xf0\x9f\x98\x81|#", -1},
        {{"b"}, "\xe6\xad|b", "||#\xef\xbf\xbd", 0}, /* an unfinished character in front of a stop */
        {{"ab"}, "\xe6" "a|c", "|\xef\xbf\xbd" "ac|#", -1},
        {{"x"}, "x", "|#", 0},
        {{"x"}, "", "|#", -1},
    };
    struct buffer out = {0};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct stop_strings stops = {0};
        for (size_t k = 0; k < 3 && rows[i].stops[k]; k++)
            add_stop(&stops, rows[i].stops[k], strlen(rows[i].stops[k]));
        int stop = run_stream(&stops, rows[i].pieces, &out);
        if (stop != rows[i].stop || !span_is(buffer_span(&out), rows[i].want))
            ck_abort_msg("row %zu: stop %d, %.*s", i, stop, (int)out.size, out.data);
        out.size = 0;
        buffer_clear(&stops.bytes);
    }
    buffer_clear(&out);
}
END

TEST(nothing_comes_behind_a_stop_or_the_end)
{
    struct stop_strings stops = {0};
    struct text_stream s;
    struct buffer out = {0};
    add_stop(&stops, "b", 1);
    ck_assert_int_eq(text_stream_init(&s, &stops, NULL), STATUS_OK);
    ck_assert(text_stream_push(&s, span_of("ab"), &out));
    ck_assert(text_stream_push(&s, span_of("cd"), &out)); /* it stays stopped */
    text_stream_finish(&s, &out);
    text_stream_finish(&s, &out);
    equals(&out, "a");
    text_stream_clear(&s);
    ck_assert_int_eq(text_stream_init(&s, NULL, NULL), STATUS_OK);
    ck_assert(!text_stream_push(&s, span_of("x\xe6"), &out));
    text_stream_finish(&s, &out);
    ck_assert(!text_stream_push(&s, span_of("y"), &out)); /* finished */
    text_stream_finish(&s, &out);
    equals(&out, "x\xef\xbf\xbd");
    text_stream_clear(&s);
    buffer_clear(&stops.bytes);
    buffer_clear(&out);
}
END

TEST(a_stop_may_hold_nul)
{
    struct stop_strings stops = {0};
    struct text_stream s;
    struct buffer out = {0};
    add_stop(&stops, "\0", 1);
    ck_assert_int_eq(text_stream_init(&s, &stops, NULL), STATUS_OK);
    ck_assert(text_stream_push(&s, (struct span){"ab\0cd", 5}, &out));
    ck_assert(text_stream_push(&s, (struct span){"more", 4}, &out)); /* nothing follows a stop */
    text_stream_finish(&s, &out);
    text_stream_finish(&s, &out);
    equals(&out, "ab");
    text_stream_clear(&s);
    buffer_clear(&stops.bytes);
    buffer_clear(&out);
}
END

/* The definition: the least end of any match, of those the longest; text in front of it, repaired. */
static void naive(const struct stop_strings *stops, struct span raw, struct buffer *out, int *stop)
{
    size_t end = raw.size;
    *stop = -1;
    for (size_t e = 1; e <= raw.size && *stop < 0; e++)
        for (size_t i = 0; i < stops->count; i++) {
            struct span s = stop_string(stops, i);
            if (s.size <= e && memcmp(raw.data + e - s.size, s.data, s.size) == 0 &&
                (*stop < 0 || s.size > stop_string(stops, (size_t)*stop).size)) {
                *stop = (int)i;
                end = e - s.size;
            }
        }
    text_append_valid(out, (struct span){raw.data, end});
}

/* The longest suffix that may yet become a stop, plus an unfinished character of at most three bytes. */
static size_t naive_hold(const struct stop_strings *stops, struct span raw)
{
    size_t longest = 0;
    for (size_t i = 0; i < stops->count; i++) {
        struct span s = stop_string(stops, i);
        for (size_t n = s.size - 1; n > longest; n--)
            if (n <= raw.size && memcmp(raw.data + raw.size - n, s.data, n) == 0)
                longest = n;
    }
    return longest + 3;
}

TEST(random_pieces_and_stops_agree_with_the_definition)
{
    static const char *const alphabet[] = {"a", "b", "ab", "\xc3\xa9", "\xf0\x9f\x98\x80"};
    static const char bytes[] = "aaabbb\xc3\xa9\xf0\x9f\x98\x80\xe6\xad\xff";
    srand(5);
    size_t stopped = 0;
    for (int round = 0; round < (suite_sanitized() ? 8000 : 40000); round++) {
        struct stop_strings stops = {0};
        struct text_stream s;
        struct buffer raw = {0}, got = {0}, want = {0};
        for (int n = rand() % 5; n > 0; n--) {
            size_t start = stops.bytes.size;
            for (int k = 1 + rand() % 5; k > 0; k--)
                buffer_text(&stops.bytes, alphabet[rand() % 5]);
            stops.at[stops.count].start = (uint16_t)start;
            stops.at[stops.count++].size = (uint16_t)(stops.bytes.size - start);
        }
        if (text_stream_init(&s, &stops, NULL) != STATUS_OK)
            ck_abort();
        bool stop_now = false;
        for (int n = rand() % 30; n > 0 && !stop_now; n--) {
            char piece[8];
            size_t size = (size_t)(rand() % 6);
            for (size_t i = 0; i < size; i++)
                piece[i] = bytes[(size_t)rand() % (sizeof bytes - 1)];
            buffer_append(&raw, piece, size);
            stop_now = text_stream_push(&s, (struct span){piece, size}, &got);
            if (!stop_now && s.pending.size > naive_hold(&stops, buffer_span(&raw)))
                ck_abort_msg("round %d: holds %zu bytes", round, s.pending.size);
        }
        text_stream_finish(&s, &got);
        int stop;
        naive(&stops, buffer_span(&raw), &want, &stop);
        if (stop != s.stop || !span_equal(buffer_span(&got), buffer_span(&want)))
            ck_abort_msg("round %d: stop %d not %d, \"%.*s\" not \"%.*s\"", round, s.stop, stop, (int)got.size, got.data,
                         (int)want.size, want.data);
        stopped += stop >= 0;
        text_stream_clear(&s);
        buffer_clear(&stops.bytes);
        buffer_clear(&raw);
        buffer_clear(&got);
        buffer_clear(&want);
    }
    ck_assert_uint_gt(stopped, 1000);
}
END

/* In ms. */
static double stream_cost(size_t n_bytes)
{
    struct stop_strings stops = {0};
    struct text_stream s;
    struct buffer out = {0};
    char stop[256];
    memset(stop, 'a', sizeof stop);
    stop[255] = 'b';
    for (int i = 0; i < REQUEST_STOPS_MAX; i++)
        add_stop(&stops, stop + i, sizeof stop - (size_t)i);
    ck_assert_int_eq(text_stream_init(&s, &stops, NULL), STATUS_OK);
    double start = thread_cpu_ms();
    for (size_t i = 0; i < n_bytes; i++) {
        text_stream_push(&s, (struct span){"a", 1}, &out);
        out.size = 0;
    }
    double cost = thread_cpu_ms() - start;
    ck_assert_uint_le(s.pending.size, 255);
    text_stream_clear(&s);
    buffer_clear(&stops.bytes);
    buffer_clear(&out);
    return cost;
}

TEST(the_worst_stops_cost_linear_time)
{
    stream_cost(1000);
    double small = 0, large = 0;
    bool linear = false; /* squares would be 64 times as much */
    for (int i = 0; i < ATTEMPTS && !linear; i++) {
        small = stream_cost(20000);
        large = stream_cost(160000);
        linear = large < small * 20 + 20;
    }
    ck_assert_msg(linear, "8 times the text: %.1f ms after %.1f ms", large, small);
}
END

/* ---- replies ---- */

static struct span fake_piece(const void *context, int32_t id)
{
    const char *const *pieces = context;
    return span_of(pieces[id]);
}

TEST(tokens_are_written_with_and_without_pieces)
{
    static const char *const pieces[] = {" Once", "\xe6\xad", "\"\n"};
    static const int32_t ids[] = {0, 1, 2};
    struct buffer b = {0};
    reply_tokenize(&b, ids, 3, NULL, NULL);
    equals_json(&b, "{\"tokens\":[0,1,2],\"count\":3}");
    reply_tokenize(&b, ids, 3, fake_piece, pieces);
    equals_json(&b, "{\"tokens\":[{\"id\":0,\"piece\":\" Once\"},{\"id\":1,\"piece\":[230,173]},{\"id\":2,\"piece\":\"\\\"\\n\"}],"
                    "\"count\":3}");
    reply_tokenize(&b, NULL, 0, NULL, NULL);
    equals_json(&b, "{\"tokens\":[],\"count\":0}");
    buffer_clear(&b);
}
END

TEST(ill_formed_text_comes_with_its_bytes)
{
    struct buffer b = {0};
    reply_detokenize(&b, span_of(" Once upon"));
    equals_json(&b, "{\"content\":\" Once upon\"}");
    reply_detokenize(&b, (struct span){"a\xe6\xad\xff\0", 5});
    equals_json(&b, "{\"content\":\"a\xef\xbf\xbd\xef\xbf\xbd\\u0000\",\"bytes\":\"Yeat/wA=\"}");
    buffer_clear(&b);
}
END

TEST(base64_pads_every_length)
{
    static const char *const rows[][2] = {{"", ""}, {"f", "Zg=="}, {"fo", "Zm8="}, {"foo", "Zm9v"}, {"foob", "Zm9vYg=="},
                                          {"fooba", "Zm9vYmE="}, {"foobar", "Zm9vYmFy"}, {"\xff\xfe\xfd\xfb", "//79+w=="}};
    struct buffer b = {0};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        reply_base64(&b, span_of(rows[i][0]));
        equals(&b, rows[i][1]);
    }
    buffer_clear(&b);
}
END

TEST(logits_are_written_row_by_row)
{
    static const int32_t tokens[] = {1, 12};
    static const struct reply_candidate top[] = {{9, 7.25f, -0.5f, {"x", 1}}, {3, 0.1f, -INFINITY, {"\xff", 1}}};
    struct reply_row first = {.position = 0, .token = 1, .has_next = true, .next_id = 12, .next_logit = 1.5f,
                              .next_logprob = -2.25f, .next_rank = 3, .top = top, .n_top = 2};
    struct reply_row last = {.position = 1, .token = 12};
    struct reply_timings t = {.queue_ms = 0.25, .prefill_ms = 4, .prefill_tokens = 2};
    struct buffer b = {0};
    reply_logits_begin(&b, tokens, 2, 32000);
    reply_logits_row(&b, &first);
    reply_logits_row(&b, &last);
    reply_logits_end(&b, 1, &t);
    equals_json(&b, "{\"tokens\":[1,12],\"vocab\":32000,\"positions\":[{\"position\":0,\"token\":1,\"next\":{\"id\":12,\"logit\":1.5,"
                    "\"logprob\":-2.25,\"rank\":3},\"top\":[{\"id\":9,\"piece\":\"x\",\"logit\":7.25,\"logprob\":-0.5},"
                    "{\"id\":3,\"piece\":[255],\"logit\":0.100000001,\"logprob\":null}]},{\"position\":1,\"token\":12,\"top\":[]}],"
                    "\"cached_tokens\":1,\"timings\":{\"queue_ms\":0.250,\"prefill_ms\":4.000,\"decode_ms\":0.000,"
                    "\"prefill_tokens_per_second\":500.000,\"decode_tokens_per_second\":0.000}}");
    buffer_clear(&b);
}
END

#define TIMINGS "\"timings\":{\"queue_ms\":1.000,\"prefill_ms\":2.000,\"decode_ms\":10.000,\"prefill_tokens_per_second\":2000.000," \
                "\"decode_tokens_per_second\":200.000}"
#define MODEL "\"model\":{\"name\":\"m\",\"fingerprint\":\"f\",\"numerics\":\"n/1\"}"

static struct reply_end example_end(void)
{
    return (struct reply_end){.text = span_of("\xef\xbf\xbd"), .reason = REASON_STOP, .stop = span_of("\n\n"), .prompt_tokens = 12,
                              .cached_tokens = 8, .generated_tokens = 2, .model = {"m", "f", "n/1"},
                              .timings = {1, 2, 10, 4, 2}};
}

TEST(a_stream_is_one_object_a_line)
{
    static const struct reply_candidate top[] = {{432, 9, -0.25f, {",", 1}}};
    struct reply_token token = {.index = 0, .id = 432, .text = {",\n", 2}};
    struct reply_end end = example_end();
    struct problem problem;
    struct buffer b = {0};
    reply_token_line(&b, &token);
    equals_json(&b, "{\"index\":0,\"id\":432,\"text\":\",\\n\"}\n");
    token = (struct reply_token){.index = 7, .id = 432, .text = {NULL, 0}, .has_logprob = true, .logprob = -0.25f, .top = top, .n_top = 1};
    reply_token_line(&b, &token);
    equals_json(&b, "{\"index\":7,\"id\":432,\"text\":\"\",\"logprob\":-0.25,\"top\":[{\"id\":432,\"piece\":\",\",\"logit\":9,"
                    "\"logprob\":-0.25}]}\n");
    reply_progress_line(&b, 900, 256);
    equals_json(&b, "{\"progress\":{\"prompt_tokens\":900,\"processed\":256}}\n");
    reply_last_line(&b, &end);
    equals_json(&b, "{\"done\":true,\"text\":\"\xef\xbf\xbd\",\"reason\":\"stop\",\"stop\":\"\\n\\n\",\"prompt_tokens\":12,"
                    "\"cached_tokens\":8,\"generated_tokens\":2," TIMINGS "," MODEL "}\n");
    end.stop = (struct span){0};
    end.text = (struct span){0};
    end.reason = REASON_ERROR;
    problem_set(&problem, PROBLEM_NON_FINITE_LOGITS, "position %d", 5);
    problem_member(&problem, "position", 5);
    end.problem = &problem;
    reply_last_line(&b, &end);
    equals_json(&b, "{\"done\":true,\"text\":\"\",\"reason\":\"error\",\"prompt_tokens\":12,\"cached_tokens\":8,\"generated_tokens\":2,"
                    TIMINGS "," MODEL ",\"problem\":{\"type\":\"urn:ggufd:problem:non-finite-logits\","
                    "\"title\":\"The model computed a value that is not finite\",\"status\":500,\"detail\":\"position 5\",\"position\":5}}\n");
    buffer_clear(&b);
}
END

TEST(a_reply_without_stream_is_one_object)
{
    static const int32_t ids[] = {432, 5};
    static const struct reply_candidate top[] = {{5, 9, -0.25f, {"x", 1}}};
    struct reply_token tokens[] = {{.id = 432, .has_logprob = true, .logprob = -1}, {.id = 5, .has_logprob = true, .logprob = -0.25f, .top = top, .n_top = 1}};
    struct reply_end end = example_end();
    struct buffer b = {0}, entries = {0};
    reply_generate(&b, &end, ids, 2, NULL);
    equals_json(&b, "{\"tokens\":[432,5],\"text\":\"\xef\xbf\xbd\",\"reason\":\"stop\",\"stop\":\"\\n\\n\",\"prompt_tokens\":12,"
                    "\"cached_tokens\":8,\"generated_tokens\":2," TIMINGS "," MODEL "}");
    reply_logprob_entry(&entries, &tokens[0]);
    reply_logprob_entry(&entries, &tokens[1]);
    reply_generate(&b, &end, ids, 2, &entries);
    equals_json(&b, "{\"tokens\":[432,5],\"logprobs\":[{\"id\":432,\"logprob\":-1,\"top\":[]},{\"id\":5,\"logprob\":-0.25,\"top\":"
                    "[{\"id\":5,\"piece\":\"x\",\"logit\":9,\"logprob\":-0.25}]}],\"text\":\"\xef\xbf\xbd\",\"reason\":\"stop\","
                    "\"stop\":\"\\n\\n\",\"prompt_tokens\":12,\"cached_tokens\":8,\"generated_tokens\":2," TIMINGS "," MODEL "}");
    buffer_clear(&b);
    buffer_clear(&entries);
}
END

TEST(reasons_have_the_contract_names)
{
    static const char *const names[] = {"eos", "stop", "length", "context", "deadline", "cancelled", "shutdown", "error"};
    static const char *const openai[] = {"stop", "stop", "length", "length", "deadline", "cancelled", "shutdown", "error"};
    ck_assert_int_eq(REASON_COUNT, 8);
    for (int i = 0; i < REASON_COUNT; i++) {
        ck_assert_str_eq(reason_name((enum reason)i), names[i]);
        ck_assert_str_eq(openai_finish_reason((enum reason)i), openai[i]);
    }
}
END

TEST(small_replies_are_written)
{
    struct reply_model_card card = {.model = {"na\"me", "00ff", "n/1"}, .architecture = "llama", .tokenizer = "gpt2",
                                    .engine_version = "0.1.0", .tier = "avx2", .threads_reason = "r", .parameters = 260000,
                                    .file_bytes = 5000000000, .context = 512, .context_trained = 1024, .n_vocab = 512, .n_layers = 5,
                                    .n_embd = 64, .n_heads = 8, .n_heads_kv = 4, .threads = 2, .batch = 256, .bos = 1, .eos = 2,
                                    .eot = -1, .unknown = 0, .padding = -1, .add_bos = true, .kv_bytes = 7, .arena_bytes = 8,
                                    .vocabulary_bytes = 9, .n_types = 1, .types = {{"Q8_0", 40, 4999}}};
    struct buffer b = {0};
    reply_status(&b, "ok");
    equals_json(&b, "{\"status\":\"ok\"}");
    reply_cancelled(&b, span_of("job-7"));
    equals_json(&b, "{\"id\":\"job-7\",\"status\":\"cancelling\"}");
    reply_model_card(&b, &card);
    equals_json(&b, "{\"name\":\"na\\\"me\",\"architecture\":\"llama\",\"parameters\":260000,\"file_bytes\":5000000000,\"context\":512,"
                    "\"context_trained\":1024,\"vocab\":512,\"tokenizer\":\"gpt2\",\"vocabulary_only\":false,\"layers\":5,"
                    "\"embedding\":64,\"heads\":8,\"heads_kv\":4,\"tensor_types\":[{\"type\":\"Q8_0\",\"tensors\":40,\"bytes\":4999}],"
                    "\"special_tokens\":{\"bos\":1,\"eos\":2,\"eot\":null,\"unknown\":0,\"padding\":null,\"add_bos\":true,"
                    "\"add_eos\":false},\"memory\":{\"file_bytes\":5000000000,\"kv_bytes\":7,\"arena_bytes\":8,"
                    "\"vocabulary_bytes\":9},\"fingerprint\":\"00ff\",\"version\":\"0.1.0\",\"numerics\":\"n/1\",\"tier\":\"avx2\","
                    "\"threads\":2,\"threads_reason\":\"r\",\"batch\":256}");
    buffer_clear(&b);
}
END

/* ---- OpenAI ---- */

TEST(completions_are_written_whole_and_as_events)
{
    struct openai_reply reply = {"req-1", "m", 1700000000};
    struct openai_logprobs l = {0};
    static const struct reply_candidate top[] = {{5, 1, -0.5f, {"b", 1}}, {6, 1, -1, {"b", 1}}, {7, 1, -2, {"\xe6", 1}}};
    struct buffer b = {0};
    openai_logprobs_add_hidden(&l, span_of("<s>"));
    openai_logprobs_add(&l, span_of("\xc3\xa9"), false, 0, NULL, 0);
    openai_logprobs_add(&l, span_of("\xe6\xad"), true, -1.5f, top, 3);
    openai_logprobs_add(&l, span_of("\xaa" "b"), true, -0.25f, top, 0);
    openai_logprobs_add(&l, span_of("</s>"), true, -0.5f, top, 1);
    openai_reply_begin(&b, &reply);
    openai_reply_choice(&b, 0, span_of("\xc3\xa9\xe6\xad\xaa" "b"), &l, "stop");
    openai_reply_choice(&b, 1, span_of("x"), NULL, "length");
    openai_reply_end(&b, 10, 3);
    equals_json(&b, "{\"id\":\"cmpl-req-1\",\"object\":\"text_completion\",\"created\":1700000000,\"model\":\"m\",\"choices\":["
                    "{\"text\":\"\xc3\xa9\xe6\xad\xaa" "b\",\"index\":0,\"logprobs\":{\"tokens\":[\"<s>\",\"\xc3\xa9\",\"bytes:\\\\xe6\\\\xad\","
                    "\"bytes:\\\\xaa\\\\x62\",\"</s>\"],\"token_logprobs\":[null,null,-1.5,-0.25,-0.5],\"top_logprobs\":[null,null,"
                    "{\"b\":-0.5,\"bytes:\\\\xe6\":-2},{},{\"b\":-0.5}],\"text_offset\":[0,0,1,1,3]},\"finish_reason\":\"stop\"},"
                    "{\"text\":\"x\",\"index\":1,\"logprobs\":null,\"finish_reason\":\"length\"}],\"usage\":{\"prompt_tokens\":10,"
                    "\"completion_tokens\":3,\"total_tokens\":13}}");
    openai_logprobs_reset(&l);
    openai_logprobs_add(&l, span_of("z"), true, -3, NULL, 0);
    openai_event_choice(&b, &reply, 2, span_of("z"), &l, NULL);
    equals(&b, "data: {\"id\":\"cmpl-req-1\",\"object\":\"text_completion\",\"created\":1700000000,\"model\":\"m\",\"choices\":["
               "{\"text\":\"z\",\"index\":2,\"logprobs\":{\"tokens\":[\"z\"],\"token_logprobs\":[-3],\"top_logprobs\":[{}],"
               "\"text_offset\":[7]},\"finish_reason\":null}]}\n\n");
    openai_event_usage(&b, &reply, 10, 3);
    equals(&b, "data: {\"id\":\"cmpl-req-1\",\"object\":\"text_completion\",\"created\":1700000000,\"model\":\"m\",\"choices\":[],"
               "\"usage\":{\"prompt_tokens\":10,\"completion_tokens\":3,\"total_tokens\":13}}\n\n");
    openai_event_done(&b);
    equals(&b, "data: [DONE]\n\n");
    openai_models(&b, "m", 5);
    equals_json(&b, "{\"object\":\"list\",\"data\":[{\"id\":\"m\",\"object\":\"model\",\"created\":5,\"owned_by\":\"ggufd\"}]}");
    openai_logprobs_clear(&l);
    buffer_clear(&b);
}
END

/* ---- problems ---- */

TEST(problems_follow_the_contract_table)
{
    static const struct {
        const char *name;
        unsigned status;
    } rows[] = {{"invalid-request", 400}, {"invalid-json", 400}, {"context-overflow", 400}, {"unauthorized", 401},
                {"forbidden-origin", 403}, {"not-found", 404}, {"method-not-allowed", 405}, {"vocabulary-only", 409},
                {"duplicate-id", 409}, {"payload-too-large", 413}, {"unsupported-media-type", 415}, {"not-implemented", 501},
                {"queue-full", 503}, {"queue-timeout", 503}, {"body-memory", 503}, {"loading", 503}, {"draining", 503}, {"model-changed", 503},
                {"stalled", 503}, {"non-finite-logits", 500}, {"internal", 500}};
    ck_assert_uint_eq(sizeof rows / sizeof rows[0], PROBLEM_COUNT - 1);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        int found = 0;
        for (int k = PROBLEM_NONE + 1; k < PROBLEM_COUNT; k++)
            if (strcmp(problem_name((enum problem_kind)k), rows[i].name) == 0) {
                ck_assert_uint_eq(problem_status((enum problem_kind)k), rows[i].status);
                ck_assert(*problem_title((enum problem_kind)k));
                found++;
            }
        ck_assert_int_eq(found, 1);
    }
}
END

TEST(problems_are_written_with_their_members)
{
    struct problem p;
    struct error err;
    struct buffer b = {0};
    ck_assert_int_eq(problem_context_overflow(&p, 5000, false, 4096, false), STATUS_OVERFLOW);
    problem_write(&b, &p, false);
    equals_json(&b, "{\"type\":\"urn:ggufd:problem:context-overflow\",\"title\":\"The prompt does not fit the context\",\"status\":400,"
                    "\"detail\":\"the prompt has 5000 tokens; the context holds 4096\",\"prompt_tokens\":5000,\"context\":4096}");
    problem_context_overflow(&p, 4097, true, 4096, true);
    ck_assert_int_eq(problem_member_value(&p, "prompt_tokens_at_least", -1), 4097);
    ck_assert_int_eq(problem_member_value(&p, "prompt_tokens", -1), -1);
    ck_assert_ptr_nonnull(strstr(p.detail, "at least 4097 tokens"));
    problem_busy(&p, PROBLEM_QUEUE_FULL, 3, "16 jobs wait");
    problem_write(&b, &p, true);
    equals_json(&b, "{\"type\":\"urn:ggufd:problem:queue-full\",\"title\":\"The queue is full\",\"status\":503,\"detail\":\"16 jobs wait\","
                    "\"retry_after_s\":3,\"error\":{\"message\":\"16 jobs wait\",\"type\":\"server_error\",\"param\":null,"
                    "\"code\":\"queue-full\"}}");
    openai_event_problem(&b, &p);
    ck_assert(b.size > 8 && memcmp(b.data, "data: {", 7) == 0 && memcmp(b.data + b.size - 3, "}\n\n", 3) == 0);
    static const struct {
        enum status status;
        enum problem_kind kind;
    } rows[] = {{STATUS_NON_FINITE, PROBLEM_NON_FINITE_LOGITS}, {STATUS_MODEL_CHANGED, PROBLEM_MODEL_CHANGED},
                {STATUS_VOCABULARY_ONLY, PROBLEM_VOCABULARY_ONLY}, {STATUS_OVERFLOW, PROBLEM_CONTEXT_OVERFLOW},
                {STATUS_IO, PROBLEM_INTERNAL}, {STATUS_NO_MEMORY, PROBLEM_INTERNAL}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        error_set(&err, rows[i].status, "x");
        problem_from_error(&p, &err);
        ck_assert_int_eq(p.kind, rows[i].kind);
    }
    error_set(&err, STATUS_MODEL_CHANGED, "x");
    problem_from_error(&p, &err);
    ck_assert_int_eq(problem_member_value(&p, "retry_after_s", 0), 5);
    buffer_clear(&b);
}
END

SUITE(replies, T(text_waits_only_for_characters_and_stops), T(nothing_comes_behind_a_stop_or_the_end), T(a_stop_may_hold_nul),
      T(random_pieces_and_stops_agree_with_the_definition), T(the_worst_stops_cost_linear_time),
      T(tokens_are_written_with_and_without_pieces), T(ill_formed_text_comes_with_its_bytes), T(base64_pads_every_length),
      T(logits_are_written_row_by_row), T(a_stream_is_one_object_a_line), T(a_reply_without_stream_is_one_object),
      T(reasons_have_the_contract_names), T(small_replies_are_written), T(completions_are_written_whole_and_as_events),
      T(problems_follow_the_contract_table), T(problems_are_written_with_their_members))
