/* How generations and evaluations end, each way there is: end-of-generation and stop tokens, clients that leave at every
 * place, a full window, the shutdown; and what the log and the metrics say about it. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/json.h"
#include "tests/support/daemon_process.h"
#include "tests/support/gguf_builder.h"
#include "tests/support/suite.h"

static struct daemon d;
static const char *const slow[] = {"--tier", "scalar", "--threads", "1", "--batch", "32", NULL};

static struct http begin_at(const char *address, const char *path, const char *body)
{
    struct http h;
    ck_assert(http_open(&h, address));
    ck_assert(http_request(&h, "POST", path, NULL, body));
    return h;
}

static struct http begin(const char *path, const char *body)
{
    return begin_at(d.address, path, body);
}

static void expect_metric(const char *series, double value)
{
    if (!daemon_metric_becomes(&d, series, value, PATIENCE_MS))
        ck_abort_msg("%s is %g, not %g", series, daemon_metric(&d, series), value);
}

/* ---- by a token ---- */

static void tokens_of(const char *body, int32_t *ids, size_t n)
{
    struct http_reply r = daemon_post(&d, "/generate", body);
    const char *at = strstr(r.body.data, "\"tokens\":[");
    ck_assert_int_eq(r.status, 200);
    for (size_t i = 0; i < n; i++) {
        at = strpbrk(at, "[,");
        ids[i] = (int32_t)strtol(++at, NULL, 10);
    }
    http_reply_clear(&r);
}

TEST(a_stop_token_ends_a_generation_and_is_not_shown)
{
    int32_t ids[6];
    char body[300], says[100];
    daemon_start(&d, model_tiny(), NULL);
    tokens_of("{\"prompt\":[1,5],\"max_tokens\":6,\"ignore_eos\":true,\"stream\":false}", ids, 6);
    size_t at = 5;
    for (size_t i = 5; i-- > 0;) /* the first time that the last one comes */
        if (ids[i] == ids[5])
            at = i;
    for (int streams = 0; streams < 2; streams++) {
        snprintf(body, sizeof body, "{\"prompt\":[1,5],\"max_tokens\":6,\"ignore_eos\":true,\"stop_tokens\":[%d],\"stream\":%s,"
                 "\"logprobs\":1}", ids[5], streams ? "true" : "false");
        snprintf(says, sizeof says, "\"reason\":\"stop\",\"prompt_tokens\":2,");
        daemon_expect(&d, "/generate", body, 200, says);
        snprintf(says, sizeof says, "\"generated_tokens\":%zu,", at + 1); /* it was generated */
        daemon_expect(&d, "/generate", body, 200, says);
    }
    daemon_stop(&d);
}
END

static const char *write_model(struct gguf_builder *b, const char *name)
{
    static char path[200];
    snprintf(path, sizeof path, "%s/%s.gguf", suite_tmp(), name);
    gguf_builder_write(b, path);
    gguf_builder_free(b);
    return path;
}

/* The model's own choice becomes its end-of-sequence token. */
TEST(an_end_token_ends_a_generation_everywhere)
{
    const struct tiny_model tiny = {.type = 8, .context = 512, .seed = 3};
    int32_t id;
    daemon_start(&d, model_tiny(), NULL);
    tokens_of("{\"prompt\":[1,5],\"max_tokens\":1,\"ignore_eos\":true,\"stream\":false}", &id, 1);
    daemon_stop(&d);
    struct gguf_builder *b = gguf_builder_tiny(&tiny);
    gguf_builder_u32(b, "tokenizer.ggml.eos_token_id", (uint32_t)id);
    gguf_builder_bool(b, "tokenizer.ggml.add_eos_token", true);
    gguf_builder_remove_key(b, "general.name");
    daemon_start(&d, write_model(b, "ends"), NULL);
    daemon_expect(&d, "/generate", "{\"prompt\":[1,5],\"max_tokens\":6,\"stream\":false}",
                  200, "\"tokens\":[],\"text\":\"\",\"reason\":\"eos\"");
    daemon_expect(&d, "/generate", "{\"prompt\":[1,5],\"max_tokens\":6}",
                  200, "{\"done\":true,\"text\":\"\",\"reason\":\"eos\"");
    daemon_expect(&d, "/generate", "{\"prompt\":[1,5],\"max_tokens\":6,\"ignore_eos\":true,\"stream\":false}",
                  200, "\"reason\":\"length\"");
    daemon_expect(&d, "/v1/completions", "{\"prompt\":[1,5],\"max_tokens\":6}", 200, "\"finish_reason\":\"stop\"");
    daemon_expect(&d, "/v1/completions", "{\"prompt\":[1,5],\"max_tokens\":6,\"logprobs\":1}",
                  200, "\"token_logprobs\":[-");
    daemon_expect(&d, "/v1/completions", "{\"prompt\":[1,5],\"max_tokens\":6,\"logprobs\":1,\"stream\":true}",
                  200, "\"finish_reason\":\"stop\"");
    daemon_expect(&d, "/v1/models", "{}", 405, NULL);
    /* A nameless model goes by its architecture, and its vocabulary wants the token behind each text. */
    daemon_expect(&d, "/v1/completions", "{\"prompt\":[1,5],\"max_tokens\":1}", 200, "\"model\":\"llama\"");
    char says[64];
    snprintf(says, sizeof says, ",%d],\"count\":", id);
    daemon_expect(&d, "/tokenize", "{\"content\":\"ab\",\"add_special\":true}", 200, says);
    daemon_expect(&d, "/logits", "{\"prompt\":\"ab\",\"top\":1}", 200, ",\"vocab\":");
    snprintf(says, sizeof says, "\"tokens\":[1,5,%d]", id);
    struct http_reply r = daemon_post(&d, "/logits", "{\"prompt\":[1,5],\"top\":1}");
    ck_assert(!http_has(&r, says)); /* ids stay as they are */
    http_reply_clear(&r);
    daemon_stop(&d);
}
END

