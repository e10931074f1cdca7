/* Jobs: streams, cancel in each state, the bounded line, deadlines, prefix reuse. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "tests/support/daemon_process.h"
#include "tests/support/gguf_builder.h"
#include "tests/support/suite.h"

static struct daemon d;

/* A model that needs some milliseconds a token. */
static const char *const slow[] = {"--tier", "scalar", "--threads", "1", "--batch", "32", NULL};

static const char *start(const char *model, const char *const *options)
{
    daemon_start(&d, model, options);
    return d.address;
}

/* A string member's value as it stands in the JSON, escapes and all. */
static void member(const char *json, const char *key, struct buffer *out)
{
    char name[64];
    snprintf(name, sizeof name, "\"%s\":\"", key);
    const char *at = strstr(json, name);
    for (at = at ? at + strlen(name) : ""; *at && *at != '"'; at++) {
        if (*at == '\\')
            buffer_byte(out, *at++);
        buffer_byte(out, *at);
    }
}

static double number(const char *json, const char *key)
{
    char name[64];
    snprintf(name, sizeof name, "\"%s\":", key);
    const char *at = strstr(json, name);
    ck_assert_msg(at != NULL, "no %s in %s", key, json);
    return strtod(at + strlen(name), NULL);
}

/* A generation that runs long, begun on a connection of its own. */
static struct http begin(const char *body)
{
    struct http h;
    ck_assert(http_open(&h, d.address));
    ck_assert(http_request(&h, "POST", "/generate", NULL, body));
    return h;
}

static char *long_prompt_body(size_t n, const char *more)
{
    char *ids = prompt_of_ids(n), *body = NULL;
    ck_assert(asprintf(&body, "{\"prompt\":%s%s}", ids, more) > 0);
    free(ids);
    return body;
}

TEST(a_stream_says_the_same_as_one_reply)
{
    start(model_tiny(), NULL);
    static const char *const requests[] = {
        "\"prompt\":[1,20,21],\"max_tokens\":40,\"ignore_eos\":true",
        "\"prompt\":\"abc\",\"max_tokens\":100,\"ignore_eos\":true,\"logprobs\":2",
        "\"prompt\":[1,7],\"max_tokens\":60,\"ignore_eos\":true,\"stop\":[\"e\",\"th\",\"in\"]",
        "\"prompt\":[1,7],\"max_tokens\":0",
    };
    for (size_t i = 0; i < sizeof requests / sizeof requests[0]; i++) {
        char body[400];
        struct buffer whole = {0}, text = {0}, line = {0};
        struct http_reply r;
        snprintf(body, sizeof body, "{%s,\"stream\":false}", requests[i]);
        r = daemon_post(&d, "/generate", body);
        ck_assert_int_eq(r.status, 200);
        member(r.body.data, "text", &whole);
        double n = number(r.body.data, "generated_tokens");
        http_reply_clear(&r);

        snprintf(body, sizeof body, "{%s}", requests[i]);
        struct http h = begin(body);
        ck_assert(http_read_head(&h, &r, PATIENCE_MS));
        ck_assert_str_eq(http_header(&r, "Content-Type"), "application/x-ndjson");
        ck_assert_str_eq(http_header(&r, "X-Accel-Buffering"), "no");
        ck_assert_str_eq(http_header(&r, "Cache-Control"), "no-store");
        int lines = 0;
        bool done = false;
        while (http_read_line(&h, &r, &line, PATIENCE_MS)) {
            ck_assert(!done);
            member(line.data, "text", &text);
            done = strstr(line.data, "\"done\":true") != NULL;
            lines += !done;
            if (done)
                ck_assert(number(line.data, "generated_tokens") >= n && number(line.data, "generated_tokens") <= n);
        }
        ck_assert(done && h.body_done);
        ck_assert_int_eq(lines, (int)n);
        ck_assert_uint_eq(whole.size, text.size);
        ck_assert_mem_eq(whole.data ? whole.data : "", text.data ? text.data : "", whole.size);
        buffer_clear(&whole);
        buffer_clear(&text);
        buffer_clear(&line);
        http_reply_clear(&r);
        http_close(&h);
    }
    daemon_stop(&d);
}
END

