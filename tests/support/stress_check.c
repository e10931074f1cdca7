/* See stress_check.h. */
#include "tests/support/stress_check.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/json.h"
#include "tests/support/http_client.h"

static bool fail(char *why, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));
static bool fail(char *why, size_t size, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(why, size, format, args);
    va_end(args);
    return false;
}

/* Value of a string member as it stands in the JSON, escapes and all. Inside strings every quote is escaped, so the
 * key's own quotes cannot be met there. NULL: absent. */
static const char *raw_member(const char *json, const char *key, size_t *n)
{
    char name[48];
    snprintf(name, sizeof name, "\"%s\":\"", key);
    const char *at = strstr(json, name), *end;
    if (!at)
        return NULL;
    at += strlen(name);
    for (end = at; *end && *end != '"'; end++)
        end += *end == '\\' && end[1];
    *n = (size_t)(end - at);
    return at;
}

long stress_number(const char *json, const char *key)
{
    char name[48];
    snprintf(name, sizeof name, "\"%s\":", key);
    const char *at = strstr(json, name);
    return at ? strtol(at + strlen(name), NULL, 10) : -1;
}

static bool has_text(const struct stress_client *c, const char *text)
{
    return c->body.size && memmem(c->body.data, c->body.size, text, strlen(text));
}

/* ---- generations ---- */

struct generation {
    size_t n;            /* tokens shown */
    struct buffer text;  /* escaped as in JSON */
    const char *end;     /* the object with the last members; NULL: not there */
};

static void add_text(struct generation *g, const char *json)
{
    size_t n;
    const char *text = raw_member(json, "text", &n);
    if (text)
        buffer_append(&g->text, text, n);
}

static bool read_line(const struct stress_slot *s, char *line, struct generation *g, char *why, size_t size)
{
    const struct stress_prompt *p = stress_prompt(s->ask.prompt);
    if (g->end)
        return fail(why, size, "a line behind the last: %.200s", line);
    if (strncmp(line, "{\"progress\":", 12) == 0)
        return (s->ask.progress && g->n == 0) || fail(why, size, "progress not asked for, or late");
    add_text(g, line);
    if (strncmp(line, "{\"done\":true", 12) == 0) {
        g->end = line;
        return true;
    }
    long index = stress_number(line, "index"), id = stress_number(line, "id");
    if (g->n >= p->n_next || index != (long)g->n || id != p->next[g->n])
        return fail(why, size, "token %zu of prompt %u: id %ld, index %ld; %d expected", g->n, s->ask.prompt, id, index,
                    g->n < p->n_next ? (int)p->next[g->n] : -1);
    g->n++;
    return true;
}

/* Complete lines only: what was cut off with a connection says nothing. */
static bool read_stream(const struct stress_slot *s, struct generation *g, char *why, size_t size)
{
    for (char *line = s->client.body.data, *end; line && (end = strchr(line, '\n')) != NULL; line = end + 1) {
        *end = 0;
        if (!read_line(s, line, g, why, size))
            return false;
    }
    return true;
}

static bool read_whole(const struct stress_slot *s, struct generation *g, char *why, size_t size)
{
    const struct stress_prompt *p = stress_prompt(s->ask.prompt);
    const char *at = strstr(s->client.body.data, "\"tokens\":[");
    g->end = s->client.body.data;
    add_text(g, g->end);
    for (at = at ? at + 10 : "]"; *at != ']'; at += *at == ',') {
        long id = strtol(at, (char **)(size_t)&at, 10);
        if (g->n >= p->n_next || id != p->next[g->n])
            return fail(why, size, "token %zu of prompt %u: id %ld", g->n, s->ask.prompt, id);
        g->n++;
    }
    return true;
}

