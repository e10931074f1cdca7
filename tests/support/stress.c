/* See stress.h. One process, many connections, no thread: each event is drawn from its number, applied where it fits,
 * and followed by a look at what the daemon has sent. */
#include "tests/support/stress.h"

#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "tests/support/daemon_process.h"
#include "tests/support/gguf_builder.h"
#include "tests/support/patience.h"
#include "tests/support/stress_check.h"
#include "tests/support/suite.h"

enum {
    SLOTS = 24,
    CHECK_EVENTS = 900,      /* about: between two looks at an empty daemon */
    RESULTS_MAX = 96,
    ENDING_EVENTS = 40,      /* after SIGTERM */
    GROWTH_KB = 8192
};

static const struct stress_setting settings[] = {
    {"patient", {"--queue", "4", "--threads", "1"}, false, 4, 60000},
    {"no queue, two threads", {"--queue", "0", "--threads", "2", "--batch", "32"}, false, 0, 60000},
    {"scalar, small steps", {"--queue", "16", "--threads", "1", "--tier", "scalar", "--batch", "8"}, false, 16, 60000},
    {"short wait", {"--queue", "8", "--threads", "2", "--max-queue-wait", "0.05"}, false, 8, 50},
    {"hasty", {"--queue", "4", "--threads", "1", "--header-timeout", "0.3", "--body-timeout", "0.3",
               "--write-timeout", "0.3", "--keepalive-timeout", "0.3"}, true, 4, 60000},
};
static const char *const patient[] = {"--header-timeout", "3600", "--body-timeout", "3600", "--write-timeout", "3600",
                                      "--keepalive-timeout", "3600"};

enum ending { ALONE, AT_WORK, AT_WORK_TWICE, AT_WORK_CUT, LOADING, ENDINGS };
static const char *const ending_names[ENDINGS] = {"with nobody there", "at work", "at work, twice", "at work, cut short",
                                                  "while loading"};

struct result {
    char name[64];
    unsigned long n;
};

struct stress {
    const struct stress_options *options;
    char *first; /* violation */
    const struct stress_setting *setting;
    struct stress_moment moment;
    struct daemon daemon;
    char socket[160];
    struct stress_slot slots[SLOTS];
    unsigned long event, n_lives, n_ids, violations, checks;
    unsigned long endings[ENDINGS];
    struct result results[RESULTS_MAX];
    size_t n_results;
    uint64_t *seen;             /* hashes of X-Request-Id */
    size_t n_seen;
    /* of this daemon's life */
    unsigned long n_generations, n_unknown, n_answered;
    struct result reasons[16];
    size_t n_reasons;
    long open_fds, anonymous_kb;
    unsigned long polls_most;
    double free_ms_most, late_ms_most;
};

static void violation(struct stress *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void violation(struct stress *t, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    printf("VIOLATION at event %lu (seed %llu, %s): ", t->event, (unsigned long long)t->options->seed, t->setting->name);
    char text[1024];
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    printf("%s\n", text);
    fflush(stdout);
    if (t->violations++ == 0)
        snprintf(t->first, STRESS_TEXT, "event %lu, %s: %s", t->event, t->setting->name, text);
}

static void count(struct result *list, size_t *n, size_t max, const char *name)
{
    size_t i = 0;
    while (i < *n && strcmp(list[i].name, name))
        i++;
    if (i == max)
        return;
    if (i == *n)
        snprintf(list[(*n)++].name, sizeof list->name, "%s", name);
    list[i].n++;
}

static void count_result(struct stress *t, enum stress_kind kind, const char *what)
{
    static const char *const names[] = {
#define X(identifier, name) name,
        STRESS_KINDS(X)
#undef X
    };
    char name[64];
    snprintf(name, sizeof name, "%s: %.40s", names[kind], what);
    count(t->results, &t->n_results, RESULTS_MAX, name);
}

/* ---- replies ---- */

static bool is_new(struct stress *t, const char *id)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *id; id++)
        hash = (hash ^ (unsigned char)*id) * 0x100000001b3u;
    if ((t->n_seen & (t->n_seen - 1)) == 0) { /* a power of two: grow */
        uint64_t *more = realloc(t->seen, (t->n_seen ? 2 * t->n_seen : 1) * sizeof *more);
        if (!more)
            abort();
        t->seen = more;
    }
    size_t low = 0, high = t->n_seen;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (t->seen[middle] < hash)
            low = middle + 1;
        else
            high = middle;
    }
    if (low < t->n_seen && t->seen[low] == hash)
        return false;
    memmove(t->seen + low + 1, t->seen + low, (t->n_seen - low) * sizeof *t->seen);
    t->seen[low] = hash;
    t->n_seen++;
    return true;
}

