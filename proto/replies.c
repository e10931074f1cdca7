/* Reply bodies of the native routes; see replies.h. */
#include "proto/replies.h"

#include "engine/base/utf8.h"
#include "proto/json.h"

static const char *const reason_names[] = {
#define X(identifier, name) name,
    REASON_TABLE(X)
#undef X
};

const char *reason_name(enum reason reason)
{
    return reason_names[reason];
}

/* ---- members ---- */

static void put_text(struct buffer *b, const char *key, const char *text)
{
    json_write_key(b, key);
    json_write_string(b, span_of(text));
}

static void put_span(struct buffer *b, const char *key, struct span text)
{
    json_write_key(b, key);
    json_write_string(b, text);
}

static void put_unsigned(struct buffer *b, const char *key, uint64_t value)
{
    json_write_key(b, key);
    json_write_unsigned(b, value);
}

static void put_float(struct buffer *b, const char *key, float value)
{
    json_write_key(b, key);
    json_write_float(b, value);
}

static void put_boolean(struct buffer *b, const char *key, bool value)
{
    json_write_key(b, key);
    json_write_boolean(b, value);
}

static void put_id(struct buffer *b, const char *key, int32_t id)
{
    json_write_key(b, key);
    if (id < 0)
        buffer_text(b, "null");
    else
        json_write_integer(b, id);
}

static void put_ids(struct buffer *b, const char *key, const int32_t *ids, size_t n)
{
    json_write_key(b, key);
    buffer_byte(b, '[');
    for (size_t i = 0; i < n; i++) {
        if (i)
            buffer_byte(b, ',');
        json_write_integer(b, ids[i]);
    }
    buffer_byte(b, ']');
}

void reply_piece(struct buffer *b, struct span piece)
{
    if (utf8_is_valid(piece.data, piece.size, NULL)) {
        json_write_string(b, piece);
        return;
    }
    buffer_byte(b, '[');
    for (size_t i = 0; i < piece.size; i++) {
        if (i)
            buffer_byte(b, ',');
        json_write_unsigned(b, (unsigned char)piece.data[i]);
    }
    buffer_byte(b, ']');
}

void reply_base64(struct buffer *b, struct span bytes)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *p = (const unsigned char *)bytes.data;
    buffer_reserve(b, bytes.size / 3 * 4 + 4);
    for (size_t at = 0; at < bytes.size; at += 3) {
        size_t n = bytes.size - at;
        unsigned long group = (unsigned long)p[at] << 16 | (n > 1 ? (unsigned long)p[at + 1] << 8 : 0) |
                              (n > 2 ? p[at + 2] : 0u);
        char text[4] = {digits[group >> 18], digits[group >> 12 & 63], n > 1 ? digits[group >> 6 & 63] : '=',
                        n > 2 ? digits[group & 63] : '='};
        buffer_append(b, text, 4);
    }
}

static void put_top(struct buffer *b, const struct reply_candidate *top, size_t n)
{
    json_write_key(b, "top");
    buffer_byte(b, '[');
    for (size_t i = 0; i < n; i++) {
        json_write_comma(b);
        buffer_byte(b, '{');
        put_id(b, "id", top[i].id);
        json_write_key(b, "piece");
        reply_piece(b, top[i].piece);
        put_float(b, "logit", top[i].logit);
        put_float(b, "logprob", top[i].logprob);
        buffer_byte(b, '}');
    }
    buffer_byte(b, ']');
}

static double rate(size_t tokens, double ms)
{
    return ms > 0 ? (double)tokens * 1000.0 / ms : 0;
}

static void put_fixed(struct buffer *b, const char *key, double value)
{
    json_write_key(b, key);
    json_write_fixed(b, value, 3);
}

static void put_timings(struct buffer *b, const struct reply_timings *t)
{
    json_write_key(b, "timings");
    buffer_byte(b, '{');
    put_fixed(b, "queue_ms", t->queue_ms);
    put_fixed(b, "prefill_ms", t->prefill_ms);
    put_fixed(b, "decode_ms", t->decode_ms);
    put_fixed(b, "prefill_tokens_per_second", rate(t->prefill_tokens, t->prefill_ms));
    put_fixed(b, "decode_tokens_per_second", rate(t->decode_tokens, t->decode_ms));
    buffer_byte(b, '}');
}