TEST(a_prompt_of_no_tokens_is_refused)
{
    daemon_start(&d, write_model(gguf_builder_tiny(&(struct tiny_model){.type = 8, .bpe = true, .seed = 3}), "bpe"), NULL);
    daemon_expect(&d, "/generate", "{\"prompt\":\"\"}",
                  400, "prompt: holds no token"); /* no BOS is put in front here */
    daemon_expect(&d, "/logits", "{\"prompt\":[\"\",\"\"]}", 400, "prompt: holds no token");
    daemon_expect(&d, "/v1/completions", "{\"prompt\":[\"a\",\"\"]}", 400, "holds no token");
    daemon_expect(&d, "/v1/completions", "{\"prompt\":\"a\",\"max_tokens\":2,\"echo\":true}", 200, "\"text\":\"a");
    daemon_expect(&d, "/tokenize", "{\"content\":\"\",\"add_special\":true}", 200, "{\"tokens\":[],\"count\":0}");
    daemon_expect(&d, "/detokenize", "{\"tokens\":[]}", 200, "{\"content\":\"\"}");
    daemon_stop(&d);
}
END

TEST(an_echo_without_probabilities_is_the_prompt_and_its_continuation)
{
    daemon_start(&d, model_tiny(), NULL);
    struct http_reply r = daemon_post(&d, "/detokenize", "{\"tokens\":[260,261,262]}");
    struct json_value root;
    ck_assert(json_check(buffer_span(&r.body), &root, NULL) == STATUS_OK);
    const char *from = strchr(r.body.data, ':') + 2; /* behind the quote */
    char says[200];
    snprintf(says, sizeof says, "\"text\":\"%.*s", (int)(strrchr(from, '"') - from), from);
    http_reply_clear(&r);
    daemon_expect(&d, "/v1/completions", "{\"prompt\":[260,261,262],\"max_tokens\":3,\"echo\":true}", 200, says);
    daemon_expect(&d, "/v1/completions", "{\"prompt\":[260,261,262],\"max_tokens\":3,\"echo\":true,\"stream\":true}",
                  200, says);
    daemon_expect(&d, "/v1/completions", "{\"prompt\":[260,261,262],\"max_tokens\":0,\"echo\":true}",
                  200, "\"finish_reason\":\"length\"");
    daemon_stop(&d);
}
END

/* Over before there is a token to show. On a machine that stands still it may be over in the queue. */
TEST(a_deadline_that_is_over_ends_with_the_token_at_hand)
{
    daemon_start(&d, model_slow(), slow);
    for (int i = 0; i < 5; i++) {
        struct http_reply r = daemon_post(&d, "/generate", "{\"prompt\":[1,5,6,7],\"max_tokens\":4000,\"ignore_eos\":true,\"stream\":false,"
                                                "\"cache_prompt\":false,\"deadline_ms\":1}");
        bool ended = r.status == 200 && http_has(&r, "\"reason\":\"deadline\"");
        if (!ended && (r.status != 503 || !http_has(&r, "problem:queue-timeout")))
            ck_abort_msg("%d %s", r.status, r.body.data ? r.body.data : "");
        http_reply_clear(&r);
    }
    daemon_stop(&d);
}
END

