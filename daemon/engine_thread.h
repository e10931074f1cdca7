/* The thread that owns the session: loads the model, then takes jobs from the line, one after the other. */
#ifndef GGUFD_DAEMON_ENGINE_THREAD_H
#define GGUFD_DAEMON_ENGINE_THREAD_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "engine/base/error.h"
#include "engine/engine.h"

struct server;

enum engine_state { ENGINE_LOADING, ENGINE_READY, ENGINE_FAILED };

struct engine_thread {
    pthread_t thread;
    bool started;
    bool ended;   /* under the queue's lock: it waits for nothing any more */
    atomic_int state;         /* what is below is valid once it is not ENGINE_LOADING */
    atomic_uint load_permille;
    atomic_size_t context_used; /* tokens in the session, as of late */
    struct engine *engine;
    struct session *session;  /* NULL: vocabulary only */
    struct error error;       /* ENGINE_FAILED */
};

/* Options of the engine as the configuration says. */
struct config;
struct engine_options engine_options_from(const struct config *config);

enum status engine_thread_start(struct server *s, struct error *err);
/* Asks it to end and waits a moment; false when it does not come: it hangs in the engine, or still loads. */
bool engine_thread_stop(struct server *s);
/* Once it has ended. */
void engine_thread_clear(struct server *s);

#endif