static void note_generation(struct stress *t, struct stress_slot *s)
{
    bool ran = s->client.status == 200;
    count(t->reasons, &t->n_reasons, 16, ran ? s->reason : "refused");
    t->n_answered++;
    if (ran && strcmp(s->reason, "deadline") == 0) {
        double late = now_ms() - s->asked_ms - (double)s->ask.deadline_ms;
        t->late_ms_most = late > t->late_ms_most ? late : t->late_ms_most;
    }
}

static void take_reply(struct stress *t, struct stress_slot *s)
{
    char why[600], id[80];
    const char *result = stress_check_reply(s, &t->moment, why, sizeof why);
    if (!result)
        violation(t, "%s", why);
    else
        count_result(t, s->kind, result);
    if (!stress_client_header(&s->client, "X-Request-Id", id, sizeof id))
        violation(t, "a reply without X-Request-Id: %.200s", s->client.head.data);
    else if (!is_new(t, id))
        violation(t, "the request id %s was used before", id);
    bool refused = s->kind == STRESS_INVALID && s->client.status == 503; /* before its body was read */
    t->n_generations += refused;
    if (s->kind == STRESS_GENERATE || refused)
        note_generation(t, s);
    stress_client_next(&s->client);
}

/* Nobody knows how it ended, or whether the daemon took notice. */
static void note_unknown(struct stress *t, const struct stress_slot *s)
{
    t->n_generations += s->kind == STRESS_INVALID;
    t->n_unknown += s->kind == STRESS_GENERATE || s->kind == STRESS_INVALID;
}

static void take_loss(struct stress *t, struct stress_slot *s, bool asked)
{
    char why[600];
    if (asked && !stress_check_loss(s, &t->moment, why, sizeof why))
        violation(t, "%s", why);
    if (!asked && !t->setting->hasty && !t->moment.ending && !s->client.half_closed)
        violation(t, "an idle connection was closed");
    if (asked)
        count_result(t, s->kind, "connection ended");
    if (asked)
        note_unknown(t, s);
    stress_client_close(&s->client);
}

/* The client leaves: whether there was a job, nobody knows. */
static void leave(struct stress *t, struct stress_slot *s)
{
    if (s->client.state == STRESS_ASKING) {
        note_unknown(t, s);
        count_result(t, s->kind, s->client.status                       ? "left while streaming"
                                 : stress_client_has_sent(&s->client) ? "left while waiting"
                                                                      : "left while sending");
    }
    stress_client_close(&s->client);
}

/* Lets every connection send and read; waits up to wait_ms for something to do. */
static void look(struct stress *t, int wait_ms)
{
    struct pollfd fds[SLOTS];
    for (size_t i = 0; i < SLOTS; i++) {
        short events = stress_client_events(&t->slots[i].client);
        fds[i] = (struct pollfd){.fd = events ? t->slots[i].client.fd : -1, .events = events};
    }
    poll(fds, SLOTS, wait_ms);
    for (size_t i = 0; i < SLOTS; i++) {
        struct stress_slot *s = &t->slots[i];
        bool asked = s->client.state == STRESS_ASKING;
        if (fds[i].revents)
            stress_client_move(&s->client);
        if (s->client.state == STRESS_REPLIED)
            take_reply(t, s);
        else if (s->client.state == STRESS_LOST)
            take_loss(t, s, asked);
    }
}

/* ---- requests ---- */

static struct stress_slot *find_slot(struct stress *t, uint64_t *random, enum stress_state state)
{
    size_t first = test_random(random) % SLOTS;
    for (size_t i = 0; i < SLOTS; i++)
        if (t->slots[(first + i) % SLOTS].client.state == state)
            return &t->slots[(first + i) % SLOTS];
    return NULL;
}

