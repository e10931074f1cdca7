/* The configurations of docs/nginx.md under a real nginx, as they stand there. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/daemon_process.h"
#include "tests/support/suite.h"

static pid_t nginx;
static char front[128]; /* nginx's address: a path, which nobody else can be quicker to have */

static const char *find_nginx(void)
{
    static const char *const paths[] = {"/usr/sbin/nginx", "/usr/bin/nginx", "/usr/local/sbin/nginx"};
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++)
        if (access(paths[i], X_OK) == 0)
            return paths[i];
    return NULL;
}

/* The n-th ```nginx block of the page. */
static char *block(int n)
{
    char *page = suite_read(suite_root("docs/nginx.md"), NULL), *at = page;
    ck_assert_ptr_nonnull(page);
    for (int i = 0; i <= n; i++) {
        at = strstr(at, "```nginx\n");
        ck_assert_ptr_nonnull(at);
        at += strlen("```nginx\n");
    }
    char *text = strndup(at, (size_t)(strstr(at, "```") - at));
    free(page);
    return text;
}

/* Replaces one text, which must be there. */
static char *replace(char *text, const char *from, const char *to)
{
    char *at = strstr(text, from), *out = NULL;
    ck_assert_msg(at != NULL, "docs/nginx.md lacks %s", from);
    ck_assert(asprintf(&out, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from)) > 0);
    free(text);
    return out;
}

static void start_nginx(char *servers)
{
    char path[128], listen_at[160];
    snprintf(front, sizeof front, "unix:%s/front.sock", suite_tmp());
    snprintf(listen_at, sizeof listen_at, "listen %s;", front);
    servers = replace(servers, "listen 80;", listen_at);
    snprintf(path, sizeof path, "%s/nginx.conf", suite_tmp());
    FILE *f = fopen(path, "w");
    fprintf(f, "daemon off; master_process off; pid %s/pid; error_log %s/error.log;\nevents {}\nhttp {\naccess_log off;\n"
               "client_body_temp_path %s/body; proxy_temp_path %s/proxy; fastcgi_temp_path %s/f; uwsgi_temp_path %s/u; "
               "scgi_temp_path %s/s;\n%s}\n", suite_tmp(), suite_tmp(), suite_tmp(), suite_tmp(), suite_tmp(),
            suite_tmp(), suite_tmp(), servers);
    fclose(f);
    free(servers);
    nginx = fork();
    if (nginx == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        execl(find_nginx(), "nginx", "-c", path, "-p", suite_tmp(), (char *)NULL);
        _exit(127);
    }
    struct http h;
    for (double until = now_ms() + PATIENCE_MS; now_ms() < until && waitpid(nginx, NULL, WNOHANG) == 0; sleep_ms(10))
        if (http_open(&h, front)) {
            http_close(&h);
            return;
        }
    ck_abort_msg("nginx does not start: %s", suite_read(path, NULL));
}

static void stop_nginx(void)
{
    kill(nginx, SIGQUIT);
    waitpid(nginx, NULL, 0);
}

static const char *const slow[] = {"--tier", "scalar", "--threads", "1", NULL};

static void start_single(struct daemon *d, const char *const *options)
{
    static char unix_at[128];
    const char *all[16] = {"--listen", unix_at};
    size_t n = 2;
    snprintf(unix_at, sizeof unix_at, "unix:%s/http.sock", suite_tmp());
    for (; options && *options; options++)
        all[n++] = *options;
    daemon_start(d, model_slow(), all);
    start_nginx(replace(block(0), "unix:/run/ggufd/ggufd.sock", unix_at));
}

/* All lines fit a buffer of nginx: if it kept them, the first would come with the last, when the daemon has ended the job. */
static bool first_line_comes_while_others_are_made(const struct daemon *d)
{
    struct http h;
    struct http_reply r = {0};
    struct buffer line = {0};
    ck_assert(http_open(&h, front));
    ck_assert(http_request(&h, "POST", "/generate", NULL, "{\"prompt\":[1,5],\"max_tokens\":12,\"ignore_eos\":true}"));
    ck_assert(http_read_head(&h, &r, PATIENCE_MS) && http_read_line(&h, &r, &line, PATIENCE_MS));
    bool whole = http_has(&r, "\"done\":true") || (h.in.size && memmem(h.in.data, h.in.size, "\"done\":true", 11));
    bool running = daemon_metric(d, "ggufd_jobs_running") > 0;
    int n = 1;
    for (; http_read_line(&h, &r, &line, PATIENCE_MS); n++)
        continue;
    ck_assert_int_eq(n, 13);
    ck_assert_ptr_nonnull(strstr(line.data, "\"done\":true"));
    buffer_clear(&line);
    http_reply_clear(&r);
    http_close(&h);
    return running && !whole;
}

