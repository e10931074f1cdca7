/* The text side of a generation: pieces of tokens in, text out that is certain, valid UTF-8, and never part of a stop.
 *
 * Bytes of an unfinished character and bytes that may yet turn out to be a stop string are held back. The stop whose
 * match completes at the earliest byte wins, the longest on a tie. Each maximal ill-formed subsequence becomes one
 * U+FFFD. The concatenation of all output depends only on the concatenation of the pieces. One pass: a
 * Knuth-Morris-Pratt automaton a stop string, at most sixteen. One thread. */
#ifndef GGUFD_PROTO_STREAM_H
#define GGUFD_PROTO_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/buffer.h"
#include "engine/base/error.h"
#include "engine/base/span.h"
#include "proto/requests.h"

struct text_stream {
    const struct stop_strings *stops; /* borrowed; may be NULL */
    uint16_t *failure;                /* KMP failure function of every stop, as long as stops->bytes */
    uint16_t matched[REQUEST_STOPS_MAX];
    struct buffer pending;            /* bytes not given out yet: short */
    int stop;                         /* index of the stop that matched, -1: none */
    bool finished;
};

/* Zeroed storage is fine for clear. STATUS_NO_MEMORY. */
enum status text_stream_init(struct text_stream *s, const struct stop_strings *stops, struct error *err);
void text_stream_clear(struct text_stream *s);

/* Adds a piece and appends to out what became certain. True when a stop string is complete: generation ends, what
 * follows the match is dropped, and text_stream_finish gives the rest. */
bool text_stream_push(struct text_stream *s, struct span piece, struct buffer *out);
/* Appends what was held back, ill-formed and unfinished bytes as U+FFFD. Once. */
void text_stream_finish(struct text_stream *s, struct buffer *out);

/* Appends data with one U+FFFD for each maximal ill-formed subsequence; true when there was none. */
bool text_append_valid(struct buffer *out, struct span data);

#endif
