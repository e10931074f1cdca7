/* GET /model: the model card. */
#include "daemon/request.h"
#include "daemon/route.h"
#include "daemon/server.h"

static void start_model(struct request *r)
{
    const struct engine_info *i = engine_info(r->server->engine);
    struct reply_model_card card = {
        .model = {i->name, i->fingerprint, ENGINE_NUMERICS_VERSION},
        .architecture = i->architecture, .tokenizer = i->tokenizer, .engine_version = GGUFD_VERSION, .tier = i->tier,
        .threads_reason = i->threads_reason, .vocabulary_only = i->vocabulary_only, .parameters = i->parameters,
        .file_bytes = i->file_bytes, .context = i->context, .context_trained = i->context_trained,
        .n_vocab = i->n_vocab, .n_layers = i->n_layers, .n_embd = i->n_embd, .n_heads = i->n_heads,
        .n_heads_kv = i->n_heads_kv, .threads = i->threads, .batch = i->batch, .bos = i->bos, .eos = i->eos,
        .eot = i->eot, .unknown = i->unknown, .padding = i->padding, .add_bos = i->add_bos, .add_eos = i->add_eos,
        .kv_bytes = i->memory.kv_bytes, .arena_bytes = i->memory.arena_bytes,
        .vocabulary_bytes = i->memory.vocabulary_bytes, .n_types = i->n_types,
    };
    for (size_t t = 0; t < i->n_types; t++) {
        card.types[t].name = i->types[t].name;
        card.types[t].tensors = i->types[t].tensors;
        card.types[t].bytes = i->types[t].bytes;
    }
    reply_model_card(&r->reply.body, &card);
    buffer_byte(&r->reply.body, '\n');
    request_reply(r, 200, "application/json");
}
const struct route_actions route_model = {.start = start_model};
