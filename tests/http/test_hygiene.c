/* HTTP as others may misread it, limits, deadlines, keys, origins, sockets. */
#include <fcntl.h>
#include <microhttpd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/support/daemon_process.h"
#include "tests/support/suite.h"

static struct daemon d;

static void start(const char *const *options)
{
    daemon_start(&d, model_tiny(), options);
}

/* Raw bytes out, one reply in. */
static struct http_reply raw_bytes(const char *bytes, size_t size, bool *closed)
{
    struct http h;
    struct http_reply r = {0};
    ck_assert(http_open(&h, d.address));
    http_send(&h, bytes, size);
    http_read_reply(&h, &r, PATIENCE_MS);
    if (closed)
        *closed = http_is_closed(&h, PATIENCE_MS);
    http_close(&h);
    return r;
}

static struct http_reply raw(const char *bytes, bool *closed)
{
    return raw_bytes(bytes, strlen(bytes), closed);
}

/* From 1.0 on libmicrohttpd refuses broken lines itself, and answers nothing to a NUL in the request line. */
static bool library_reads_lines(void)
{
    return strncmp(MHD_get_version(), "0.", 2) != 0;
}

static void expect_refusal(const char *request)
{
    bool closed;
    struct http_reply r = raw(request, &closed);
    if (r.status != 400 || !closed)
        ck_abort_msg("%s -> %d, closed %d", request, r.status, closed);
    http_reply_clear(&r);
}

