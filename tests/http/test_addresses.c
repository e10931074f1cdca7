/* Where the daemon listens: every kind of address, and each refusal of one with its message and exit status. */
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/daemon_process.h"
#include "tests/support/suite.h"

static struct daemon d;

static int health(const char *address)
{
    struct http_reply r;
    http_call(address, "GET", "/health", NULL, NULL, &r);
    int status = r.status;
    http_reply_clear(&r);
    return status;
}

static bool has_ipv6(void)
{
    struct sockaddr_in6 a = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int fd = socket(AF_INET6, SOCK_STREAM, 0);
    bool has = fd >= 0 && bind(fd, (struct sockaddr *)&a, sizeof a) == 0;
    if (fd >= 0)
        close(fd);
    return has;
}

TEST(an_ipv6_address_stands_in_brackets_everywhere)
{
    if (!has_ipv6())
        SKIP("there is no IPv6 here");
    daemon_start(&d, model_tiny(), (const char *const[]){"--listen", "[::1]:0", NULL});
    ck_assert_int_eq(strncmp(d.address, "[::1]:", 6), 0);
    ck_assert(atoi(d.address + 6) > 0); /* the port that it became */
    struct http_reply r;
    http_call(d.address, "GET", "/model", NULL, NULL, &r);
    ck_assert_int_eq(r.status, 200);
    http_reply_clear(&r);
    ck_assert(daemon_logged(&d, "peer=[::1]:", PATIENCE_MS));
    daemon_stop(&d);
}
END

TEST(an_abstract_socket_has_no_file)
{
    char address[100];
    snprintf(address, sizeof address, "unix:@ggufd-test-%d", (int)getpid());
    daemon_start(&d, model_tiny(), (const char *const[]){"--listen", address, NULL});
    ck_assert_str_eq(d.address, address);
    ck_assert_int_eq(health(address), 200);
    struct daemon second;
    ck_assert(!daemon_spawn(&second, model_tiny(), (const char *const[]){"--listen", address, NULL}));
    ck_assert(daemon_logged(&second, "bind: Address already in use", PATIENCE_MS));
    daemon_stop(&d);
    ck_assert_int_eq(health(address), 0);
}
END

TEST(without_a_host_every_address_is_served)
{
    daemon_start(&d, model_tiny(), (const char *const[]){"--listen", ":0", NULL});
    const char *port = strrchr(d.address, ':');
    char loopback[64];
    ck_assert(strncmp(d.address, "0.0.0.0:", 8) == 0 || strncmp(d.address, "[::]:", 5) == 0);
    snprintf(loopback, sizeof loopback, "127.0.0.1%s", port);
    ck_assert_int_eq(health(loopback), strncmp(d.address, "0", 1) == 0 ? 200 : 0); /* [::] is IPv6 alone */
    daemon_stop(&d);
}
END

/* The exit status, and what the log says. */
static void expect_refusal(int status, const char *says, const char *const *options)
{
    daemon_fork(&d, model_tiny(), options);
    int got = daemon_wait(&d, PATIENCE_MS);
    char *log = suite_read(d.log, NULL);
    if (got != status || !log || !strstr(log, says))
        ck_abort_msg("%s: status %d, expected %d and \"%s\": %s", options[1], got, status, says, log ? log : "");
    free(log);
}
#define REFUSE(status, says, ...) expect_refusal(status, says, (const char *const[]){__VA_ARGS__, NULL})

/* 2: the configuration is wrong; 1: it may be right another time. */
TEST(an_address_that_cannot_be_used_is_a_message_and_a_status)
{
    char first[200], file[160], second[180];
    struct sockaddr_in a = {.sin_family = AF_INET};
    socklen_t size = sizeof a;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int taken = socket(AF_INET, SOCK_STREAM, 0);
    ck_assert(bind(taken, (struct sockaddr *)&a, sizeof a) == 0 && listen(taken, 1) == 0);
    getsockname(taken, (struct sockaddr *)&a, &size);
    snprintf(first, sizeof first, "127.0.0.1:%d", ntohs(a.sin_port));
    REFUSE(1, ": bind: Address already in use", "--listen", first);
    close(taken);
    REFUSE(2, "cannot listen on [fe80::1%nosuch]:1: ", "--listen", "[fe80::1%nosuch]:1");
    REFUSE(1, "cannot listen on 192.0.2.1:0: bind: Cannot assign requested address", "--listen", "192.0.2.1:0");
    REFUSE(1, "cannot listen on unix:/dev/null/x: Not a directory", "--listen", "unix:/dev/null/x");
    REFUSE(1, "cannot listen on unix:/nonexistent/x: bind: No such file", "--listen", "unix:/nonexistent/x");
    REFUSE(2, "must be HOST:PORT", "--listen", "unix:x");
    /* What was bound before the one that fails is taken back. */
    snprintf(first, sizeof first, "unix:%s/first", suite_tmp());
    snprintf(file, sizeof file, "%s/file", suite_tmp());
    snprintf(second, sizeof second, "unix:%s", file);
    FILE *f = fopen(file, "w");
    ck_assert(f && fclose(f) == 0);
    REFUSE(2, "exists and is not a socket", "--listen", first, "--listen", second);
    ck_assert_int_eq(access(first + 5, F_OK), -1);
    ck_assert_int_eq(access(file, F_OK), 0);
}
END