/* ---- by the client ---- */

static char *with_long_prompt(size_t n, const char *more)
{
    char *ids = prompt_of_ids(n), *body = NULL;
    ck_assert(asprintf(&body, "{\"prompt\":%s%s}", ids, more) > 0);
    free(ids);
    return body;
}

/* Evaluation of 3,000 tokens lasts; a client that leaves in its midst ends it, whatever it asked for. */
TEST(a_client_that_leaves_ends_every_kind_of_job)
{
    static const struct {
        const char *path, *more, *series;
    } rows[] = {
        {"/logits", "", "ggufd_jobs_total{route=\"/logits\",reason=\"cancelled\"}"},
        {"/logits", ",\"format\":\"f32\",\"positions\":\"all\"", "ggufd_jobs_total{route=\"/logits\",reason=\"cancelled\"}"},
        {"/v1/completions", "", "ggufd_jobs_total{route=\"/v1/completions\",reason=\"cancelled\"}"},
        {"/v1/completions", ",\"echo\":true,\"logprobs\":1", "ggufd_jobs_total{route=\"/v1/completions\",reason=\"cancelled\"}"},
        {"/v1/completions", ",\"stream\":true,\"echo\":true", "ggufd_jobs_total{route=\"/v1/completions\",reason=\"cancelled\"}"},
    };
    daemon_start(&d, model_slow(), slow);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        double before = daemon_metric(&d, rows[i].series);
        char *body = with_long_prompt(3000, rows[i].more);
        struct http h = begin(rows[i].path, body);
        expect_metric("ggufd_jobs_running", 1);
        http_close(&h);
        expect_metric(rows[i].series, before < 0 ? 1 : before + 1);
        expect_metric("ggufd_jobs_running", 0);
        free(body);
    }
    daemon_expect(&d, "/logits", "{\"prompt\":[1,5],\"top\":1}", 200, "\"position\":1");
    daemon_stop(&d);
}
END

TEST(a_job_of_another_kind_is_not_cancelled_by_its_id)
{
    daemon_start(&d, model_slow(), slow);
    char *body = with_long_prompt(3000, "");
    struct http h;
    struct http_reply r;
    ck_assert(http_open(&h, d.address));
    ck_assert(http_request(&h, "POST", "/logits", "X-Request-Id: evaluation\r\n", body));
    expect_metric("ggufd_jobs_running", 1);
    http_call(d.address, "DELETE", "/generate/evaluation", NULL, NULL, &r);
    ck_assert_int_eq(r.status, 404);
    ck_assert(http_has(&r, "no job with the id evaluation"));
    http_reply_clear(&r);
    expect_metric("ggufd_jobs_running", 1);
    http_close(&h);
    expect_metric("ggufd_jobs_running", 0);
    free(body);
    daemon_stop(&d);
}
END

/* ---- by the window: the client reads nothing, and a Unix socket holds little ---- */

static char unix_address[160];

static void start_on_unix(const char *model, const char *write_timeout)
{
    snprintf(unix_address, sizeof unix_address, "unix:%s/socket", suite_tmp());
    daemon_start(&d, model, (const char *const[]){"--listen", unix_address, "--write-timeout", write_timeout, NULL});
}

#define MUCH "{\"prompt\":[1,5],\"max_tokens\":500,\"ignore_eos\":true,\"logprobs\":100,\"stream\":true}"

/* True once the engine has filled what may wait: it makes no more tokens for a while. On a machine that stands still this
 * may come too early, and then the test tries less. */
static void wait_until_it_stands(void)
{
    double last = -1, now;
    while ((now = daemon_metric(&d, "ggufd_context_used_tokens")) > last || now < 3) {
        last = now;
        sleep_ms(200);
    }
}

TEST(a_reader_that_comes_late_gets_every_byte)
{
    start_on_unix(model_tiny(), "600");
    struct http_reply whole, r = {0};
    http_call(d.address, "POST", "/generate", NULL, MUCH, &whole);
    ck_assert_int_eq(whole.status, 200);
    ck_assert_uint_gt(whole.body.size, 2 << 20); /* more than window and socket hold */
    struct http h = begin("/generate", MUCH);
    wait_until_it_stands();
    ck_assert(daemon_metric(&d, "ggufd_jobs_running") > 0);
    ck_assert(http_read_reply(&h, &r, PATIENCE_MS));
    const char *end = strstr(whole.body.data, "\"cached_tokens\"");
    ck_assert_uint_gt(r.body.size, (size_t)(end - whole.body.data));
    ck_assert(memcmp(whole.body.data, r.body.data, (size_t)(end - whole.body.data)) == 0);
    http_reply_clear(&r);
    http_reply_clear(&whole);
    http_close(&h);
    daemon_stop(&d);
}
END