TEST(ambiguous_framing_is_refused_and_the_connection_closed)
{
    start(NULL);
    static const char *const requests[] = {
        "POST /tokenize HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
        "POST /tokenize HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
        "POST /tokenize HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST /tokenize HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST /tokenize HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "POST /tokenize HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity\r\n\r\n",
        "POST /tokenize HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: deflate\r\n\r\n",
        "POST /tokenize HTTP/1.1\r\nHost: a\r\nContent-Length: 2x\r\n\r\n{}",
        "POST /tokenize HTTP/1.1\r\nHost: a\r\nContent-Length: +2\r\n\r\n{}",
        "POST /tokenize HTTP/1.1\r\nHost: a\r\nContent-Length: 2, 2\r\n\r\n{}",
        "POST /tokenize HTTP/1.1\r\nHost: a\r\nContent-Length: 0x2\r\n\r\n{}",
        "POST /tokenize HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\n{}",
        "GET /health HTTP/1.1\r\nHost: a\r\nX\x7f: 1\r\n\r\n",
        "POST /tokenize HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "GET /health HTTP/1.1\r\n\r\n",
        "GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        "GET /health HTTP/1.1\r\nHost: a\r\nX-Odd : 1\r\n\r\n",
        "GET /health HTTP/1.1\r\nHost: a\r\nX Odd: 1\r\n\r\n",
        "GET /health HTTP/1.1\r\nHost: a\r\n: 1\r\n\r\n",
        "GET /health HTTP/1.1\r\nHost: a\r\n:\r\n\r\n",
        "GET /health HTTP/1.1\r\n: 1\r\nHost: a\r\n\r\n",
        "GET /health x HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET  HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET  /health HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET http:///health HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET http://user@a/health HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET http://a/health HTTP/1.1\r\n\r\n",
        "POST /tokenize HTTP/1.0\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    };
    for (size_t i = 0; i < sizeof requests / sizeof requests[0]; i++)
        expect_refusal(requests[i]);
    struct http_reply r = raw("GET /health HTTP/1.0\r\n\r\n", NULL);
    ck_assert_int_eq(r.status, 200);
    http_reply_clear(&r);
    daemon_stop(&d);
}
END

TEST(a_line_ends_with_CR_and_LF)
{
    start(NULL);
    expect_refusal("GET /health HTTP/1.1\nHost: a\n\n");
    expect_refusal("GET /health HTTP/1.1\nHost: a\r\n\r\n");
    expect_refusal("GET /health HTTP/1.1\r\nHost: a\nX-Odd: 1\r\n\r\n");
    expect_refusal("GET /health HTTP/1.1\r\nHost: a\n\r\n");
    expect_refusal("GET /health HTTP/1.1\r\nHost: a\r\n\n");
    expect_refusal("GET /health HTTP/1.0\n\n");
    expect_refusal("GET /health HTTP/1.1\nHost: a\r\n:\r\n\r\n");
    if (library_reads_lines()) /* SECURITY.md says why not before */
        expect_refusal("GET /health HTTP/1.1\r\nHost: a\r\n:\n\r\n");
    expect_refusal("POST /tokenize HTTP/1.1\r\nHost: a\r\nX-Odd: 1\rTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
    expect_refusal("GET /health HTTP/1.1\r\nHost: a\r\nX-Odd: 1\r\r\n\r\n");
    expect_refusal("GET /health HTTP/1.1\r\nX-Odd\r: 1\r\nHost: a\r\n\r\n");
    daemon_stop(&d);
}
END

TEST(continued_header_lines_are_refused)
{
    start(NULL);
    expect_refusal("GET /health HTTP/1.1\r\nHost: a\r\nX-Odd: 1\r\n more\r\n\r\n");
    expect_refusal("GET /health HTTP/1.1\r\nHost: a\r\n\tmore\r\nX-Odd: 1\r\n\r\n");
    expect_refusal("POST /tokenize HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\r\n chunked\r\n\r\n");
    daemon_stop(&d);
}
END

#define BYTES(text) {text, sizeof text - 1}

/* libmicrohttpd hands everything out as text, which ends at a NUL, and takes a line that begins with one for an empty
 * one. */
TEST(a_nul_in_the_header_is_refused)
{
    start(NULL);
    static const struct {
        const char *bytes;
        size_t size;
    } requests[] = {
        BYTES("GET /health\0 HTTP/1.1\r\nHost: a\r\n\r\n"),
        BYTES("GET\0T /health HTTP/1.1\r\nHost: a\r\n\r\n"),
        BYTES("GET /health HTTP/1.1\0x\r\nHost: a\r\n\r\n"),
        BYTES("GET /health\0x HTTP/1.1\r\nHost: a\r\n\r\n"),
        BYTES("GET /health\0\0/x HTTP/1.1\r\nHost: a\r\n\r\n"),
        BYTES("GET \0/health HTTP/1.1\r\nHost: a\r\n\r\n"),
        BYTES("GET /health?a=b\0c HTTP/1.1\r\nHost: a\r\n\r\n"),
        BYTES("GET /health\0?a=b HTTP/1.1\r\nHost: a\r\n\r\n"),
        BYTES("GET http://a\0/health HTTP/1.1\r\nHost: a\r\n\r\n"),
        BYTES("GET /health HTTP/1.1\r\nHost: a\0b\r\n\r\n"),
        BYTES("GET /health HTTP/1.1\r\nHost: a\r\nX-Odd: \0\r\nX-Other: 1\r\n\r\n"),
        BYTES("GET /health HTTP/1.1\r\nHost: a\r\nX-\0Odd: 1\r\n\r\n"),
        BYTES("GET /health HTTP/1.1\r\nHost: a\r\n\0X-Odd: 1\r\n\r\n"),
        BYTES("POST /tokenize HTTP/1.1\r\nHost: a\r\nContent-Length: 2\0\r\n\r\n{}"),
    };
    for (size_t i = 0; i < sizeof requests / sizeof requests[0]; i++) {
        bool closed;
        struct http_reply r = raw_bytes(requests[i].bytes, requests[i].size, &closed);
        if ((r.status != 400 && (r.status || !library_reads_lines())) || !closed)
            ck_abort_msg("%zu: %s -> %d, closed %d", i, requests[i].bytes, r.status, closed);
        http_reply_clear(&r);
    }
    struct http_reply r = raw("GET /health%00x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", NULL);
    ck_assert_int_eq(r.status, 404); /* an escaped one is a byte that no route has */
    http_reply_clear(&r);
    daemon_stop(&d);
}
END

/* What looks unusual and is one thing to everybody: blanks around values, empty values, a body's trailer. */
TEST(odd_but_clear_requests_are_served)
{
    start(NULL);
    static const char *const requests[] = {
        "\r\nGET /health HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /health HTTP/1.1\r\nHost:a\r\nX-Empty:\r\nX-Blank: \r\nX-Wide: \t  x  \r\n\r\n",
        "GET /health HTTP/1.1\r\nX-Empty:\r\nHost: \t a\r\nCookie: a=b; c=\"d\"\r\nX-Colon: ::\r\nX-Last:\r\n\r\n",
        "GET /health?a=b&c=%41&d HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /health??a?b&&=&%zz%00 HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /%68ealth? HTTP/1.2\r\nHOST: \xc3\xa4\r\n!#$%&'*+-.^_`|~1: \xff\x01\r\n\r\n",
        "GET /health HTTP/1.0\r\n\r\n",
        "POST /tokenize HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n00d\r\n{\"content\":\"a\r\n2\r\n\"}\r\n0\r\nX-Trailer: 1\r\n\r\n",
    };
    for (size_t i = 0; i < sizeof requests / sizeof requests[0]; i++) {
        struct http_reply r = raw(requests[i], NULL);
        if (r.status != 200)
            ck_abort_msg("%s -> %d", requests[i], r.status);
        http_reply_clear(&r);
    }
    daemon_stop(&d);
}
END

/* libmicrohttpd 1.0.1 misreads a chunk with an extension, and refuses it. It must not take a trailer for a request. */
TEST(an_extension_of_a_chunk_is_read_over_or_refused)
{
    start(NULL);
    static const char *const bodies[] = {
        "f;x=y\r\n{\"content\":\"a\"}\r\n0\r\n",
        "f\r\n{\"content\":\"a\"}\r\n0;x\r\n",
        "f\r\n{\"content\":\"a\"}\r\n0;x\r\nX-Trailer: 1\r\n",
        "f\r\n{\"content\":\"a\"}\r\n0;x\r\nGET /health?: HTTP/1.1\r\nHost: a\r\n",
    };
    for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++) {
        struct http h;
        struct http_reply first = {0}, second = {0};
        char head[] = "POST /tokenize HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        char next[] = "\r\nGET /nope HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        char bytes[400];
        snprintf(bytes, sizeof bytes, "%s%s%s", head, bodies[i], next);
        ck_assert(http_open(&h, d.address));
        http_send(&h, bytes, strlen(bytes));
        http_read_reply(&h, &first, PATIENCE_MS);
        http_read_reply(&h, &second, PATIENCE_MS);
        bool served = first.status == 200 && second.status == 404, refused = first.status == 400 && !second.status;
        if (!(served || (refused && library_reads_lines())) || !http_is_closed(&h, PATIENCE_MS))
            ck_abort_msg("%s -> %d, %d", bodies[i], first.status, second.status);
        http_reply_clear(&first);
        http_reply_clear(&second);
        http_close(&h);
    }
    daemon_stop(&d);
}
END

TEST(a_target_may_name_scheme_and_host)
{
    static const char *const options[] = {"--allowed-hosts", "good.example", NULL};
    start(options);
    static const struct {
        int status;
        const char *target, *headers;
    } cases[] = {
        {200, "http://a/health", "Host: a\r\n"},
        {200, "HTTP://a:8080/health?x=/", "Host: a\r\n"},
        {200, "https://[::1]:8080/health", "Host: a\r\n"},
        {200, "http://a/%68ealth", "Host: a\r\n"},
        {200, "http://a", "Host: a\r\n"},        /* the page */
        {200, "http://a?/health", "Host: a\r\n"},
        {404, "http://a/nope", "Host: a\r\n"},
        {404, "http://a//health", "Host: a\r\n"},
        {404, "ftp://a/health", "Host: a\r\n"},
        {404, "//a/health", "Host: a\r\n"},
        /* the target's host is the one that an Origin is compared with */
        {200, "http://good.example/health", "Host: a\r\nOrigin: http://good.example\r\n"},
        {403, "http://bad.example/health", "Host: good.example\r\nOrigin: http://good.example\r\n"},
        {403, "http://bad.example/health", "Host: good.example\r\nOrigin: http://bad.example\r\n"},
        {403, "http://bad.example/health", "Host: localhost\r\nOrigin: http://localhost\r\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char bytes[300];
        snprintf(bytes, sizeof bytes, "GET %s HTTP/1.1\r\n%s\r\n", cases[i].target, cases[i].headers);
        struct http_reply r = raw(bytes, NULL);
        if (r.status != cases[i].status)
            ck_abort_msg("%s, %s-> %d, not %d", cases[i].target, cases[i].headers, r.status, cases[i].status);
        http_reply_clear(&r);
    }
    daemon_stop(&d);
}
END

TEST(a_connection_survives_refusals_and_pipelining)
{
    start(NULL);
    struct http h;
    struct http_reply r = {0};
    ck_assert(http_open(&h, d.address));
    ck_assert(http_request(&h, "POST", "/nope", NULL, "{\"some\":\"body\"}"));
    ck_assert(http_request(&h, "PUT", "/generate", NULL, "{}"));
    ck_assert(http_request(&h, "POST", "/generate", "Content-Encoding: gzip\r\n", "xx"));
    ck_assert(http_request(&h, "POST", "/tokenize", "Content-Encoding: identity\r\nContent-Encoding: gzip\r\n", "xx"));
    ck_assert(http_request(&h, "POST", "/generate", "Content-Type: multipart/form-data; boundary=x\r\n", "xx"));
    ck_assert(http_request(&h, "POST", "/generate", "Content-Type: application/x-www-form-urlencoded\r\n",
                           "{\"prompt\":[1,5],\"max_tokens\":3}"));
    ck_assert(http_request(&h, "GET", "/health", NULL, NULL));
    static const int want[] = {404, 405, 415, 415, 415, 200, 200};
    for (size_t i = 0; i < 6; i++) {
        ck_assert(http_read_reply(&h, &r, PATIENCE_MS));
        ck_assert_int_eq(r.status, want[i]);
    }
    http_reply_clear(&r);
    http_close(&h);
    daemon_stop(&d);
}
END

TEST(bodies_have_a_limit_however_they_are_sent)
{
    static const char *const options[] = {"--max-body", "10000", "--body-timeout", "600", NULL};
    start(options);
    struct http h;
    struct http_reply r = {0};
    char *big = malloc(300001);
    memset(big, ' ', 300000);
    big[300000] = 0;
    ck_assert(http_open(&h, d.address));
    ck_assert(http_request(&h, "POST", "/tokenize", NULL, big)); /* swallowed, answered, and the connection lives */
    ck_assert(http_read_reply(&h, &r, PATIENCE_MS));
    ck_assert_int_eq(r.status, 413);
    ck_assert(http_has(&r, "payload-too-large"));
    ck_assert(http_text(&h, "POST /tokenize HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"));
    for (int i = 0; i < 3; i++) {
        ck_assert(http_text(&h, "2000\r\n"));
        ck_assert(http_send(&h, big, 0x2000));
        ck_assert(http_text(&h, "\r\n"));
    }
    ck_assert(http_text(&h, "0\r\n\r\n"));
    ck_assert(http_read_reply(&h, &r, PATIENCE_MS));
    ck_assert_int_eq(r.status, 413);
    ck_assert(http_request(&h, "GET", "/health", NULL, NULL));
    ck_assert(http_read_reply(&h, &r, PATIENCE_MS));
    ck_assert_int_eq(r.status, 200);
    http_close(&h);
    free(big);

    ck_assert(http_open(&h, d.address)); /* Expect: refused before the body is sent */
    ck_assert(http_text(&h, "POST /tokenize HTTP/1.1\r\nHost: a\r\nContent-Length: 300000\r\nExpect: 100-continue\r\n\r\n"));
    ck_assert(http_read_reply(&h, &r, PATIENCE_MS));
    ck_assert_int_eq(r.status, 413);
    http_close(&h);
    ck_assert(http_open(&h, d.address)); /* and a welcome one is invited at once */
    ck_assert(http_text(&h, "POST /tokenize HTTP/1.1\r\nHost: a\r\nContent-Length: 16\r\nExpect: 100-continue\r\n\r\n"));
    char line[26] = "";
    ck_assert_int_eq((int)recv(h.fd, line, 25, MSG_WAITALL), 25);
    ck_assert_ptr_nonnull(strstr(line, "100 Continue"));
    ck_assert(http_text(&h, "{\"content\":\"ab\"}"));
    ck_assert(http_read_reply(&h, &r, PATIENCE_MS));
    ck_assert_int_eq(r.status, 200);
    http_close(&h);
    http_reply_clear(&r);
    r = raw("POST /tokenize HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999\r\n\r\n", NULL);
    ck_assert_int_eq(r.status, 413);
    http_reply_clear(&r);
    r = raw("POST /nope HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999\r\n\r\n", NULL); /* the first reason counts */
    ck_assert_int_eq(r.status, 404);
    http_reply_clear(&r);
    daemon_stop(&d);
}
END

/* A body of exactly n bytes, in one piece or in chunks. */
static int status_of_size(size_t n, bool chunked)
{
    static const char begin[] = "{\"content\":\"", end[] = "\"}";
    struct buffer body = {0}, request = {0};
    buffer_text(&body, begin);
    while (body.size < n - (sizeof end - 1))
        buffer_byte(&body, 'a');
    buffer_text(&body, end);
    buffer_text(&request, "POST /tokenize HTTP/1.1\r\nHost: a\r\n");
    if (chunked)
        buffer_printf(&request, "Transfer-Encoding: chunked\r\n\r\n%zx\r\n", body.size);
    else
        buffer_printf(&request, "Content-Length: %zu\r\n\r\n", body.size);
    buffer_append(&request, body.data, body.size);
    buffer_text(&request, chunked ? "\r\n0\r\n\r\n" : "");
    buffer_byte(&request, 0);
    struct http_reply r = raw(request.data, NULL);
    int status = r.status;
    http_reply_clear(&r);
    buffer_clear(&body);
    buffer_clear(&request);
    return status;
}

TEST(a_body_may_have_max_body_bytes_and_not_one_more)
{
    static const size_t sizes[] = {100, 4096, 4097, 70000}; /* around what is read on the loop's own thread */
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        char most[16];
        snprintf(most, sizeof most, "%zu", sizes[i]);
        start((const char *[]){"--max-body", most, NULL});
        for (int chunked = 0; chunked < 2; chunked++) {
            ck_assert_int_eq(status_of_size(sizes[i], chunked), 200);
            ck_assert_int_eq(status_of_size(sizes[i] + 1, chunked), 413);
        }
        daemon_stop(&d);
    }
}
END

static void begin_body(struct http *h, size_t sent)
{
    char body[9990];
    memset(body, ' ', sizeof body);
    ck_assert(http_open(h, d.address));
    ck_assert(http_text(h, "POST /detokenize HTTP/1.1\r\nHost: a\r\nContent-Length: 10003\r\n\r\n{\"tokens\":["));
    ck_assert(http_send(h, body, sent));
}

static void end_body(struct http *h, const char *rest, int status, const char *text)
{
    struct http_reply r = {0};
    ck_assert(http_text(h, rest));
    ck_assert(http_read_reply(h, &r, PATIENCE_MS));
    ck_assert_int_eq(r.status, status);
    ck_assert(http_has(&r, text));
    if (status == 503)
        ck_assert_ptr_nonnull(http_header(&r, "Retry-After"));
    http_reply_clear(&r);
}

/* Bodies that have begun and do not go on hold memory; what all of them hold has a limit, and comes back. */
TEST(bodies_have_a_limit_in_all)
{
    static const char *const options[] = {"--max-body", "10003", "--body-memory", "25000", "--body-timeout", "600", NULL};
    struct http h[3], late;
    struct http_reply r;
    start(options);
    for (int i = 0; i < 2; i++)
        begin_body(&h[i], 9990);
    ck_assert(daemon_metric_becomes(&d, "ggufd_body_bytes", 2 * (11 + 9990), PATIENCE_MS));
    begin_body(&h[2], 4000);
    ck_assert(daemon_metric_becomes(&d, "ggufd_body_bytes", 2 * (11 + 9990) + 4011, PATIENCE_MS));
    begin_body(&late, 9990);
    end_body(&late, "]}", 503, "body-memory"); /* read to its end, so the connection lives */
    ck_assert(http_request(&late, "GET", "/health", NULL, NULL));
    end_body(&late, "", 200, "ok");
    http_close(&h[2]); /* a sender that leaves gives back what it held */
    ck_assert(daemon_metric_becomes(&d, "ggufd_body_bytes", 2 * (11 + 9990), PATIENCE_MS));
    for (int i = 0; i < 2; i++)
        end_body(&h[i], "]}", 200, "content");
    http_close(&h[0]);
    ck_assert(daemon_metric_becomes(&d, "ggufd_body_bytes", 0, PATIENCE_MS));
    for (int i = 0; i < 4; i++) { /* nor does one that was refused, or parsed by a worker, keep anything */
        char big[20001];
        memset(big, ' ', sizeof big - 1);
        big[sizeof big - 1] = 0;
        http_call(d.address, "POST", "/detokenize", NULL, big, &r);
        ck_assert_int_eq(r.status, 413);
        http_reply_clear(&r);
        begin_body(&h[0], 9990);
        end_body(&h[0], "]}", 200, "content");
        http_close(&h[0]);
    }
    ck_assert(daemon_metric_becomes(&d, "ggufd_body_bytes", 0, PATIENCE_MS));
    http_close(&h[1]);
    http_close(&late);
    daemon_stop(&d);
}
END

/* Status of a request whose only long header has a value of n bytes. */
static int status_of_header(size_t n)
{
    struct buffer b = {0};
    buffer_text(&b, "GET /health HTTP/1.1\r\nHost: a\r\nX-Long: ");
    for (size_t i = 0; i < n; i++)
        buffer_byte(&b, 'x');
    buffer_text(&b, "\r\n\r\n");
    buffer_byte(&b, 0);
    struct http_reply r = raw(b.data, NULL);
    int status = r.status;
    http_reply_clear(&r);
    buffer_clear(&b);
    return status;
}

/* The reply may be lost in the reset that follows. */
static bool is_refusal(int status)
{
    return status == 431 || status == 0;
}

TEST(headers_have_a_limit)
{
    start(NULL);
    size_t served = 8192, refused = 100000;
    ck_assert_int_eq(status_of_header(served), 200);
    ck_assert(is_refusal(status_of_header(refused)));
    while (refused - served > 1) {
        size_t middle = (served + refused) / 2;
        int status = status_of_header(middle);
        ck_assert_msg(status == 200 || is_refusal(status), "%zu bytes: %d", middle, status);
        *(status == 200 ? &served : &refused) = middle;
    }
    ck_assert_int_eq(status_of_header(served), 200);
    ck_assert(is_refusal(status_of_header(refused)));
    ck_assert_msg(refused < 32768, "%zu bytes were served", served);
    struct buffer b = {0};
    buffer_text(&b, "GET /health HTTP/1.1\r\nHost: a\r\n");
    for (int i = 0; i < 10000; i++)
        buffer_printf(&b, "X-%d: 1\r\n", i);
    buffer_text(&b, "\r\n");
    buffer_byte(&b, 0);
    struct http_reply r = raw(b.data, NULL);
    ck_assert(is_refusal(r.status));
    http_reply_clear(&r);
    buffer_clear(&b);
    http_call(d.address, "GET", "/health", NULL, NULL, &r);
    ck_assert_int_eq(r.status, 200);
    http_reply_clear(&r);
    daemon_stop(&d);
}
END

/* Begins a request and goes on with a byte now and then, which does not extend the time; returns ms until the end. */
static double time_of_phase(const char *beginning, bool goes_on)
{
    struct http h;
    double before = now_ms();
    ck_assert(http_open(&h, d.address));
    ck_assert(http_text(&h, beginning));
    while (now_ms() - before < PATIENCE_MS && !http_is_closed(&h, 50))
        if (goes_on)
            http_text(&h, "x");
    http_close(&h);
    return now_ms() - before;
}

TEST(slow_senders_are_disconnected)
{
    static const char *const options[] = {"--header-timeout", "0.5", "--body-timeout", "0.6", "--keepalive-timeout",
                                          "0.7", NULL};
    start(options);
    static const char *const beginnings[] = {
        "",
        "GET /health HTTP/1.1\r\nHost: a\r\n",
        "POST /tokenize HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n{",
        "GET /health HTTP/1.1\r\nHost: a\r\n\r\n",
    };
    for (size_t i = 0; i < 4; i++) {
        bool kept = false;
        for (int k = 0; k < ATTEMPTS && !kept; k++) { /* the least of the defaults is 10 s */
            double took = time_of_phase(beginnings[i], i == 1 || i == 2);
            printf("note: phase %zu ended after %.0f ms\n", i, took);
            kept = took > 400 && in_time(took, 2000);
        }
        ck_assert_msg(kept, "phase %zu", i);
    }
    daemon_stop(&d);
}
END

/* Stops the daemon while a connection has said nothing yet, for longer than it may. 0: closed, as it also is when the test
 * itself was held up. */
static int status_after_a_stop(void)
{
    struct http h;
    struct http_reply r = {0};
    ck_assert(http_open(&h, d.address));
    ck_assert(daemon_metric_becomes(&d, "ggufd_connections", 2, PATIENCE_MS));
    kill(d.pid, SIGSTOP);
    sleep_ms(1700);
    kill(d.pid, SIGCONT);
    sleep_ms(200); /* two ticks: time to be closed, if the time counted */
    http_request(&h, "GET", "/health", NULL, NULL);
    http_read_reply(&h, &r, PATIENCE_MS);
    int status = r.status;
    http_reply_clear(&r);
    http_close(&h);
    return status;
}

/* A client that was about to send when the machine fell asleep is still read: its time did not go by. */
TEST(a_daemon_that_was_stopped_forgives_the_time)
{
    static const char *const options[] = {"--header-timeout", "1", NULL};
    int status = 0;
    start(options);
    for (int i = 0; i < ATTEMPTS && status == 0; i++)
        status = status_after_a_stop();
    ck_assert_int_eq(status, 200);
    daemon_stop(&d);
}
END

TEST(request_ids_are_kept_or_made)
{
    start(NULL);
    struct http_reply r;
    http_call(d.address, "GET", "/health", "X-Request-Id: abc-1._Z\r\n", NULL, &r);
    ck_assert_str_eq(http_header(&r, "X-Request-Id"), "abc-1._Z");
    http_reply_clear(&r);
    http_call(d.address, "GET", "/health", "X-Request-Id: a b\r\n", NULL, &r);
    ck_assert_str_ne(http_header(&r, "X-Request-Id"), "a b");
    http_reply_clear(&r);
    daemon_stop(&d);
}
END

static int status_with(const char *method, const char *path, const char *headers)
{
    struct http_reply r;
    http_call(d.address, method, path, headers, strcmp(method, "POST") == 0 ? "{\"content\":\"a\"}" : NULL, &r);
    int status = r.status;
    http_reply_clear(&r);
    return status;
}

TEST(keys_guard_every_route_but_the_open_ones)
{
    char path[128];
    snprintf(path, sizeof path, "%s/keys", suite_tmp());
    FILE *f = fopen(path, "w");
    fputs("# keys\nfirst-key\n\nsecond-key  \n", f);
    fclose(f);
    const char *options[] = {"--api-key-file", path, NULL};
    start(options);
    ck_assert_int_eq(status_with("GET", "/health", NULL), 200);
    ck_assert_int_eq(status_with("GET", "/ready", NULL), 200);
    ck_assert_int_eq(status_with("GET", "/", NULL), 200);
    static const char *const guarded[] = {"/model", "/metrics"};
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(status_with("GET", guarded[i], NULL), 401);
        ck_assert_int_eq(status_with("GET", guarded[i], "Authorization: Bearer wrong\r\n"), 401);
        ck_assert_int_eq(status_with("GET", guarded[i], "Authorization: Bearer first-ke\r\n"), 401);
        ck_assert_int_eq(status_with("GET", guarded[i], "Authorization: Bearer first-key\r\n"), 200);
        ck_assert_int_eq(status_with("GET", guarded[i], "Authorization: bearer second-key\r\n"), 200);
    }
    ck_assert_int_eq(status_with("POST", "/tokenize", NULL), 401);
    ck_assert_int_eq(status_with("POST", "/tokenize", "Authorization: Basic second-key\r\n"), 401);
    ck_assert_int_eq(status_with("POST", "/tokenize", "Authorization: Bearer\r\n"), 401);
    char long_key[640] = "Authorization: Bearer ";
    memset(long_key + strlen(long_key), 'k', 600);
    strcat(long_key, "\r\n");
    ck_assert_int_eq(status_with("POST", "/tokenize", long_key), 401);
    ck_assert_int_eq(status_with("POST", "/tokenize", "Authorization: Bearer second-key\r\n"), 200);
    struct http_reply r;
    http_call(d.address, "GET", "/model", NULL, NULL, &r);
    ck_assert_ptr_nonnull(http_header(&r, "WWW-Authenticate"));
    http_reply_clear(&r);
    f = fopen(path, "w");
    fputs("third-key\n", f);
    fclose(f);
    kill(d.pid, SIGHUP);
    ck_assert(daemon_logged(&d, "reloaded", PATIENCE_MS));
    ck_assert_int_eq(status_with("GET", "/model", "Authorization: Bearer first-key\r\n"), 401);
    ck_assert_int_eq(status_with("GET", "/model", "Authorization: Bearer third-key\r\n"), 200);
    ck_assert_int_eq(truncate(path, 0), 0);
    kill(d.pid, SIGHUP);
    ck_assert(daemon_logged(&d, "reload-failed", PATIENCE_MS)); /* an empty file opens no door */
    ck_assert_int_eq(status_with("GET", "/model", NULL), 401);
    daemon_stop(&d);
}
END

