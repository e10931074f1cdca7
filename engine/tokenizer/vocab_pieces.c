/* The bytes each token contributes to a text; docs/tokenizer.md section 12. */
#include <ctype.h>

#include "engine/base/buffer.h"
#include "engine/tokenizer/byte_alphabet.h"
#include "engine/tokenizer/lenient_utf8.h"
#include "engine/tokenizer/vocab.h"

/* The text with spaces for U+2581, in the arena if there are any. */
static struct span blanks_as_spaces(struct arena *a, struct span text)
{
    const char *blank = memmem(text.data, text.size, VOCAB_BLANK, 3);
    if (!blank)
        return text;
    char *out = arena_alloc(a, text.size);
    size_t n = 0;
    for (size_t i = 0; out && i < text.size;) {
        if (text.size - i >= 3 && memcmp(text.data + i, VOCAB_BLANK, 3) == 0) {
            out[n++] = ' ';
            i += 3;
        } else {
            out[n++] = text.data[i++];
        }
    }
    return (struct span){out, n};
}

static void append_unknown_character(struct buffer *b, uint32_t c, struct span text)
{
    char bytes[4];
    size_t n = lenient_encode(c, bytes);
    buffer_text(b, "[UNK_BYTE_0x");
    for (size_t i = 0; i < n; i++)
        buffer_printf(b, "%02x", (unsigned char)bytes[i]);
    buffer_append(b, text.data, text.size);
    buffer_byte(b, ']');
}

/* A text of n characters outside the alphabet is repeated n times: what that may take over all tokens. */
enum { SPELT_MAX = 64 << 20 };

/* Through the inverse byte alphabet; what lies outside it is spelt out. No data in the result: no memory or room. */
static struct span alphabet_as_bytes(struct arena *a, struct span text, struct buffer *scratch, size_t *room)
{
    scratch->size = 0;
    for (size_t i = 0; i < text.size;) {
        uint32_t c;
        i += lenient_decode(text.data + i, text.size - i, &c);
        int byte = byte_alphabet_inverse(c);
        if (byte >= 0)
            buffer_byte(scratch, (char)byte);
        else
            append_unknown_character(scratch, c, text);
        if (scratch->size > text.size + *room)
            return (struct span){NULL, 0};
    }
    if (scratch->failed)
        return (struct span){NULL, 0};
    if (span_equal(buffer_span(scratch), text))
        return text;
    *room -= scratch->size > text.size ? scratch->size - text.size : 0;
    return (struct span){arena_copy(a, scratch->data, scratch->size), scratch->size};
}

static unsigned char hex_byte(const char *digits, size_t n)
{
    unsigned value = 0;
    for (size_t i = 0; i < n && isxdigit((unsigned char)digits[i]); i++) {
        int c = tolower((unsigned char)digits[i]);
        value = value * 16 + (unsigned)(c <= '9' ? c - '0' : c - 'a' + 10);
    }
    return (unsigned char)value;
}

enum status vocab_pieces(struct vocab *v, struct error *err)
{
    static const struct span empty = {"", 0};
    struct buffer scratch;
    size_t room = SPELT_MAX;
    buffer_init(&scratch);
    bool escaped = v->model == VOCAB_SPM || v->pre->flags & PRE_ESCAPE;
    v->piece = arena_array(&v->arena, v->n, sizeof *v->piece);
    enum status s = v->piece ? STATUS_OK : error_no_memory(err, v->n * sizeof *v->piece, "the vocabulary");
    for (size_t i = 0; i < v->n && s == STATUS_OK; i++) {
        struct span text = v->text[i];
        unsigned a = v->attribute[i];
        if (a & (TOKEN_UNKNOWN | TOKEN_CONTROL | TOKEN_USER_DEFINED)) {
            v->piece[i] = text;
        } else if (a & TOKEN_NORMAL) {
            v->piece[i] = escaped ? blanks_as_spaces(&v->arena, text) : alphabet_as_bytes(&v->arena, text, &scratch, &room);
        } else if (a & TOKEN_BYTE && text.size < 3) {
            char quoted[ERROR_QUOTE_BYTES];
            s = error_set(err, STATUS_INVALID, "token %zu has the type of a byte, but its text \"%s\" is shorter than 3 "
                          "bytes", i, error_quote(text.data, text.size, quoted));
            break;
        } else if (a & TOKEN_BYTE) {
            char byte = (char)hex_byte(text.data + 3, text.size - 3 < 2 ? text.size - 3 : 2);
            v->piece[i] = (struct span){arena_copy(&v->arena, &byte, 1), 1};
        } else {
            v->piece[i] = empty;
        }
        if (!v->piece[i].data)
            s = error_set(err, STATUS_NO_MEMORY, "token %zu: no memory for its piece, or those of unknown characters "
                          "take more than %d bytes", i, SPELT_MAX);
    }
    buffer_clear(&scratch);
    return s;
}
