/* See stress_reference.h. */
#include "tests/support/stress_reference.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/utf8.h"
#include "engine/engine.h"
#include "tests/support/gguf_builder.h"
#include "tests/support/suite.h"

const char *const stress_stops[STRESS_STOPS][3] = {{"e"}, {"th", "in"}, {"no such text"}, {"a", "ab"}};

static struct engine *engine;
static struct stress_prompt prompts[STRESS_PROMPTS];

const char *stress_model(void)
{
    static char path[160];
    snprintf(path, sizeof path, "%s/stress.gguf", suite_tmp());
    if (access(path, R_OK) == 0)
        return path;
    struct gguf_builder *b = gguf_builder_tiny(
        &(struct tiny_model){.type = 8, .n_layers = 3, .context = STRESS_CONTEXT, .seed = 31});
    gguf_builder_write(b, path);
    gguf_builder_free(b);
    return path;
}

static enum status take_logits(void *context, size_t position, const float *logits)
{
    (void)position;
    struct stress_prompt *p = context;
    size_t n = engine_info(engine)->n_vocab;
    if (p->n_next == 0)
        buffer_append(&p->logits, logits, n * sizeof *logits);
    p->next[p->n_next++] = logits_argmax(logits, n);
    return STATUS_OK;
}

static bool evaluate(struct stress_prompt *p, struct session *s)
{
    struct error err;
    int32_t *ids = malloc((p->n + STRESS_TOKENS_MAX) * sizeof *ids);
    bool done = ids != NULL;
    if (!done)
        return false;
    memcpy(ids, p->ids, p->n * sizeof *ids);
    for (size_t n = p->n; done && n <= STRESS_CONTEXT && p->n_next < STRESS_TOKENS_MAX; n++) {
        struct session_sync sync = {.tokens = ids, .n_tokens = n, .reuse_limit = SIZE_MAX, .want_all_from = n - 1,
                                    .on_logits = take_logits, .context = p};
        done = session_run(s, &sync, NULL, &err) == STATUS_OK;
        ids[n] = p->next[p->n_next - 1];
    }
    free(ids);
    return done;
}

static void add_text(struct stress_prompt *p, const char *text)
{
    struct engine_ids ids = {0};
    struct error err;
    struct buffer json = {0};
    engine_ids_push(&ids, engine_info(engine)->bos);
    if (engine_tokenize(engine, span_of(text), ENGINE_PARSE_SPECIAL, STRESS_CONTEXT, &ids, &err))
        abort();
    buffer_printf(&json, "\"%s\"", text);
    buffer_byte(&json, 0);
    *p = (struct stress_prompt){.json = json.data, .ids = ids.data, .n = ids.count};
}

/* Prompts of ids share their beginning up to `common`, so that caches are reused and cut at many lengths. */
static void add_ids(struct stress_prompt *p, size_t n, size_t common, uint64_t seed)
{
    struct buffer json = {0};
    uint64_t shared = 77;
    *p = (struct stress_prompt){.ids = malloc(n * sizeof(int32_t)), .n = n};
    if (!p->ids)
        abort();
    for (size_t i = 0; i < n; i++) {
        uint64_t value = i < common ? test_random(&shared) : test_random(&seed);
        p->ids[i] = i == 0 ? 1 : (int32_t)(3 + value % 340);
        buffer_printf(&json, "%s%d", i ? "," : "[", (int)p->ids[i]);
    }
    buffer_text(&json, "]");
    buffer_byte(&json, 0);
    p->json = json.data;
}

static void add_prompts(void)
{
    static const char *const texts[] = {"hello", "the and was", "in the her", " on to it is", "1234567890", "a"};
    static const size_t lengths[] = {1, 2, 7, 31, 32, 33, 64, 90, 128, 200, 255, 300, 400, 700, 900,
                                     STRESS_CONTEXT - 20, STRESS_CONTEXT - 1, 257};
    enum { TEXTS = sizeof texts / sizeof texts[0], LENGTHS = sizeof lengths / sizeof lengths[0] };
    _Static_assert(TEXTS + LENGTHS == STRESS_PROMPTS, "every number has its prompt");
    for (size_t i = 0; i < TEXTS; i++)
        add_text(&prompts[i], texts[i]);
    for (size_t i = 0; i < LENGTHS; i++)
        add_ids(&prompts[TEXTS + i], lengths[i], lengths[i] / 2 + i % 3, i);
}

