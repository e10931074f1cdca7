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

/* Headers are known: sets route, id, and problem or reply where the answer is clear. r->close: answer at once. method and
 * version: as libmicrohttpd handed them out. */
void admission_check_headers(struct request *r, const char *method, const char *version);
/* The body is complete: is the server able to do what the route needs? */
void admission_check_complete(struct request *r);
/* May the request hold so many more bytes of its body, by its own limit and by that of all? False: problem set. */
bool admission_check_body_bytes(struct request *r, size_t more);

#endif