static const char *listen_fds;

static void announce_listen_fds(void)
{
    char pid[16];
    snprintf(pid, sizeof pid, "%d", getpid());
    setenv("LISTEN_PID", pid, 1);
    setenv("LISTEN_FDS", listen_fds, 1);
    close(3);
}

TEST(a_manager_that_hands_over_nonsense_is_refused)
{
    daemon_before_exec = announce_listen_fds;
    listen_fds = "many";
    REFUSE(2, "LISTEN_FDS must be in 0..64, not \\\"many\\\"", "--listen", "127.0.0.1:0");
    listen_fds = "1";
    REFUSE(2, "LISTEN_FDS: descriptor 3 is no socket", "--listen", "127.0.0.1:0");
    daemon_before_exec = NULL;
    setenv("NOTIFY_SOCKET", "relative", 1);
    REFUSE(2, "NOTIFY_SOCKET must be an absolute path", "--listen", "127.0.0.1:0");
    setenv("NOTIFY_SOCKET", "/nonexistent/notify", 1);
    REFUSE(1, "NOTIFY_SOCKET /nonexistent/notify: No such file", "--listen", "127.0.0.1:0");
    unsetenv("NOTIFY_SOCKET");
}
END

/* ---- without room ---- */

TEST(when_every_connection_works_the_next_one_waits_for_the_first_to_end)
{
    /* Four connections and a queue of one: a running job, a waiting one, and two whose bodies are not complete are all. */
    static const char *const options[] = {"--tier", "scalar", "--threads", "1", "--queue", "1", "--max-connections", "4", NULL};
    struct http busy[2], next;
    struct http_reply r = {0};
    daemon_start(&d, model_slow(), options);
    for (int i = 0; i < 2; i++) {
        ck_assert(http_open(&busy[i], d.address));
        ck_assert(http_request(&busy[i], "POST", "/generate", NULL, "{\"prompt\":[1,5],\"max_tokens\":4000,\"ignore_eos\":true}"));
        ck_assert(daemon_metric_becomes(&d, i ? "ggufd_jobs_queued" : "ggufd_jobs_running", 1, PATIENCE_MS));
    }
    struct http idle[8];
    for (int i = 0; i < 8; i++) /* each pushes the oldest idle one out, and never one that works */
        ck_assert(http_open(&idle[i], d.address));
    ck_assert(http_is_closed(&idle[0], PATIENCE_MS));
    ck_assert(http_open(&next, d.address));
    ck_assert(http_request(&next, "GET", "/health", NULL, NULL) && http_read_reply(&next, &r, PATIENCE_MS));
    ck_assert_int_eq(r.status, 200);
    ck_assert(daemon_metric_becomes(&d, "ggufd_jobs_running", 1, PATIENCE_MS));
    ck_assert(daemon_metric_becomes(&d, "ggufd_jobs_queued", 1, PATIENCE_MS));
    http_close(&busy[0]);
    ck_assert(daemon_metric_becomes(&d, "ggufd_jobs_queued", 0, PATIENCE_MS));
    for (int i = 0; i < 8; i++)
        http_close(&idle[i]);
    http_close(&busy[1]);
    http_close(&next);
    http_reply_clear(&r);
    daemon_stop(&d);
}
END

SUITE(addresses, T(an_ipv6_address_stands_in_brackets_everywhere), T(an_abstract_socket_has_no_file),
      T(without_a_host_every_address_is_served), T(an_address_that_cannot_be_used_is_a_message_and_a_status),
      T(a_manager_that_hands_over_nonsense_is_refused),
      T(when_every_connection_works_the_next_one_waits_for_the_first_to_end))
