/* Mixed load for a long time: soak SECONDS [MODEL [THREADS]]. Streams read to the end, streams abandoned at any point,
 * replies as a whole, logits, tokens, refusals and half requests; reports resident memory and descriptors at minute 5
 * (or a twelfth of the time) and at the end. Exit status 1: an unexpected reply, a dead daemon, or growth. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/daemon_process.h"
#include "tests/support/gguf_builder.h"
#include "tests/support/suite.h"

enum { CLIENTS = 6, PAUSE_MS = 20, GROWTH_KB = 4096, GROWTH_PERCENT = 2 };

static struct daemon d;
static atomic_bool stop;
static atomic_ulong n_whole, n_streams, n_abandoned, n_logits, n_tokens, n_refused, n_busy, n_partial, n_wrong;

static void unexpected(const char *what, const struct http_reply *r)
{
    atomic_fetch_add(&n_wrong, 1);
    printf("unexpected: %s: %d %.200s\n", what, r->status, r->body.size ? r->body.data : "");
    fflush(stdout);
}

static void body_of(uint64_t *state, char *out, size_t size, bool stream)
{
    static const char *const words[] = {"Once upon", " a time", " there was", " a little", " girl", " and the dog", " said"};
    int n = snprintf(out, size, "{\"prompt\":\"");
    for (uint64_t i = test_random(state) % 20 + 1; i > 0; i--)
        n += snprintf(out + n, size - (size_t)n, "%s", words[test_random(state) % 7]);
    snprintf(out + n, size - (size_t)n, "\",\"max_tokens\":%d,\"stream\":%s,\"logprobs\":%d,\"stop\":[\"zzz\"]}",
             (int)(test_random(state) % 60), stream ? "true" : "false", (int)(test_random(state) % 3));
}

static void ask(const char *method, const char *path, const char *body, int want, atomic_ulong *count)
{
    struct http_reply r;
    http_call(d.address, method, path, NULL, body, &r);
    if (r.status == 503)
        atomic_fetch_add(&n_busy, 1);
    else if (r.status != want)
        unexpected(path, &r);
    else
        atomic_fetch_add(count, 1);
    http_reply_clear(&r);
}

/* Reads a stream to its end, or leaves after some lines. */
static void stream(const char *body, uint64_t leave_after)
{
    struct http h;
    struct http_reply r = {0};
    struct buffer line = {0};
    bool done = false;
    if (!http_open(&h, d.address))
        return;
    http_request(&h, "POST", "/generate", NULL, body);
    bool answered = leave_after != 1 && http_read_head(&h, &r, PATIENCE_MS);
    for (uint64_t n = 2; answered && r.status == 200 && n != leave_after && http_read_line(&h, &r, &line, PATIENCE_MS); n++)
        done = strstr(line.data, "\"done\":true") != NULL;
    if (leave_after)
        atomic_fetch_add(&n_abandoned, 1);
    else if (r.status == 503)
        atomic_fetch_add(&n_busy, 1);
    else if (done)
        atomic_fetch_add(&n_streams, 1);
    else
        unexpected("stream", &r);
    buffer_clear(&line);
    http_reply_clear(&r);
    http_close(&h);
}

static void half_request(uint64_t *state)
{
    static const char text[] = "POST /generate HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{\"prompt\":";
    struct http h;
    if (!http_open(&h, d.address))
        return;
    http_send(&h, text, test_random(state) % sizeof text);
    sleep_ms((double)(test_random(state) % 50));
    http_close(&h);
    atomic_fetch_add(&n_partial, 1);
}

static void act(uint64_t *state)
{
    char body[2048];
    switch (test_random(state) % 8) {
    case 0:
        body_of(state, body, sizeof body, false);
        ask("POST", "/generate", body, 200, &n_whole);
        break;
    case 1:
        body_of(state, body, sizeof body, true);
        stream(body, 0);
        break;
    case 2:
        body_of(state, body, sizeof body, true);
        stream(body, test_random(state) % 20 + 1);
        break;
    case 3:
        ask("POST", "/logits", "{\"prompt\":\"Once upon a time\",\"positions\":\"all\",\"top\":5}", 200, &n_logits);
        break;
    case 4:
        ask("POST", "/logits", "{\"prompt\":\"Once upon a time\",\"positions\":\"all\",\"format\":\"f32\"}", 200, &n_logits);
        break;
    case 5:
        ask("POST", "/tokenize", "{\"content\":\"a little girl and her dog\",\"with_pieces\":true}", 200, &n_tokens);
        break;
    case 6:
        ask("POST", "/generate", "{\"prompt\":\"a\",\"nonsense\":1}", 400, &n_refused);
        ask("GET", "/metrics", NULL, 200, &n_tokens);
        break;
    default:
        half_request(state);
    }
}

static void *client(void *context)
{
    uint64_t state = (uint64_t)(size_t)context;
    while (!atomic_load(&stop)) {
        act(&state);
        sleep_ms((double)(test_random(&state) % (2 * PAUSE_MS)));
    }
    return NULL;
}

static void report(const char *when, double seconds)
{
    printf("%s: %.0f s, anonymous %ld kB, %d descriptors; whole %lu, streams %lu, abandoned %lu, logits %lu, tokens %lu, "
           "refused %lu, busy %lu, half %lu, unexpected %lu\n",
           when, seconds, daemon_rss_anon_kb(&d), daemon_fds(&d), n_whole, n_streams, n_abandoned, n_logits, n_tokens,
           n_refused, n_busy, n_partial, n_wrong);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    double seconds = argc > 1 ? strtod(argv[1], NULL) : 60;
    const char *model = argc > 2 && argv[2][0] ? argv[2] : model_tiny();
    const char *options[] = {"--threads", argc > 3 ? argv[3] : "0", "--queue", "4", NULL};
    pthread_t threads[CLIENTS];
    if (!daemon_spawn(&d, model, options) || !daemon_wait_ready(&d, PATIENCE_MS)) {
        fprintf(stderr, "the daemon does not start\n");
        return 1;
    }
    printf("serving %s at %s\n", model, d.address);
    for (size_t i = 0; i < CLIENTS; i++)
        pthread_create(&threads[i], NULL, client, (void *)(i + 1));
    double begun = now_ms(), first = seconds > 600 ? 300 : seconds / 12, next = first;
    long early = 0;
    while (now_ms() - begun < seconds * 1000) {
        sleep_ms(500);
        double now = (now_ms() - begun) / 1000;
        if (now < next)
            continue;
        if (!early)
            early = daemon_rss_anon_kb(&d);
        report(early && next <= first ? "early" : "now", now);
        next += first;
    }
    atomic_store(&stop, true);
    for (size_t i = 0; i < CLIENTS; i++)
        pthread_join(threads[i], NULL);
    sleep_ms(500);
    report("end", (now_ms() - begun) / 1000);
    long late = daemon_rss_anon_kb(&d);
    bool grown = late - early > GROWTH_KB && (late - early) * 100 > early * GROWTH_PERCENT;
    kill(d.pid, SIGTERM);
    int status = daemon_wait(&d, PATIENCE_MS);
    printf("exit status %d, anonymous memory %ld kB early, %ld kB at the end: %s\n", status, early, late,
           grown ? "GROWN" : "steady");
    return status != 0 || grown || n_wrong != 0;
}
