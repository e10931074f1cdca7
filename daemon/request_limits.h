/* The loaded model's and the configuration's bounds on requests. */
#ifndef GGUFD_DAEMON_REQUEST_LIMITS_H
#define GGUFD_DAEMON_REQUEST_LIMITS_H

#include "daemon/server.h"
#include "proto/requests.h"

static inline struct request_limits request_limits_of(const struct server *s)
{
    const struct engine_info *i = engine_info(s->engine);
    int64_t limit = s->config->max_tokens_limit ? s->config->max_tokens_limit : i->context;
    int64_t usual = s->config->max_tokens < limit ? s->config->max_tokens : limit;
    return (struct request_limits){i->n_vocab, (uint32_t)usual, (uint32_t)limit};
}

#endif