/* A generation of many seconds; its first line is here while the daemon still works on it. */
TEST(the_first_line_comes_before_the_last_exists)
{
    start(model_slow(), slow);
    struct http h = begin("{\"prompt\":[1,5,6],\"max_tokens\":4000,\"ignore_eos\":true}");
    struct http_reply r = {0};
    struct buffer line = {0};
    double before = now_ms();
    ck_assert(http_read_head(&h, &r, PATIENCE_MS) && http_read_line(&h, &r, &line, PATIENCE_MS));
    printf("note: first line after %.1f ms\n", now_ms() - before);
    ck_assert(daemon_metric(&d, "ggufd_jobs_running") > 0);
    ck_assert_ptr_null(strstr(line.data, "\"done\":true"));
    buffer_clear(&line);
    http_reply_clear(&r);
    http_close(&h);
    daemon_stop(&d);
}
END

/* Closes a connection and waits for a gauge to be 0; returns ms. */
static double close_and_wait(struct http *h, const char *gauge, const char *state)
{
    double since = now_ms();
    http_close(h);
    ck_assert(daemon_metric_becomes(&d, gauge, 0, PATIENCE_MS));
    double took = now_ms() - since;
    printf("note: cancelled while %s: %.1f ms\n", state, took);
    return took;
}

static struct http begin_streaming(void)
{
    struct http h = begin("{\"prompt\":[1,9],\"max_tokens\":4000,\"ignore_eos\":true}");
    struct http_reply r = {0};
    struct buffer line = {0};
    ck_assert(http_read_head(&h, &r, PATIENCE_MS) && http_read_line(&h, &r, &line, PATIENCE_MS));
    buffer_clear(&line);
    http_reply_clear(&r);
    return h;
}

/* Prefill of 3,000 tokens, and decode of 4,000, take many seconds: what is idle so soon was cancelled. */
TEST(a_closed_connection_cancels_within_250_ms_in_each_state)
{
    static const char n_cancelled[] = "ggufd_jobs_total{route=\"/generate\",reason=\"cancelled\"}";
    start(model_slow(), slow);
    char *body = long_prompt_body(3000, ",\"max_tokens\":5,\"cache_prompt\":false");
    bool quick[3] = {false, false, false};
    for (int i = 0; i < ATTEMPTS && !(quick[0] && quick[1]); i++) {
        double before = fmax(0, daemon_metric(&d, n_cancelled));
        struct http prefilling = begin(body);
        ck_assert(daemon_metric_becomes(&d, "ggufd_jobs_running", 1, PATIENCE_MS));
        struct http queued = begin("{\"prompt\":[1,9],\"max_tokens\":5}");
        ck_assert(daemon_metric_becomes(&d, "ggufd_jobs_queued", 1, PATIENCE_MS));
        quick[0] = in_time(close_and_wait(&queued, "ggufd_jobs_queued", "queued"), 250) || quick[0];
        quick[1] = in_time(close_and_wait(&prefilling, "ggufd_jobs_running", "prefilling"), 250) || quick[1];
        ck_assert(daemon_metric_becomes(&d, n_cancelled, before + 2, PATIENCE_MS));
    }
    for (int i = 0; i < ATTEMPTS && !quick[2]; i++) {
        double before = daemon_metric(&d, n_cancelled);
        struct http streaming = begin_streaming();
        quick[2] = in_time(close_and_wait(&streaming, "ggufd_jobs_running", "streaming"), 250);
        ck_assert(daemon_metric_becomes(&d, n_cancelled, before + 1, PATIENCE_MS));
    }
    ck_assert_msg(quick[0] && quick[1] && quick[2], "within 250 ms: queued %d, prefilling %d, streaming %d", quick[0],
                  quick[1], quick[2]);
    free(body);
    daemon_stop(&d);
}
END