static bool same_text(const struct generation *g, const struct buffer *expected)
{
    struct buffer json = {0};
    json_write_string(&json, buffer_span(expected));
    bool same = json.size == g->text.size + 2 && memcmp(json.data + 1, g->text.size ? g->text.data : "", g->text.size) == 0;
    buffer_clear(&json);
    return same;
}

/* A generation that something ended early: was there a cause, and is what came the beginning of the right text? */
static bool check_early(const struct stress_slot *s, const struct stress_moment *m, const char *reason, char *why,
                        size_t size)
{
    double elapsed = now_ms() - s->asked_ms;
    bool in_queue = s->ask.progress && has_text(&s->client, "problem:queue-timeout"); /* told by the last line */
    if (strcmp(reason, "deadline") == 0)
        return (in_queue && elapsed >= m->setting->queue_wait_ms) ||
               (s->ask.deadline_ms && elapsed >= (double)s->ask.deadline_ms) ||
               fail(why, size, "deadline of %lu ms after %.1f ms", s->ask.deadline_ms, elapsed);
    if (strcmp(reason, "cancelled") == 0)
        return s->may_be_deleted || m->setting->hasty || fail(why, size, "cancelled, and nobody asked for it");
    if (strcmp(reason, "shutdown") == 0)
        return m->ending || fail(why, size, "shutdown, and no signal was sent");
    return fail(why, size, "reason %s: %.300s", reason, s->client.body.data);
}

static bool check_end(struct stress_slot *s, const struct stress_moment *m, const struct generation *g, char *why,
                      size_t size)
{
    size_t n = 0;
    const char *reason = raw_member(g->end, "reason", &n);
    snprintf(s->reason, sizeof s->reason, "%.*s", (int)n, reason ? reason : "");
    reason = s->reason;
    struct stress_outcome whole = stress_expect(&s->ask, SIZE_MAX), part = stress_expect(&s->ask, g->n);
    bool complete = whole.reason && strcmp(reason, whole.reason) == 0, done;
    const char *stop = raw_member(g->end, "stop", &n);
    long generated = stress_number(g->end, "generated_tokens"), cached = stress_number(g->end, "cached_tokens");
    if (g->n > whole.n_shown || (complete && g->n != whole.n_shown))
        done = fail(why, size, "%zu tokens, %zu expected (%s)", g->n, whole.n_shown, reason);
    else if (complete ? generated != (long)whole.n_generated : generated < (long)g->n || generated > (long)g->n + 1)
        done = fail(why, size, "%ld tokens counted, %zu shown (%s)", generated, g->n, reason);
    else if (!same_text(g, &part.text))
        done = fail(why, size, "text %.*s, not %s", (int)g->text.size, g->text.data ? g->text.data : "", part.text.data);
    else if (complete && (stop ? !whole.stop || strlen(whole.stop) != n || memcmp(stop, whole.stop, n) : whole.stop != NULL))
        done = fail(why, size, "stop string %.*s, not %s", stop ? (int)n : 0, stop ? stop : "", whole.stop ? whole.stop : "none");
    else if (stress_number(g->end, "prompt_tokens") != (long)stress_prompt(s->ask.prompt)->n)
        done = fail(why, size, "prompt_tokens %ld", stress_number(g->end, "prompt_tokens"));
    else if (cached < 0 || cached > (s->ask.cache ? (long)stress_prompt(s->ask.prompt)->n : 0))
        done = fail(why, size, "cached_tokens %ld", cached);
    else
        done = complete || check_early(s, m, reason, why, size);
    buffer_clear(&whole.text);
    buffer_clear(&part.text);
    return done;
}

static bool check_generation(struct stress_slot *s, const struct stress_moment *m, bool lost, char *why, size_t size)
{
    struct generation g = {0};
    bool done = s->ask.stream ? read_stream(s, &g, why, size) : lost || read_whole(s, &g, why, size);
    if (done && !g.end && !lost)
        done = fail(why, size, "a stream without its last line: %.200s", s->client.body.data);
    if (done && g.end)
        done = check_end(s, m, &g, why, size);
    buffer_clear(&g.text);
    return done;
}

