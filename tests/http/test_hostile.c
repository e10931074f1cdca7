/* What a model or a client may do to break a reply: values that are not finite, in every kind of tensor, and requests at
 * each limit and one beyond it. */
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "engine/base/f16.h"
#include "proto/json.h"
#include "tests/support/daemon_process.h"
#include "tests/support/gguf_builder.h"
#include "tests/support/suite.h"

/* ---- values that are not finite ---- */

enum { MATRIX_F32 = 0, MATRIX_Q8_0 = 8 };

/* Puts a value into the first block or element of a tensor's row that token 5 reaches. */
static void spoil(struct gguf_builder *b, const char *tensor, uint32_t type, float value)
{
    size_t bytes;
    char *data = gguf_builder_tensor_data(b, tensor, &bytes);
    ck_assert_ptr_nonnull(data);
    bool matrix = strstr(tensor, "norm") == NULL;
    size_t row = matrix && strstr(tensor, "token_embd") ? 5 : 0;
    if (matrix && type == MATRIX_Q8_0) {
        uint16_t scale = f16_from_float(value);
        memcpy(data + row * (64 / 32 * 34), &scale, sizeof scale);
    } else {
        memcpy(data + row * 64 * sizeof value, &value, sizeof value);
    }
}

static void check_reply(const struct daemon *d, const char *tensor, const char *path, const char *body, bool always)
{
    struct http_reply r;
    struct json_value root;
    http_call(d->address, "POST", path, NULL, body, &r);
    bool refused = r.status == 500 && http_has(&r, "non-finite-logits");
    bool cut = r.status == 200 && http_has(&r, "non-finite-logits"); /* a stream that had begun */
    if (!refused && !cut && (always || r.status != 200))
        ck_abort_msg("%s: %s %s: status %d, %s", tensor, path, body, r.status, r.body.data ? r.body.data : "");
    /* One value, or one a line: each is JSON, which has no word for what is not finite. */
    bool lines = r.status == 200 && strstr(body, "\"stream\":true") != NULL;
    for (char *at = r.body.data; at && *at;) {
        size_t n = lines ? strcspn(at, "\n") : r.body.size;
        if (n > 0 && json_check((struct span){at, n}, &root, NULL) != STATUS_OK)
            ck_abort_msg("%s: %s: no JSON: %s", tensor, path, at);
        at += n;
        at += lines && *at == '\n';
    }
    http_reply_clear(&r);
}

static void check_spoiled(const char *tensor, uint32_t type, float value, bool always)
{
    char path[200];
    struct daemon d;
    struct gguf_builder *b = gguf_builder_tiny(&(struct tiny_model){.type = type, .context = 64, .seed = 3});
    spoil(b, tensor, type, value);
    snprintf(path, sizeof path, "%s/spoiled.gguf", suite_tmp());
    gguf_builder_write(b, path);
    gguf_builder_free(b);
    daemon_start(&d, path, NULL);
    check_reply(&d, tensor, "/logits", "{\"prompt\":[1,5,9]}", always);
    check_reply(&d, tensor, "/logits", "{\"prompt\":[1,5,9],\"positions\":\"all\",\"top\":100}", always);
    check_reply(&d, tensor, "/generate", "{\"prompt\":[1,5,9],\"max_tokens\":3,\"stream\":false,\"logprobs\":100}", always);
    check_reply(&d, tensor, "/generate", "{\"prompt\":[1,5,9],\"max_tokens\":3,\"stream\":true}", always);
    check_reply(&d, tensor, "/v1/completions", "{\"prompt\":[1,5,9],\"max_tokens\":3,\"temperature\":0}", always);
    daemon_stop(&d);
}

TEST(values_that_are_not_finite_never_reach_a_reply)
{
    /* always: wherever the value goes, some logit takes it up. Elsewhere an infinite score may lose the softmax. */
    static const struct {
        const char *tensor;
        bool always;
    } tensors[] = {{"token_embd.weight", true},          {"output_norm.weight", true},  {"output.weight", true},
                   {"blk.0.attn_norm.weight", true},     {"blk.1.ffn_norm.weight", true}, {"blk.0.attn_v.weight", true},
                   {"blk.0.attn_q.weight", false},       {"blk.1.attn_k.weight", false}, {"blk.1.ffn_gate.weight", false},
                   {"blk.0.ffn_down.weight", true},      {"blk.1.attn_output.weight", true}};
    static const float values[] = {NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++)
        for (size_t v = 0; v < (suite_sanitized() ? 1 : 3); v++)
            check_spoiled(tensors[i].tensor, i % 2 ? MATRIX_F32 : MATRIX_Q8_0, values[(v + i) % 3], tensors[i].always);
}
END

