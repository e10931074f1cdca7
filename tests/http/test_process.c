/* The process: signals in every state, systemd's side, a stuck engine, idleness. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <netinet/in.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/daemon_process.h"
#include "tests/support/suite.h"

static struct daemon d;
static const char *const slow[] = {"--tier", "scalar", "--threads", "1", "--batch", "32", "--drain-timeout", "1", NULL};
/* Whoever waits for one of these is given up by the test. */
#define FAR "600"
_Static_assert(BEYOND_PATIENCE_S == 600, "FAR");

static int status_of(const char *path)
{
    struct http_reply r;
    http_call(d.address, "GET", path, NULL, NULL, &r);
    int status = r.status;
    http_reply_clear(&r);
    return status;
}

static struct http begin(const char *body)
{
    struct http h;
    ck_assert(http_open(&h, d.address));
    ck_assert(http_request(&h, "POST", "/generate", NULL, body));
    return h;
}

/* Prefill of many seconds, then more of decode. */
static char *long_prompt(void)
{
    char *ids = prompt_of_ids(3000), *body = NULL;
    ck_assert(asprintf(&body, "{\"prompt\":%s,\"max_tokens\":1000,\"ignore_eos\":true}", ids) > 0);
    free(ids);
    return body;
}

/* SIGTERM, then the exit status. */
static void expect_orderly_end(const char *state)
{
    double before = now_ms();
    kill(d.pid, SIGTERM);
    int status = daemon_wait(&d, PATIENCE_MS);
    printf("note: SIGTERM %s: status %d after %.0f ms\n", state, status, now_ms() - before);
    ck_assert_int_eq(status, 0);
}

/* Reads what the shutdown left of a reply; true when it holds the text. A job that ran to its end was waited for. */
static bool was_told(struct http *h, const char *text)
{
    struct http_reply r = {0};
    http_read_reply(h, &r, PATIENCE_MS);
    if (http_has(&r, "\"reason\":\"length\""))
        ck_abort_msg("%d %s", r.status, r.body.data);
    bool told = http_has(&r, text);
    http_reply_clear(&r);
    http_close(h);
    return told;
}

TEST(sigterm_ends_an_idle_daemon_at_once)
{
    daemon_start(&d, model_tiny(), (const char *[]){"--drain-timeout", FAR, "--keepalive-timeout", FAR, NULL});
    struct http idle;
    struct http_reply r = {0};
    ck_assert(http_open(&idle, d.address)); /* a kept connection does not hold it up */
    ck_assert(http_request(&idle, "GET", "/health", NULL, NULL) && http_read_reply(&idle, &r, PATIENCE_MS));
    expect_orderly_end("idle");
    http_reply_clear(&r);
    http_close(&idle);
}
END

/* A stream of so many tokens and SIGTERM in its middle: true when it was in its middle. */
static bool drain_a_stream(int n_tokens)
{
    char body[100];
    daemon_start(&d, model_slow(), (const char *[]){"--tier", "scalar", "--threads", "1", "--drain-timeout", FAR, NULL});
    snprintf(body, sizeof body, "{\"prompt\":[1,5],\"max_tokens\":%d,\"ignore_eos\":true}", n_tokens);
    struct http h = begin(body), late, none;
    struct http_reply r = {0}, refused = {0};
    struct buffer line = {0};
    ck_assert(http_read_head(&h, &r, PATIENCE_MS) && http_read_line(&h, &r, &line, PATIENCE_MS));
    ck_assert(http_open(&late, d.address)); /* connected and accepted before, asks afterwards */
    ck_assert(http_request(&late, "GET", "/health", NULL, NULL) && http_read_reply(&late, &refused, PATIENCE_MS));
    kill(d.pid, SIGTERM);
    ck_assert(daemon_logged(&d, "draining", PATIENCE_MS));
    http_request(&late, "POST", "/generate", NULL, "{\"prompt\":[1]}");
    bool answered = http_read_reply(&late, &refused, PATIENCE_MS);
    ck_assert(!http_open(&none, d.address));
    while (http_read_line(&h, &r, &line, PATIENCE_MS))
        continue;
    ck_assert_ptr_nonnull(strstr(line.data, "\"reason\":\"length\""));
    ck_assert_int_eq(daemon_wait(&d, PATIENCE_MS), 0);
    if (answered) {
        ck_assert_int_eq(refused.status, 503);
        ck_assert(http_has(&refused, "draining"));
        ck_assert_str_eq(http_header(&refused, "Connection"), "close");
    }
    http_reply_clear(&r);
    http_reply_clear(&refused);
    buffer_clear(&line);
    http_close(&h);
    http_close(&late);
    return answered;
}

