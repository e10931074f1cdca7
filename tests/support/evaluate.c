#include "tests/support/evaluate.h"

#include <check.h>
#include <string.h>

struct evaluation evaluation_open(const char *path, const char *tier, unsigned context, unsigned batch,
                                  unsigned threads)
{
    struct engine_options options = {.model = path, .tier = tier, .context = context, .batch = batch,
                                     .threads = threads};
    struct evaluation e = {NULL, NULL};
    struct error err = {.text = ""};
    if (engine_open(&options, &e.engine, &err) != STATUS_OK || session_new(e.engine, &e.session, &err) != STATUS_OK)
        ck_abort_msg("%s: %s", path, err.text);
    return e;
}

void evaluation_close(struct evaluation *e)
{
    session_free(e->session);
    engine_close(e->engine);
    *e = (struct evaluation){NULL, NULL};
}

struct rows {
    float *rows;
    size_t n_vocab, next;
};

static enum status keep_row(void *context, size_t position, const float *logits)
{
    struct rows *r = context;
    if (position < r->next)
        ck_abort_msg("position %zu delivered after %zu", position, r->next);
    r->next = position + 1;
    memcpy(r->rows + position * r->n_vocab, logits, r->n_vocab * sizeof *logits);
    return STATUS_OK;
}

enum status evaluation_logits(struct evaluation *e, const int32_t *tokens, size_t n, size_t from, size_t reuse,
                              float *rows, struct error *err)
{
    struct rows r = {rows, engine_info(e->engine)->n_vocab, 0};
    struct session_sync sync = {.tokens = tokens, .n_tokens = n, .reuse_limit = reuse, .want_all_from = from,
                                .on_logits = keep_row, .context = &r};
    return session_run(e->session, &sync, NULL, err);
}

struct choice_of {
    int32_t id;
    size_t n_vocab;
};

static enum status choose(void *context, size_t position, const float *logits)
{
    struct choice_of *c = context;
    (void)position;
    c->id = logits_argmax(logits, c->n_vocab);
    return STATUS_OK;
}

enum status evaluation_greedy(struct evaluation *e, int32_t *tokens, size_t n, size_t n_new, struct error *err)
{
    struct choice_of c = {0, engine_info(e->engine)->n_vocab};
    for (size_t i = 0; i < n_new; i++, n++) {
        struct session_sync sync = {.tokens = tokens, .n_tokens = n, .reuse_limit = SIZE_MAX, .want_all_from = n - 1,
                                    .on_logits = choose, .context = &c};
        enum status s = session_run(e->session, &sync, NULL, err);
        if (s != STATUS_OK)
            return s;
        tokens[n] = c.id;
    }
    return STATUS_OK;
}