static char *read_log(void)
{
    char *log = suite_read(d.log, NULL);
    ck_assert_ptr_nonnull(log);
    return log;
}

TEST(keys_stay_out_of_the_log_and_prompts_unless_asked_for)
{
    char path[128];
    snprintf(path, sizeof path, "%s/keys", suite_tmp());
    FILE *f = fopen(path, "w");
    fputs("the-right-key\n", f);
    fclose(f);
    for (int asked = 0; asked < 2; asked++) {
        start((const char *[]){"--api-key-file", path, "--log-level", "debug", asked ? "--log-prompts" : NULL, NULL});
        for (int right = 0; right < 2; right++) {
            struct http_reply r;
            http_call(d.address, "POST", "/generate",
                      right ? "Authorization: Bearer the-right-key\r\n" : "Authorization: Bearer a-guessed-key\r\n",
                      "{\"prompt\":\"a private thought\",\"max_tokens\":1,\"stream\":false}", &r);
            ck_assert_int_eq(r.status, right ? 200 : 401);
            http_reply_clear(&r);
        }
        kill(d.pid, SIGHUP);
        ck_assert(daemon_logged(&d, "reloaded", PATIENCE_MS));
        daemon_stop(&d);
        char *log = read_log();
        ck_assert_ptr_null(strstr(log, "the-right-key"));
        ck_assert_ptr_null(strstr(log, "a-guessed-key"));
        ck_assert_int_eq(strstr(log, "a private thought") != NULL, asked);
        free(log);
    }
}
END