TEST(sigterm_lets_a_stream_end_that_fits_the_drain_time)
{
    bool answered = false; /* not when the stream ended, and the daemon with it, before the late request */
    for (int n_tokens = 100; !answered && n_tokens < 4000; n_tokens *= 3)
        answered = drain_a_stream(n_tokens);
    ck_assert(answered);
}
END

/* SIGTERM while one job runs and others wait; true when all were told. For that the daemon takes half a second only, in
 * which a machine may stand still. */
static bool all_are_told(const char *body, bool streams, int n_queued)
{
    struct http queued[16], running;
    struct http_reply r = {0};
    struct buffer line = {0};
    daemon_start(&d, model_slow(), slow);
    running = begin(body);
    if (streams)
        ck_assert(http_read_head(&running, &r, PATIENCE_MS) && http_read_line(&running, &r, &line, PATIENCE_MS));
    ck_assert(daemon_metric_becomes(&d, "ggufd_jobs_running", 1, PATIENCE_MS));
    for (int i = 0; i < n_queued; i++)
        queued[i] = begin(body);
    ck_assert(daemon_metric_becomes(&d, "ggufd_jobs_queued", n_queued, PATIENCE_MS));
    expect_orderly_end(streams ? "in mid-stream, with a drain timeout of 1 s" : "in mid-prefill, with a drain timeout of 1 s");
    while (streams && http_read_line(&running, &r, &line, PATIENCE_MS))
        continue;
    bool all = streams ? strstr(line.data, "\"reason\":\"shutdown\"") != NULL
                       : was_told(&running, "\"reason\":\"shutdown\"");
    ck_assert(!streams || !strstr(line.data, "\"reason\":\"length\""));
    for (int i = 0; i < n_queued; i++)
        all = was_told(&queued[i], "draining") && all;
    if (streams)
        http_close(&running);
    http_reply_clear(&r);
    buffer_clear(&line);
    return all;
}

TEST(sigterm_cuts_what_takes_longer_with_a_last_line)
{
    bool told = false;
    for (int i = 0; i < ATTEMPTS && !told; i++)
        told = all_are_told("{\"prompt\":[1,5],\"max_tokens\":4000,\"ignore_eos\":true}", true, 1);
    ck_assert(told);
}
END

TEST(sigterm_ends_a_prefill_and_a_full_line)
{
    char *body = long_prompt();
    bool told = false;
    for (int i = 0; i < ATTEMPTS && !told; i++)
        told = all_are_told(body, false, 16);
    ck_assert(told);
    free(body);
}
END

TEST(sigterm_ends_a_client_that_does_not_read)
{
    static const char *const options[] = {"--drain-timeout", "1", "--write-timeout", FAR, NULL};
    char *ids = prompt_of_ids(512), *body = NULL;
    ck_assert(asprintf(&body, "{\"prompt\":%s,\"top\":100,\"positions\":\"all\"}", ids) > 0);
    daemon_start(&d, model_tiny(), options);
    struct http deaf;
    ck_assert(http_open(&deaf, d.address));
    for (int i = 0; i < 4; i++)
        ck_assert(http_request(&deaf, "POST", "/logits", NULL, body));
    ck_assert(daemon_metric_becomes(&d, "ggufd_jobs_total{route=\"/logits\",reason=\"length\"}", 1, PATIENCE_MS));
    expect_orderly_end("with a client that does not read");
    http_close(&deaf);
    free(body);
    free(ids);
}
END

TEST(a_second_signal_ends_at_once)
{
    static const char *const options[] = {"--tier", "scalar", "--threads", "1", "--drain-timeout", FAR, NULL};
    daemon_start(&d, model_slow(), options);
    char *body = long_prompt();
    struct http h = begin(body);
    ck_assert(daemon_metric_becomes(&d, "ggufd_jobs_running", 1, PATIENCE_MS));
    kill(d.pid, SIGTERM);
    ck_assert(daemon_logged(&d, "draining", PATIENCE_MS));
    expect_orderly_end("twice");
    was_told(&h, "");
    free(body);
}
END

