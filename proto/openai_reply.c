/* Replies of POST /v1/completions and GET /v1/models; see openai.h. */
#include "proto/openai.h"

#include <string.h>

#include "engine/base/utf8.h"
#include "proto/json.h"

const char *openai_finish_reason(enum reason reason)
{
    switch (reason) {
    case REASON_EOS:
    case REASON_STOP:
        return "stop";
    case REASON_LENGTH:
    case REASON_CONTEXT:
        return "length";
    default:
        return reason_name(reason);
    }
}

/* ---- logprobs ---- */

/* A token's name: its text, or "bytes:\xe6\xad" where that is not valid UTF-8 by itself. */
static void append_name(struct buffer *b, struct span piece)
{
    if (utf8_is_valid(piece.data, piece.size, NULL)) {
        buffer_append(b, piece.data, piece.size);
        return;
    }
    buffer_text(b, "bytes:");
    for (size_t i = 0; i < piece.size; i++)
        buffer_printf(b, "\\x%02x", (unsigned char)piece.data[i]);
}

static void write_name(struct buffer *b, struct span piece)
{
    struct buffer name = {0};
    append_name(&name, piece);
    json_write_string(b, buffer_span(&name));
    b->failed |= name.failed;
    buffer_clear(&name);
}

/* Two tokens may have one text; an object must not have one key twice: the better one stays. */
static bool is_repeated(const struct reply_candidate *top, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (span_equal(top[k].piece, top[i].piece))
            return true;
    return false;
}

static void write_top(struct buffer *b, const struct reply_candidate *top, size_t n)
{
    buffer_byte(b, '{');
    for (size_t i = 0; i < n; i++) {
        if (is_repeated(top, i))
            continue;
        json_write_comma(b);
        write_name(b, top[i].piece);
        buffer_byte(b, ':');
        json_write_float(b, top[i].logprob);
    }
    buffer_byte(b, '}');
}

/* Counts the characters of tail and piece, each ill-formed subsequence as one; keeps an unfinished one in tail. */
static void count_characters(struct openai_logprobs *l, struct span piece)
{
    buffer_append(&l->tail, piece.data, piece.size);
    size_t at = 0;
    while (at < l->tail.size) {
        uint32_t code_point;
        size_t n = utf8_decode(l->tail.data + at, l->tail.size - at, &code_point);
        if (code_point == UTF8_INCOMPLETE)
            break;
        at += n;
        l->characters++;
    }
    l->tail.size -= at;
    if (at)
        memmove(l->tail.data, l->tail.data + at, l->tail.size);
}

static void separate(struct buffer *b)
{
    if (b->size)
        buffer_byte(b, ',');
}

static void add_entry(struct openai_logprobs *l, struct span piece, bool has_logprob, float logprob,
                      const struct reply_candidate *top, size_t n_top)
{
    separate(&l->tokens);
    write_name(&l->tokens, piece);
    separate(&l->logprobs);
    separate(&l->top);
    if (has_logprob) {
        json_write_float(&l->logprobs, logprob);
        write_top(&l->top, top, n_top);
    } else {
        buffer_text(&l->logprobs, "null");
        buffer_text(&l->top, "null");
    }
    separate(&l->offsets);
    json_write_unsigned(&l->offsets, l->characters);
}

void openai_logprobs_add(struct openai_logprobs *l, struct span piece, bool has_logprob, float logprob,
                         const struct reply_candidate *top, size_t n_top)
{
    add_entry(l, piece, has_logprob, logprob, top, n_top);
    count_characters(l, piece);
}

void openai_logprobs_add_hidden(struct openai_logprobs *l, struct span piece)
{
    add_entry(l, piece, false, 0, NULL, 0);
}

void openai_logprobs_reset(struct openai_logprobs *l)
{
    l->tokens.size = l->logprobs.size = l->top.size = l->offsets.size = 0;
}

void openai_logprobs_clear(struct openai_logprobs *l)
{
    buffer_clear(&l->tokens);
    buffer_clear(&l->logprobs);
    buffer_clear(&l->top);
    buffer_clear(&l->offsets);
    buffer_clear(&l->tail);
    *l = (struct openai_logprobs){0};
}

