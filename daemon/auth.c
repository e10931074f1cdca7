/* API keys and origins; see auth.h. */
#include "daemon/auth.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include "daemon/request.h"
#include "daemon/server.h"

enum { KEYS_MAX = 1024, KEY_BYTES_MAX = 512 };

struct auth_keys {
    size_t count;
    struct {
        size_t size;
        char data[KEY_BYTES_MAX];
    } key[];
};

static enum status add_key(struct auth_keys **keys, const char *line, size_t size, size_t number, struct error *err)
{
    struct auth_keys *k = *keys;
    if (size > KEY_BYTES_MAX)
        return error_set(err, STATUS_RANGE, "line %zu: a key of %zu bytes, at most %d", number, size, KEY_BYTES_MAX);
    if (k->count == KEYS_MAX)
        return error_set(err, STATUS_RANGE, "more than %d keys", KEYS_MAX);
    k = realloc(k, sizeof *k + (k->count + 1) * sizeof k->key[0]);
    if (!k)
        return error_no_memory(err, sizeof(*k), "API keys");
    *keys = k;
    memset(k->key[k->count].data, 0, KEY_BYTES_MAX);
    memcpy(k->key[k->count].data, line, size);
    k->key[k->count++].size = size;
    return STATUS_OK;
}

static size_t trimmed(const char *line, ssize_t size)
{
    while (size > 0 && (unsigned char)line[size - 1] <= ' ')
        size--;
    return (size_t)size;
}

enum status auth_keys_load(const char *path, struct auth_keys **out, struct error *err)
{
    *out = NULL;
    if (!path[0])
        return STATUS_OK;
    FILE *f = fopen(path, "re");
    if (!f)
        return error_set(err, STATUS_IO, "API key file %s: %s", path, strerror(errno));
    struct auth_keys *k = calloc(1, sizeof *k);
    enum status status = k ? STATUS_OK : error_no_memory(err, sizeof *k, "API keys");
    char *line = NULL;
    size_t capacity = 0, number = 0;
    for (ssize_t n; !status && (n = getline(&line, &capacity, f)) >= 0;) {
        size_t size = trimmed(line, n);
        number++;
        if (size && line[0] != '#')
            status = add_key(&k, line, size, number, err);
    }
    if (!status && !feof(f)) /* not ferror: running out of memory for a line sets no flag */
        status = error_set(err, STATUS_IO, "%s", strerror(errno));
    if (!status && k->count == 0)
        status = error_set(err, STATUS_INVALID, "holds no key");
    fclose(f);
    if (line)
        explicit_bzero(line, capacity);
    free(line);
    if (status) {
        auth_keys_free(k);
        return error_context(err, "API key file %s", path);
    }
    *out = k;
    return STATUS_OK;
}

void auth_keys_free(struct auth_keys *k)
{
    if (k)
        explicit_bzero(k, sizeof *k + k->count * sizeof k->key[0]);
    free(k);
}

/* Every key is compared over its whole storage. */
bool auth_key_allowed(const struct auth_keys *k, struct span authorization)
{
    char given[KEY_BYTES_MAX] = {0};
    if (!k)
        return true;
    if (authorization.size < 7 || strncasecmp(authorization.data, "Bearer ", 7) != 0)
        return false;
    size_t size = authorization.size - 7, found = 0;
    if (size > KEY_BYTES_MAX)
        return false;
    memcpy(given, authorization.data + 7, size);
    for (size_t i = 0; i < k->count; i++) {
        size_t differs = k->key[i].size ^ size;
        for (size_t b = 0; b < KEY_BYTES_MAX; b++)
            differs |= (size_t)(unsigned char)(given[b] ^ k->key[i].data[b]);
        found |= differs == 0;
    }
    explicit_bzero(given, sizeof given);
    return found != 0;
}

/* ---- origins ---- */

static bool list_has(const struct config_list *list, struct span value)
{
    for (size_t i = 0; i < list->count; i++)
        if (strlen(list->items[i]) == value.size && strncasecmp(list->items[i], value.data, value.size) == 0)
            return true;
    return false;
}

/* "name:port" -> "name"; "[v6]:port" -> "v6". host is not empty. */
static struct span host_name(struct span host)
{
    if (host.data[0] == '[') {
        const char *end = memchr(host.data, ']', host.size);
        return end ? (struct span){host.data + 1, (size_t)(end - host.data) - 1} : (struct span){host.data, 0};
    }
    const char *colon = memchr(host.data, ':', host.size);
    return colon ? (struct span){host.data, (size_t)(colon - host.data)} : host;
}

/* Names that no foreign site can point at us: address literals, localhost, and those the operator lists. */
static bool host_is_trusted(const struct config *config, struct span host)
{
    struct span name = host_name(host);
    char text[INET6_ADDRSTRLEN];
    unsigned char address[16];
    if (name.size < sizeof text) {
        memcpy(text, name.data, name.size);
        text[name.size] = 0;
        if (inet_pton(AF_INET, text, address) == 1 || inet_pton(AF_INET6, text, address) == 1 ||
            strcasecmp(text, "localhost") == 0)
            return true;
    }
    return list_has(&config->allowed_hosts, name);
}

/* Origin is scheme://host of this request. A proxy in front that ends TLS says so in X-Forwarded-Proto, which a foreign
 * page cannot set without our leave. */
static bool is_own_origin(const struct request *r, struct span origin)
{
    struct span host = request_host(r);
    struct span scheme = request_header_get(r, "X-Forwarded-Proto", NULL);
    size_t n = scheme.size == 5 && strncasecmp(scheme.data, "https", 5) == 0 ? 8 : 7;
    return host.size && origin.size == n + host.size && strncasecmp(origin.data, n == 8 ? "https://" : "http://", n) == 0 &&
           strncasecmp(origin.data + n, host.data, host.size) == 0 && host_is_trusted(r->server->config, host);
}

bool auth_origin_allowed(struct request *r)
{
    size_t count;
    struct span origin = request_header_get(r, "Origin", &count);
    if (!count)
        return true;
    if (count > 1)
        return false;
    if (list_has(&r->server->config->allowed_origins, origin)) { /* no longer than CONFIG_ORIGIN_BYTES_MAX */
        memcpy(r->cors_origin, origin.data, origin.size);
        r->cors_origin[origin.size] = 0;
        return true;
    }
    return is_own_origin(r, origin);
}