/* A connection that can be asked something: an idle one, or a new one. */
static struct stress_slot *find_free(struct stress *t, uint64_t *random)
{
    uint64_t choice = test_random(random);
    struct stress_slot *s = choice & 1 ? find_slot(t, random, STRESS_IDLE) : NULL;
    if (s)
        return s;
    s = find_slot(t, random, STRESS_CLOSED);
    if (!s || !stress_client_open(&s->client, choice & 6 ? t->daemon.address : t->socket))
        return NULL;
    s->client.sip = choice & 0x70 ? 0 : 1 + (choice >> 8) % 300;
    return s;
}

static bool send_request(struct stress_slot *s, uint64_t *random, enum stress_kind kind,
                         const char *line, const char *body)
{
    struct buffer b = {0};
    buffer_printf(&b, "%s HTTP/1.1\r\nHost: localhost\r\n", line);
    if (body)
        buffer_printf(&b, "Content-Length: %zu\r\n", strlen(body));
    buffer_text(&b, "\r\n");
    if (body)
        buffer_text(&b, body);
    s->kind = kind;
    s->asked_ms = now_ms();
    s->must_be_answered = s->must_be_unknown = false;
    s->reason[0] = 0;
    uint64_t choice = test_random(random);
    stress_client_ask(&s->client, b.data, b.size, choice % 5 ? b.size : (choice >> 8) % b.size);
    buffer_clear(&b);
    return true;
}

static void draw_ask(struct stress_ask *a, uint64_t *random)
{
    uint64_t r = test_random(random), large = test_random(random) % 8;
    *a = (struct stress_ask){.stops = -1, .stop_token = -1};
    a->prompt = (unsigned)(test_random(random) % (large ? 12 : STRESS_PROMPTS));
    a->stream = r & 1;
    a->ignore_eos = r & 2;
    a->progress = (r & 0x1c) == 0;
    a->cache = r & 0xe0;
    a->max_tokens = (unsigned)(r & 0x700 ? (r >> 16) % 12 : (r >> 16) % STRESS_TOKENS_MAX);
    a->logprobs = r & 0x1800 ? 0 : 2;
    if ((r & 0x6000) == 0)
        a->stops = (int)((r >> 32) % STRESS_STOPS);
    if ((r & 0x18000) == 0)
        a->stop_token = stress_prompt(a->prompt)->next[(r >> 32) % stress_prompt(a->prompt)->n_next];
    if (test_random(random) % 3 == 0) /* from 1 ms up, each magnitude as likely as the others */
        a->deadline_ms = 1 + test_random(random) % (1ul << test_random(random) % 12);
    if (stress_prompt(a->prompt)->n == STRESS_CONTEXT)
        a->max_tokens = 0;
}

static void write_stops(struct buffer *b, int stops)
{
    for (size_t i = 0; stops >= 0 && i < 3 && stress_stops[stops][i]; i++)
        buffer_printf(b, "%s\"%s\"", i ? "," : ",\"stop\":[", stress_stops[stops][i]);
    buffer_text(b, stops >= 0 ? "]" : "");
}

static bool send_generation(struct stress *t, struct stress_slot *s, uint64_t *random)
{
    const struct stress_ask *a = &s->ask;
    struct buffer b = {0};
    buffer_printf(&b, "{\"prompt\":%s,\"max_tokens\":%u,\"stream\":%s,\"ignore_eos\":%s,\"progress\":%s,\"logprobs\":%u,"
                  "\"cache_prompt\":%s,\"deadline_ms\":%lu", stress_prompt(a->prompt)->json, a->max_tokens,
                  a->stream ? "true" : "false", a->ignore_eos ? "true" : "false", a->progress ? "true" : "false",
                  a->logprobs, a->cache ? "true" : "false", a->deadline_ms);
    write_stops(&b, a->stops);
    if (a->stop_token >= 0)
        buffer_printf(&b, ",\"stop_tokens\":[%d]", (int)a->stop_token);
    if (s->id)
        buffer_printf(&b, ",\"id\":\"s%lu\"", s->id);
    buffer_text(&b, "}");
    buffer_byte(&b, 0);
    t->n_generations++;
    send_request(s, random, STRESS_GENERATE, "POST /generate", b.data);
    buffer_clear(&b);
    return true;
}

