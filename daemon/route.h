/* Routes: one row each in routes.def, one file where there is behaviour. */
#ifndef GGUFD_DAEMON_ROUTE_H
#define GGUFD_DAEMON_ROUTE_H

#include <stdbool.h>
#include <stddef.h>

#include "engine/base/buffer.h"
#include "engine/base/span.h"

struct request;

enum method { METHOD_GET = 1, METHOD_HEAD = 2, METHOD_POST = 4, METHOD_DELETE = 8, METHOD_OPTIONS = 16 };

enum route_flags {
    ROUTE_OPEN = 1,    /* needs no API key */
    ROUTE_MODEL = 2,   /* 503 until the model is loaded */
    ROUTE_WEIGHTS = 4, /* 409 on a vocabulary-only model, 503 when draining or the file changed */
    ROUTE_OPENAI = 8,  /* problems carry an "error" object as well */
    ROUTE_QUIET = 16   /* polled by machines: success is logged at debug level only */
};

/* What a route does with a complete request; each may be NULL.
 * prepare: body to plan, problem or reply; any thread, the engine's vocabulary only. start: the rest, on the loop;
 * answers, or submits a job. clear: frees the plan. */
struct route_actions {
    void (*prepare)(struct request *r);
    void (*start)(struct request *r);
    void (*clear)(struct request *r);
};

struct route {
    const char *path; /* a final * stands for one non-empty segment */
    const char *name; /* metric label */
    unsigned methods, flags;
    const struct route_actions *actions;
};

/* The row of a path, and the methods it has; NULL and 0 if there is none. No two rows match one path. */
const struct route *route_find(struct span path, unsigned *allowed);
unsigned method_parse(const char *name);
/* "GET, HEAD" */
void methods_text(unsigned methods, struct buffer *out);
/* "/, /health, ..." for the detail of a 404. */
const char *routes_text(void);

#define ROUTE(methods, path, name, flags, actions) extern const struct route_actions actions;
#include "daemon/routes.def"
#undef ROUTE

#endif