static void write_array(struct buffer *b, const char *key, const struct buffer *inside)
{
    json_write_key(b, key);
    buffer_byte(b, '[');
    buffer_append(b, inside->data, inside->size);
    buffer_byte(b, ']');
    b->failed |= inside->failed;
}

static void write_logprobs(struct buffer *b, const struct openai_logprobs *l)
{
    json_write_key(b, "logprobs");
    if (!l) {
        buffer_text(b, "null");
        return;
    }
    buffer_byte(b, '{');
    write_array(b, "tokens", &l->tokens);
    write_array(b, "token_logprobs", &l->logprobs);
    write_array(b, "top_logprobs", &l->top);
    write_array(b, "text_offset", &l->offsets);
    buffer_byte(b, '}');
}

/* ---- replies ---- */

static void write_head(struct buffer *b, const struct openai_reply *reply)
{
    buffer_text(b, "{\"id\":\"cmpl-");
    buffer_text(b, reply->id);
    buffer_text(b, "\",\"object\":\"text_completion\",\"created\":");
    json_write_integer(b, reply->created);
    json_write_key(b, "model");
    json_write_string(b, span_of(reply->model));
    buffer_text(b, ",\"choices\":[");
}

static void write_usage(struct buffer *b, size_t prompt_tokens, size_t generated_tokens)
{
    json_write_key(b, "usage");
    buffer_text(b, "{\"prompt_tokens\":");
    json_write_unsigned(b, prompt_tokens);
    json_write_key(b, "completion_tokens");
    json_write_unsigned(b, generated_tokens);
    json_write_key(b, "total_tokens");
    json_write_unsigned(b, prompt_tokens + generated_tokens);
    buffer_byte(b, '}');
}

void openai_reply_begin(struct buffer *b, const struct openai_reply *reply)
{
    write_head(b, reply);
}

void openai_reply_choice(struct buffer *b, size_t index, struct span text, const struct openai_logprobs *logprobs,
                         const char *finish)
{
    json_write_comma(b);
    buffer_text(b, "{\"text\":");
    json_write_string(b, text);
    json_write_key(b, "index");
    json_write_unsigned(b, index);
    write_logprobs(b, logprobs);
    json_write_key(b, "finish_reason");
    if (finish)
        json_write_string(b, span_of(finish));
    else
        buffer_text(b, "null");
    buffer_byte(b, '}');
}

void openai_reply_end(struct buffer *b, size_t prompt_tokens, size_t generated_tokens)
{
    buffer_byte(b, ']');
    write_usage(b, prompt_tokens, generated_tokens);
    buffer_byte(b, '}');
}

void openai_event_choice(struct buffer *b, const struct openai_reply *reply, size_t index, struct span text,
                         const struct openai_logprobs *logprobs, const char *finish)
{
    buffer_text(b, "data: ");
    write_head(b, reply);
    openai_reply_choice(b, index, text, logprobs, finish);
    buffer_text(b, "]}\n\n");
}

void openai_event_usage(struct buffer *b, const struct openai_reply *reply, size_t prompt_tokens,
                        size_t generated_tokens)
{
    buffer_text(b, "data: ");
    write_head(b, reply);
    openai_reply_end(b, prompt_tokens, generated_tokens);
    buffer_text(b, "\n\n");
}

void openai_event_problem(struct buffer *b, const struct problem *problem)
{
    buffer_text(b, "data: ");
    problem_write(b, problem, true);
    buffer_text(b, "\n\n");
}

void openai_event_done(struct buffer *b)
{
    buffer_text(b, "data: [DONE]\n\n");
}

void openai_models(struct buffer *b, const char *name, int64_t created)
{
    buffer_text(b, "{\"object\":\"list\",\"data\":[{\"id\":");
    json_write_string(b, span_of(name));
    buffer_text(b, ",\"object\":\"model\",\"created\":");
    json_write_integer(b, created);
    buffer_text(b, ",\"owned_by\":\"ggufd\"}]}");
}