static bool ask_generation(struct stress *t, uint64_t *random)
{
    struct stress_slot *s = find_free(t, random);
    if (!s)
        return false;
    draw_ask(&s->ask, random);
    s->id = test_random(random) % 4 ? ++t->n_ids : 0;
    s->repeats_id = s->may_be_deleted = false;
    return send_generation(t, s, random);
}

static bool ask_repeated_id(struct stress *t, uint64_t *random)
{
    struct stress_slot *other = find_slot(t, random, STRESS_ASKING), *s = find_free(t, random);
    if (!other || !s || other->kind != STRESS_GENERATE || !other->id)
        return false;
    draw_ask(&s->ask, random);
    s->id = other->id;
    s->repeats_id = true;
    s->may_be_deleted = true;
    other->may_be_deleted = true; /* who asks second in the daemon's eyes, nobody knows */
    other->repeats_id = true;
    return send_generation(t, s, random);
}

static bool ask_completion(struct stress *t, uint64_t *random)
{
    struct stress_slot *s = find_free(t, random);
    struct buffer b = {0};
    if (!s)
        return false;
    draw_ask(&s->ask, random);
    s->ask = (struct stress_ask){.prompt = s->ask.prompt, .stream = s->ask.stream, .max_tokens = s->ask.max_tokens,
                                 .stops = s->ask.stops, .stop_token = -1};
    buffer_printf(&b, "{\"prompt\":%s,\"max_tokens\":%u,\"stream\":%s,\"temperature\":0",
                  stress_prompt(s->ask.prompt)->json, s->ask.max_tokens, s->ask.stream ? "true" : "false");
    write_stops(&b, s->ask.stops);
    buffer_text(&b, "}");
    buffer_byte(&b, 0);
    send_request(s, random, STRESS_COMPLETION, "POST /v1/completions", b.data);
    buffer_clear(&b);
    return true;
}

static bool ask_logits(struct stress *t, uint64_t *random)
{
    struct stress_slot *s = find_free(t, random);
    struct buffer b = {0};
    if (!s)
        return false;
    draw_ask(&s->ask, random);
    bool f32 = test_random(random) & 1, all = f32 && s->ask.logprobs;
    s->ask.logprobs = all;
    buffer_printf(&b, "{\"prompt\":%s,\"top\":1,\"positions\":\"%s\",\"format\":\"%s\"}", stress_prompt(s->ask.prompt)->json,
                  all ? "all" : "last", f32 ? "f32" : "json");
    buffer_byte(&b, 0);
    send_request(s, random, f32 ? STRESS_LOGITS_F32 : STRESS_LOGITS, "POST /logits", b.data);
    buffer_clear(&b);
    return true;
}

static bool ask_simple(struct stress *t, uint64_t *random)
{
    static const struct {
        enum stress_kind kind;
        const char *line, *body;
    } requests[] = {
        {STRESS_TOKENIZE, "POST /tokenize", "{\"content\":\"in the her\"}"},
        {STRESS_HEALTH, "GET /health", NULL},
        {STRESS_READY, "GET /ready", NULL},
        {STRESS_METRICS, "GET /metrics", NULL},
        {STRESS_INVALID, "POST /generate", "{\"prompt\":\"a\",\"nonsense\":1}"},
        {STRESS_MISSING, "GET /no/such/route", NULL},
    };
    struct stress_slot *s = find_free(t, random);
    size_t i = test_random(random) % (sizeof requests / sizeof requests[0]);
    return s && send_request(s, random, requests[i].kind, requests[i].line, requests[i].body);
}

static bool ask_delete(struct stress *t, uint64_t *random, unsigned long id, bool unknown)
{
    char line[64];
    struct stress_slot *s = id ? find_free(t, random) : NULL;
    if (!s)
        return false;
    for (size_t i = 0; i < SLOTS; i++)
        if (t->slots[i].client.state == STRESS_ASKING && t->slots[i].kind == STRESS_GENERATE && t->slots[i].id == id)
            t->slots[i].may_be_deleted = true;
    snprintf(line, sizeof line, "DELETE /generate/s%lu", id);
    send_request(s, random, STRESS_DELETE, line, NULL);
    s->must_be_unknown = unknown;
    return true;
}