/* Whatever a client may name: path, id, prompt. */
TEST(no_terminal_escape_of_a_client_reaches_the_log)
{
    start((const char *[]){"--log-level", "debug", "--log-prompts", NULL});
    static const char *const requests[] = {
        "GET /%1b[31m%0a%00%c3%28%e2%80%ae HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /\033[2J\2331m HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /health HTTP/1.1\r\nHost: a\r\nX-Request-Id: \033[31m\r\n\r\n",
        "\033]0;title\007 / HTTP/1.1\r\nHost: a\r\n\r\n",
        "DELETE /generate/%1b[31m HTTP/1.1\r\nHost: a\r\n\r\n",
    };
    for (size_t i = 0; i < sizeof requests / sizeof requests[0]; i++) {
        struct http_reply r = raw(requests[i], NULL);
        http_reply_clear(&r);
    }
    struct http_reply r;
    http_call(d.address, "POST", "/generate", NULL,
              "{\"prompt\":\"\\u001b[31m\\u009b\\u202e\\u0000red\",\"max_tokens\":0,\"stream\":false}", &r);
    ck_assert_int_eq(r.status, 200);
    http_reply_clear(&r);
    daemon_stop(&d);
    char *log = read_log();
    ck_assert_ptr_nonnull(strstr(log, "31m"));
    for (const unsigned char *p = (const unsigned char *)log; *p; p++)
        if ((*p < ' ' && *p != '\n') || *p == 0x7f || (*p == 0xc2 && p[1] < 0xa0))
            ck_abort_msg("byte 0x%02x in the log: %.200s", *p, (const char *)p);
    ck_assert_ptr_null(strstr(log, "\xe2\x80\xae"));
    free(log);
}
END