/* ---- systemd ---- */

static int notify_fd = -1, listen_fd = -1;

static void export_notify(void)
{
    char path[128];
    snprintf(path, sizeof path, "%s/notify", suite_tmp());
    setenv("NOTIFY_SOCKET", path, 1);
    setenv("WATCHDOG_USEC", "400000", 1);
}

static void open_notify(void)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof a.sun_path, "%s/notify", suite_tmp());
    notify_fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(notify_fd, (struct sockaddr *)&a, sizeof a), 0);
    export_notify(); /* the child inherits it */
}

/* The messages that have come, until one holds the text. */
static bool notified(const char *text)
{
    char message[1024];
    for (;;) {
        ssize_t n = recv(notify_fd, message, sizeof message - 1, MSG_DONTWAIT);
        if (n <= 0)
            return false;
        message[n] = 0;
        if (strstr(message, text))
            return true;
    }
}

static bool becomes_notified(const char *text)
{
    for (double until = now_ms() + PATIENCE_MS; now_ms() < until; sleep_ms(5))
        if (notified(text))
            return true;
    return false;
}

static bool ready_becomes(int status)
{
    for (double until = now_ms() + PATIENCE_MS; now_ms() < until; sleep_ms(5))
        if (status_of("/ready") == status)
            return true;
    return false;
}

static void pass_listener(void)
{
    char pid[16];
    dup2(listen_fd, 3);
    snprintf(pid, sizeof pid, "%d", getpid());
    setenv("LISTEN_PID", pid, 1);
    setenv("LISTEN_FDS", "1", 1);
}

TEST(a_socket_from_systemd_replaces_listen_and_outlives_the_daemon)
{
    struct sockaddr_in a = {.sin_family = AF_INET};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    listen_fd = socket(AF_INET, SOCK_STREAM, 0);
    ck_assert_int_eq(bind(listen_fd, (struct sockaddr *)&a, sizeof a), 0);
    ck_assert_int_eq(listen(listen_fd, 16), 0);
    daemon_before_exec = pass_listener;
    for (int round = 0; round < 2; round++) {
        daemon_start(&d, model_tiny(), NULL);
        ck_assert_int_eq(status_of("/health"), 200);
        daemon_stop(&d);
        struct http h; /* still listening: the next instance serves what waits */
        ck_assert(http_open(&h, d.address));
        http_close(&h);
    }
    daemon_before_exec = NULL;
    close(listen_fd);
}
END

static pid_t engine_thread_id(void)
{
    char path[64];
    pid_t found = 0;
    snprintf(path, sizeof path, "/proc/%d/task", d.pid);
    DIR *dir = opendir(path);
    for (struct dirent *e; dir && !found && (e = readdir(dir)) != NULL;) {
        char name[400], comm[32] = "";
        snprintf(name, sizeof name, "%s/%s/comm", path, e->d_name);
        FILE *f = e->d_name[0] == '.' ? NULL : fopen(name, "r");
        if (f && fgets(comm, sizeof comm, f) && strcmp(comm, "engine\n") == 0)
            found = (pid_t)atoi(e->d_name);
        if (f)
            fclose(f);
    }
    if (dir)
        closedir(dir);
    return found;
}