/* A completion's text, whole or in events; its beginning where the end may be cut. */
static bool check_completion(const struct stress_slot *s, const struct stress_moment *m, char *why, size_t size)
{
    struct stress_outcome whole = stress_expect(&s->ask, SIZE_MAX);
    struct buffer json = {0}, text = {0};
    size_t n;
    json_write_string(&json, buffer_span(&whole.text));
    for (const char *at = s->client.body.data; at && (at = raw_member(at, "text", &n)) != NULL; at += n)
        buffer_append(&text, at, n);
    bool same = text.size <= json.size - 2 && (text.size == 0 || memcmp(text.data, json.data + 1, text.size) == 0);
    bool complete = same && text.size == json.size - 2 && (!s->ask.stream || has_text(&s->client, "data: [DONE]"));
    bool done = complete || (same && m->cutting);
    if (!done)
        fail(why, size, "completion %.300s, not %.200s", s->client.body.data, whole.text.data);
    buffer_clear(&whole.text);
    buffer_clear(&json);
    buffer_clear(&text);
    return done;
}

/* ---- logits ---- */

static bool check_logits(const struct stress_slot *s, char *why, size_t size)
{
    const struct stress_prompt *p = stress_prompt(s->ask.prompt);
    char best[64];
    snprintf(best, sizeof best, "\"top\":[{\"id\":%d,", (int)p->next[0]);
    return has_text(&s->client, best) || fail(why, size, "the best token is not %d: %.300s", (int)p->next[0], s->client.body.data);
}

static bool check_f32(const struct stress_slot *s, char *why, size_t size)
{
    const struct buffer *want = &stress_prompt(s->ask.prompt)->logits, *got = &s->client.body;
    size_t rows = s->ask.logprobs ? stress_prompt(s->ask.prompt)->n : 1; /* "all", or "last" */
    if (got->size != rows * want->size)
        return fail(why, size, "%zu bytes of logits, %zu expected", got->size, rows * want->size);
    return memcmp(got->data + got->size - want->size, want->data, want->size) == 0 ||
           fail(why, size, "the bits of prompt %u's logits differ", s->ask.prompt);
}

/* ---- replies ---- */

static bool is_job(enum stress_kind kind)
{
    return kind == STRESS_GENERATE || kind == STRESS_COMPLETION || kind == STRESS_LOGITS || kind == STRESS_LOGITS_F32;
}

static bool check_busy(const struct stress_slot *s, const struct stress_moment *m, char *why, size_t size)
{
    char retry[16];
    double elapsed = now_ms() - s->asked_ms, limit = m->setting->queue_wait_ms;
    if (s->ask.deadline_ms && s->kind == STRESS_GENERATE && (double)s->ask.deadline_ms < limit)
        limit = (double)s->ask.deadline_ms;
    if (s->kind == STRESS_READY)
        return (m->ending && has_text(&s->client, "draining")) || fail(why, size, "not ready: %.200s", s->client.body.data);
    bool wants_engine = is_job(s->kind) || s->kind == STRESS_INVALID; /* refused before its body is read */
    if (!wants_engine || !stress_client_header(&s->client, "Retry-After", retry, sizeof retry) || atoi(retry) < 1)
        return fail(why, size, "503 here, or without Retry-After: %.300s%.200s", s->client.head.data, s->client.body.data);
    if (has_text(&s->client, "problem:draining"))
        return m->ending || fail(why, size, "draining, and no signal was sent");
    if (has_text(&s->client, "problem:queue-timeout"))
        return elapsed >= limit || fail(why, size, "queue-timeout of %.0f ms after %.1f ms", limit, elapsed);
    return has_text(&s->client, "problem:queue-full") || fail(why, size, "503: %.200s", s->client.body.data);
}