/* ---- a model that wants to be seen ---- */

/* Ten megabytes of terminal escapes in each place of the metadata that is shown: name, key, tokens. */
TEST(long_and_wild_texts_of_a_model_stay_short_and_tame)
{
    enum { LONG = 10 << 20, LINE_MAX_BYTES = 4096 };
    struct daemon d;
    struct http_reply r;
    struct json_value root;
    struct gguf_builder *b = gguf_builder_tiny(&(struct tiny_model){.type = MATRIX_Q8_0, .context = 64, .seed = 3});
    char *text = malloc(LONG), path[200];
    ck_assert_ptr_nonnull(text);
    for (size_t i = 0; i < LONG; i++)
        text[i] = "\033]0;\n\x9b"[i % 6];
    gguf_builder_bytes(b, "general.name", (struct span){text, LONG});
    gguf_builder_bytes(b, "general.\033[2J\nred", (struct span){text, LONG});
    size_t n_tokens;
    struct span *tokens = gguf_builder_get_strings(b, "tokenizer.ggml.tokens", &n_tokens);
    tokens[300] = (struct span){text, LONG};
    tokens[301] = (struct span){text, 100};
    gguf_builder_strings(b, "tokenizer.ggml.tokens", tokens, n_tokens);
    free(tokens);
    snprintf(path, sizeof path, "%s/wild.gguf", suite_tmp());
    gguf_builder_write(b, path);
    gguf_builder_free(b);
    free(text);
    daemon_start(&d, path, (const char *[]){"--log-level", "debug", NULL});
    static const char *const paths[] = {"/model", "/v1/models", "/metrics"};
    for (size_t i = 0; i < 3; i++) {
        http_call(d.address, "GET", paths[i], NULL, NULL, &r);
        ck_assert_int_eq(r.status, 200);
        ck_assert_uint_lt(r.body.size, 64 * 1024);
        for (size_t k = 0; k < r.body.size; k++)
            if ((unsigned char)r.body.data[k] < ' ' && r.body.data[k] != '\n')
                ck_abort_msg("%s: byte 0x%02x", paths[i], (unsigned char)r.body.data[k]);
        if (i < 2)
            ck_assert_int_eq(json_check(buffer_span(&r.body), &root, NULL), STATUS_OK);
        http_reply_clear(&r);
    }
    http_call(d.address, "POST", "/detokenize", NULL, "{\"tokens\":[301,300]}", &r); /* the text itself is data */
    ck_assert_int_eq(r.status, 200);
    ck_assert_int_eq(json_check(buffer_span(&r.body), &root, NULL), STATUS_OK);
    ck_assert_uint_gt(r.body.size, LONG);
    http_reply_clear(&r);
    daemon_stop(&d);
    char *log = suite_read(d.log, NULL);
    ck_assert_ptr_nonnull(log);
    for (const char *line = log; *line; line += strcspn(line, "\n") + 1) {
        if (strcspn(line, "\n") > LINE_MAX_BYTES)
            ck_abort_msg("a line of %zu bytes: %.100s", strcspn(line, "\n"), line);
        for (const char *p = line; *p && *p != '\n'; p++)
            if ((unsigned char)*p < ' ' || (unsigned char)*p == 0x7f || (unsigned char)*p == 0x9b)
                ck_abort_msg("byte 0x%02x in the log: %.200s", (unsigned char)*p, line);
    }
    free(log);
}
END

/* ---- limits ---- */

/* before, n times item with "," between where it is a list, after. */
struct limit {
    const char *what, *path, *before, *item, *between, *after;
    size_t most;         /* accepted */
    int status;          /* of one more */
    const char *refusal; /* what its reply says */
};