TEST(a_reader_that_never_comes_ends_its_job)
{
    static const char series[] = "ggufd_jobs_total{route=\"/generate\",reason=\"cancelled\"}";
    start_on_unix(model_tiny(), "1.5");
    struct http h = begin("/generate", MUCH); /* the daemon's own decision, after write_timeout */
    expect_metric(series, 1);
    http_close(&h);
    h = begin("/v1/completions", "{\"prompt\":[[1,5],[1,6]],\"max_tokens\":500,\"logprobs\":100,\"stream\":true,\"ignore_eos\":true}");
    http_close(&h);
    daemon_stop(&d);
    start_on_unix(model_tiny(), "600");
    h = begin("/generate", MUCH); /* or the client's, while the engine waits for it */
    wait_until_it_stands();
    http_close(&h);
    expect_metric(series, 1);
    h = begin("/v1/completions", "{\"prompt\":[[1,5],[1,6]],\"max_tokens\":500,\"logprobs\":5,\"stream\":true}");
    expect_metric("ggufd_jobs_running", 1);
    http_close(&h);
    expect_metric("ggufd_jobs_running", 0);
    daemon_expect(&d, "/generate", "{\"prompt\":[1,5],\"max_tokens\":1,\"stream\":false}",
                  200, "\"generated_tokens\":1,");
    daemon_stop(&d);
}
END

/* Rows beyond 4 MiB are sent while the rest is still evaluated. */
TEST(many_rows_of_logits_are_one_reply)
{
    daemon_start(&d, write_model(gguf_builder_tiny(&(struct tiny_model){.type = 8, .context = 1024, .seed = 3}), "long"), NULL);
    char *body = with_long_prompt(1000, ",\"positions\":\"all\",\"top\":100");
    struct http_reply r = daemon_post(&d, "/logits", body);
    struct json_value root;
    ck_assert_int_eq(r.status, 200);
    ck_assert_uint_gt(r.body.size, 5 << 20);
    ck_assert_ptr_nonnull(http_header(&r, "Transfer-Encoding"));
    struct error err;
    if (json_check((struct span){r.body.data, r.body.size}, &root, &err))
        ck_abort_msg("%s", err.text);
    size_t rows = 0;
    for (const char *at = r.body.data; (at = strstr(at, "{\"position\":")); rows++)
        ck_assert_uint_eq(strtoul((at += strlen("{\"position\":")), NULL, 10), rows);
    ck_assert_uint_eq(rows, 1000);
    http_reply_clear(&r);
    free(body);
    daemon_stop(&d);
}
END

/* ---- by the operator ---- */

TEST(a_shutdown_ends_an_evaluation_with_a_problem)
{
    static const char *const options[] = {"--tier", "scalar", "--threads", "1", "--batch", "32", "--drain-timeout", "0.1", NULL};
    daemon_start(&d, model_slow(), options);
    char *body = with_long_prompt(3500, "");
    struct http h = begin("/logits", body);
    struct http_reply r = {0};
    expect_metric("ggufd_jobs_running", 1);
    kill(d.pid, SIGINT);
    ck_assert(http_read_reply(&h, &r, PATIENCE_MS));
    ck_assert_int_eq(r.status, 503);
    ck_assert(http_has(&r, "problem:draining"));
    ck_assert_int_eq(daemon_wait(&d, PATIENCE_MS), 0);
    ck_assert(daemon_logged(&d, "draining why=SIGINT running=1", 0));
    http_reply_clear(&r);
    http_close(&h);
    free(body);
}
END

/* One request at a time on connections that were there before. */
static void ask(struct http *h, const char *method, const char *path, const char *body, int status, const char *text)
{
    struct http_reply r = {0};
    ck_assert(http_request(h, method, path, NULL, body) && http_read_reply(h, &r, PATIENCE_MS));
    if (r.status != status || !http_has(&r, text))
        ck_abort_msg("%s: %d %s", path, r.status, r.body.data ? r.body.data : "");
    if (status == 503)
        ck_assert_str_eq(http_header(&r, "Retry-After"), "3600"); /* at most an hour, however long the drain may last */
    http_reply_clear(&r);
    http_close(h);
}