static bool delete_live(struct stress *t, uint64_t *random)
{
    struct stress_slot *other = find_slot(t, random, STRESS_ASKING);
    return other && other->kind == STRESS_GENERATE && ask_delete(t, random, other->id, false);
}

static bool delete_any(struct stress *t, uint64_t *random)
{
    return t->n_ids && ask_delete(t, random, 1 + test_random(random) % t->n_ids, false);
}

static bool delete_unknown(struct stress *t, uint64_t *random)
{
    return ask_delete(t, random, 1000000000 + test_random(random) % 1000, true);
}

/* ---- what clients do besides ---- */

static bool connect_only(struct stress *t, uint64_t *random)
{
    return find_free(t, random) != NULL;
}

static bool send_rest(struct stress *t, uint64_t *random)
{
    struct stress_slot *s = find_slot(t, random, STRESS_ASKING);
    if (!s || stress_client_has_sent(&s->client))
        return false;
    size_t left = s->client.out.size - s->client.out_end;
    s->client.out_end += test_random(random) & 1 ? left : test_random(random) % (left + 1);
    return true;
}

static bool disconnect(struct stress *t, uint64_t *random)
{
    struct stress_slot *s = find_slot(t, random, test_random(random) % 8 ? STRESS_ASKING : STRESS_IDLE);
    if (s)
        leave(t, s);
    return s;
}

static bool half_close(struct stress *t, uint64_t *random)
{
    struct stress_slot *s = find_slot(t, random, STRESS_ASKING);
    if (!s || s->client.half_closed)
        return false;
    stress_client_half_close(&s->client);
    return true;
}

static bool stop_reading(struct stress *t, uint64_t *random)
{
    struct stress_slot *s = find_slot(t, random, STRESS_ASKING);
    if (!s || s->client.stopped)
        return false;
    s->client.stopped = true;
    return true;
}

static bool read_on(struct stress *t, uint64_t *random)
{
    size_t first = test_random(random) % SLOTS;
    for (size_t i = 0; i < SLOTS; i++) {
        struct stress_slot *s = &t->slots[(first + i) % SLOTS];
        if (s->client.stopped && s->client.state == STRESS_ASKING) {
            s->client.stopped = false;
            return true;
        }
    }
    return false;
}

static bool hang_up(struct stress *t, uint64_t *random)
{
    (void)random;
    return kill(t->daemon.pid, SIGHUP) == 0;
}

static bool wait_a_little(struct stress *t, uint64_t *random)
{
    look(t, (int)(test_random(random) % 8));
    return true;
}

static const struct {
    const char *name;
    unsigned weight;
    bool (*act)(struct stress *t, uint64_t *random); /* false: it fits nowhere now */
} events[] = {
    {"generation", 26, ask_generation},  {"generation with a live id", 2, ask_repeated_id}, {"logits", 6, ask_logits},
    {"completion", 5, ask_completion},
    {"small request", 8, ask_simple},    {"DELETE of a live id", 6, delete_live},           {"DELETE of any id", 2, delete_any},
    {"DELETE of an unknown id", 1, delete_unknown}, {"connect", 2, connect_only},           {"send more", 12, send_rest},
    {"leave", 10, disconnect},           {"half-close", 3, half_close},                     {"stop reading", 4, stop_reading},
    {"read on", 6, read_on},             {"SIGHUP", 1, hang_up},                            {"wait", 6, wait_a_little},
};
enum { EVENTS = sizeof events / sizeof events[0] };
static unsigned long n_done[EVENTS], n_moot[EVENTS];

static void one_event(struct stress *t)
{
    uint64_t random = t->options->seed * 0x9e3779b97f4a7c15u + t->event++, sum = 0;
    for (size_t i = 0; i < EVENTS; i++)
        sum += events[i].weight;
    uint64_t choice = test_random(&random) % sum;
    size_t i = 0;
    for (; choice >= events[i].weight; i++)
        choice -= events[i].weight;
    if (events[i].act(t, &random))
        n_done[i]++;
    else
        n_moot[i]++;
    look(t, test_random(&random) % 2 ? (int)(test_random(&random) % 3) : 0);
}

