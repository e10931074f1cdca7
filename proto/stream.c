/* Stop strings and unfinished characters in a growing text; see stream.h. */
#include "proto/stream.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/utf8.h"

static const char replacement[] = "\xef\xbf\xbd";

/* Appends well-formed text and replacements up to an unfinished sequence at the end, whose offset is returned. */
static size_t append_certain(struct buffer *out, const char *data, size_t size, bool *ill_formed)
{
    size_t start = 0, at = 0;
    uint32_t code_point = 0;
    if (size == 0) /* data may be NULL */
        return 0;
    while (at < size) {
        size_t n = utf8_decode(data + at, size - at, &code_point);
        if (code_point == UTF8_INCOMPLETE)
            break;
        if (code_point == UTF8_INVALID) {
            *ill_formed = true;
            buffer_append(out, data + start, at - start);
            buffer_text(out, replacement);
            start = at + n;
        }
        at += n;
    }
    buffer_append(out, data + start, at - start);
    return at;
}

bool text_append_valid(struct buffer *out, struct span data)
{
    bool ill_formed = false;
    size_t at = append_certain(out, data.data, data.size, &ill_formed);
    if (at < data.size) {
        ill_formed = true;
        buffer_text(out, replacement);
    }
    return !ill_formed;
}

/* failure[i]: length of the longest proper prefix of the stop that ends at i. */
static void build_failure(struct span stop, uint16_t *failure)
{
    uint16_t k = 0;
    failure[0] = 0;
    for (size_t i = 1; i < stop.size; i++) {
        while (k > 0 && stop.data[i] != stop.data[k])
            k = failure[k - 1];
        if (stop.data[i] == stop.data[k])
            k++;
        failure[i] = k;
    }
}

enum status text_stream_init(struct text_stream *s, const struct stop_strings *stops, struct error *err)
{
    *s = (struct text_stream){.stops = stops && stops->count ? stops : NULL, .stop = -1};
    if (!s->stops)
        return STATUS_OK;
    size_t bytes = stops->bytes.size * sizeof *s->failure;
    s->failure = malloc(bytes);
    if (!s->failure)
        return error_no_memory(err, bytes, "stop strings");
    for (size_t i = 0; i < stops->count; i++)
        build_failure(stop_string(stops, i), s->failure + stops->at[i].start);
    return STATUS_OK;
}

void text_stream_clear(struct text_stream *s)
{
    free(s->failure);
    buffer_clear(&s->pending);
    *s = (struct text_stream){.stop = -1};
}

/* Moves every automaton over one byte; the index of the longest stop that is complete now, or -1. */
static int match_byte(struct text_stream *s, char c)
{
    int best = -1;
    for (size_t i = 0; i < s->stops->count; i++) {
        struct span stop = stop_string(s->stops, i);
        const uint16_t *failure = s->failure + s->stops->at[i].start;
        uint16_t k = s->matched[i];
        while (k > 0 && stop.data[k] != c)
            k = failure[k - 1];
        if (stop.data[k] == c)
            k++;
        s->matched[i] = k;
        if (k == stop.size && (best < 0 || stop.size > stop_string(s->stops, (size_t)best).size))
            best = (int)i;
    }
    return best; /* a complete match ends the stream, so no automaton is moved beyond it */
}

static size_t longest_partial(const struct text_stream *s)
{
    size_t longest = 0;
    for (size_t i = 0; s->stops && i < s->stops->count; i++)
        if (s->matched[i] > longest)
            longest = s->matched[i];
    return longest;
}

/* Looks for a stop in piece; returns how many of its bytes belong to the text so far, the match included. */
static size_t match_piece(struct text_stream *s, struct span piece)
{
    if (!s->stops)
        return piece.size;
    for (size_t i = 0; i < piece.size; i++) {
        s->stop = match_byte(s, piece.data[i]);
        if (s->stop >= 0)
            return i + 1;
    }
    return piece.size;
}

bool text_stream_push(struct text_stream *s, struct span piece, struct buffer *out)
{
    if (s->finished || s->stop >= 0)
        return s->stop >= 0;
    buffer_append(&s->pending, piece.data, match_piece(s, piece));
    if (s->pending.failed)
        out->failed = true; /* text is lost: never silently */
    if (s->stop >= 0)
        s->pending.size -= stop_string(s->stops, (size_t)s->stop).size;
    size_t held = s->stop >= 0 ? 0 : longest_partial(s);
    bool ill_formed = false;
    size_t given = append_certain(out, s->pending.data, s->pending.size - held, &ill_formed);
    s->pending.size -= given;
    if (given)
        memmove(s->pending.data, s->pending.data + given, s->pending.size);
    return s->stop >= 0;
}

void text_stream_finish(struct text_stream *s, struct buffer *out)
{
    if (!s->finished)
        text_append_valid(out, buffer_span(&s->pending));
    s->finished = true;
    s->pending.size = 0;
}