static const struct limit limits[] = {
    {"nesting", "/tokenize", "{\"content\":", "[", "", "", 31, 400, "nesting deeper than 32"},
    {"stop strings", "/generate", "{\"prompt\":[1],\"max_tokens\":0,\"stop\":[", "\"a\"", ",", "]}", 16, 400, "16"},
    {"bytes of a stop", "/generate", "{\"prompt\":[1],\"max_tokens\":0,\"stop\":\"", "a", "", "\"}", 256, 400, "256"},
    {"bytes of a stop, escaped", "/generate", "{\"prompt\":[1],\"max_tokens\":0,\"stop\":\"", "\\u00e9", "", "\"}", 128,
     400, "256"},
    {"bytes of an id", "/generate", "{\"prompt\":[1],\"max_tokens\":0,\"id\":\"", "a", "", "\"}", 64, 400, "{1,64}"},
    {"prompts", "/v1/completions", "{\"max_tokens\":0,\"prompt\":[", "\"a\"", ",", "]}", 64, 400, "64"},
    {"tokens of a prompt, generating", "/generate", "{\"max_tokens\":1,\"prompt\":[", "5", ",", "]}", 511, 400,
     "context-overflow"},
    {"tokens of a prompt", "/logits", "{\"top\":0,\"prompt\":[", "5", ",", "]}", 512, 400, "context-overflow"},
    {"text of a prompt", "/logits", "{\"top\":0,\"add_special\":false,\"prompt\":\"", "!", "", "\"}", 511, 400,
     "context-overflow"},
};

static void make_body(const struct limit *l, size_t n, struct buffer *out)
{
    buffer_text(out, l->before);
    for (size_t i = 0; i < n; i++)
        buffer_printf(out, "%s%s", i ? l->between : "", l->item);
    buffer_printf(out, "%s", l->after);
    buffer_byte(out, 0);
}

static void call_limit(const struct daemon *d, const struct limit *l, size_t n, struct http_reply *r)
{
    struct buffer body = {0};
    make_body(l, n, &body);
    http_call(d->address, "POST", l->path, NULL, body.data, r);
    buffer_clear(&body);
}

TEST(each_list_and_text_has_its_limit)
{
    struct daemon d;
    struct http_reply r;
    daemon_start(&d, model_tiny(), NULL);
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        const struct limit *l = &limits[i];
        call_limit(&d, l, l->most, &r);
        if (l->after[0] ? r.status != 200 : http_has(&r, l->refusal))
            ck_abort_msg("%s: %zu refused: %d %s", l->what, l->most, r.status, r.body.data ? r.body.data : "");
        http_reply_clear(&r);
        call_limit(&d, l, l->most + 1, &r);
        if (r.status != l->status || !http_has(&r, l->refusal))
            ck_abort_msg("%s: %zu: %d %s", l->what, l->most + 1, r.status, r.body.data ? r.body.data : "");
        http_reply_clear(&r);
    }
    daemon_stop(&d);
}
END

/* A body with one number in it: the largest that is accepted, and the next. */
static const struct {
    const char *path, *format;
    long long most;
} numbers[] = {
    {"/logits", "{\"prompt\":[1],\"top\":%lld}", 100},
    {"/generate", "{\"prompt\":[1],\"max_tokens\":1,\"logprobs\":%lld}", 100},
    {"/generate", "{\"prompt\":[1],\"max_tokens\":1,\"deadline_ms\":%lld}", 86400000},
    {"/generate", "{\"prompt\":[1],\"max_tokens\":%lld,\"stop_tokens\":[0,1,2,3,4,5]}", 512},
    {"/generate", "{\"prompt\":[1],\"max_tokens\":1,\"stop_tokens\":[%lld]}", -1},
    {"/generate", "{\"prompt\":[%lld],\"max_tokens\":1}", -1},
    {"/logits", "{\"prompt\":[%lld]}", -1},
    {"/detokenize", "{\"tokens\":[%lld]}", -1},
    {"/logits", "{\"prompt\":[1,2,3],\"positions\":[%lld]}", 2},
    {"/v1/completions", "{\"prompt\":[1],\"max_tokens\":%lld}", 512},
};

static int status_of_number(const struct daemon *d, size_t i, long long value)
{
    struct http_reply r;
    char body[200];
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(body, sizeof body, numbers[i].format, value);
#pragma GCC diagnostic pop
    http_call(d->address, "POST", numbers[i].path, NULL, body, &r);
    int status = r.status;
    http_reply_clear(&r);
    return status;
}

static long long vocabulary_of(const struct daemon *d)
{
    struct http_reply r;
    http_call(d->address, "GET", "/model", NULL, NULL, &r);
    const char *at = r.status == 200 ? strstr(r.body.data, "vocab") : NULL;
    at = at ? strchr(at, ':') : NULL;
    ck_assert_ptr_nonnull(at);
    long long n = strtoll(at + 1, NULL, 10);
    http_reply_clear(&r);
    return n;
}