/* ---- /tokenize, /detokenize ---- */

void reply_tokenize(struct buffer *b, const int32_t *ids, size_t n, reply_piece_function *piece, const void *context)
{
    buffer_byte(b, '{');
    if (!piece) {
        put_ids(b, "tokens", ids, n);
    } else {
        json_write_key(b, "tokens");
        buffer_byte(b, '[');
        for (size_t i = 0; i < n; i++) {
            json_write_comma(b);
            buffer_byte(b, '{');
            put_id(b, "id", ids[i]);
            json_write_key(b, "piece");
            reply_piece(b, piece(context, ids[i]));
            buffer_byte(b, '}');
        }
        buffer_byte(b, ']');
    }
    put_unsigned(b, "count", n);
    buffer_byte(b, '}');
}

void reply_detokenize(struct buffer *b, struct span bytes)
{
    buffer_byte(b, '{');
    put_span(b, "content", bytes); /* the writer replaces what is ill-formed */
    if (!utf8_is_valid(bytes.data, bytes.size, NULL)) {
        json_write_key(b, "bytes");
        buffer_byte(b, '"');
        reply_base64(b, bytes);
        buffer_byte(b, '"');
    }
    buffer_byte(b, '}');
}

/* ---- /logits ---- */

void reply_logits_begin(struct buffer *b, const int32_t *tokens, size_t n, uint32_t n_vocab)
{
    buffer_byte(b, '{');
    put_ids(b, "tokens", tokens, n);
    put_unsigned(b, "vocab", n_vocab);
    json_write_key(b, "positions");
    buffer_byte(b, '[');
}

void reply_logits_row(struct buffer *b, const struct reply_row *row)
{
    json_write_comma(b);
    buffer_byte(b, '{');
    put_unsigned(b, "position", row->position);
    put_id(b, "token", row->token);
    if (row->has_next) {
        json_write_key(b, "next");
        buffer_byte(b, '{');
        put_id(b, "id", row->next_id);
        put_float(b, "logit", row->next_logit);
        put_float(b, "logprob", row->next_logprob);
        put_unsigned(b, "rank", row->next_rank);
        buffer_byte(b, '}');
    }
    put_top(b, row->top, row->n_top);
    buffer_byte(b, '}');
}

void reply_logits_end(struct buffer *b, size_t cached_tokens, const struct reply_timings *timings)
{
    buffer_byte(b, ']');
    put_unsigned(b, "cached_tokens", cached_tokens);
    put_timings(b, timings);
    buffer_byte(b, '}');
}

/* ---- /generate ---- */

static void put_logprobs(struct buffer *b, const struct reply_token *t)
{
    if (!t->has_logprob)
        return;
    put_float(b, "logprob", t->logprob);
    put_top(b, t->top, t->n_top);
}

void reply_token_line(struct buffer *b, const struct reply_token *t)
{
    buffer_byte(b, '{');
    put_unsigned(b, "index", t->index);
    put_id(b, "id", t->id);
    put_span(b, "text", t->text);
    put_logprobs(b, t);
    buffer_text(b, "}\n");
}

void reply_progress_line(struct buffer *b, size_t prompt_tokens, size_t processed)
{
    buffer_text(b, "{\"progress\":{");
    put_unsigned(b, "prompt_tokens", prompt_tokens);
    put_unsigned(b, "processed", processed);
    buffer_text(b, "}}\n");
}

/* The members that the last line and the whole reply share. */
static void put_end(struct buffer *b, const struct reply_end *end)
{
    put_span(b, "text", end->text);
    put_text(b, "reason", reason_name(end->reason));
    if (end->stop.data)
        put_span(b, "stop", end->stop);
    put_unsigned(b, "prompt_tokens", end->prompt_tokens);
    put_unsigned(b, "cached_tokens", end->cached_tokens);
    put_unsigned(b, "generated_tokens", end->generated_tokens);
    put_timings(b, &end->timings);
    json_write_key(b, "model");
    buffer_byte(b, '{');
    put_text(b, "name", end->model.name);
    put_text(b, "fingerprint", end->model.fingerprint);
    put_text(b, "numerics", end->model.numerics);
    buffer_byte(b, '}');
    if (end->problem) {
        json_write_key(b, "problem");
        problem_write(b, end->problem, false);
    }
}