/* The map of the process after it has worked: nothing is made executable at run time. */
TEST(no_memory_is_writable_and_executable)
{
    start(NULL);
    ck_assert_int_eq(status_with("POST", "/tokenize", NULL), 200);
    struct http_reply r;
    http_call(d.address, "POST", "/generate", NULL, "{\"prompt\":[1,5],\"max_tokens\":4,\"stream\":false}", &r);
    ck_assert_int_eq(r.status, 200);
    http_reply_clear(&r);
    char path[64], line[512];
    unsigned lines = 0;
    snprintf(path, sizeof path, "/proc/%d/maps", (int)d.pid);
    FILE *maps = fopen(path, "r");
    ck_assert_ptr_nonnull(maps);
    for (; fgets(line, sizeof line, maps); lines++) {
        const char *rights = strchr(line, ' ');
        if (rights && rights[2] == 'w' && rights[3] == 'x')
            ck_abort_msg("%s", line);
    }
    fclose(maps);
    ck_assert_uint_gt(lines, 10);
    daemon_stop(&d);
}
END

TEST(foreign_origins_are_refused_and_allowed_ones_get_cors)
{
    static const char *const options[] = {"--allowed-origins", "https://app.example", "--allowed-hosts", "box.example",
                                          NULL};
    start(options);
    static const struct {
        const char *host, *origin;
        int status;
        const char *more; /* header lines */
    } cases[] = {
        {"localhost:1", "http://localhost:1", 200, NULL},       {"127.0.0.1:1", "http://127.0.0.1:1", 200, NULL},
        {"[::1]:1", "http://[::1]:1", 200, NULL},               {"box.example", "http://box.example", 200, NULL},
        {"evil.example", "http://evil.example", 403, NULL},     {"localhost:1", "http://evil.example", 403, NULL},
        {"localhost:1", "null", 403, NULL},                     {"localhost:1", "https://app.example", 200, NULL},
        {"localhost:1", "http://localhost:2", 403, NULL},       {"localhost:1", "https://localhost:1", 403, NULL},
        {"localhost:1", "ftps://localhost", 403, NULL},         {"localhost:1", "abcd://localhost:1", 403, NULL},
        {"localhost", "http://localhosx", 403, NULL},           {"[::1", "http://[::1", 403, NULL},
        {"", "http://", 403, NULL},                             {"a-name-that-is-longer-than-any-address-could-ever-be.example",
                                                           "http://a-name-that-is-longer-than-any-address-could-ever-be.example", 403, NULL},
        {"box.example", "https://box.example", 200, "X-Forwarded-Proto: https\r\n"},
        {"box.example", "http://box.example", 403, "X-Forwarded-Proto: https\r\n"},
        {"box.example", "http://box.example", 200, "X-Forwarded-Proto: httpx\r\n"},
        {"box.example", "http://box.example", 403, "Origin: http://box.example\r\n"}, /* twice */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char request[300];
        snprintf(request, sizeof request, "GET /health HTTP/1.1\r\nHost: %s\r\nOrigin: %s\r\n%s\r\n", cases[i].host,
                 cases[i].origin, cases[i].more ? cases[i].more : "");
        struct http_reply r = raw(request, NULL);
        if (r.status != cases[i].status)
            ck_abort_msg("%s %s: %d", cases[i].host, cases[i].origin, r.status);
        bool cors = http_header(&r, "Access-Control-Allow-Origin") != NULL;
        ck_assert_int_eq(cors, strcmp(cases[i].origin, "https://app.example") == 0);
        http_reply_clear(&r);
    }
    struct http_reply r = raw("OPTIONS /generate HTTP/1.1\r\nHost: a\r\nOrigin: https://app.example\r\n"
                              "Access-Control-Request-Method: POST\r\n\r\n", NULL);
    ck_assert_int_eq(r.status, 204);
    ck_assert_str_eq(http_header(&r, "Access-Control-Allow-Methods"), "POST");
    http_reply_clear(&r);
    r = raw("OPTIONS /generate HTTP/1.1\r\nHost: a\r\nOrigin: https://other.example\r\n\r\n", NULL);
    ck_assert_int_eq(r.status, 403);
    http_reply_clear(&r);
    r = raw("OPTIONS /nope HTTP/1.1\r\nHost: a\r\nOrigin: https://app.example\r\n\r\n", NULL);
    ck_assert_int_eq(r.status, 404);
    http_reply_clear(&r);
    r = raw("OPTIONS /generate HTTP/1.1\r\nHost: a\r\n\r\n", NULL); /* no origin: no method of that name */
    ck_assert_int_eq(r.status, 405);
    http_reply_clear(&r);
    daemon_stop(&d);
}
END