TEST(each_number_has_its_range)
{
    struct daemon d;
    daemon_start(&d, model_tiny(), NULL);
    long long last = vocabulary_of(&d) - 1;
    ck_assert_int_gt(last, 200);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        long long most = numbers[i].most < 0 ? last : numbers[i].most;
        const long long beyond[] = {most + 1, -1, 4294967296, 9223372036854775807};
        if (status_of_number(&d, i, most) != 200)
            ck_abort_msg("%s: %lld: %d", numbers[i].format, most, status_of_number(&d, i, most));
        for (size_t k = 0; k < sizeof beyond / sizeof beyond[0]; k++)
            if (status_of_number(&d, i, beyond[k]) != 400)
                ck_abort_msg("%s: %lld: %d", numbers[i].format, beyond[k], status_of_number(&d, i, beyond[k]));
    }
    daemon_stop(&d);
}
END

/* Bodies that cost their reader more than they cost their sender, at the size limit of 1 MiB: answered, and the memory
 * is given back or small. */
TEST(bodies_built_to_be_costly_are_not)
{
    static const struct limit bombs[] = {
        {"open brackets", "/tokenize", "", "[", "", "", 1040000, 0, ""},
        {"open braces", "/tokenize", "", "{\"a\":", "", "", 200000, 0, ""},
        {"keys", "/tokenize", "{\"content\":\"a\"", ",\"k\":1", "", "}", 150000, 0, ""},
        {"prompts", "/v1/completions", "{\"prompt\":[", "\"\"", ",", "]}", 300000, 0, ""},
        {"parts", "/generate", "{\"prompt\":[", "\"\",5", ",", "]}", 170000, 0, ""},
        {"stop tokens", "/generate", "{\"prompt\":[1],\"max_tokens\":1,\"stop_tokens\":[", "7", ",", "]}", 500000, 0, ""},
        {"one long word", "/tokenize", "{\"content\":\"", "hellohello", "", "\"}", 100000, 0, ""},
        {"escapes", "/tokenize", "{\"content\":\"", "\\u0001", "", "\"}", 170000, 0, ""},
        {"digits", "/logits", "{\"prompt\":[1],\"top\":", "1", "", "}", 1000000, 0, ""},
    };
    struct daemon d;
    daemon_start(&d, model_tiny(), NULL);
    for (size_t i = 0; i < sizeof bombs / sizeof bombs[0]; i++) {
        struct http_reply r;
        double cpu = daemon_cpu_ms(&d);
        call_limit(&d, &bombs[i], bombs[i].most, &r);
        if (r.status != 200 && r.status != 400)
            ck_abort_msg("%s: %d", bombs[i].what, r.status);
        http_reply_clear(&r);
        cpu = daemon_cpu_ms(&d) - cpu;
        if (!suite_sanitized() && !in_time(cpu, 3000))
            ck_abort_msg("%s: %.0f ms", bombs[i].what, cpu);
    }
    if (!suite_sanitized())
        ck_assert_int_lt(daemon_rss_anon_kb(&d), 160 * 1024);
    printf("note: %ld KiB anonymous after them\n", daemon_rss_anon_kb(&d));
    daemon_stop(&d);
}
END

TEST(an_empty_target_is_answered_like_any_other)
{
    static const char request[] = "GET \0x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    struct daemon d;
    struct http h;
    struct http_reply r = {0};
    daemon_start(&d, model_tiny(), NULL);
    ck_assert(http_open(&h, d.address) && http_send(&h, request, sizeof request - 1));
    ck_assert(!http_read_reply(&h, &r, PATIENCE_MS) || (r.status >= 400 && r.status < 500));
    http_reply_clear(&r);
    http_close(&h);
    http_call(d.address, "GET", "/health", NULL, NULL, &r);
    ck_assert_int_eq(r.status, 200);
    http_reply_clear(&r);
    daemon_stop(&d);
}
END

/* Whatever ends soon is not ended by a timeout. */
static void start_patient(struct daemon *d, const char *address)
{
    daemon_start(d, model_tiny(), (const char *[]){"--listen", address, "--header-timeout", "3600", "--body-timeout", "3600",
                                                   "--keepalive-timeout", "3600", "--write-timeout", "3600", NULL});
}

