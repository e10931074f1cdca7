/* One log line and one metric count per request. */
#ifndef GGUFD_DAEMON_REQUEST_LOG_H
#define GGUFD_DAEMON_REQUEST_LOG_H

#include <stdbool.h>

struct request;

/* complete: the reply went out whole. */
void request_log(const struct request *r, bool complete);

#endif
