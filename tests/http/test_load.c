/* Many clients at once: a short line under 200 of them, slow-loris, idle connections, the connection limit. */
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "tests/support/daemon_process.h"
#include "tests/support/suite.h"

static struct daemon d;

static void raise_descriptor_limit(void)
{
    struct rlimit r;
    getrlimit(RLIMIT_NOFILE, &r);
    r.rlim_cur = r.rlim_max;
    setrlimit(RLIMIT_NOFILE, &r);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* n requests one after the other; returns the 99th percentile in ms. */
static double health_p99(size_t n, double *median)
{
    double times[500];
    for (size_t i = 0; i < n; i++) {
        struct http_reply r;
        double before = now_ms();
        http_call(d.address, "GET", "/health", NULL, NULL, &r);
        times[i] = now_ms() - before;
        if (r.status != 200)
            ck_abort_msg("/health: %d", r.status);
        http_reply_clear(&r);
    }
    qsort(times, n, sizeof times[0], compare);
    *median = times[n / 2];
    return times[n * 99 / 100];
}

static atomic_int n_ok, n_full, n_other;

static void *one_client(void *context)
{
    struct http_reply r;
    (void)context;
    http_call(d.address, "POST", "/generate", NULL, "{\"prompt\":[1,5,6],\"max_tokens\":20,\"ignore_eos\":true,\"stream\":false}", &r);
    bool full = r.status == 503 && http_has(&r, "queue-full") && http_header(&r, "Retry-After");
    atomic_fetch_add(r.status == 200 ? &n_ok : full ? &n_full : &n_other, 1);
    http_reply_clear(&r);
    return NULL;
}

TEST(two_hundred_clients_find_seventeen_places_and_clear_refusals)
{
    enum { CLIENTS = 200 };
    static const char *const options[] = {"--tier", "scalar", "--threads", "1", "--queue", "16", NULL};
    pthread_t threads[CLIENTS];
    daemon_start(&d, model_slow(), options);
    long before = daemon_rss_anon_kb(&d);
    for (int i = 0; i < CLIENTS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, one_client, NULL), 0);
    double median, p99 = health_p99(300, &median);
    for (int i = 0; i < CLIENTS; i++)
        pthread_join(threads[i], NULL);
    printf("note: %d served, %d refused, %d else; /health median %.2f ms, p99 %.2f ms; anonymous %ld -> %ld kB\n", n_ok, n_full,
           n_other, median, p99, before, daemon_rss_anon_kb(&d));
    ck_assert_int_eq(n_other, 0);
    ck_assert_int_eq(n_ok + n_full, CLIENTS);
    ck_assert_int_ge(n_ok, 17);
    ck_assert_int_gt(n_full, 0);
    ck_assert(suite_sanitized() || daemon_rss_anon_kb(&d) < before + 8192);
    ck_assert(daemon_metric(&d, "ggufd_jobs_total{route=\"/generate\",reason=\"length\"}") >= n_ok);
    daemon_stop(&d);
}
END

/* Each sends a byte now and then; the daemon answers others meanwhile and is rid of all when their time is over. */
TEST(five_hundred_slow_senders_starve_nobody)
{
    enum { SENDERS = 500 };
    static struct http h[SENDERS];
    static const char *const options[] = {"--header-timeout", "2", NULL};
    raise_descriptor_limit();
    daemon_start(&d, model_tiny(), options);
    for (int i = 0; i < SENDERS; i++) {
        ck_assert(http_open(&h[i], d.address));
        http_text(&h[i], "GET /health HTTP/1.1\r\n");
    }
    double begun = now_ms(), worst = 0, median;
    while (now_ms() - begun < 1500) {
        for (int i = 0; i < SENDERS; i++)
            http_text(&h[i], "X");
        double p99 = health_p99(50, &median);
        worst = p99 > worst ? p99 : worst;
    }
    ck_assert(daemon_metric(&d, "ggufd_connections") >= SENDERS);
    ck_assert(daemon_metric_becomes(&d, "ggufd_connections", 1, 5000 * (suite_sanitized() ? 3 : 1)));
    printf("note: /health p99 %.2f ms beside %d slow senders, gone after %.0f ms\n", worst, SENDERS, now_ms() - begun);
    for (int i = 0; i < SENDERS; i++)
        http_close(&h[i]);
    daemon_stop(&d);
}
END

