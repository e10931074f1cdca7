/* Replies as libmicrohttpd responses: fixed bodies, and streams fed by a job. Loop thread, inside the handler. */
#ifndef GGUFD_DAEMON_ANSWER_H
#define GGUFD_DAEMON_ANSWER_H

#include <microhttpd.h>

struct request;

/* r->problem, or r->reply. */
enum MHD_Result answer_request(struct request *r);
/* What r->job has so far: begins its stream, answers as a whole, or suspends. */
enum MHD_Result answer_job(struct request *r);

#endif