TEST(while_it_drains_the_daemon_says_so)
{
    static const char *const options[] = {"--tier", "scalar", "--threads", "1", "--drain-timeout", "86400", NULL};
    struct http before[4];
    daemon_start(&d, model_slow(), options);
    struct http h = begin("/generate", "{\"prompt\":[1,5],\"max_tokens\":4000,\"ignore_eos\":true}");
    struct http_reply r = {0};
    ck_assert(http_read_head(&h, &r, PATIENCE_MS));
    for (int i = 0; i < 4; i++)
        ck_assert(http_open(&before[i], d.address));
    expect_metric("ggufd_connections", 6);
    kill(d.pid, SIGTERM);
    ck_assert(daemon_logged(&d, "draining why=SIGTERM", PATIENCE_MS));
    kill(d.pid, SIGHUP); /* a reload is still one */
    ck_assert(daemon_logged(&d, "reloaded", PATIENCE_MS));
    ask(&before[0], "GET", "/ready", NULL, 503, "problem:draining");
    ask(&before[1], "POST", "/logits", "{\"prompt\":[1]}", 503, "problem:draining");
    ask(&before[2], "GET", "/health", NULL, 200, "ok");
    ask(&before[3], "POST", "/tokenize", "{\"content\":\"a\"}", 200, "\"tokens\"");
    http_close(&h); /* the last that was waited for */
    ck_assert_int_eq(daemon_wait(&d, PATIENCE_MS), 0);
    http_reply_clear(&r);
}
END

/* ---- in the log ---- */

/* At the level "error" a life without errors leaves no line, and prompts are not logged. */
TEST(at_the_level_of_errors_an_orderly_life_is_silent)
{
    char address[160];
    snprintf(address, sizeof address, "unix:%s/quiet", suite_tmp());
    daemon_fork(&d, model_tiny(), (const char *const[]){"--listen", address, "--log-level", "error", "--log-prompts", NULL});
    snprintf(d.address, sizeof d.address, "%s", address);
    ck_assert(daemon_wait_ready(&d, PATIENCE_MS));
    daemon_expect(&d, "/generate", "{\"prompt\":\"a\",\"max_tokens\":2,\"stream\":false}", 200, "\"text\"");
    daemon_expect(&d, "/logits", "{\"prompt\":\"a\",\"top\":1}", 200, "\"logit\"");
    daemon_expect(&d, "/generate", "{", 400, "invalid-json");
    kill(d.pid, SIGHUP);
    daemon_expect(&d, "/generate", "{\"prompt\":[1],\"max_tokens\":1}", 200, "\"done\"");
    kill(d.pid, SIGTERM);
    ck_assert_int_eq(daemon_wait(&d, PATIENCE_MS), 0);
    char *log = suite_read(d.log, NULL);
    ck_assert_str_eq(log, "");
    free(log);
}
END

/* Progress is for the time before the first token. */
TEST(behind_the_first_token_there_is_no_progress)
{
    daemon_start(&d, model_slow(), slow);
    struct http h = begin("/generate", "{\"prompt\":[1,5],\"max_tokens\":3000,\"ignore_eos\":true,\"progress\":true}");
    struct http_reply r = {0};
    struct buffer line = {0};
    bool spoke = false;
    ck_assert(http_read_head(&h, &r, PATIENCE_MS));
    double until = 0; /* two intervals of progress lines behind the first token */
    while ((!spoke || now_ms() < until) && http_read_line(&h, &r, &line, PATIENCE_MS)) {
        bool progress = strncmp(line.data, "{\"progress\"", 11) == 0;
        ck_assert(!spoke || !progress);
        if (!spoke && !progress)
            until = now_ms() + 1200;
        spoke |= !progress;
    }
    ck_assert(spoke);
    buffer_clear(&line);
    http_reply_clear(&r);
    http_close(&h);
    daemon_stop(&d);
}
END

SUITE(endings, T(a_stop_token_ends_a_generation_and_is_not_shown), T(an_end_token_ends_a_generation_everywhere),
      T(a_prompt_of_no_tokens_is_refused), T(an_echo_without_probabilities_is_the_prompt_and_its_continuation),
      T(a_deadline_that_is_over_ends_with_the_token_at_hand), T(a_client_that_leaves_ends_every_kind_of_job), T(a_job_of_another_kind_is_not_cancelled_by_its_id),
      T(a_reader_that_comes_late_gets_every_byte), T(a_reader_that_never_comes_ends_its_job), T(many_rows_of_logits_are_one_reply),
      T(a_shutdown_ends_an_evaluation_with_a_problem), T(while_it_drains_the_daemon_says_so),
      T(at_the_level_of_errors_an_orderly_life_is_silent), T(behind_the_first_token_there_is_no_progress))