TEST(unix_sockets_have_a_mode_and_replace_only_dead_ones)
{
    char path[120], listen_at[128], other_at[128];
    snprintf(path, sizeof path, "%s/socket", suite_tmp());
    snprintf(listen_at, sizeof listen_at, "unix:%s", path);
    int dead = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    strcpy(a.sun_path, path);
    ck_assert_int_eq(bind(dead, (struct sockaddr *)&a, sizeof a), 0);
    close(dead);
    const char *options[] = {"--listen", listen_at, "--socket-mode", "0600", NULL};
    start(options);
    struct stat st;
    ck_assert_int_eq(stat(path, &st), 0);
    ck_assert_int_eq((int)(st.st_mode & 0777), 0600);
    struct daemon second;
    ck_assert(!daemon_spawn(&second, model_tiny(), options)); /* a living one stays */
    ck_assert(daemon_logged(&second, "in use", PATIENCE_MS));
    ck_assert(daemon_logged(&second, "stopped status=1", PATIENCE_MS)); /* worth another try, like a TCP port in use */
    ck_assert_int_eq(status_with("GET", "/health", NULL), 200);
    daemon_stop(&d);
    ck_assert_int_ne(access(path, F_OK), 0);
    FILE *f = fopen(path, "w"); /* what is no socket is not removed */
    fclose(f);
    ck_assert(!daemon_spawn(&second, model_tiny(), options));
    ck_assert_int_eq(access(path, F_OK), 0);
    snprintf(other_at, sizeof other_at, "%s-2", listen_at);
    const char *two[] = {"--listen", "127.0.0.1:0", "--listen", other_at, NULL};
    start(two);
    ck_assert_int_eq(status_with("GET", "/health", NULL), 200);
    strcpy(d.address, other_at);
    ck_assert_int_eq(status_with("GET", "/health", NULL), 200);
    daemon_stop(&d);
}
END