/* ---- a daemon that nobody asks anything ---- */

static double metric(const char *text, const char *series)
{
    char line[160];
    snprintf(line, sizeof line, "\n%s ", series);
    const char *at = strstr(text, line);
    return at ? strtod(at + strlen(line), NULL) : 0;
}

static bool is_empty(const char *text)
{
    return metric(text, "ggufd_jobs_running") + metric(text, "ggufd_jobs_queued") < 0.5 &&
           metric(text, "ggufd_connections") < 1.5;
}

/* Every generation has one reason; those whose end nobody saw may have any. */
static void check_counters(struct stress *t, const char *text)
{
    static const char *const reasons[] = {"eos",       "stop",     "length", "context", "deadline",
                                          "cancelled", "shutdown", "error",  "refused"};
    double sum = 0;
    for (size_t i = 0; i < sizeof reasons / sizeof reasons[0]; i++) {
        char series[96];
        unsigned long seen = 0;
        for (size_t k = 0; k < t->n_reasons; k++)
            seen += strcmp(t->reasons[k].name, reasons[i]) == 0 ? t->reasons[k].n : 0;
        snprintf(series, sizeof series, "ggufd_jobs_total{route=\"/generate\",reason=\"%s\"}", reasons[i]);
        double counted = metric(text, series);
        sum += counted;
        if (counted < (double)seen || counted > (double)(seen + t->n_unknown))
            violation(t, "%s is %.0f; %lu replies said so, and the end of %lu is unknown", series, counted, seen, t->n_unknown);
        if (strcmp(reasons[i], "error") == 0 && counted > 0)
            violation(t, "%.0f generations failed", counted);
    }
    if (sum < (double)t->n_answered || sum > (double)t->n_generations)
        violation(t, "%.0f generations counted, %lu answered, %lu asked for", sum, t->n_answered, t->n_generations);
    if (metric(text, "ggufd_prefill_seconds_count") > metric(text, "ggufd_queue_seconds_count"))
        violation(t, "more jobs ran than ended");
}

/* Sanitizers do. */
static bool keeps_freed_memory(void)
{
    const char *mode = getenv("GGUFD_MODE");
    return suite_sanitized() || (mode && strcmp(mode, "release") != 0);
}

static void check_growth(struct stress *t, const char *text)
{
    long fds = (long)metric(text, "process_open_fds"), kb = daemon_rss_anon_kb(&t->daemon);
    if (!t->open_fds)
        t->open_fds = fds;
    else if (fds != t->open_fds)
        violation(t, "%ld descriptors are open, %ld were", fds, t->open_fds);
    if (!t->anonymous_kb && t->n_answered > 300)
        t->anonymous_kb = kb;
    if (t->anonymous_kb && kb - t->anonymous_kb > GROWTH_KB && !keeps_freed_memory())
        violation(t, "%ld kB of anonymous memory, %ld kB before", kb, t->anonymous_kb);
}

static void check_empty(struct stress *t)
{
    double since = now_ms();
    bool empty = false;
    for (unsigned long n = 1; !empty && now_ms() - since < PATIENCE_MS; n++) {
        struct http_reply r;
        http_call(t->daemon.address, "GET", "/metrics", NULL, NULL, &r);
        empty = r.status == 200 && is_empty(r.body.data);
        if (empty) {
            check_counters(t, r.body.data);
            check_growth(t, r.body.data);
        }
        t->polls_most = n > t->polls_most ? n : t->polls_most;
        http_reply_clear(&r);
        if (!empty)
            sleep_ms(2);
    }
    if (!empty)
        violation(t, "the daemon is not free after all clients have left");
    t->free_ms_most = now_ms() - since > t->free_ms_most ? now_ms() - since : t->free_ms_most;
    t->checks++;
}