TEST(a_thousand_idle_connections_cost_little)
{
    enum { IDLE = 1000 };
    static struct http h[IDLE];
    struct rlimit limit;
    raise_descriptor_limit();
    getrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur < IDLE + 200)
        SKIP("the limit on descriptors is too low");
    daemon_start(&d, model_tiny(), NULL);
    long before = daemon_rss_anon_kb(&d);
    for (int i = 0; i < IDLE; i++) {
        struct http_reply r = {0};
        ck_assert(http_open(&h[i], d.address));
        ck_assert(http_request(&h[i], "GET", "/health", NULL, NULL) && http_read_reply(&h[i], &r, 5000));
        http_reply_clear(&r);
    }
    double cpu = daemon_cpu_ms(&d);
    sleep_ms(1000);
    cpu = daemon_cpu_ms(&d) - cpu;
    long after = daemon_rss_anon_kb(&d);
    printf("note: %d kept connections: %ld kB more, %.2f ms of CPU a second\n", IDLE, after - before, cpu);
    ck_assert(suite_sanitized() || after - before < 40000);
    ck_assert(cpu < 50 * (suite_sanitized() ? 4 : 1));
    for (int i = 0; i < IDLE; i++)
        http_close(&h[i]);
    ck_assert(daemon_metric_becomes(&d, "ggufd_connections", 1, 5000));
    daemon_stop(&d);
}
END

TEST(near_the_limit_the_longest_idle_connection_makes_room)
{
    enum { LIMIT = 20 };
    static const char *const options[] = {"--max-connections", "20", NULL};
    struct http h[LIMIT];
    struct http_reply r = {0};
    daemon_start(&d, model_tiny(), options);
    for (int i = 0; i < LIMIT; i++) {
        ck_assert(http_open(&h[i], d.address));
        ck_assert(http_request(&h[i], "GET", "/health", NULL, NULL) && http_read_reply(&h[i], &r, 5000));
        sleep_ms(2);
    }
    for (int i = 0; i < 3; i++) {
        http_reply_clear(&r);
        http_call(d.address, "GET", "/health", NULL, NULL, &r);
        ck_assert_int_eq(r.status, 200);
        ck_assert(i > 0 || !http_is_closed(&h[1], 100)); /* one caller costs one place */
    }
    ck_assert(http_is_closed(&h[0], 1000));
    ck_assert(http_request(&h[LIMIT - 1], "GET", "/health", NULL, NULL) && http_read_reply(&h[LIMIT - 1], &r, 5000));
    for (int i = 0; i < LIMIT; i++)
        http_close(&h[i]);
    http_reply_clear(&r);
    daemon_stop(&d);
}
END

TEST(health_stays_quick_while_a_generation_runs)
{
    static const char *const options[] = {"--tier", "scalar", "--threads", "1", NULL};
    daemon_start(&d, model_slow(), options);
    struct http h;
    ck_assert(http_open(&h, d.address));
    ck_assert(http_request(&h, "POST", "/generate", NULL, "{\"prompt\":[1,5],\"max_tokens\":3000,\"ignore_eos\":true}"));
    ck_assert(daemon_metric_becomes(&d, "ggufd_jobs_running", 1, 5000));
    double median, p99 = health_p99(300, &median);
    printf("note: /health during a generation: median %.2f ms, p99 %.2f ms\n", median, p99);
    ck_assert(median < 10 && p99 < 100 * (suite_sanitized() ? 3 : 1)); /* p99 < 10 ms needs a machine of its own */
    http_close(&h);
    daemon_stop(&d);
}
END

SUITE(load, T(two_hundred_clients_find_seventeen_places_and_clear_refusals), T(five_hundred_slow_senders_starve_nobody),
      T(a_thousand_idle_connections_cost_little), T(near_the_limit_the_longest_idle_connection_makes_room),
      T(health_stays_quick_while_a_generation_runs))