bool stress_reference_open(void)
{
    struct engine_options options = {.model = stress_model(), .tier = "auto", .threads = 1, .batch = 64};
    struct session *session = NULL;
    struct error err;
    bool done = engine_open(&options, &engine, &err) == STATUS_OK && session_new(engine, &session, &err) == STATUS_OK;
    if (done)
        add_prompts();
    for (size_t i = 0; done && i < STRESS_PROMPTS; i++)
        done = evaluate(&prompts[i], session);
    session_free(session);
    return done;
}

void stress_reference_close(void)
{
    for (size_t i = 0; i < STRESS_PROMPTS; i++) {
        free(prompts[i].json);
        free(prompts[i].ids);
        buffer_clear(&prompts[i].logits);
    }
    memset(prompts, 0, sizeof prompts);
    engine_close(engine);
    engine = NULL;
}

const struct stress_prompt *stress_prompt(unsigned number)
{
    return &prompts[number];
}

size_t stress_vocabulary(void)
{
    return engine_info(engine)->n_vocab;
}

/* Bytes in front of the match that completes first in data, the longest on a tie; SIZE_MAX: none. */
static size_t find_stop(const struct buffer *bytes, int set, const char **stop)
{
    for (size_t end = 1; set >= 0 && end <= bytes->size; end++) {
        size_t longest = 0;
        for (size_t i = 0; i < 3 && stress_stops[set][i]; i++) {
            size_t n = strlen(stress_stops[set][i]);
            if (n > longest && n <= end && memcmp(bytes->data + end - n, stress_stops[set][i], n) == 0) {
                longest = n;
                *stop = stress_stops[set][i];
            }
        }
        if (longest)
            return end - longest;
    }
    return SIZE_MAX;
}

static void replace_ill_formed(const struct buffer *bytes, size_t size, struct buffer *text)
{
    for (size_t at = 0; at < size;) {
        uint32_t c;
        size_t n = utf8_decode(bytes->data + at, size - at, &c);
        if (c == UTF8_INVALID || c == UTF8_INCOMPLETE)
            buffer_text(text, "\xef\xbf\xbd");
        else
            buffer_append(text, bytes->data + at, n);
        at += n;
    }
    buffer_byte(text, 0);
    text->size--;
}

/* One more token of the continuation; the reason when generation ends with it, else NULL. */
static const char *take(const struct stress_ask *ask, struct stress_outcome *o, struct buffer *bytes, size_t *cut)
{
    const struct stress_prompt *p = &prompts[ask->prompt];
    int32_t id = p->next[o->n_generated++];
    if (id == ask->stop_token)
        return "stop";
    if (!ask->ignore_eos && engine_is_eog(engine, id))
        return "eos";
    struct span piece = engine_piece(engine, id);
    buffer_append(bytes, piece.data, piece.size);
    o->n_shown++;
    *cut = find_stop(bytes, ask->stops, &o->stop);
    if (*cut != SIZE_MAX)
        return "stop";
    if (o->n_generated == ask->max_tokens)
        return "length";
    return p->n + o->n_shown >= STRESS_CONTEXT ? "context" : NULL;
}

struct stress_outcome stress_expect(const struct stress_ask *ask, size_t shown)
{
    struct stress_outcome o = {.reason = ask->max_tokens ? NULL : "length"};
    struct buffer bytes = {0};
    size_t cut = SIZE_MAX;
    while (!o.reason && o.n_shown < shown)
        o.reason = take(ask, &o, &bytes, &cut);
    replace_ill_formed(&bytes, cut < bytes.size ? cut : bytes.size, &o.text);
    buffer_clear(&bytes);
    return o;
}
