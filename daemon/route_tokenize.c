/* POST /tokenize and POST /detokenize: the vocabulary alone, whatever the engine does. */
#include "daemon/prompt_ids.h"
#include "daemon/request.h"
#include "daemon/request_limits.h"
#include "daemon/route.h"
#include "daemon/server.h"

static struct span piece_of(const void *context, int32_t id)
{
    return engine_piece(context, id);
}

static void finish(struct request *r)
{
    buffer_byte(&r->reply.body, '\n');
    request_reply(r, 200, "application/json");
}

static void prepare_tokenize(struct request *r)
{
    const struct engine *e = r->server->engine;
    struct tokenize_request q = {0};
    struct engine_ids ids = {0};
    if (tokenize_request_read(buffer_span(&r->body), &q, &r->problem))
        return;
    if (!text_to_ids(e, buffer_span(&q.content), q.add_special, q.parse_special, &ids, &r->problem)) {
        reply_tokenize(&r->reply.body, ids.data, ids.count, q.with_pieces ? piece_of : NULL, e);
        finish(r);
    }
    engine_ids_clear(&ids);
    tokenize_request_clear(&q);
}
const struct route_actions route_tokenize = {.prepare = prepare_tokenize};

static void prepare_detokenize(struct request *r)
{
    const struct engine *e = r->server->engine;
    struct request_limits limits = request_limits_of(r->server);
    struct detokenize_request q = {0};
    struct buffer bytes = {0};
    if (detokenize_request_read(buffer_span(&r->body), &limits, &q, &r->problem))
        return;
    for (size_t i = 0; i < q.tokens.count; i++) {
        struct span piece = engine_piece(e, q.tokens.data[i]);
        buffer_append(&bytes, piece.data, piece.size);
    }
    if (bytes.failed) {
        problem_set(&r->problem, PROBLEM_INTERNAL, "out of memory for the text of %zu tokens", q.tokens.count);
    } else {
        reply_detokenize(&r->reply.body, buffer_span(&bytes));
        finish(r);
    }
    buffer_clear(&bytes);
    detokenize_request_clear(&q);
}
const struct route_actions route_detokenize = {.prepare = prepare_detokenize};
