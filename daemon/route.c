/* The route table; see route.h. */
#include "daemon/route.h"

#include <string.h>

static const struct route routes[] = {
#define ROUTE(methods, path, name, flags, actions) {path, name, methods, flags, &actions},
#include "daemon/routes.def"
#undef ROUTE
};

static const struct {
    const char *name;
    unsigned method;
} methods[] = {
    {"GET", METHOD_GET},       {"HEAD", METHOD_HEAD},       {"POST", METHOD_POST},
    {"DELETE", METHOD_DELETE}, {"OPTIONS", METHOD_OPTIONS},
};

unsigned method_parse(const char *name)
{
    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++)
        if (strcmp(methods[i].name, name) == 0)
            return methods[i].method;
    return 0;
}

void methods_text(unsigned set, struct buffer *out)
{
    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++)
        if (set & methods[i].method)
            buffer_printf(out, "%s%s", out->size ? ", " : "", methods[i].name);
}

static bool path_matches(const char *pattern, struct span path)
{
    size_t n = strlen(pattern);
    if (pattern[n - 1] != '*')
        return span_is(path, pattern);
    return path.size >= n && memcmp(path.data, pattern, n - 1) == 0 &&
           !memchr(path.data + n - 1, '/', path.size - (n - 1));
}

const struct route *route_find(struct span path, unsigned *allowed)
{
    *allowed = 0;
    for (size_t i = 0; i < sizeof routes / sizeof routes[0]; i++)
        if (path_matches(routes[i].path, path)) {
            *allowed = routes[i].methods | (routes[i].methods & METHOD_GET ? METHOD_HEAD : 0);
            return &routes[i];
        }
    return NULL;
}

const char *routes_text(void)
{
    return ""
#define ROUTE(methods, path, name, flags, actions) " " name
#include "daemon/routes.def"
#undef ROUTE
        ;
}
