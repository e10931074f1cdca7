/* Status codes and the error text that travels with them.
 *
 * A fallible function returns enum status (STATUS_OK = 0) and takes a struct error * last. The line that detects a
 * fault writes what, where, which value and what would be allowed; callers may put context in front. Text is always
 * terminated, printable and short: bytes that came from a file or a socket enter it only through error_quote(). */
#ifndef GGUFD_BASE_ERROR_H
#define GGUFD_BASE_ERROR_H

#include <stddef.h>

#define STATUS_TABLE(X)                                                 \
    X(STATUS_OK, "ok")                                                  \
    X(STATUS_NO_MEMORY, "out of memory")                                \
    X(STATUS_IO, "input/output error")                                  \
    X(STATUS_INVALID, "invalid input")                                  \
    X(STATUS_UNSUPPORTED, "not supported")                              \
    X(STATUS_RANGE, "value out of range")                               \
    X(STATUS_CANCELLED, "cancelled")                                    \
    X(STATUS_OVERFLOW, "context overflow")                              \
    X(STATUS_NON_FINITE, "non-finite logits")                           \
    X(STATUS_MODEL_CHANGED, "model file changed")                       \
    X(STATUS_VOCABULARY_ONLY, "vocabulary-only model")

enum status {
#define X(name, text) name,
    STATUS_TABLE(X)
#undef X
};

struct error {
    enum status status;
    char text[512];
};

/* Static text of a status; never NULL. */
const char *status_text(enum status status);

/* Stores status and formatted text (truncated to fit) in err, which may be NULL; returns status. */
enum status error_set(struct error *err, enum status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Puts formatted context in front of the text that is already there; returns err's status. */
enum status error_context(struct error *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Out of memory while allocating `size` bytes for `what`. */
enum status error_no_memory(struct error *err, size_t size, const char *what);

#define ERROR_QUOTE_MAX 64
/* Copies at most ERROR_QUOTE_MAX bytes of outside data as printable ASCII (others as \xHH, then "..." if cut) into
 * out, which holds 4 * ERROR_QUOTE_MAX + 4 bytes; returns out. */
#define ERROR_QUOTE_BYTES (4 * ERROR_QUOTE_MAX + 4)
const char *error_quote(const char *data, size_t size, char *out);

#endif