/* Whatever a cancelled prefill left in the cache is right to reuse. */
TEST(a_cancelled_prefill_leaves_a_cache_that_gives_the_same_logits)
{
    enum { ASKED = 96 };
    start(model_slow(), slow);
    char *all = long_prompt_body(3000, ",\"max_tokens\":1"), *ids = prompt_of_ids(ASKED), *ask = NULL;
    daemon_expect(&d, "/generate", "{\"prompt\":[9,9,9],\"max_tokens\":0,\"stream\":false}",
                  200, NULL); /* no common prefix */
    struct http h = begin(all);
    while (daemon_metric(&d, "ggufd_context_used_tokens") < 64)
        sleep_ms(2);
    http_close(&h);
    ck_assert(daemon_metric_becomes(&d, "ggufd_jobs_running", 0, PATIENCE_MS));
    struct http_reply replies[2];
    for (int fresh = 0; fresh < 2; fresh++) {
        ck_assert(asprintf(&ask, "{\"prompt\":%s,\"top\":20%s}", ids, fresh ? ",\"cache_prompt\":false" : "") > 0);
        replies[fresh] = daemon_post(&d, "/logits", ask);
        ck_assert_int_eq(replies[fresh].status, 200);
        free(ask);
    }
    double cached = number(replies[0].body.data, "cached_tokens");
    printf("note: %.0f of %d tokens reused after a cancelled prefill\n", cached, ASKED);
    ck_assert(cached >= 64);
    ck_assert(number(replies[1].body.data, "cached_tokens") < 1);
    const char *got = strstr(replies[0].body.data, "\"positions\""), *want = strstr(replies[1].body.data, "\"positions\"");
    ck_assert_mem_eq(got, want, (size_t)(strstr(want, "\"cached_tokens\"") - want));
    http_reply_clear(&replies[0]);
    http_reply_clear(&replies[1]);
    free(all);
    free(ids);
    daemon_stop(&d);
}
END

TEST(a_repeated_prompt_is_reused_and_counted)
{
    start(model_tiny(), NULL);
    char *body = long_prompt_body(200, ",\"max_tokens\":2,\"stream\":false");
    struct http_reply first = daemon_post(&d, "/generate", body), second = daemon_post(&d, "/generate", body);
    ck_assert(number(first.body.data, "cached_tokens") < 1);
    ck_assert(number(second.body.data, "cached_tokens") >= 199);
    ck_assert(number(second.body.data, "cached_tokens") < 200);
    ck_assert(daemon_metric(&d, "ggufd_tokens_reused_total") >= 199);
    http_reply_clear(&first);
    http_reply_clear(&second);
    free(body);
    body = long_prompt_body(200, ",\"max_tokens\":2,\"stream\":false,\"cache_prompt\":false");
    first = daemon_post(&d, "/generate", body);
    ck_assert(number(first.body.data, "cached_tokens") < 1);
    http_reply_clear(&first);
    free(body);
    daemon_stop(&d);
}
END

TEST(the_line_is_bounded_and_the_refusal_says_when_to_come_back)
{
    static const char *const options[] = {"--tier", "scalar", "--threads", "1", "--queue", "2", NULL};
    start(model_slow(), options);
    daemon_expect(&d, "/generate", "{\"prompt\":[1,9],\"max_tokens\":20,\"ignore_eos\":true,\"stream\":false}",
                  200, NULL);
    struct http jobs[3];
    for (int i = 0; i < 3; i++) {
        jobs[i] = begin("{\"prompt\":[1,9],\"max_tokens\":2000,\"ignore_eos\":true}");
        ck_assert(daemon_metric_becomes(&d, "ggufd_jobs_running", 1, PATIENCE_MS));
        ck_assert(daemon_metric_becomes(&d, "ggufd_jobs_queued", i, PATIENCE_MS));
    }
    struct http_reply r = daemon_post(&d, "/generate", "{\"prompt\":[1,9],\"max_tokens\":1}");
    ck_assert_int_eq(r.status, 503);
    ck_assert(http_has(&r, "queue-full"));
    const char *retry = http_header(&r, "Retry-After");
    ck_assert_ptr_nonnull(retry);
    printf("note: Retry-After %s\n", retry);
    ck_assert_int_gt(atoi(retry), 1); /* 2,000 tokens take longer, and the speed is known */
    ck_assert(number(r.body.data, "retry_after_s") >= atoi(retry));
    http_reply_clear(&r);
    ck_assert(daemon_metric(&d, "ggufd_jobs_total{route=\"/generate\",reason=\"refused\"}") >= 1);
    daemon_expect(&d, "/tokenize", "{\"content\":\"a\"}", 200, NULL);
    for (int i = 0; i < 3; i++)
        http_close(&jobs[i]);
    ck_assert(daemon_metric_becomes(&d, "ggufd_jobs_queued", 0, PATIENCE_MS));
    daemon_stop(&d);
}
END