/* The one status of every kind that nothing disturbs. */
static const struct {
    int status;
    const char *text; /* in its body; NULL: checked elsewhere */
} usual[STRESS_KIND_COUNT] = {
    [STRESS_GENERATE] = {200, NULL}, [STRESS_COMPLETION] = {200, "\"finish_reason\":"}, [STRESS_LOGITS] = {200, NULL}, [STRESS_LOGITS_F32] = {200, NULL},
    [STRESS_TOKENIZE] = {200, "{\"tokens\":["}, [STRESS_HEALTH] = {200, "{\"status\":\"ok\"}"},
    [STRESS_READY] = {200, NULL}, [STRESS_METRICS] = {200, "\nggufd_jobs_running "},
    [STRESS_INVALID] = {400, "problem:invalid-request"}, [STRESS_MISSING] = {404, "problem:not-found"},
    [STRESS_DELETE] = {202, "\"status\":\"cancelling\""},
};

static bool check_ok(struct stress_slot *s, const struct stress_moment *m, char *why, size_t size)
{
    if (usual[s->kind].text && !has_text(&s->client, usual[s->kind].text))
        return fail(why, size, "body %.200s", s->client.body.data);
    if (s->kind == STRESS_GENERATE)
        return check_generation(s, m, false, why, size);
    if (s->kind == STRESS_COMPLETION)
        return check_completion(s, m, why, size);
    if (s->kind == STRESS_LOGITS)
        return check_logits(s, why, size);
    return s->kind != STRESS_LOGITS_F32 || check_f32(s, why, size);
}

static bool check(struct stress_slot *s, const struct stress_moment *m, char *why, size_t size)
{
    int status = s->client.status;
    if (s->kind == STRESS_DELETE && s->must_be_unknown && status != 404)
        return fail(why, size, "status %d for an id that no job can have", status);
    if (status == usual[s->kind].status)
        return check_ok(s, m, why, size);
    if (status == 503)
        return check_busy(s, m, why, size);
    if (s->kind == STRESS_DELETE && status == 404 && has_text(&s->client, "problem:not-found"))
        return true;
    if (s->kind == STRESS_GENERATE && status == 409 && s->repeats_id && has_text(&s->client, "problem:duplicate-id"))
        return true;
    return fail(why, size, "status %d: %.300s", status, s->client.body.data);
}

static const char *result_of(const struct stress_slot *s)
{
    static char text[64];
    char reason[32] = "";
    size_t n = 0;
    const char *type = s->client.status >= 400 ? raw_member(s->client.body.data, "type", &n) : NULL;
    if (s->kind == STRESS_GENERATE && s->client.status == 200)
        snprintf(reason, sizeof reason, "%s", s->reason);
    else if (type && n > 18)
        snprintf(reason, sizeof reason, "%.*s", (int)n - 18, type + 18); /* behind "urn:ggufd:problem:" */
    snprintf(text, sizeof text, "%d %s", s->client.status, reason);
    return text;
}

const char *stress_check_reply(struct stress_slot *s, const struct stress_moment *m, char *why, size_t size)
{
    return check(s, m, why, size) ? result_of(s) : NULL;
}

bool stress_check_loss(struct stress_slot *s, const struct stress_moment *m, char *why, size_t size)
{
    const struct stress_client *c = &s->client;
    bool sent = stress_client_has_sent(c);
    bool allowed = m->setting->hasty || m->cutting || (m->ending && !s->must_be_answered) ||
                   (c->half_closed && (!c->local || !sent));
    if (!allowed)
        return fail(why, size, "the connection ended (kind %d, status %d so far, %zu of %zu bytes sent, half-closed %d, local %d): %.300s",
                    (int)s->kind, c->status, c->out_at, c->out.size, c->half_closed, c->local, c->out.data);
    if (s->kind == STRESS_GENERATE && c->status == 200)
        return check_generation(s, m, true, why, size);
    return true;
}