/* On TCP a half-close cannot be told from a close and cancels; on a Unix socket it can, and does not. */
TEST(a_half_close_cancels_on_tcp_only)
{
    char unix_at[128];
    snprintf(unix_at, sizeof unix_at, "unix:%s/half", suite_tmp());
    const char *options[] = {"--listen", "127.0.0.1:0", "--listen", unix_at, "--tier", "scalar", "--threads", "1", NULL};
    daemon_start(&d, model_slow(), options);
    struct http bystander; /* libmicrohttpd looks at the oldest connection in another order than at the rest */
    struct http_reply other = {0};
    ck_assert(http_open(&bystander, unix_at) && http_request(&bystander, "GET", "/health", NULL, NULL));
    ck_assert(http_read_reply(&bystander, &other, PATIENCE_MS));
    http_reply_clear(&other);
    for (int local = 0; local < 2; local++) {
        struct http h;
        struct http_reply r = {0};
        ck_assert(http_open(&h, local ? unix_at : d.address));
        ck_assert(http_request(&h, "POST", "/generate", NULL,
                               local ? "{\"prompt\":[1,5],\"max_tokens\":50,\"ignore_eos\":true,\"stream\":false}"
                                     : "{\"prompt\":[1,5],\"max_tokens\":4000,\"ignore_eos\":true,\"stream\":false}"));
        shutdown(h.fd, SHUT_WR);
        bool answered = http_read_reply(&h, &r, PATIENCE_MS);
        ck_assert_int_eq(answered, local);
        ck_assert_int_eq(r.status, local ? 200 : 0);
        http_reply_clear(&r);
        http_close(&h);
        ck_assert(http_open(&h, local ? unix_at : d.address)); /* what needs no engine is answered in any case */
        ck_assert(http_request(&h, "GET", "/health", NULL, NULL));
        shutdown(h.fd, SHUT_WR);
        ck_assert(http_read_reply(&h, &r, PATIENCE_MS));
        ck_assert_int_eq(r.status, 200);
        ck_assert(http_is_closed(&h, PATIENCE_MS));
        http_reply_clear(&r);
        http_close(&h);
    }
    http_close(&bystander);
    daemon_stop(&d);
}
END