/* The engine's thread is held by ptrace, everything else runs on. */
TEST(a_stuck_engine_shows_in_ready_and_stops_the_watchdog)
{
    static const char *const options[] = {"--tier", "scalar", "--threads", "1", "--stall-timeout", "0.5",
                                          "--drain-timeout", "0.2", NULL};
    open_notify();
    daemon_start(&d, model_slow(), options);
    ck_assert(becomes_notified("READY=1"));
    ck_assert(becomes_notified("WATCHDOG=1"));
    char *body = long_prompt();
    struct http h = begin(body);
    ck_assert(daemon_metric_becomes(&d, "ggufd_jobs_running", 1, PATIENCE_MS));
    pid_t engine = engine_thread_id();
    ck_assert_int_gt(engine, 0);
    double before = daemon_cpu_ms(&d);
    while (daemon_cpu_ms(&d) < before + 800)
        sleep_ms(10);
    ck_assert(ready_becomes(200)); /* a long prefill is no stall, even if a machine that stood still looked like one */
    ck_assert(daemon_metric(&d, "ggufd_jobs_running") > 0);
    if (ptrace(PTRACE_SEIZE, engine, 0, 0) || ptrace(PTRACE_INTERRUPT, engine, 0, 0)) {
        http_close(&h);
        free(body);
        kill(d.pid, SIGKILL);
        SKIP("ptrace is not allowed here");
    }
    int status;
    ck_assert_int_eq(waitpid(engine, &status, __WALL), engine);
    before = now_ms();
    ck_assert(ready_becomes(503));
    printf("note: stalled after %.0f ms (stall_timeout 500 ms)\n", now_ms() - before);
    ck_assert_int_eq(status_of("/ready"), 503);
    ck_assert_int_eq(status_of("/health"), 200);
    while (notified("WATCHDOG=1")) /* what was sent before */
        continue;
    sleep_ms(1000); /* five intervals */
    ck_assert(!notified("WATCHDOG=1"));
    ptrace(PTRACE_CONT, engine, 0, 0);
    ck_assert(becomes_notified("WATCHDOG=1"));
    ck_assert(ready_becomes(200));

    ptrace(PTRACE_INTERRUPT, engine, 0, 0); /* and SIGTERM does not wait for it for ever */
    ck_assert_int_eq(waitpid(engine, &status, __WALL), engine);
    before = now_ms();
    kill(d.pid, SIGTERM);
    ck_assert(becomes_notified("STOPPING=1"));
    ck_assert(daemon_logged(&d, "engine_hangs=true", PATIENCE_MS));
    printf("note: gave a stuck engine up after %.0f ms\n", now_ms() - before);
    ck_assert_int_eq(waitpid(engine, &status, __WALL), engine); /* the kernel waits until its tracer has seen it end */
    ck_assert_int_eq(daemon_wait(&d, PATIENCE_MS), 1);
    http_close(&h);
    free(body);
    close(notify_fd);
}
END

static void be_traced(void)
{
    ptrace(PTRACE_TRACEME, 0, 0, 0);
}

/* The engine's thread is caught as it is born: the daemon loads for as long as the test wants. */
TEST(while_the_model_loads_the_daemon_answers_and_ends_when_told)
{
    if (suite_tsan())
        SKIP("the first thread is ThreadSanitizer's own, not the engine's");
    open_notify();
    for (int killed = 0; killed < 2; killed++) {
        int status;
        unsigned long thread = 0;
        daemon_before_exec = be_traced;
        daemon_fork(&d, model_tiny(), NULL);
        ck_assert_int_eq(waitpid(d.pid, &status, 0), d.pid);
        if (!WIFSTOPPED(status))
            SKIP("ptrace is not allowed here");
        ptrace(PTRACE_SETOPTIONS, d.pid, 0, PTRACE_O_TRACECLONE);
        ptrace(PTRACE_CONT, d.pid, 0, 0);
        ck_assert_int_eq(waitpid(d.pid, &status, 0), d.pid);
        ck_assert_int_eq(status >> 8, SIGTRAP | (PTRACE_EVENT_CLONE << 8));
        ptrace(PTRACE_GETEVENTMSG, d.pid, 0, &thread);
        ck_assert_int_eq(waitpid((pid_t)thread, &status, __WALL), (int)thread);
        ptrace(PTRACE_DETACH, d.pid, 0, 0);
        daemon_before_exec = NULL;
        ck_assert(daemon_wait_listening(&d));
        kill(d.pid, SIGHUP); /* a reload now must not tell the manager that the model is there */
        ck_assert(daemon_logged(&d, "reloaded", PATIENCE_MS));
        ck_assert(killed || !notified("READY=1")); /* the first round ends ready */
        ck_assert_int_eq(status_of("/health"), 200);
        ck_assert_int_eq(status_of("/ready"), 503);
        ck_assert_int_eq(status_of("/metrics"), 200);
        static const char *const routes[] = {"/generate", "/logits", "/tokenize", "/detokenize"};
        for (int i = 0; i < 4; i++) {
            struct http_reply r;
            http_call(d.address, "POST", routes[i], NULL, "{}", &r);
            ck_assert_int_eq(r.status, 503);
            ck_assert(http_has(&r, "problem:loading"));
            ck_assert_ptr_nonnull(http_header(&r, "Retry-After"));
            http_reply_clear(&r);
        }
        ck_assert(killed || !notified("READY=1"));
        if (killed)
            kill(d.pid, SIGTERM);
        ck_assert(!killed || daemon_logged(&d, "loading=true", PATIENCE_MS));
        if (killed) {
            ck_assert_int_eq(waitpid((pid_t)thread, &status, __WALL), (int)thread);
            ck_assert_int_eq(daemon_wait(&d, PATIENCE_MS), 0);
        } else {
            ptrace(PTRACE_DETACH, (pid_t)thread, 0, 0);
            ck_assert(daemon_wait_ready(&d, PATIENCE_MS));
            daemon_stop(&d);
        }
    }
}
END