/* The end of the client's sending may come while the daemon works on a large body, with half of a next request still to
 * be read: the connection ends then, not at its timeout. */
TEST(a_half_closed_connection_ends_wherever_it_stands)
{
    struct daemon d;
    struct buffer head = {0}, body = {0};
    char address[200];
    snprintf(address, sizeof address, "unix:%s/half", suite_tmp());
    start_patient(&d, address);
    make_body(&(struct limit){.before = "{\"content\":\"", .item = "ab ", .between = "", .after = "\"}"}, 1600, &body);
    buffer_printf(&head, "POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Length: %zu\r\n\r\n%s", body.size - 1, body.data);
    buffer_text(&head, "POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Length: 20000\r\n\r\n");
    for (size_t i = 0; i < 8000; i++)
        buffer_byte(&head, ' ');
    for (size_t i = 0; i < 300; i++) {
        struct http h;
        double begin = now_ms();
        ck_assert(http_open(&h, address));
        http_send(&h, head.data, head.size - i * 25);
        for (double until = now_ms() + (double)(i % 50) * 0.02; now_ms() < until;)
            continue; /* so that the end comes in every state */
        shutdown(h.fd, SHUT_WR);
        if (!http_is_closed(&h, PATIENCE_MS))
            ck_abort_msg("round %zu: still open after %.0f ms", i, now_ms() - begin);
        http_close(&h);
    }
    daemon_stop(&d);
    buffer_clear(&head);
    buffer_clear(&body);
}
END

static void check_healthy(const char *address)
{
    struct http_reply r;
    http_call(address, "GET", "/health", NULL, NULL, &r);
    ck_assert_int_eq(r.status, 200);
    http_reply_clear(&r);
}

static size_t unread(const struct http *h)
{
    int n = 0;
    ck_assert_int_eq(ioctl(h->fd, FIONREAD, &n), 0);
    return (size_t)n;
}

/* The end of the client's sending, behind half of a next request, is seen while the daemon is held up in sending a
 * reply. Only after that does it read the half, and such a read hides the end from libmicrohttpd, whose epoll tells of
 * each edge once. Every byte that the client takes would be another edge: it takes just enough for the reply to leave
 * the daemon, bit by bit, with a call of /health behind each, which is served after what came before it. */
TEST(an_end_behind_half_a_request_is_not_lost)
{
    struct daemon d;
    struct http h;
    struct http_reply r = {0};
    struct buffer body = {0};
    char address[200], bit[4096];
    snprintf(address, sizeof address, "unix:%s/end", suite_tmp());
    start_patient(&d, address);
    make_body(&(struct limit){.before = "{\"content\":\"", .item = "ab ", .between = "", .after = "\"}"}, 320000, &body);
    ck_assert(http_open(&h, address));
    ck_assert(http_request(&h, "POST", "/tokenize", NULL, body.data));
    ck_assert(http_read_head(&h, &r, PATIENCE_MS)); /* the reply has begun */
    size_t size = (size_t)atoll(http_header(&r, "Content-Length")), received = h.in.size;
    http_reply_clear(&r);
    ck_assert(http_text(&h, "GET /health HT"));
    shutdown(h.fd, SHUT_WR);
    check_healthy(address);
    ck_assert_uint_lt(received + unread(&h), size); /* held up indeed */
    while (received + unread(&h) < size) {
        ssize_t n = recv(h.fd, bit, sizeof bit, 0);
        ck_assert_int_gt(n, 0);
        received += (size_t)n;
        check_healthy(address);
    }
    struct pollfd closed = {.fd = h.fd, .events = 0}; /* POLLHUP comes unasked, before what is unread was read */
    ck_assert_msg(poll(&closed, 1, PATIENCE_MS) == 1, "the connection stays open");
    http_close(&h);
    daemon_stop(&d);
    buffer_clear(&body);
}
END

SUITE(hostile, T(an_empty_target_is_answered_like_any_other), T(values_that_are_not_finite_never_reach_a_reply),
      T(long_and_wild_texts_of_a_model_stay_short_and_tame), T(each_list_and_text_has_its_limit),
      T(each_number_has_its_range), T(bodies_built_to_be_costly_are_not),
      T(a_half_closed_connection_ends_wherever_it_stands), T(an_end_behind_half_a_request_is_not_lost))
