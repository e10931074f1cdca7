/* The text side of a generation against a reference that looks at the whole text at every byte.
 *
 * Input: number of stops; each its length and bytes; then pieces, each its length and bytes. Small alphabets matter
 * more than wild bytes, so with the first byte's high bit set all text is reduced to a few bytes, parts of UTF-8
 * sequences among them. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "proto/stream.h"

static void must(bool condition)
{
    if (!condition)
        abort();
}

struct input {
    const uint8_t *at, *end;
    bool reduce;
};

static unsigned take(struct input *in)
{
    return in->at < in->end ? *in->at++ : 0;
}

static void take_bytes(struct input *in, size_t n, struct buffer *out)
{
    static const uint8_t alphabet[] = {'a', 'b', 0xe2, 0x82, 0xac, 0xf0, 0x9f, 0xc3};
    for (size_t i = 0; i < n && in->at < in->end; i++) {
        unsigned c = take(in);
        buffer_byte(out, (char)(in->reduce ? alphabet[c & 7] : c));
    }
}

/* Stops as the decoders give them: one to 256 bytes each (of any value here). */
static void take_stops(struct input *in, unsigned n, struct stop_strings *stops)
{
    for (unsigned i = 0; i < n && in->at < in->end; i++) {
        size_t start = stops->bytes.size;
        unsigned length = take(in);
        take_bytes(in, in->reduce ? 1 + length % 6 : 1 + length, &stops->bytes);
        if (stops->bytes.size == start)
            break;
        stops->at[i].start = (uint16_t)start;
        stops->at[i].size = (uint16_t)(stops->bytes.size - start);
        stops->count++;
    }
}

/* ---- the reference ---- */

static bool ends_with(struct span text, struct span suffix)
{
    return suffix.size <= text.size && memcmp(text.data + text.size - suffix.size, suffix.data, suffix.size) == 0;
}

/* The longest stop that text ends with, -1: none. */
static int stop_at_end(struct span text, const struct stop_strings *stops)
{
    int best = -1;
    for (size_t i = 0; i < stops->count; i++)
        if (ends_with(text, stop_string(stops, i)) &&
            (best < 0 || stops->at[i].size > stops->at[best].size))
            best = (int)i;
    return best;
}

/* Bytes at the end of text that a stop may begin with. */
static size_t held_back(struct span text, const struct stop_strings *stops)
{
    size_t longest = 0;
    for (size_t i = 0; i < stops->count; i++) {
        struct span stop = stop_string(stops, i);
        for (size_t n = 1; n < stop.size; n++)
            if (n > longest && ends_with(text, (struct span){stop.data, n}))
                longest = n;
    }
    return longest;
}

/* Bytes that may follow the first `n` of a character, by enumeration of the well-formed ranges. */
static bool may_follow(const uint8_t *c, size_t n, uint8_t next)
{
    if (n == 1 && c[0] == 0xe0)
        return next >= 0xa0 && next <= 0xbf;
    if (n == 1 && c[0] == 0xed)
        return next >= 0x80 && next <= 0x9f;
    if (n == 1 && c[0] == 0xf0)
        return next >= 0x90 && next <= 0xbf;
    if (n == 1 && c[0] == 0xf4)
        return next >= 0x80 && next <= 0x8f;
    return next >= 0x80 && next <= 0xbf;
}

static size_t character_bytes(uint8_t lead)
{
    return lead < 0x80 ? 1 : lead < 0xc2 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf5 ? 4 : 0;
}

/* Valid text of these bytes; an unfinished character at the end is left out, or with `all` replaced. */
static void clean(struct span text, bool all, struct buffer *out)
{
    const uint8_t *p = (const uint8_t *)text.data;
    for (size_t at = 0; at < text.size;) {
        size_t want = character_bytes(p[at]), n = 1;
        while (n < want && at + n < text.size && may_follow(p + at, n, p[at + n]))
            n++;
        if (n == want)
            buffer_append(out, p + at, n);
        else if (at + n < text.size || want == 0 || all)
            buffer_text(out, "\xef\xbf\xbd");
        at += n;
    }
}

static void check_output(struct span text, bool all, const struct buffer *got)
{
    struct buffer expected = {0};
    clean(text, all, &expected);
    must(expected.size == got->size && (got->size == 0 || memcmp(expected.data, got->data, got->size) == 0));
    buffer_clear(&expected);
}

/* ---- both side by side ---- */

/* Adds piece to the whole text byte by byte; the stop that completes first, or -1. */
static int extend(struct buffer *text, struct span piece, const struct stop_strings *stops)
{
    int stop = -1;
    for (size_t i = 0; i < piece.size && stop < 0; i++) {
        buffer_byte(text, piece.data[i]);
        stop = stop_at_end(buffer_span(text), stops);
    }
    if (stop >= 0)
        text->size -= stops->at[stop].size;
    return stop;
}

static void run(struct input *in, const struct stop_strings *stops)
{
    struct text_stream s;
    struct buffer text = {0}, out = {0};
    int stop = -1;
    must(text_stream_init(&s, stops, NULL) == STATUS_OK);
    while (in->at < in->end && stop < 0) {
        struct buffer piece = {0};
        take_bytes(in, take(in) % 12, &piece);
        stop = extend(&text, buffer_span(&piece), stops);
        must(text_stream_push(&s, buffer_span(&piece), &out) == (stop >= 0) && s.stop == stop);
        size_t held = stop >= 0 ? 0 : held_back(buffer_span(&text), stops);
        check_output((struct span){text.data, text.size - held}, false, &out);
        buffer_clear(&piece);
    }
    text_stream_finish(&s, &out);
    check_output(buffer_span(&text), true, &out);
    text_stream_clear(&s);
    buffer_clear(&text);
    buffer_clear(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {data, data + size, size && data[0] & 0x80};
    struct stop_strings stops = {0};
    take_stops(&in, take(&in) % (REQUEST_STOPS_MAX + 1), &stops);
    run(&in, &stops);
    buffer_clear(&stops.bytes);
    return 0;
}