TEST(lines_pass_as_they_come_with_stock_buffering)
{
    struct daemon d;
    if (!find_nginx())
        SKIP("nginx is not installed");
    start_single(&d, slow);
    bool seen = false;
    for (int i = 0; i < 10 * ATTEMPTS && !seen; i++)
        seen = first_line_comes_while_others_are_made(&d);
    ck_assert(seen);
    stop_nginx();
    daemon_stop(&d);
}
END

TEST(connections_are_reused_and_large_bodies_refused)
{
    struct daemon d;
    struct http_reply r;
    if (!find_nginx())
        SKIP("nginx is not installed");
    start_single(&d, slow);
    for (int i = 0; i < 30; i++) {
        http_call(front, "POST", i % 2 ? "/nope" : "/tokenize", NULL, i % 3 ? "{\"content\":\"ab\"}" : "{", &r);
        ck_assert_int_eq(r.status, i % 2 ? 404 : i % 3 ? 200 : 400);
        http_reply_clear(&r);
    }
    ck_assert(daemon_metric(&d, "ggufd_connections") <= 2); /* nginx's and the one that asks */
    char *big = malloc(300000);
    memset(big, ' ', 299999);
    big[299999] = 0;
    for (int i = 0; i < 10; i++) { /* a refusal of a body that had to be read: never a 502 */
        http_call(front, "POST", "/nope", NULL, big, &r);
        ck_assert_int_eq(r.status, 404);
        http_reply_clear(&r);
    }
    free(big);
    stop_nginx();
    daemon_stop(&d);
}
END

TEST(a_client_that_leaves_nginx_cancels_its_job)
{
    static const char n_cancelled[] = "ggufd_jobs_total{route=\"/generate\",reason=\"cancelled\"}";
    struct daemon d;
    if (!find_nginx())
        SKIP("nginx is not installed");
    start_single(&d, slow);
    char *ids = prompt_of_ids(3000), *body = NULL;
    ck_assert(asprintf(&body, "{\"prompt\":%s,\"max_tokens\":2,\"cache_prompt\":false}", ids) > 0);
    bool quick = false;
    for (int i = 0; i < ATTEMPTS && !quick; i++) {
        struct http h;
        ck_assert(http_open(&h, front));
        ck_assert(http_request(&h, "POST", "/generate", NULL, body));
        ck_assert(daemon_metric_becomes(&d, "ggufd_jobs_running", 1, PATIENCE_MS));
        double before = now_ms();
        http_close(&h);
        ck_assert(daemon_metric_becomes(&d, "ggufd_jobs_running", 0, PATIENCE_MS));
        double took = now_ms() - before;
        printf("note: cancelled through nginx in mid-prefill after %.1f ms\n", took);
        quick = in_time(took, 250);
        ck_assert(daemon_metric_becomes(&d, n_cancelled, i + 1, PATIENCE_MS));
    }
    ck_assert(quick);
    free(ids);
    free(body);
    stop_nginx();
    daemon_stop(&d);
}
END

/* ---- several daemons ---- */

enum { CLIENTS = 9, POOL = 3 };
static struct daemon pool[POOL];
static atomic_bool stop;
static atomic_int n_whole, n_broken, n_lost, n_busy;

static char *pool_configuration(int which)
{
    char *text = block(1);
    if (which) {
        char *hash = block(2);
        text = replace(text, "    least_conn;\n", hash);
        free(hash);
    }
    for (int i = 0; i < POOL; i++) {
        char from[40];
        snprintf(from, sizeof from, "127.0.0.1:%d", 8081 + i);
        text = replace(text, from, pool[i].address);
    }
    return text;
}

