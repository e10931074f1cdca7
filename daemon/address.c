/* Taking addresses apart; see address.h. */
#include "daemon/address.h"

#include <stdlib.h>
#include <string.h>

static enum status refuse(const char *text, const char *why, struct error *err)
{
    char quoted[ERROR_QUOTE_BYTES];
    return error_set(err, STATUS_INVALID, "must be HOST:PORT, [V6]:PORT or unix:/PATH, not \"%s\": %s",
                     error_quote(text, strlen(text), quoted), why);
}

static enum status parse_unix(const char *text, struct address *out, struct error *err)
{
    const char *path = text + 5;
    if (*path != '/' && *path != '@')
        return refuse(text, "a Unix socket's path starts with / (or @: abstract)", err);
    if (!path[1])
        return refuse(text, "the path is empty", err);
    if (strlen(path) >= sizeof out->path) {
        char quoted[ERROR_QUOTE_BYTES];
        return error_set(err, STATUS_RANGE, "the Unix socket's path \"%s\" has %zu bytes; at most %zu are possible",
                         error_quote(path, strlen(path), quoted), strlen(path), sizeof out->path - 1);
    }
    out->is_unix = true;
    strcpy(out->path, path);
    return STATUS_OK;
}

static bool parse_port(const char *text, uint16_t *out)
{
    size_t n = strlen(text);
    if (n < 1 || n > 5 || strspn(text, "0123456789") != n || strtoul(text, NULL, 10) > UINT16_MAX)
        return false;
    *out = (uint16_t)strtoul(text, NULL, 10);
    return true;
}

enum status address_parse(const char *text, struct address *out, struct error *err)
{
    *out = (struct address){0};
    if (strncmp(text, "unix:", 5) == 0)
        return parse_unix(text, out, err);
    const char *colon = strrchr(text, ':'), *host = text, *end = colon;
    if (!colon)
        return refuse(text, "there is no port", err);
    if (*text == '[') {
        if (colon == text + 1 || colon[-1] != ']')
            return refuse(text, "the bracket is not closed", err);
        host++;
        end--;
    } else if (memchr(text, ':', (size_t)(colon - text))) {
        return refuse(text, "an IPv6 address stands in brackets", err);
    }
    if (!parse_port(colon + 1, &out->port))
        return refuse(text, "the port is not in 0..65535", err);
    if ((size_t)(end - host) >= sizeof out->host)
        return refuse(text, "the host name is too long", err);
    memcpy(out->host, host, (size_t)(end - host));
    return STATUS_OK;
}