TEST(a_job_is_cancelled_by_its_id)
{
    start(model_slow(), slow);
    struct http h = begin("{\"prompt\":[1,9],\"max_tokens\":3000,\"ignore_eos\":true,\"id\":\"job-7\"}");
    struct http_reply r = {0}, other;
    struct buffer line = {0};
    ck_assert(http_read_head(&h, &r, PATIENCE_MS) && http_read_line(&h, &r, &line, PATIENCE_MS));
    other = daemon_post(&d, "/generate", "{\"prompt\":[1],\"id\":\"job-7\"}");
    ck_assert_int_eq(other.status, 409);
    ck_assert(http_has(&other, "duplicate-id"));
    http_reply_clear(&other);
    struct http waiting = begin("{\"prompt\":[1,9],\"max_tokens\":30,\"id\":\"job-8\",\"stream\":false}");
    ck_assert(daemon_metric_becomes(&d, "ggufd_jobs_queued", 1, PATIENCE_MS));
    for (int i = 8; i >= 7; i--) {
        char path[40];
        snprintf(path, sizeof path, "/generate/job-%d", i);
        http_call(d.address, "DELETE", path, NULL, NULL, &other);
        ck_assert_int_eq(other.status, 202);
        http_reply_clear(&other);
    }
    while (http_read_line(&h, &r, &line, PATIENCE_MS))
        continue;
    ck_assert_ptr_nonnull(strstr(line.data, "\"reason\":\"cancelled\""));
    ck_assert(http_read_reply(&waiting, &r, PATIENCE_MS));
    ck_assert_int_eq(r.status, 200);
    ck_assert(http_has(&r, "\"reason\":\"cancelled\""));
    http_call(d.address, "DELETE", "/generate/job-7", NULL, NULL, &other);
    ck_assert_int_eq(other.status, 404);
    http_reply_clear(&other);
    http_reply_clear(&r);
    buffer_clear(&line);
    http_close(&h);
    http_close(&waiting);
    daemon_stop(&d);
}
END

/* Asks; true when the reply came within the time, and not before its least. It must have the status and text, unless a
 * machine that stood still let the deadline pass in the line. */
static bool asked_in_time(const char *body, int status, const char *text, double least_ms, double limit_ms)
{
    double before = now_ms();
    struct http_reply r = daemon_post(&d, "/generate", body);
    double took = now_ms() - before;
    bool right = r.status == status && http_has(&r, text);
    if (!right && (r.status != 503 || !http_has(&r, "queue-timeout")))
        ck_abort_msg("%s: %d %s, expected %d with %s", body, r.status, r.body.data ? r.body.data : "", status, text);
    http_reply_clear(&r);
    printf("note: %s after %.0f ms\n", text, took);
    return right && took >= least_ms && in_time(took, limit_ms);
}

/* A job that runs for long. It may itself have waited too long on a machine that stands still. */
static struct http occupy(void)
{
    for (;;) {
        struct http h = begin("{\"prompt\":[1,9],\"max_tokens\":4000,\"ignore_eos\":true}");
        struct http_reply r = {0};
        bool runs = http_read_head(&h, &r, PATIENCE_MS) && r.status == 200;
        if (!runs)
            ck_assert_int_eq(r.status, 503);
        http_reply_clear(&r);
        if (runs)
            return h;
        http_close(&h);
    }
}

TEST(deadlines_hold_while_queued_and_while_running)
{
    static const char *const options[] = {"--tier", "scalar", "--threads", "1", "--max-queue-wait", "0.5", NULL};
    bool running = false, own = false, queued = false;
    start(model_slow(), options);
    for (int i = 0; i < ATTEMPTS && !running; i++)
        running = asked_in_time("{\"prompt\":[1,9],\"max_tokens\":4000,\"ignore_eos\":true,\"deadline_ms\":300,\"stream\":false}",
                                200, "\"reason\":\"deadline\"", 290, 700);
    for (int i = 0; i < ATTEMPTS && !(own && queued); i++) { /* without them the wait is that for the job before */
        struct http h = occupy();
        own = asked_in_time("{\"prompt\":[1,9],\"deadline_ms\":200}", 503, "queue-timeout", 190, 1000) || own;
        queued = asked_in_time("{\"prompt\":[1,9]}", 503, "queue-timeout", 490, 1500) || queued;
        http_close(&h);
        ck_assert(daemon_metric_becomes(&d, "ggufd_jobs_running", 0, PATIENCE_MS));
    }
    ck_assert_msg(running && own && queued, "kept: while running %d, own while queued %d, max_queue_wait %d", running, own,
                  queued);
    daemon_stop(&d);
}
END