/* Streams one request after the other: did it end, break off after it began, or get lost before? */
static void *stream_on(void *context)
{
    (void)context;
    while (!atomic_load(&stop)) {
        struct http h;
        struct http_reply r = {0};
        struct buffer line = {0};
        int lines = 0;
        bool done = false, busy = false;
        if (http_open(&h, front)) {
            http_request(&h, "POST", "/generate", NULL, "{\"prompt\":[1,5,7],\"max_tokens\":12,\"ignore_eos\":true}");
            if (http_read_head(&h, &r, PATIENCE_MS) && r.status == 200)
                for (; http_read_line(&h, &r, &line, PATIENCE_MS); lines++)
                    done = strstr(line.data, "\"done\":true") != NULL;
            busy = r.status == 503;
        }
        atomic_fetch_add(done ? &n_whole : lines ? &n_broken : busy ? &n_busy : &n_lost, 1);
        if (!done && !lines && !busy)
            printf("note: lost with status %d\n", r.status);
        buffer_clear(&line);
        http_reply_clear(&r);
        http_close(&h);
    }
    return NULL;
}

TEST(killing_one_of_three_loses_no_request_that_had_not_begun)
{
    pthread_t threads[CLIENTS];
    if (!find_nginx())
        SKIP("nginx is not installed");
    for (int i = 0; i < POOL; i++)
        daemon_start(&pool[i], model_slow(), slow);
    start_nginx(pool_configuration(0));
    for (int i = 0; i < CLIENTS; i++)
        pthread_create(&threads[i], NULL, stream_on, NULL);
    const int wanted = suite_sanitized() ? 12 : 30;
    double shares[POOL] = {0}, until = now_ms() + PATIENCE_MS;
    while ((n_whole < wanted || shares[0] < 3 || shares[1] < 3 || shares[2] < 3) && now_ms() < until) {
        sleep_ms(20);
        for (int i = 0; i < POOL; i++)
            shares[i] = daemon_metric(&pool[i], "ggufd_requests_total{route=\"/generate\",status=\"200\"}");
    }
    kill(pool[1].pid, SIGKILL);
    ck_assert_int_eq(daemon_wait(&pool[1], PATIENCE_MS), 128 + SIGKILL);
    int before = n_whole;
    for (until = now_ms() + PATIENCE_MS; n_whole < before + wanted && now_ms() < until;)
        sleep_ms(20);
    atomic_store(&stop, true);
    for (int i = 0; i < CLIENTS; i++)
        pthread_join(threads[i], NULL);
    printf("note: %d whole, %d broken off after they began, %d refused, %d lost; shares before %.0f %.0f %.0f\n", n_whole,
           n_broken, n_busy, n_lost, shares[0], shares[1], shares[2]);
    ck_assert_int_eq(n_lost, 0);
    ck_assert_int_eq(n_busy, 0);
    ck_assert_int_le(n_broken, CLIENTS);
    ck_assert_int_ge(n_whole, before + wanted);
    for (int i = 0; i < POOL; i++)
        ck_assert(shares[i] >= 3);
    stop_nginx();
    daemon_stop(&pool[0]);
    daemon_stop(&pool[2]);
}
END

TEST(consistent_hashing_keeps_a_conversation_on_its_daemon)
{
    if (!find_nginx())
        SKIP("nginx is not installed");
    for (int i = 0; i < POOL; i++)
        daemon_start(&pool[i], model_tiny(), NULL);
    start_nginx(pool_configuration(1));
    char *ids = prompt_of_ids(100), *body = NULL;
    ck_assert(asprintf(&body, "{\"prompt\":%s,\"max_tokens\":1,\"stream\":false}", ids) > 0);
    for (int i = 0; i < 6; i++) {
        struct http_reply r;
        http_call(front, "POST", "/generate", "X-Conversation: seven\r\n", body, &r);
        ck_assert_int_eq(r.status, 200);
        ck_assert_int_eq(http_has(&r, "\"cached_tokens\":99"), i > 0);
        http_reply_clear(&r);
    }
    free(ids);
    free(body);
    stop_nginx();
    for (int i = 0; i < POOL; i++)
        daemon_stop(&pool[i]);
}
END

SUITE(nginx, T(lines_pass_as_they_come_with_stock_buffering), T(connections_are_reused_and_large_bodies_refused),
      T(a_client_that_leaves_nginx_cancels_its_job), T(killing_one_of_three_loses_no_request_that_had_not_begun),
      T(consistent_hashing_keeps_a_conversation_on_its_daemon))
