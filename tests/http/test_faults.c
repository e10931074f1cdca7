/* Calls that fail, each in its turn: memory, files, sockets, threads. The daemon either refuses to start with a message
 * and status 1 or 2, or goes on; a request is served, ends with a problem of 5xx, or with its connection; the next one
 * is served, and nothing leaks (under ASan). */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/json.h"
#include "tests/support/daemon_process.h"
#include "tests/support/faults.h"
#include "tests/support/suite.h"

#define KEY "Authorization: Bearer secret\r\n"
enum { FAILING_STATUS_MAX = 2, GAVE_UP = -2 };

static struct faults *faults;
static char socket_path[160], address[200];

/* Makes the shared file, and has daemon_fork start the program that looks at it. */
static void setup(void)
{
    char path[160], program[512];
    const char *build = getenv("GGUFD_BUILD");
    snprintf(path, sizeof path, "%s/faults", suite_tmp());
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    ck_assert(fd >= 0 && ftruncate(fd, sizeof *faults) == 0);
    faults = mmap(NULL, sizeof *faults, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ck_assert(faults != MAP_FAILED);
    close(fd);
    snprintf(program, sizeof program, "%s/tests/ggufd-faults", build ? build : suite_root("build/release"));
    setenv("GGUFD_FAULTS", path, 1);
    setenv("GGUFD_BINARY", program, 1);
    /* What a sanitizer finds must not look like a refusal. */
    setenv("ASAN_OPTIONS", "detect_leaks=1:allocator_may_return_null=1:exitcode=77", 1);
    setenv("UBSAN_OPTIONS", "exitcode=77", 1);
    snprintf(socket_path, sizeof socket_path, "%s/socket", suite_tmp());
    snprintf(address, sizeof address, "unix:%s", socket_path);
}

static void arm(unsigned long n)
{
    atomic_store(&faults->fail_at, 0);
    atomic_store(&faults->failed, 0);
    atomic_store(&faults->calls, 0);
    faults->function[0] = 0;
    atomic_store(&faults->fail_at, n);
}

/* True when the call was reached and has failed. */
static bool disarm(void)
{
    atomic_store(&faults->fail_at, 0);
    return atomic_load(&faults->failed) > 0;
}

static const char *write_file(const char *name, const char *text)
{
    static char paths[4][200];
    static unsigned next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", suite_tmp(), name);
    FILE *f = fopen(path, "w");
    ck_assert(f && fputs(text, f) >= 0 && fclose(f) == 0);
    return path;
}

static void fail_test(const struct daemon *d, const char *what)
{
    char *log = suite_read(d->log, NULL);
    fprintf(stderr, "note: the log:\n%s\n", log ? log : "");
    free(log);
    ck_abort_msg("%s, after call %lu, %s, from +0x%lx", what, atomic_load(&faults->calls), faults->function,
                 faults->caller);
}

/* ---- starting ---- */

/* A refusal has its message, unless the message is what failed. */
static void check_refusal(const struct daemon *d, int status)
{
    struct stat st;
    if (status < 1 || status > FAILING_STATUS_MAX)
        fail_test(d, "ended with a status that is neither 1 nor 2");
    if (strcmp(faults->function, "write") != 0 && (stat(d->log, &st) != 0 || st.st_size == 0))
        fail_test(d, "ended without a message");
}

/* -1: serves; GAVE_UP: refuses to serve a model that it could not examine; otherwise the status it ended with. */
static int wait_for_outcome(const struct daemon *d)
{
    for (double until = now_ms() + PATIENCE_MS; now_ms() < until; sleep_ms(2)) {
        struct http_reply r;
        siginfo_t info = {0};
        if (waitid(P_PID, (id_t)d->pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == d->pid)
            return daemon_wait((struct daemon *)(uintptr_t)d, PATIENCE_MS);
        http_call(address, "GET", "/ready", NULL, NULL, &r);
        int status = r.status;
        bool changed = http_has(&r, "model-changed") && strcmp(faults->function, "fstat") == 0;
        http_reply_clear(&r);
        if (status == 200)
            return -1;
        if (changed) {
            daemon_stop((struct daemon *)(uintptr_t)d);
            return GAVE_UP;
        }
    }
    fail_test(d, "neither ends nor becomes ready");
    return 0;
}

static int status_of(const char *method, const char *path, const char *headers, const char *body)
{
    struct http_reply r;
    http_call(address, method, path, headers, body, &r);
    int status = r.status;
    http_reply_clear(&r);
    return status;
}

/* What must hold of a daemon that serves: the key opens the door, and nothing else does. */
static void check_serving(struct daemon *d)
{
    if (status_of("POST", "/tokenize", KEY, "{\"content\":\"hello\"}") != 200)
        fail_test(d, "serves no request");
    if (status_of("POST", "/tokenize", NULL, "{\"content\":\"hello\"}") != 401)
        fail_test(d, "serves without a key");
    kill(d->pid, SIGTERM);
    if (daemon_wait(d, PATIENCE_MS) != 0)
        fail_test(d, "does not end in order");
}

static void start(struct daemon *d, const char *const *options)
{
    daemon_fork(d, model_tiny(), options);
    snprintf(d->address, sizeof d->address, "%s", address);
}

static void leave_socket(void)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    strcpy(a.sun_path, socket_path);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    close(fd);
}

TEST(each_call_of_start_may_fail)
{
    setup();
    char config[512];
    snprintf(config, sizeof config, "{\"listen\": [\"%s\", \"127.0.0.1:0\"], \"max_connections\": 64, \"prefault\": true}",
             address);
    const char *options[] = {"--config", write_file("config.json", config), "--api-key-file",
                             write_file("keys", "# keys\nsecret\nother\n"), "--listen", address, "--listen",
                             "127.0.0.1:0", "--threads", "2", "--allowed-hosts", "a.example,b.example", NULL};
    struct daemon d;
    unsigned long served = 0, refused = 0;
    arm(0);
    start(&d, options);
    ck_assert_int_eq(wait_for_outcome(&d), -1);
    unsigned long calls = atomic_load(&faults->calls);
    check_serving(&d);
    calls += 3; /* and those about a socket that a dead process left */
    for (unsigned long n = 1; n <= calls; n++) {
        leave_socket();
        arm(n);
        start(&d, options);
        int status = wait_for_outcome(&d);
        bool failed = disarm();
        if (status == -1)
            check_serving(&d);
        else if (!failed)
            fail_test(&d, "ended without a fault");
        else if (status != GAVE_UP)
            check_refusal(&d, status);
        served += status == -1;
        refused += status != -1;
        unlink(socket_path); /* left by a refusal that could not remove it */
    }
    printf("note: each of %lu calls of start failed: %lu refused with a message, %lu served all the same\n", calls, refused,
           served);
    ck_assert_uint_gt(refused, served / 20);
}
END

/* Commands end with their whole result and 0, or with a message and 1 or 2. */
static void sweep_command(const char *name, const char *const *options, bool model)
{
    struct daemon d;
    unsigned long failed = 0;
    arm(0);
    daemon_fork(&d, model ? model_tiny() : NULL, options);
    ck_assert_int_eq(daemon_wait(&d, PATIENCE_MS), 0);
    unsigned long calls = atomic_load(&faults->calls);
    size_t size, got_size;
    char *expected = suite_read(d.log, &size);
    for (unsigned long n = 1; n <= calls; n++) {
        arm(n);
        daemon_fork(&d, model ? model_tiny() : NULL, options);
        int status = daemon_wait(&d, PATIENCE_MS);
        failed += status != 0;
        if (status != 0) {
            check_refusal(&d, status);
            continue;
        }
        char *got = suite_read(d.log, &got_size);
        if (!got || got_size < size / 2)
            fail_test(&d, "ended with 0 and half a result");
        free(got);
    }
    free(expected);
    disarm();
    printf("note: each of %lu calls of %s failed: %lu refused with a message\n", calls, name, failed);
}

TEST(each_call_of_a_command_may_fail)
{
    setup();
    char log_file[200];
    snprintf(log_file, sizeof log_file, "%s/own.log", suite_tmp());
    sweep_command("--check", (const char *[]){"--check", "--json", "--log-file", log_file, NULL}, true);
    sweep_command("--inspect", (const char *[]){"--inspect", model_tiny(), NULL}, false);
    sweep_command("--prompt", (const char *[]){"--prompt", "hello", "--max-tokens", "8", NULL}, true);
    sweep_command("--prompt-tokens", (const char *[]){"--prompt-tokens", "1,300", "--max-tokens", "2", "--json", NULL}, true);
}
END

/* ---- requests ---- */

#define IDS_16 "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16"
static const struct {
    const char *method, *path, *body, *has;
} requests[] = {
    {"GET", "/health", NULL, "ok"},
    {"GET", "/ready", NULL, ""},
    {"GET", "/metrics", NULL, "ggufd_jobs_running"},
    {"GET", "/v1/models", NULL, "\"data\""},
    {"GET", "/model", NULL, "fingerprint"},
    {"GET", "/", NULL, "<html"},
    {"POST", "/tokenize", "{\"content\":\"hello <s> the\",\"with_pieces\":true,\"add_special\":true}", "\"tokens\""},
    {"POST", "/detokenize", "{\"tokens\":[1,300,301,302]}", "\"content\""},
    {"POST", "/logits", "{\"prompt\":\"hello the\",\"top\":5,\"positions\":\"all\"}", "\"logit\""},
    {"POST", "/logits", "{\"prompt\":[1,300,{\"text\":\"he\"},301],\"positions\":[0,2],\"format\":\"f32\"}", ""},
    {"POST", "/generate", "{\"prompt\":\"hello\",\"max_tokens\":6,\"ignore_eos\":true,\"stop\":[\"zq\",\"qz\"],"
                          "\"stop_tokens\":[0,1],\"logprobs\":2,\"id\":\"one\"}", "\"reason\""},
    {"POST", "/generate", "{\"prompt\":[" IDS_16 "," IDS_16 "," IDS_16 "," IDS_16 "],\"max_tokens\":2,\"ignore_eos\":true,"
                          "\"stream\":false,\"logprobs\":1}", "\"text\""}, /* the list of ids grows for the first token */
    {"POST", "/generate", "{\"prompt\":\"hello\",\"max_tokens\":6,\"ignore_eos\":true,\"stream\":false,\"progress\":true}",
     "\"text\""},
    {"POST", "/v1/completions", "{\"model\":\"m\",\"prompt\":[\"hello\",\"the\"],\"max_tokens\":4,\"temperature\":0,"
                                "\"logprobs\":2,\"echo\":true}", "\"choices\""},
    {"POST", "/v1/completions", "{\"prompt\":\"hello\",\"max_tokens\":4,\"temperature\":0,\"stream\":true,"
                                "\"echo\":true,\"stream_options\":{\"include_usage\":true}}",
     "\"finish_reason\":\"length\""},
    {"DELETE", "/generate/none", NULL, NULL},
};
enum { N_REQUESTS = sizeof requests / sizeof requests[0], LARGE = N_REQUESTS };

/* The body of a request; the last is large enough for a worker thread. */
static const char *body_of(size_t i)
{
    static char large[6200];
    if (i < N_REQUESTS)
        return requests[i].body;
    size_t n = (size_t)snprintf(large, sizeof large, "{\"content\":\"");
    while (n < 6000)
        n += (size_t)snprintf(large + n, sizeof large - n, "hello the ");
    snprintf(large + n, sizeof large - n, "\"}");
    return large;
}

/* A job whose reply was lost may still be about to end, and holds its id until then. */
static void ask(size_t i, struct http_reply *r)
{
    double until = now_ms() + PATIENCE_MS;
    for (bool again = false; !again || (r->status == 409 && now_ms() < until); again = true) {
        if (again)
            http_reply_clear(r);
        http_call(address, i == LARGE ? "POST" : requests[i].method, i == LARGE ? "/tokenize" : requests[i].path, KEY,
                  body_of(i), r);
    }
}

/* The reply to an undisturbed request. */
static bool is_right(size_t i, const struct http_reply *r)
{
    if (i < N_REQUESTS && !requests[i].has)
        return r->status == 404;
    return r->status == 200 && (i == LARGE || http_has(r, requests[i].has) || !requests[i].has[0]);
}

static bool is_problem(const struct http_reply *r)
{
    struct json_value root;
    const char *type = http_header(r, "Content-Type");
    return r->status >= 500 && (!type || strcmp(type, "application/problem+json") == 0) &&
           json_check(buffer_span(&r->body), &root, NULL) == STATUS_OK && http_has(r, "urn:ggufd:problem:");
}

/* Right, a problem, nothing at all, or a stream that says or shows that it broke off. */
static bool is_acceptable(size_t i, const struct http_reply *r)
{
    return r->status == 0 || is_right(i, r) || is_problem(r) || (r->status == 200 && http_has(r, "error"));
}

/* True when a reply that looks right is that of the undisturbed request, except for its times. Replies below /v1 name
 * their request. */
static bool is_whole(size_t i, const struct http_reply *r, const struct http_reply *expected)
{
    static const char times[] = "\"timings\"";
    if (r->status != 200 || http_has(r, "error") || i == LARGE || !requests[i].body || strncmp(requests[i].path, "/v1", 3) == 0)
        return true;
    const char *end = memmem(expected->body.data, expected->body.size, times, sizeof times - 1);
    size_t n = end ? (size_t)(end - expected->body.data) : expected->body.size;
    return r->body.size >= n && memcmp(r->body.data, expected->body.data, n) == 0;
}

static bool disturb(struct daemon *d, const char *const *options, size_t i, unsigned long n,
                    const struct http_reply *expected)
{
    struct http_reply r;
    arm(n);
    ask(i, &r);
    bool failed = disarm();
    if (!is_acceptable(i, &r) || !is_whole(i, &r, expected)) {
        fprintf(stderr, "note: request %zu: status %d, %s\n", i, r.status, r.body.data ? r.body.data : "");
        fail_test(d, "a reply that is neither right nor a problem");
    }
    http_reply_clear(&r);
    if (failed && strcmp(faults->function, "fstat") == 0) { /* a model that cannot be watched counts as changed */
        kill(d->pid, SIGTERM);
        if (daemon_wait(d, PATIENCE_MS) != 0)
            fail_test(d, "does not end in order");
        start(d, options);
        ck_assert_int_eq(wait_for_outcome(d), -1);
    }
    ask(i, &r);
    if (!is_right(i, &r)) {
        fprintf(stderr, "note: request %zu: status %d, %s\n", i, r.status, r.body.data ? r.body.data : "");
        fail_test(d, "the next request is not served");
    }
    http_reply_clear(&r);
    return failed;
}

TEST(each_call_of_a_request_may_fail)
{
    setup();
    const char *options[] = {"--listen", address, "--api-key-file", write_file("keys", "secret\n"), "--threads", "2",
                             "--log-level", "debug", "--log-prompts", NULL};
    struct daemon d;
    unsigned long failed = 0;
    arm(0);
    start(&d, options);
    ck_assert_int_eq(wait_for_outcome(&d), -1);
    for (size_t i = 0; i <= N_REQUESTS; i++) {
        struct http_reply r;
        ask(i, &r); /* fills the cache of keys and values, so that all rounds are alike */
        http_reply_clear(&r);
        ask(i, &r);
        if (!is_right(i, &r)) {
            fprintf(stderr, "note: request %zu: status %d, %s\n", i, r.status, r.body.data ? r.body.data : "");
            fail_test(&d, "an undisturbed request is not served");
        }
        for (unsigned long n = 1; disturb(&d, options, i, n, &r); n++)
            failed++;
        http_reply_clear(&r);
    }
    check_serving(&d);
    printf("note: %lu calls of %d requests failed; each next request was served\n", failed, N_REQUESTS + 1);
    ck_assert_uint_gt(failed, 50);
}
END

/* Events in the log that end a reload; requests may be logged at any time. */
static unsigned count_reloads(const char *log_file)
{
    unsigned n = 0;
    char *text = suite_read(log_file, NULL);
    for (const char *at = text; at && (at = strstr(at, " reload")) != NULL; at++)
        n++;
    free(text);
    return n;
}

/* Reading the keys again must never open the door, whatever fails. */
TEST(each_call_of_a_reload_may_fail)
{
    setup();
    char log_file[200];
    snprintf(log_file, sizeof log_file, "%s/own.log", suite_tmp());
    const char *options[] = {"--listen", address, "--api-key-file", write_file("keys", "other\nsecret\n"), "--log-file",
                             log_file, NULL};
    struct daemon d;
    unsigned long n = 1;
    arm(0);
    start(&d, options);
    ck_assert_int_eq(wait_for_outcome(&d), -1);
    for (bool failed = true; failed; n++) {
        unsigned before = count_reloads(log_file);
        arm(n);
        kill(d.pid, SIGHUP);
        for (double until = now_ms() + PATIENCE_MS;
             count_reloads(log_file) == before && !atomic_load(&faults->failed) && now_ms() < until; sleep_ms(1))
            continue;
        failed = disarm();
        if (status_of("POST", "/tokenize", NULL, "{\"content\":\"a\"}") == 200)
            fail_test(&d, "serves without a key");
        for (const char *const *key = (const char *const[]){KEY, "Authorization: Bearer other\r\n", NULL}; *key; key++)
            if (status_of("POST", "/tokenize", *key, "{\"content\":\"a\"}") != 200)
                fail_test(&d, "a key is forgotten");
    }
    printf("note: %lu calls of a reload failed\n", n - 2);
    ck_assert_uint_gt(n, 5);
    check_serving(&d);
}
END

/* ---- while a worker prepares a request ---- */

static void close_gate(void)
{
    atomic_store(&faults->at_gate, 0);
    atomic_store(&faults->gate_closed, true);
}

static void open_gate(void)
{
    atomic_store(&faults->gate_closed, false);
}

/* A request that is large enough for a worker, which waits at the gate as the n-th. */
static struct http send_to_gate(const char *path, const char *members, unsigned n)
{
    struct http h;
    struct buffer body = {0};
    buffer_printf(&body, "{%s%*s}", members, 6000, "");
    buffer_byte(&body, 0);
    ck_assert(http_open(&h, address) && http_request(&h, "POST", path, NULL, body.data));
    buffer_clear(&body);
    for (double until = now_ms() + PATIENCE_MS; atomic_load(&faults->at_gate) < n; sleep_ms(1))
        ck_assert(now_ms() < until);
    return h;
}

static void expect_reply(struct http *h, int status, const char *text)
{
    struct http_reply r = {0};
    ck_assert(http_read_reply(h, &r, PATIENCE_MS));
    if (r.status != status || !http_has(&r, text))
        ck_abort_msg("%d %s, expected %d with %s", r.status, r.body.data ? r.body.data : "", status, text);
    http_reply_clear(&r);
    http_close(h);
}

TEST(a_line_that_fills_meanwhile_is_full)
{
    setup();
    struct daemon d;
    struct http running, h[3];
    struct http_reply r = {0};
    daemon_fork(&d, model_slow(), (const char *[]){"--listen", address, "--queue", "1", "--tier", "scalar", "--threads", "1", NULL});
    snprintf(d.address, sizeof d.address, "%s", address);
    ck_assert_int_eq(wait_for_outcome(&d), -1);
    ck_assert(http_open(&running, address));
    ck_assert(http_request(&running, "POST", "/generate", NULL, "{\"prompt\":[1,5],\"max_tokens\":4000,\"ignore_eos\":true}"));
    ck_assert(daemon_metric_becomes(&d, "ggufd_jobs_running", 1, PATIENCE_MS));
    close_gate();
    for (unsigned i = 0; i < 3; i++) /* the line has a place when each comes */
        h[i] = send_to_gate("/generate", "\"prompt\":[1,5],\"max_tokens\":1,\"stream\":false", i + 1);
    open_gate();
    ck_assert(daemon_metric_becomes(&d, "ggufd_jobs_queued", 1, PATIENCE_MS));
    ck_assert(daemon_metric_becomes(&d, "ggufd_jobs_total{route=\"/generate\",reason=\"refused\"}", 2, PATIENCE_MS));
    http_close(&running);
    unsigned served = 0, refused = 0;
    for (int i = 0; i < 3; i++) {
        ck_assert(http_read_reply(&h[i], &r, PATIENCE_MS));
        served += r.status == 200;
        refused += r.status == 503 && http_has(&r, "queue-full");
        http_reply_clear(&r);
        http_close(&h[i]);
    }
    ck_assert_uint_eq(served, 1);
    ck_assert_uint_eq(refused, 2);
    daemon_stop(&d);
}
END

TEST(while_every_connection_works_the_next_one_waits)
{
    enum { WORKERS = 4 };
    setup();
    struct daemon d;
    struct http h[WORKERS], next;
    start(&d, (const char *[]){"--listen", address, "--queue", "1", "--max-connections", "4", NULL});
    ck_assert_int_eq(wait_for_outcome(&d), -1);
    close_gate();
    for (unsigned i = 0; i < WORKERS; i++)
        h[i] = send_to_gate("/tokenize", "\"content\":\"hello\"", i + 1);
    arm(0);
    ck_assert(http_open(&next, address) && http_request(&next, "GET", "/health", NULL, NULL));
    for (double until = now_ms() + PATIENCE_MS; atomic_load(&faults->calls) == 0; sleep_ms(1)) /* it has looked */
        ck_assert(now_ms() < until);
    open_gate();
    for (unsigned i = 0; i < WORKERS; i++)
        expect_reply(&h[i], 200, "\"tokens\"");
    expect_reply(&next, 200, "ok");
    daemon_stop(&d);
}
END

TEST(a_client_that_leaves_meanwhile_leaves_nothing_behind)
{
    setup();
    struct daemon d;
    start(&d, (const char *[]){"--listen", address, NULL});
    ck_assert_int_eq(wait_for_outcome(&d), -1);
    close_gate();
    struct http gone = send_to_gate("/tokenize", "\"content\":\"hello\"", 1);
    http_close(&gone);
    ck_assert(daemon_logged(&d, "path=/tokenize status=0 ", PATIENCE_MS)); /* the request is over, the worker is not */
    struct http stays = send_to_gate("/tokenize", "\"content\":\"hello\"", 2);
    open_gate();
    expect_reply(&stays, 200, "\"tokens\"");
    daemon_stop(&d);
}
END

TEST(a_drain_that_begins_meanwhile_refuses_the_job)
{
    setup();
    struct daemon d;
    start(&d, (const char *[]){"--listen", address, NULL});
    ck_assert_int_eq(wait_for_outcome(&d), -1);
    close_gate();
    struct http h = send_to_gate("/generate", "\"prompt\":[1,5],\"max_tokens\":1", 1);
    struct http text = send_to_gate("/tokenize", "\"content\":\"hello\"", 2);
    kill(d.pid, SIGTERM);
    ck_assert(daemon_logged(&d, "draining", PATIENCE_MS));
    open_gate();
    expect_reply(&h, 503, "problem:draining");
    expect_reply(&text, 200, "\"tokens\""); /* it was there before, and needs no job */
    ck_assert_int_eq(daemon_wait(&d, PATIENCE_MS), 0);
}
END

TEST(an_end_at_once_waits_for_the_worker_and_for_nothing_else)
{
    setup();
    struct daemon d;
    start(&d, (const char *[]){"--listen", address, NULL});
    ck_assert_int_eq(wait_for_outcome(&d), -1);
    close_gate();
    struct http h = send_to_gate("/tokenize", "\"content\":\"hello\"", 1);
    kill(d.pid, SIGTERM);
    ck_assert(daemon_logged(&d, "draining", PATIENCE_MS));
    kill(d.pid, SIGTERM);
    ck_assert(http_is_closed(&h, PATIENCE_MS));
    siginfo_t info = {0};
    ck_assert(waitid(P_PID, (id_t)d.pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == 0); /* it waits */
    open_gate();
    ck_assert_int_eq(daemon_wait(&d, PATIENCE_MS), 0);
    http_close(&h);
}
END

/* ---- the system's limits, without help ---- */

TEST(a_full_disk_stops_the_log_and_nothing_else)
{
    setup();
    struct daemon d;
    const char *options[] = {"--listen", address, "--log-file", "/dev/full", "--log-level", "debug", NULL};
    start(&d, options);
    ck_assert_int_eq(wait_for_outcome(&d), -1);
    for (int i = 0; i < 20; i++)
        ck_assert_int_eq(status_of("POST", "/generate", NULL, "{\"prompt\":\"a\",\"max_tokens\":2}"), 200);
    daemon_stop(&d);
}
END

/* Somebody sets the time of day: no wait may be measured by it. */
TEST(a_clock_that_is_set_disturbs_no_timeout)
{
    static const long steps[] = {-86400, 86400, 0, -86400};
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        setup();
        struct daemon d;
        struct http running;
        struct http_reply r;
        const char *options[] = {"--listen", address, "--drain-timeout", "0", "--tier", "scalar", "--threads", "1", NULL};
        daemon_fork(&d, model_slow(), options);
        snprintf(d.address, sizeof d.address, "%s", address);
        ck_assert_int_eq(wait_for_outcome(&d), -1);
        ck_assert(http_open(&running, address)); /* runs until the end, with a deadline of an hour */
        ck_assert(http_request(&running, "POST", "/generate", NULL,
                               "{\"prompt\":[1,5],\"max_tokens\":4000,\"ignore_eos\":true,\"deadline_ms\":3600000}"));
        ck_assert(daemon_metric_becomes(&d, "ggufd_jobs_running", 1, PATIENCE_MS));
        atomic_store(&faults->clock_step_s, steps[i]);
        http_call(address, "POST", "/generate", NULL, "{\"prompt\":[1,9],\"max_tokens\":1,\"deadline_ms\":300}", &r);
        ck_assert(r.status == 503 && http_has(&r, "queue-timeout"));
        http_reply_clear(&r);
        if (daemon_metric(&d, "ggufd_jobs_running") < 1)
            fail_test(&d, "the running job was ended");
        kill(d.pid, SIGTERM);
        int status = daemon_wait(&d, PATIENCE_MS);
        if (status != 0)
            ck_abort_msg("a step of %ld s: status %d", steps[i], status);
        http_close(&running);
        atomic_store(&faults->clock_step_s, 0);
    }
}
END

static rlim_t n_descriptors;

static void limit_descriptors(void)
{
    close_range(3, ~0u, 0);
    setrlimit(RLIMIT_NOFILE, &(struct rlimit){n_descriptors, n_descriptors});
}

/* More clients than descriptors: those that wait are let in as others leave, and the daemon does not spin meanwhile. */
TEST(without_descriptors_idle_connections_make_room)
{
    setup();
    enum { CLIENTS = 100 };
    struct http clients[CLIENTS];
    struct daemon d;
    n_descriptors = 45;
    daemon_before_exec = limit_descriptors;
    start(&d, (const char *[]){"--listen", address, "--log-level", "debug", NULL});
    ck_assert_int_eq(wait_for_outcome(&d), -1);
    for (int i = 0; i < CLIENTS; i++)
        ck_assert(http_open(&clients[i], address));
    if (status_of("POST", "/generate", NULL, "{\"prompt\":\"a\",\"max_tokens\":2}") != 200)
        fail_test(&d, "the last client is not served");
    ck_assert_int_eq(status_of("GET", "/health", NULL, NULL), 200);
    double share = 1;
    for (int i = 0; i < ATTEMPTS && share >= 0.5; i++) {
        double before = daemon_cpu_ms(&d), begin = now_ms();
        sleep_ms(1000);
        share = (daemon_cpu_ms(&d) - before) / (now_ms() - begin);
    }
    ck_assert_double_lt(share, 0.5);
    for (int i = 0; i < CLIENTS; i++)
        http_close(&clients[i]);
    ck_assert_int_eq(status_of("GET", "/health", NULL, NULL), 200);
    daemon_stop(&d);
    daemon_before_exec = NULL;
}
END

TEST(too_few_descriptors_to_start_are_a_message)
{
    setup();
    unsigned refused = 0;
    daemon_before_exec = limit_descriptors;
    for (n_descriptors = 4; n_descriptors < 40; n_descriptors += 1 + 2 * (rlim_t)suite_sanitized()) {
        struct daemon d;
        start(&d, (const char *[]){"--listen", address, NULL});
        int status = wait_for_outcome(&d);
        refused += status >= 0;
        if (status >= 0)
            check_refusal(&d, status);
        else
            daemon_stop(&d);
        unlink(socket_path);
    }
    daemon_before_exec = NULL;
    ck_assert_uint_gt(refused, 2);
}
END

/* A reader of the log that is gone, and clients that leave in the middle, raise SIGPIPE where it is not ignored. */
static void broken_stderr(void)
{
    int ends[2];
    signal(SIGPIPE, SIG_DFL);
    if (pipe(ends))
        _exit(126);
    close(ends[0]);
    dup2(ends[1], 2);
}

TEST(a_broken_pipe_for_the_log_ends_nothing)
{
    setup();
    struct daemon d;
    daemon_before_exec = broken_stderr;
    start(&d, (const char *[]){"--listen", address, NULL});
    ck_assert_int_eq(wait_for_outcome(&d), -1);
    ck_assert_int_eq(status_of("POST", "/generate", NULL, "{\"prompt\":\"a\",\"max_tokens\":2}"), 200);
    daemon_stop(&d);
    daemon_before_exec = NULL;
}
END

SUITE(faults, T_SLOW(each_call_of_start_may_fail, 1500), T_SLOW(each_call_of_a_command_may_fail, 900),
      T_SLOW(each_call_of_a_request_may_fail, 900), T(each_call_of_a_reload_may_fail), T(a_line_that_fills_meanwhile_is_full), T(while_every_connection_works_the_next_one_waits),
      T(a_client_that_leaves_meanwhile_leaves_nothing_behind), T(a_drain_that_begins_meanwhile_refuses_the_job),
      T(an_end_at_once_waits_for_the_worker_and_for_nothing_else),
      T(a_full_disk_stops_the_log_and_nothing_else), T(a_clock_that_is_set_disturbs_no_timeout), T(without_descriptors_idle_connections_make_room),
      T(too_few_descriptors_to_start_are_a_message), T(a_broken_pipe_for_the_log_ends_nothing))
