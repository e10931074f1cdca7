/* Evaluating sequences in tests: an engine with given sizes, all logits of a sequence, greedy continuations. */
#ifndef GGUFD_TESTS_EVALUATE_H
#define GGUFD_TESTS_EVALUATE_H

#include "engine/engine.h"

struct evaluation {
    struct engine *engine;
    struct session *session;
};

/* Aborts the test when the model is refused. batch, threads: 0 means the default; context 0: the model's. */
struct evaluation evaluation_open(const char *path, const char *tier, unsigned context, unsigned batch,
                                  unsigned threads);
void evaluation_close(struct evaluation *e);

/* Logits of positions [from, n) of tokens into rows [position][n_vocab], keeping at most `reuse` tokens of the cache. */
enum status evaluation_logits(struct evaluation *e, const int32_t *tokens, size_t n, size_t from, size_t reuse,
                              float *rows, struct error *err);

/* n_new greedy tokens behind tokens[0..n), one step each; tokens has room for n + n_new. */
enum status evaluation_greedy(struct evaluation *e, int32_t *tokens, size_t n, size_t n_new, struct error *err);

#endif
