/* Ambiguous requests; see framing.h. */
#include "daemon/framing.h"

#include <string.h>
#include <strings.h>

#include "daemon/request.h"

/* ---- what is not shown ---- */

/* libmicrohttpd cuts the request up where it stands, by zeros in place of the separators, and hands out the pieces as
 * text. So what a NUL hides behind it, a line that continues the one before (which it glues to that one's name), and a
 * line with an empty name (which it takes for the end of the header) show as bytes that belong to no piece. From 1.0 on it
 * sees to the header's lines itself, but not to the target. */
static bool cuts_in_place(void)
{
    return strncmp(MHD_get_version(), "0.", 2) == 0;
}

/* Before 1.0 strict means to close without a reply where framing_fault() has one. From 1.0 on it is needed: 1.0.1
 * leaves the LF behind a chunk's extension to what follows, and unless it is strict takes that for the end of the
 * trailer, so that a trailer would be the next request. */
int framing_strictness(void)
{
    return cuts_in_place() ? 0 : 1;
}

struct walk {
    const char *at;    /* behind the last piece */
    const char *begin, *end; /* of the request's header */
    bool hidden;
};

/* A line's end is CR LF: nothing but as many zeros is between two pieces. */
static bool is_line_ends(const char *from, const char *to, ptrdiff_t lines)
{
    return to - from == 2 * lines && memcmp(from, "\0\0\0", (size_t)(2 * lines)) == 0;
}

static enum MHD_Result walk_header(void *cls, enum MHD_ValueKind kind, const char *key, size_t key_size,
                                   const char *value, size_t value_size)
{
    (void)kind;
    struct walk *w = cls;
    bool inside = key >= w->begin && key + key_size < value && value + value_size < w->end;
    if (!inside || !is_line_ends(w->at, key, 1)) {
        w->hidden = true;
        return MHD_NO;
    }
    w->at = value + value_size;
    return MHD_YES;
}

static bool has_hidden_bytes(const struct request *r, const char *method, const char *version)
{
    /* the one blank between two of them became the end of the former */
    if (r->target != method + strlen(method) + 1 || version != r->target_end + 1)
        return true;
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(r->mhd, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    if (!cuts_in_place() || !info)
        return false;
    struct walk w = {.at = version + strlen(version), .begin = method, .end = method + info->header_size};
    MHD_get_connection_values_n(r->mhd, MHD_HEADER_KIND, walk_header, &w);
    return w.hidden || !is_line_ends(w.at, w.end, 2);
}

/* ---- what is shown ---- */

static bool span_is_word(struct span s, const char *word)
{
    return s.size == strlen(word) && strncasecmp(s.data, word, s.size) == 0;
}

static enum MHD_Result find_odd_byte(void *cls, enum MHD_ValueKind kind, const char *key, size_t key_size,
                                     const char *value, size_t value_size)
{
    (void)kind;
    if (key_size == 0 || (value_size && memchr(value, '\r', value_size)))
        *(bool *)cls = true;
    for (size_t i = 0; i < key_size; i++)
        if (key[i] <= ' ' || key[i] == 0x7f)
            *(bool *)cls = true;
    return MHD_YES;
}

/* A Content-Length that is no number never gets here: libmicrohttpd refuses it in the same way. */
static const char *length_fault(const struct request *r)
{
    size_t lengths, codings;
    request_header_get(r, "Content-Length", &lengths);
    struct span coding = request_header_get(r, "Transfer-Encoding", &codings);
    if (lengths > 1)
        return "more than one Content-Length";
    if (lengths && codings)
        return "Content-Length together with Transfer-Encoding";
    if (codings && r->http_1_0)
        return "a Transfer-Encoding in HTTP/1.0";
    if (codings > 1 || (codings && !span_is_word(coding, "chunked")))
        return "a Transfer-Encoding other than \"chunked\"";
    return NULL;
}

const char *framing_fault(const struct request *r, const char *method, const char *version)
{
    size_t hosts;
    bool odd = false;
    request_header_get(r, "Host", &hosts);
    MHD_get_connection_values_n(r->mhd, MHD_HEADER_KIND, find_odd_byte, &odd);
    if (has_hidden_bytes(r, method, version))
        return "a NUL, a bare LF, a blank too many, a continued line or an empty name in the header";
    if (odd)
        return "a header name that is empty or holds a blank or a control character, or a bare CR";
    if (hosts > 1)
        return "more than one Host";
    if (hosts == 0 && !r->http_1_0)
        return "no Host";
    if (r->uri.size == 0 || memchr(r->uri.data, ' ', r->uri.size))
        return "no request target, or a blank in it";
    if (r->authority.data && (r->authority.size == 0 || memchr(r->authority.data, '@', r->authority.size)))
        return "a request target without a host, or with a user's name";
    return length_fault(r);
}