/* The longest time without a line, of a prefill that tells its progress, and the lines that did. */
static double longest_gap(size_t n_tokens, int *n_lines)
{
    char *body = long_prompt_body(n_tokens, ",\"max_tokens\":1,\"progress\":true,\"cache_prompt\":false");
    struct http h = begin(body);
    struct http_reply r = {0};
    struct buffer line = {0};
    double last = now_ms(), longest = 0;
    int n = 0, tokens = 0;
    ck_assert(http_read_head(&h, &r, PATIENCE_MS));
    while (http_read_line(&h, &r, &line, PATIENCE_MS)) {
        double gap = now_ms() - last;
        longest = gap > longest ? gap : longest;
        last = now_ms();
        bool progress = strncmp(line.data, "{\"progress\"", 11) == 0;
        ck_assert(!progress || tokens == 0);
        n += progress;
        tokens += !progress;
    }
    printf("note: %d progress lines, longest gap %.0f ms\n", n, longest);
    ck_assert_ptr_nonnull(strstr(line.data, "\"done\":true"));
    buffer_clear(&line);
    http_reply_clear(&r);
    http_close(&h);
    free(body);
    *n_lines = n;
    return longest;
}

/* Progress lines have begun the reply with 200, so the end in the queue is told by its last line, and counted as told. */
TEST(a_deadline_in_the_queue_behind_progress_lines_is_counted_as_it_is_told)
{
    start(model_slow(), slow);
    struct http busy = begin("{\"prompt\":[1,9],\"max_tokens\":3900,\"ignore_eos\":true}");
    ck_assert(daemon_metric_becomes(&d, "ggufd_jobs_running", 1, PATIENCE_MS));
    struct http_reply r = {0};
    struct buffer line = {0};
    bool told = false;
    for (long deadline_ms = 1500; !told && deadline_ms < PATIENCE_MS; deadline_ms *= 2) { /* slow ticks: 503 comes first */
        char body[120];
        snprintf(body, sizeof body, "{\"prompt\":[1,9],\"progress\":true,\"deadline_ms\":%ld}", deadline_ms);
        struct http h = begin(body);
        ck_assert(http_read_head(&h, &r, PATIENCE_MS));
        told = r.status == 200;
        while (told && http_read_line(&h, &r, &line, PATIENCE_MS))
            continue;
        http_close(&h);
    }
    ck_assert_ptr_nonnull(strstr(line.data, "\"reason\":\"deadline\""));
    ck_assert_ptr_nonnull(strstr(line.data, "queue-timeout"));
    ck_assert(daemon_metric_becomes(&d, "ggufd_jobs_total{route=\"/generate\",reason=\"deadline\"}", 1, PATIENCE_MS));
    buffer_clear(&line);
    http_reply_clear(&r);
    http_close(&busy);
    daemon_stop(&d);
}
END

TEST(progress_is_told_at_least_once_a_second)
{
    start(model_slow(), slow);
    size_t n_tokens = suite_sanitized() ? 60 : 200;
    bool often = false;
    for (int i = 0; i < ATTEMPTS && !often; i++) {
        int n_lines;
        double gap = longest_gap(n_tokens, &n_lines);
        often = n_lines > 0 && in_time(gap, 1000);
        if (n_lines == 0 && n_tokens < 3000) /* over before the first was due */
            n_tokens *= 2;
    }
    ck_assert(often);
    daemon_stop(&d);
}
END