static bool is_alive(struct stress *t)
{
    siginfo_t info = {0};
    return waitid(P_PID, (id_t)t->daemon.pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == 0;
}

static void read_all_they_can(struct stress *t)
{
    for (size_t i = 0; i < SLOTS; i++) {
        t->slots[i].client.stopped = false;
        t->slots[i].client.sip = 0;
    }
}

/* Everyone reads and sends what is left; then every reply must come. */
static void finish_all(struct stress *t)
{
    double since = now_ms();
    read_all_they_can(t);
    for (size_t busy = 1; busy && is_alive(t);) {
        busy = 0;
        for (size_t i = 0; i < SLOTS; i++) {
            struct stress_client *c = &t->slots[i].client;
            c->out_end = c->out.size;
            if (c->half_closed && !stress_client_has_sent(c))
                leave(t, &t->slots[i]); /* waits for the rest of a request that cannot come */
            busy += c->state == STRESS_ASKING;
        }
        look(t, 20);
        if (now_ms() - since > PATIENCE_MS) {
            violation(t, "%zu requests find no end", busy);
            break;
        }
    }
}

static void leave_all(struct stress *t)
{
    for (size_t i = 0; i < SLOTS; i++)
        leave(t, &t->slots[i]);
}

static void check_alone(struct stress *t, uint64_t choice)
{
    if (choice & 1)
        finish_all(t);
    leave_all(t);
    check_empty(t);
}

/* ---- lives of a daemon ---- */

static bool start(struct stress *t, enum ending ending, uint64_t choice)
{
    const char *options[40];
    size_t n = 0;
    char listen[200];
    t->setting = &settings[choice % (sizeof settings / sizeof settings[0])];
    t->moment = (struct stress_moment){.setting = t->setting};
    t->n_generations = t->n_unknown = t->n_answered = 0;
    memset(t->reasons, 0, sizeof t->reasons);
    t->n_reasons = 0;
    t->open_fds = t->anonymous_kb = 0;
    snprintf(t->socket, sizeof t->socket, "unix:%s/stress.socket", suite_tmp());
    snprintf(listen, sizeof listen, "127.0.0.1:0,%s", t->socket);
    options[n++] = "--listen";
    options[n++] = listen;
    options[n++] = "--drain-timeout";
    options[n++] = ending == AT_WORK_CUT ? "0.05" : "3600";
    for (const char *const *o = t->setting->options; *o; o++)
        options[n++] = *o;
    for (size_t i = 0; !t->setting->hasty && i < sizeof patient / sizeof patient[0]; i++)
        options[n++] = patient[i];
    options[n] = NULL;
    if (daemon_spawn(&t->daemon, stress_model(), options) &&
        (ending == LOADING || daemon_wait_ready(&t->daemon, PATIENCE_MS)))
        return true;
    violation(t, "the daemon does not start");
    return false;
}

/* Whoever has sent a whole request by now is known to the daemon: replies to two later requests say that the loop has
 * been round since. */
static void mark_those_who_wait(struct stress *t)
{
    bool sent[SLOTS];
    for (size_t i = 0; i < SLOTS; i++)
        sent[i] = t->slots[i].client.state == STRESS_ASKING && stress_client_has_sent(&t->slots[i].client);
    for (int i = 0; i < 2; i++) {
        struct http_reply r;
        http_call(t->daemon.address, "GET", "/health", NULL, NULL, &r);
        if (r.status != 200)
            violation(t, "/health says %d", r.status);
        http_reply_clear(&r);
    }
    for (size_t i = 0; i < SLOTS; i++)
        t->slots[i].must_be_answered = sent[i];
}

/* Sanitizers and assertions write into the log. */
static void check_log(struct stress *t)
{
    static const char *const signs[] = {"Sanitizer", "runtime error", "ssertion", "Fatal error", "model-changed"};
    char *log = suite_read(t->daemon.log, NULL);
    for (size_t i = 0; log && i < sizeof signs / sizeof signs[0]; i++) {
        const char *at = strstr(log, signs[i]);
        if (at)
            violation(t, "in the log: %.1500s", at - log > 200 ? at - 200 : log);
    }
    free(log);
    remove(t->daemon.log);
}

/* What the daemon has sent before it ended, and the end of every connection. */
static void read_rest(struct stress *t)
{
    size_t open = 1;
    for (double since = now_ms(); open && now_ms() - since < PATIENCE_MS;) {
        open = 0;
        look(t, 5);
        for (size_t i = 0; i < SLOTS; i++)
            open += t->slots[i].client.state != STRESS_CLOSED;
    }
    if (open)
        violation(t, "%zu connections outlive the daemon", open);
}

static void await_end(struct stress *t)
{
    read_all_they_can(t);
    for (double since = now_ms(); is_alive(t) && now_ms() - since < PATIENCE_MS;) {
        for (size_t i = 0; i < SLOTS; i++) {
            const struct stress_client *c = &t->slots[i].client;
            if (c->state == STRESS_ASKING && !stress_client_has_sent(c))
                leave(t, &t->slots[i]);
        }
        look(t, 5);
    }
    int status = daemon_wait(&t->daemon, 1000);
    if (status != 0)
        violation(t, "exit status %d", status);
    read_rest(t);
    check_log(t);
}

static void end(struct stress *t, enum ending ending, uint64_t choice)
{
    if (ending == ALONE) {
        check_alone(t, choice >> 8);
    } else if (ending != LOADING) {
        mark_those_who_wait(t);
    }
    t->moment.ending = true;
    t->moment.cutting = ending == AT_WORK_CUT || ending == AT_WORK_TWICE;
    kill(t->daemon.pid, choice & 0x1000 ? SIGTERM : SIGINT);
    for (int i = 0; i < ENDING_EVENTS && ending != LOADING && ending != ALONE; i++) {
        if (ending == AT_WORK_TWICE && i == (int)(choice >> 20 & 15))
            kill(t->daemon.pid, choice & 0x2000 ? SIGTERM : SIGINT);
        one_event(t);
    }
    await_end(t);
    t->endings[ending]++;
}

static void live(struct stress *t)
{
    uint64_t random = t->options->seed ^ ++t->n_lives * 0xd1342543de82ef95u, choice = test_random(&random);
    enum ending ending = (enum ending)(test_random(&random) % ENDINGS);
    unsigned long n = ending == LOADING ? 0 : 1 + test_random(&random) % t->options->run_events;
    unsigned long until = t->event + n < t->options->n_events ? t->event + n : t->options->n_events;
    if (!start(t, ending, choice))
        return;
    if (ending != LOADING)
        check_empty(t);
    for (unsigned long next = t->event + CHECK_EVENTS; t->event < until;) {
        one_event(t);
        if (t->options->report_every && t->event % t->options->report_every == 0)
            printf("%lu events, %lu violations\n", t->event, t->violations), fflush(stdout);
        if (!is_alive(t)) {
            violation(t, "the daemon has ended");
            break;
        }
        if (t->event >= next) {
            check_alone(t, test_random(&random));
            next = t->event + CHECK_EVENTS / 2 + test_random(&random) % CHECK_EVENTS;
        }
    }
    end(t, ending, test_random(&random));
}

static void report(const struct stress *t)
{
    printf("events:\n");
    for (size_t i = 0; i < EVENTS; i++)
        printf("  %-28s %8lu  (and %lu that fitted nowhere)\n", events[i].name, n_done[i], n_moot[i]);
    for (size_t i = 0; i < ENDINGS; i++)
        printf("  end %-24s %8lu\n", ending_names[i], t->endings[i]);
    printf("results:\n");
    for (size_t i = 0; i < t->n_results; i++)
        printf("  %-44s %8lu\n", t->results[i].name, t->results[i].n);
    printf("%lu looks at an empty daemon: free after %lu looks and %.0f ms at most; a deadline overrun by %.0f ms at most\n",
           t->checks, t->polls_most, t->free_ms_most, t->late_ms_most);
    printf("%lu events, %lu violations\n", t->event, t->violations);
}

unsigned long stress_run(const struct stress_options *options, char first[STRESS_TEXT])
{
    struct stress *t = calloc(1, sizeof *t);
    snprintf(first, STRESS_TEXT, "no memory, or no model");
    if (!t || !stress_reference_open())
        return 1;
    t->options = options;
    t->first = first;
    t->setting = &settings[0];
    while (t->event < options->n_events && t->violations < 20)
        live(t);
    report(t);
    unsigned long violations = t->violations;
    stress_reference_close();
    free(t->seen);
    free(t);
    return violations;
}