/* Processor time in so many seconds, as ms a minute. */
static double idle_cpu_ms(double seconds)
{
    double before = daemon_cpu_ms(&d);
    sleep_ms(seconds * 1000);
    return (daemon_cpu_ms(&d) - before) * 60 / seconds;
}

/* Nothing ticks, or an attempt that met the end of earlier work is followed by one that does not. */
TEST(an_idle_daemon_costs_nothing)
{
    if (suite_tsan())
        SKIP("ThreadSanitizer's own thread takes processor time");
    daemon_start(&d, model_tiny(), NULL);
    struct http_reply r;
    http_call(d.address, "POST", "/generate", NULL, "{\"prompt\":[1,5],\"max_tokens\":3,\"stream\":false}", &r);
    http_reply_clear(&r);
    sleep_ms(300);
    double used = idle_cpu_ms(3);
    for (int i = 1; i < ATTEMPTS && !in_time(used, 10); i++)
        used = idle_cpu_ms(3);
    printf("note: %.1f ms of CPU a minute\n", used);
    ck_assert(in_time(used, 10));
    daemon_stop(&d);
}
END

/* One signal after the other until it is gone, with libuv's workers started or not. */
TEST(signals_while_it_stops_do_not_change_the_exit_status)
{
    static const int numbers[] = {SIGTERM, SIGINT, SIGHUP};
    for (int round = 0; round < (suite_sanitized() ? 8 : 24); round++) {
        daemon_start(&d, model_tiny(), NULL);
        if (round % 2) {
            char *ids = prompt_of_ids(2000), *body = NULL; /* more than is read on the loop's own thread */
            struct http_reply r;
            ck_assert(asprintf(&body, "{\"tokens\":%s}", ids) > 0);
            http_call(d.address, "POST", "/detokenize", NULL, body, &r);
            ck_assert_int_eq(r.status, 200);
            http_reply_clear(&r);
            free(ids);
            free(body);
        }
        siginfo_t info = {0};
        for (int i = 0; info.si_pid == 0; i++) {
            kill(d.pid, numbers[i % 3]);
            sleep_ms(0.1 * (i % 3));
            if (waitid(P_PID, (id_t)d.pid, &info, WEXITED | WNOHANG | WNOWAIT))
                ck_abort_msg("waitid: %s", strerror(errno));
        }
        int status = daemon_wait(&d, PATIENCE_MS);
        if (status != 0)
            ck_abort_msg("round %d: status %d", round, status);
    }
}
END

TEST(a_refused_model_ends_the_daemon_with_status_2)
{
    daemon_fork(&d, suite_root("Makefile"), NULL);
    ck_assert_int_eq(daemon_wait(&d, PATIENCE_MS), 2);
    ck_assert(daemon_logged(&d, "GGUF", PATIENCE_MS));
}
END

SUITE(process, T(sigterm_ends_an_idle_daemon_at_once), T(sigterm_lets_a_stream_end_that_fits_the_drain_time),
      T(sigterm_cuts_what_takes_longer_with_a_last_line),
      T(sigterm_ends_a_prefill_and_a_full_line), T(sigterm_ends_a_client_that_does_not_read), T(a_second_signal_ends_at_once),
      T(a_socket_from_systemd_replaces_listen_and_outlives_the_daemon),
      T(a_stuck_engine_shows_in_ready_and_stops_the_watchdog),
      T(while_the_model_loads_the_daemon_answers_and_ends_when_told), T(an_idle_daemon_costs_nothing),
      T(signals_while_it_stops_do_not_change_the_exit_status), T(a_refused_model_ends_the_daemon_with_status_2))
