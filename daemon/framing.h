/* Is a request's framing one that two parties on the way could read differently? Looks at the headers, at the target, and
 * at what libmicrohttpd read past without showing it. */
#ifndef GGUFD_DAEMON_FRAMING_H
#define GGUFD_DAEMON_FRAMING_H

struct request;

/* What is wrong, as the end of a sentence; NULL: nothing. To be called while the handler is called for the first time,
 * with its method and version: their addresses count. */
const char *framing_fault(const struct request *r, const char *method, const char *version);

/* The value of MHD_OPTION_STRICT_FOR_CLIENT for the libmicrohttpd that runs. */
int framing_strictness(void);

#endif
