/* Every route and every refusal that needs no timing, against the real daemon. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/daemon_process.h"
#include "tests/support/suite.h"

static struct daemon daemon_under_test;

static const char *start(const char *const *options)
{
    daemon_start(&daemon_under_test, model_tiny(), options);
    return daemon_under_test.address;
}

static void stop(void)
{
    daemon_stop(&daemon_under_test);
}

/* Sends one request; the reply must have this status and hold this text (NULL: any). */
static void expect(const char *address, const char *method, const char *path, const char *body, int status,
                   const char *text)
{
    struct http_reply r;
    http_call(address, method, path, NULL, body, &r);
    if (r.status != status || (text && !http_has(&r, text)))
        ck_abort_msg("%s %s %.200s: %d %s, expected %d with %s", method, path, body ? body : "", r.status,
                     r.body.data ? r.body.data : "", status, text ? text : "anything");
    ck_assert_ptr_nonnull(http_header(&r, "X-Request-Id"));
    if (status >= 400)
        ck_assert_str_eq(http_header(&r, "Content-Type"), "application/problem+json");
    http_reply_clear(&r);
}

TEST(each_route_answers)
{
    const char *a = start(NULL);
    struct http_reply r;
    expect(a, "GET", "/health", NULL, 200, "\"ok\"");
    expect(a, "GET", "/ready", NULL, 200, "\"ok\"");
    expect(a, "GET", "/model", NULL, 200, "\"fingerprint\":");
    expect(a, "GET", "/metrics", NULL, 200, "ggufd_model_info{");
    expect(a, "GET", "/", NULL, 200, "<html");
    expect(a, "POST", "/tokenize", "{\"content\":\"ab\"}", 200, "\"count\":");
    expect(a, "POST", "/detokenize", "{\"tokens\":[5,6]}", 200, "\"content\":");
    expect(a, "POST", "/logits", "{\"prompt\":[1,5,6],\"top\":3}", 200, "\"position\":2");
    expect(a, "POST", "/generate", "{\"prompt\":[1,5,6],\"max_tokens\":3,\"stream\":false}", 200, "\"generated_tokens\":");
    expect(a, "POST", "/generate", "{\"prompt\":[1,5,6],\"max_tokens\":3}", 200, "\"done\":true");
    expect(a, "GET", "/v1/models", NULL, 200, "\"object\"");
    expect(a, "POST", "/v1/completions", "{\"prompt\":[1,5,6],\"max_tokens\":3}", 200, "\"choices\"");
    expect(a, "POST", "/v1/completions", "{\"prompt\":[[1,5],[7,8]],\"max_tokens\":3,\"echo\":true,\"logprobs\":2}", 200,
           "\"total_tokens\"");
    expect(a, "POST", "/v1/completions", "{\"prompt\":\"a\",\"max_tokens\":3,\"stream\":true}", 200, "data: [DONE]");
    http_call(a, "GET", "/metrics", NULL, NULL, &r);
    ck_assert_str_eq(http_header(&r, "Content-Type"), "text/plain; version=0.0.4; charset=utf-8");
    http_reply_clear(&r);
    stop();
}
END

TEST(problems_have_their_status)
{
    const char *a = start(NULL);
    expect(a, "GET", "/nope", NULL, 404, "/generate");
    expect(a, "GET", "/health%00x", NULL, 404, "not-found");
    expect(a, "GET", "/health/", NULL, 404, "not-found");
    expect(a, "GET", "/he%61lth", NULL, 200, "\"ok\"");
    expect(a, "GET", "/he%6clth", NULL, 404, "/hellth");
    expect(a, "GET", "/%6Dodel", NULL, 200, "fingerprint");
    static const char *const escapes[] = {"/health%", "/health%4", "/health%4g", "/health%g4", "/health%:1", "/health%1:"};
    for (size_t i = 0; i < sizeof escapes / sizeof escapes[0]; i++) /* half an escape stands for itself */
        expect(a, "GET", escapes[i], NULL, 404, escapes[i]);
    expect(a, "DELETE", "/generate/", NULL, 404, "no route");
    expect(a, "DELETE", "/generate/a/b", NULL, 404, "no route");
    expect(a, "DELETE", "/generate/a%20b", NULL, 404, "no job with the id a b");
    expect(a, "PUT", "/generate", "{}", 405, "POST");
    expect(a, "POST", "/health", "{}", 405, "GET, HEAD");
    expect(a, "DELETE", "/generate/unknown", NULL, 404, "unknown");
    expect(a, "POST", "/v1/chat/completions", "{}", 501, "not-implemented");
    expect(a, "POST", "/generate", "{", 400, "invalid-json");
    expect(a, "POST", "/generate", "", 400, "invalid-json");
    expect(a, "POST", "/generate", "{\"prompt\":\"a\",\"max_token\":1}", 400, "max_token");
    expect(a, "POST", "/generate", "{\"prompt\":\"a\",\"temperature\":0.7}", 501, "temperature");
    expect(a, "POST", "/generate", "{\"prompt\":\"a\",\"max_tokens\":-1}", 400, "max_tokens");
    expect(a, "POST", "/generate", "{\"prompt\":[1,-1]}", 400, "prompt[1]");
    expect(a, "POST", "/generate", "{\"prompt\":[]}", 400, "invalid-request");
    expect(a, "POST", "/logits", "{\"prompt\":[1,2],\"positions\":[2]}", 400, "positions");
    expect(a, "POST", "/v1/completions", "{\"prompt\":\"a\",\"n\":2}", 400, "\"error\"");
    expect(a, "POST", "/detokenize", "{\"tokens\":[99999]}", 400, "tokens[0]");
    stop();
}
END

TEST(what_the_operator_switches_off_is_refused)
{
    const char *a = start((const char *[]){"--page", "false", "--max-tokens-limit", "5", NULL});
    expect(a, "GET", "/", NULL, 404, "switched off");
    expect(a, "POST", "/generate", "{\"prompt\":[1,5],\"max_tokens\":6}", 400, "max_tokens: must be an integer in 0..5, not 6");
    expect(a, "POST", "/generate", "{\"prompt\":[1,5],\"ignore_eos\":true,\"stream\":false}", 200, "\"generated_tokens\":5,");
    expect(a, "POST", "/v1/completions", "{\"prompt\":[1,5],\"max_tokens\":6}", 400, "max_tokens");
    stop();
}
END

TEST(head_is_get_without_body)
{
    const char *a = start(NULL);
    static const char *const paths[] = {"/", "/health", "/ready", "/model", "/metrics"};
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        struct http_reply head, get;
        http_call(a, "HEAD", paths[i], NULL, NULL, &head);
        http_call(a, "GET", paths[i], NULL, NULL, &get);
        ck_assert_int_eq(head.status, 200);
        ck_assert_uint_eq(head.body.size, 0);
        ck_assert_str_eq(http_header(&head, "Content-Type"), http_header(&get, "Content-Type"));
        if (strcmp(paths[i], "/metrics") != 0)
            ck_assert_str_eq(http_header(&head, "Content-Length"), http_header(&get, "Content-Length"));
        http_reply_clear(&head);
        http_reply_clear(&get);
    }
    stop();
}
END

SUITE(routes, T(each_route_answers), T(problems_have_their_status), T(what_the_operator_switches_off_is_refused), T(head_is_get_without_body))