void reply_last_line(struct buffer *b, const struct reply_end *end)
{
    buffer_text(b, "{\"done\":true");
    put_end(b, end);
    buffer_text(b, "}\n");
}

void reply_logprob_entry(struct buffer *entries, const struct reply_token *t)
{
    if (entries->size > 0)
        buffer_byte(entries, ',');
    buffer_byte(entries, '{');
    put_id(entries, "id", t->id);
    put_logprobs(entries, t);
    buffer_byte(entries, '}');
}

void reply_generate(struct buffer *b, const struct reply_end *end, const int32_t *ids, size_t n,
                    const struct buffer *logprobs)
{
    buffer_byte(b, '{');
    put_ids(b, "tokens", ids, n);
    if (logprobs) {
        b->failed |= logprobs->failed;
        json_write_key(b, "logprobs");
        buffer_byte(b, '[');
        buffer_append(b, logprobs->data, logprobs->size);
        buffer_byte(b, ']');
    }
    put_end(b, end);
    buffer_byte(b, '}');
}

/* ---- /health, /ready, /model, DELETE /generate/{id} ---- */

void reply_status(struct buffer *b, const char *status)
{
    buffer_byte(b, '{');
    put_text(b, "status", status);
    buffer_byte(b, '}');
}

void reply_cancelled(struct buffer *b, struct span id)
{
    buffer_byte(b, '{');
    put_span(b, "id", id);
    put_text(b, "status", "cancelling");
    buffer_byte(b, '}');
}

static void put_types(struct buffer *b, const struct reply_model_card *card)
{
    json_write_key(b, "tensor_types");
    buffer_byte(b, '[');
    for (size_t i = 0; i < card->n_types; i++) {
        json_write_comma(b);
        buffer_byte(b, '{');
        put_text(b, "type", card->types[i].name);
        put_unsigned(b, "tensors", card->types[i].tensors);
        put_unsigned(b, "bytes", card->types[i].bytes);
        buffer_byte(b, '}');
    }
    buffer_byte(b, ']');
}

static void put_special(struct buffer *b, const struct reply_model_card *card)
{
    json_write_key(b, "special_tokens");
    buffer_byte(b, '{');
    put_id(b, "bos", card->bos);
    put_id(b, "eos", card->eos);
    put_id(b, "eot", card->eot);
    put_id(b, "unknown", card->unknown);
    put_id(b, "padding", card->padding);
    put_boolean(b, "add_bos", card->add_bos);
    put_boolean(b, "add_eos", card->add_eos);
    buffer_byte(b, '}');
}

static void put_memory(struct buffer *b, const struct reply_model_card *card)
{
    json_write_key(b, "memory");
    buffer_byte(b, '{');
    put_unsigned(b, "file_bytes", card->file_bytes);
    put_unsigned(b, "kv_bytes", card->kv_bytes);
    put_unsigned(b, "arena_bytes", card->arena_bytes);
    put_unsigned(b, "vocabulary_bytes", card->vocabulary_bytes);
    buffer_byte(b, '}');
}

void reply_model_card(struct buffer *b, const struct reply_model_card *card)
{
    buffer_byte(b, '{');
    put_text(b, "name", card->model.name);
    put_text(b, "architecture", card->architecture);
    put_unsigned(b, "parameters", card->parameters);
    put_unsigned(b, "file_bytes", card->file_bytes);
    put_unsigned(b, "context", card->context);
    put_unsigned(b, "context_trained", card->context_trained);
    put_unsigned(b, "vocab", card->n_vocab);
    put_text(b, "tokenizer", card->tokenizer);
    put_boolean(b, "vocabulary_only", card->vocabulary_only);
    put_unsigned(b, "layers", card->n_layers);
    put_unsigned(b, "embedding", card->n_embd);
    put_unsigned(b, "heads", card->n_heads);
    put_unsigned(b, "heads_kv", card->n_heads_kv);
    put_types(b, card);
    put_special(b, card);
    put_memory(b, card);
    put_text(b, "fingerprint", card->model.fingerprint);
    put_text(b, "version", card->engine_version);
    put_text(b, "numerics", card->model.numerics);
    put_text(b, "tier", card->tier);
    put_unsigned(b, "threads", card->threads);
    put_text(b, "threads_reason", card->threads_reason);
    put_unsigned(b, "batch", card->batch);
    buffer_byte(b, '}');
}