TEST(a_file_replaced_by_rename_serves_on_and_one_rewritten_in_place_is_noticed)
{
    char path[128], other[140];
    size_t size;
    snprintf(path, sizeof path, "%s/model.gguf", suite_tmp());
    snprintf(other, sizeof other, "%s.new", path);
    char *image = suite_read(model_tiny(), &size);
    for (int i = 0; i < 2; i++) {
        FILE *f = fopen(i ? other : path, "w");
        ck_assert_uint_eq(fwrite(image, 1, size, f), size);
        fclose(f);
    }
    daemon_start(&d, path, NULL);
    ck_assert_int_eq(rename(other, path), 0);
    ck_assert_int_eq(status_with("GET", "/ready", NULL), 200);
    daemon_stop(&d);
    daemon_start(&d, path, NULL);
    ck_assert_int_eq(truncate(path, (off_t)size - 4096), 0);
    ck_assert_int_eq(status_with("GET", "/ready", NULL), 503);
    ck_assert(daemon_logged(&d, "model-changed", PATIENCE_MS));
    struct http_reply r;
    http_call(d.address, "POST", "/generate", NULL, "{\"prompt\":[1,5]}", &r);
    ck_assert_int_eq(r.status, 503);
    ck_assert(http_has(&r, "model-changed"));
    http_reply_clear(&r);
    ck_assert_int_eq(status_with("GET", "/health", NULL), 200);
    daemon_stop(&d);
    free(image);
}
END

TEST(a_rewritten_file_is_noticed_without_a_request)
{
    char path[128];
    size_t size;
    snprintf(path, sizeof path, "%s/rewritten.gguf", suite_tmp());
    char *image = suite_read(model_tiny(), &size);
    FILE *f = fopen(path, "w");
    ck_assert_uint_eq(fwrite(image, 1, size, f), size);
    fclose(f);
    free(image);
    daemon_start(&d, path, NULL);
    ck_assert_int_eq(truncate(path, (off_t)size - 4096), 0);
    ck_assert(daemon_logged(&d, "model-changed", PATIENCE_MS));
    daemon_stop(&d);
}
END

SUITE(hygiene, T(ambiguous_framing_is_refused_and_the_connection_closed), T(a_line_ends_with_CR_and_LF),
      T(continued_header_lines_are_refused), T(an_extension_of_a_chunk_is_read_over_or_refused),
      T(a_nul_in_the_header_is_refused), T(odd_but_clear_requests_are_served), T(a_target_may_name_scheme_and_host),
      T(a_connection_survives_refusals_and_pipelining), T(bodies_have_a_limit_in_all),
      T(bodies_have_a_limit_however_they_are_sent), T(a_body_may_have_max_body_bytes_and_not_one_more), T(headers_have_a_limit),
      T(keys_stay_out_of_the_log_and_prompts_unless_asked_for), T(no_terminal_escape_of_a_client_reaches_the_log),
      T(no_memory_is_writable_and_executable), T(slow_senders_are_disconnected),
      T(a_daemon_that_was_stopped_forgives_the_time), T(request_ids_are_kept_or_made), T(keys_guard_every_route_but_the_open_ones),
      T(foreign_origins_are_refused_and_allowed_ones_get_cors), T(unix_sockets_have_a_mode_and_replace_only_dead_ones),
      T(a_half_close_cancels_on_tcp_only), T(a_file_replaced_by_rename_serves_on_and_one_rewritten_in_place_is_noticed),
      T(a_rewritten_file_is_noticed_without_a_request))
