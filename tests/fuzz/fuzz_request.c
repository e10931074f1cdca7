/* Any bytes as a request body: the first byte chooses the route. A refusal is a problem that can be written as JSON; an
 * accepted request keeps its promises about ranges. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/utf8.h"
#include "proto/json.h"
#include "proto/openai.h"
#include "proto/requests.h"
#include "proto/stream.h"

static const struct request_limits limits = {.n_vocab = 1000, .max_tokens = 16, .max_tokens_limit = 64};

static void demand(bool promise)
{
    if (!promise)
        abort();
}

static void check_prompt(const struct prompt *p)
{
    size_t text = 0, ids = 0;
    demand(p->n_parts > 0);
    for (size_t i = 0; i < p->n_parts; i++) {
        const struct prompt_part *part = &p->parts[i];
        demand(part->start == (part->is_ids ? ids : text));
        *(part->is_ids ? &ids : &text) += part->count;
        demand(part->is_ids || utf8_is_valid(prompt_part_text(p, part).data, part->count, NULL));
    }
    demand(text == p->text.size && ids == p->ids.count);
    for (size_t i = 0; i < ids; i++)
        demand(p->ids.data[i] >= 0 && p->ids.data[i] < 1000);
}

/* What a request says, streamed through its own stops. */
static void check_stream(const struct stop_strings *stops, struct span text)
{
    struct text_stream s;
    struct buffer out = {0};
    demand(text_stream_init(&s, stops, NULL) == STATUS_OK);
    for (size_t at = 0; at < text.size; at += 3)
        text_stream_push(&s, (struct span){text.data + at, text.size - at < 3 ? text.size - at : 3}, &out);
    text_stream_finish(&s, &out);
    demand(out.size == 0 || utf8_is_valid(out.data, out.size, NULL));
    for (size_t i = 0; i < stops->count && out.size; i++)
        demand(!memmem(out.data, out.size, stop_string(stops, i).data, stop_string(stops, i).size));
    text_stream_clear(&s);
    buffer_clear(&out);
}

static enum status read_generate(struct span body, struct problem *p)
{
    struct generate_request r;
    enum status status = generate_request_read(body, &limits, &r, p);
    if (status == STATUS_OK) {
        check_prompt(&r.prompt);
        demand(r.max_tokens <= 64 && r.logprobs <= REQUEST_TOP_MAX && r.deadline_ms <= REQUEST_DEADLINE_MS_MAX);
        demand(!*r.id || request_id_is_valid(span_of(r.id)));
        for (size_t i = 1; i < r.stop_tokens.count; i++)
            demand(r.stop_tokens.data[i] > r.stop_tokens.data[i - 1]);
        check_stream(&r.stop, body);
    }
    generate_request_clear(&r);
    return status;
}

static enum status read_logits(struct span body, struct problem *p)
{
    struct logits_request r;
    enum status status = logits_request_read(body, &limits, &r, p);
    if (status == STATUS_OK) {
        check_prompt(&r.prompt);
        for (size_t i = 1; i < r.list.count; i++)
            demand(r.list.data[i] > r.list.data[i - 1]);
        status = logits_request_check(&r, 4, p);
    }
    logits_request_clear(&r);
    return status;
}

static enum status read_completions(struct span body, struct problem *p)
{
    struct openai_request r;
    enum status status = openai_request_read(body, &limits, &r, p);
    if (status == STATUS_OK) {
        demand(r.n_prompts >= 1 && r.n_prompts <= OPENAI_PROMPTS_MAX && r.max_tokens <= 64);
        for (size_t i = 0; i < r.n_prompts; i++)
            check_prompt(&r.prompts[i]);
    }
    openai_request_clear(&r);
    return status;
}

static enum status read_vocabulary(uint8_t route, struct span body, struct problem *p)
{
    struct tokenize_request t;
    struct detokenize_request d;
    enum status status = route == 3 ? tokenize_request_read(body, &t, p) : detokenize_request_read(body, &limits, &d, p);
    if (route == 3)
        tokenize_request_clear(&t);
    else
        detokenize_request_clear(&d);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct problem p = {0};
    if (size == 0)
        return 0;
    uint8_t route = data[0] % 5;
    struct span body = {(const char *)data + 1, size - 1};
    enum status status = route == 0   ? read_generate(body, &p)
                         : route == 1 ? read_logits(body, &p)
                         : route == 2 ? read_completions(body, &p)
                                      : read_vocabulary(route, body, &p);
    if (status != STATUS_OK) {
        struct buffer b = {0};
        struct json_value root;
        demand(p.kind != PROBLEM_NONE && p.detail[0]);
        problem_write(&b, &p, true);
        demand(json_check(buffer_span(&b), &root, NULL) == STATUS_OK);
        buffer_clear(&b);
    }
    return 0;
}
