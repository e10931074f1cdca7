/* What is decided about a request before its route sees it: framing that proxies may read differently, origin, key,
 * method, media type and size. */
#ifndef GGUFD_DAEMON_ADMISSION_H
#define GGUFD_DAEMON_ADMISSION_H

#include <stdbool.h>
#include <stddef.h>

#include "engine/base/span.h"

struct request;

/* Of an unwanted body this much is read to keep the connection. */
#define SWALLOW_BYTES ((size_t)8 << 20)

/* Headers are known: sets route, id, and problem or reply where the answer is clear. r->close: answer at once. */
void admission_check_headers(struct request *r);
/* The body is complete: is the server able to do what the route needs? */
void admission_check_complete(struct request *r);
void admission_refuse_size(struct request *r);

#endif