TEST(the_context_is_a_hard_edge)
{
    start(model_tiny(), NULL); /* 512 tokens */
    static const struct {
        size_t prompt;
        const char *more;
        int status;
        const char *text;
    } cases[] = {
        {511, ",\"max_tokens\":1,\"stream\":false", 200, "\"generated_tokens\":1"},
        {511, ",\"max_tokens\":5,\"ignore_eos\":true,\"stream\":false", 200, "\"reason\":\"context\""},
        {512, ",\"max_tokens\":1", 400, "\"prompt_tokens\":512"},
        {512, ",\"max_tokens\":0,\"stream\":false", 200, "\"generated_tokens\":0"},
        {513, ",\"max_tokens\":0", 400, "context-overflow"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *body = long_prompt_body(cases[i].prompt, cases[i].more);
        daemon_expect(&d, "/generate", body, cases[i].status, cases[i].text);
        free(body);
    }
    char *ids = prompt_of_ids(512), *body = NULL;
    ck_assert(asprintf(&body, "{\"prompt\":%s,\"format\":\"f32\",\"positions\":\"all\"}", ids) > 0);
    struct http_reply r = daemon_post(&d, "/logits", body);
    ck_assert_int_eq(r.status, 200);
    ck_assert_ptr_nonnull(strstr(http_header(&r, "X-Logits-Shape"), "512,"));
    ck_assert_str_eq(http_header(&r, "X-Logits-Dtype"), "float32-le");
    ck_assert_int_eq(atoi(http_header(&r, "Content-Length")), (int)r.body.size);
    http_reply_clear(&r);
    free(body);
    free(ids);
    daemon_stop(&d);
}
END

TEST(a_vocabulary_alone_tokenizes_and_refuses_the_rest)
{
    start(model_vocabulary(), NULL);
    daemon_expect(&d, "/tokenize", "{\"content\":\"a\"}", 200, NULL);
    daemon_expect(&d, "/generate", "{\"prompt\":\"a\"}", 409, "vocabulary-only");
    daemon_expect(&d, "/logits", "{\"prompt\":\"a\"}", 409, "vocabulary-only");
    daemon_stop(&d);
}
END

/* The last byte of a reply whose length is known goes out when its job has ended: a scrape behind it finds the job. */
TEST(a_reply_of_known_length_is_counted_and_logged_as_it_ended)
{
    enum { ROUNDS = 150 };
    start(model_tiny(), NULL);
    for (int i = 1; i <= ROUNDS; i++) {
        daemon_expect(&d, "/logits", "{\"prompt\":[1,5,6,7],\"format\":\"f32\",\"positions\":\"all\"}", 200, NULL);
        double n = daemon_metric(&d, "ggufd_jobs_total{route=\"/logits\",reason=\"length\"}");
        if (n < i || n > i)
            ck_abort_msg("%.0f of %d replies are counted", n, i);
    }
    daemon_stop(&d);
    int lines = 0;
    char *log = suite_read(d.log, NULL);
    for (const char *line = log; line && (line = strstr(line, "path=/logits")) != NULL; line++, lines++)
        if (!memmem(line, strcspn(line, "\n"), "reason=length", 13) || !memmem(line, strcspn(line, "\n"), "prompt_tokens=4", 15))
            ck_abort_msg("%.*s", (int)strcspn(line, "\n"), line);
    ck_assert_int_eq(lines, ROUNDS);
    free(log);
}
END

/* A model whose token 9 has an embedding that is not a number. */
static const char *model_with_a_hole(void)
{
    static char path[128];
    struct gguf_builder *b = gguf_builder_tiny(&(struct tiny_model){.type = 0, .seed = 6});
    size_t bytes;
    char *data = gguf_builder_tensor_data(b, "token_embd.weight", &bytes);
    ck_assert_ptr_nonnull(data);
    static const float nan_row[64] = {[0] = NAN};
    memcpy(data + 9 * sizeof nan_row, nan_row, sizeof nan_row);
    snprintf(path, sizeof path, "%s/hole.gguf", suite_tmp());
    gguf_builder_write(b, path);
    gguf_builder_free(b);
    return path;
}

TEST(a_value_that_is_not_finite_is_a_problem_first_and_a_cut_later)
{
    start(model_with_a_hole(), NULL);
    daemon_expect(&d, "/logits", "{\"prompt\":[1,5,6],\"positions\":\"all\"}", 200, NULL);
    daemon_expect(&d, "/logits", "{\"prompt\":[1,5,9],\"positions\":\"all\"}", 500, "position 2");
    daemon_expect(&d, "/generate", "{\"prompt\":[1,5,9],\"max_tokens\":2}", 500, "non-finite-logits");
    daemon_expect(&d, "/logits", "{\"prompt\":[9,5],\"format\":\"f32\",\"positions\":[0]}", 500, "position 0");
    struct http h;
    struct http_reply r = {0};
    ck_assert(http_open(&h, d.address));
    ck_assert(http_request(&h, "POST", "/logits", NULL, "{\"prompt\":[1,5,9],\"format\":\"f32\",\"positions\":\"all\"}"));
    ck_assert(http_read_head(&h, &r, PATIENCE_MS));
    ck_assert_int_eq(r.status, 200);
    long rows = atol(http_header(&r, "Content-Length"));
    while (http_read_some(&h, &r, PATIENCE_MS))
        continue;
    ck_assert(!h.body_done);
    ck_assert_int_eq((long)r.body.size, rows / 3 * 2);
    ck_assert(daemon_logged(&d, "logits-failed", PATIENCE_MS));
    http_reply_clear(&r);
    http_close(&h);
    daemon_stop(&d);
}
END

/* The client asks for more than the window and socket buffers hold and reads nothing; others must not notice. */
TEST(a_client_that_stops_reading_is_cut_and_holds_nobody_up)
{
    static const char *const options[] = {"--write-timeout", "1", NULL};
    start(model_tiny(), options);
    char *ids = prompt_of_ids(512), *body = NULL;
    struct http h;
    int small = 4096;
    ck_assert(asprintf(&body, "{\"prompt\":%s,\"top\":100,\"positions\":\"all\"}", ids) > 0);
    ck_assert(http_open(&h, d.address));
    setsockopt(h.fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    for (int i = 0; i < 8; i++) /* pipelined: about 4 MB each */
        ck_assert(http_request(&h, "POST", "/logits", NULL, body));
    double before = now_ms();
    daemon_expect(&d, "/generate", "{\"prompt\":[1,9],\"max_tokens\":5,\"stream\":false}", 200, NULL);
    ck_assert(daemon_metric_becomes(&d, "ggufd_connections", 1, PATIENCE_MS)); /* the one that asks */
    printf("note: cut after %.0f ms\n", now_ms() - before);
    http_close(&h);
    free(ids);
    free(body);
    daemon_stop(&d);
}
END

TEST(large_bodies_are_read_off_the_loop_and_give_the_same_ids)
{
    start(model_tiny(), NULL);
    struct buffer body = {0};
    buffer_text(&body, "{\"content\":\"");
    for (int i = 0; i < 60000; i++)
        buffer_text(&body, "ab cd ");
    buffer_text(&body, "\"}");
    buffer_byte(&body, 0);
    struct http h[4];
    for (int i = 0; i < 4; i++) {
        ck_assert(http_open(&h[i], d.address));
        ck_assert(http_request(&h[i], "POST", "/tokenize", NULL, body.data));
    }
    double before = now_ms(), worst = 0;
    for (int i = 0; i < 20; i++) {
        struct http_reply r;
        double begun = now_ms();
        http_call(d.address, "GET", "/health", NULL, NULL, &r);
        ck_assert_int_eq(r.status, 200);
        http_reply_clear(&r);
        worst = now_ms() - begun > worst ? now_ms() - begun : worst;
    }
    printf("note: /health took at most %.1f ms while 4 x 360 kB were tokenized (%.0f ms)\n", worst, now_ms() - before);
    double count = 0;
    for (int i = 0; i < 4; i++) {
        struct http_reply r = {0};
        ck_assert(http_read_reply(&h[i], &r, PATIENCE_MS));
        ck_assert_int_eq(r.status, 200);
        double n = number(strstr(r.body.data, "\"count\""), "count");
        ck_assert(i == 0 || (n <= count && n >= count));
        count = n;
        http_reply_clear(&r);
        http_close(&h[i]);
    }
    buffer_clear(&body);
    daemon_stop(&d);
}
END

SUITE(jobs, T(a_stream_says_the_same_as_one_reply), T(the_first_line_comes_before_the_last_exists),
      T(a_closed_connection_cancels_within_250_ms_in_each_state),
      T(a_cancelled_prefill_leaves_a_cache_that_gives_the_same_logits), T(a_repeated_prompt_is_reused_and_counted),
      T(the_line_is_bounded_and_the_refusal_says_when_to_come_back), T(a_job_is_cancelled_by_its_id),
      T(deadlines_hold_while_queued_and_while_running), T(a_deadline_in_the_queue_behind_progress_lines_is_counted_as_it_is_told),
      T(progress_is_told_at_least_once_a_second),
      T(the_context_is_a_hard_edge), T(a_vocabulary_alone_tokenizes_and_refuses_the_rest),
      T(a_reply_of_known_length_is_counted_and_logged_as_it_ended),
      T(a_value_that_is_not_finite_is_a_problem_first_and_a_cut_later), T(a_client_that_stops_reading_is_cut_and_holds_nobody_up),
      T(large_bodies_are_read_off_the_loop_and_give_the_same_ids))
