/* What the contract allows: replies of the daemon under stress, judged against the request and the moment. */
#ifndef GGUFD_TESTS_STRESS_CHECK_H
#define GGUFD_TESTS_STRESS_CHECK_H

#include <stdbool.h>

#include "tests/support/stress_client.h"
#include "tests/support/stress_reference.h"

#define STRESS_KINDS(X) \
    X(GENERATE, "generate") X(COMPLETION, "completion") X(LOGITS, "logits") X(LOGITS_F32, "logits as float32") X(TOKENIZE, "tokenize") \
    X(HEALTH, "health") X(READY, "ready") X(METRICS, "metrics") X(INVALID, "invalid request") X(MISSING, "no such route") \
    X(DELETE, "delete")

enum stress_kind {
#define X(identifier, name) STRESS_##identifier,
    STRESS_KINDS(X)
#undef X
    STRESS_KIND_COUNT
};

/* How the daemon under test was started. */
struct stress_setting {
    const char *name, *options[16];
    bool hasty;                 /* timeouts so short that a client may be cut at any moment */
    unsigned queue;
    double queue_wait_ms;
};

struct stress_slot {
    struct stress_client client;
    enum stress_kind kind;      /* of the request under way */
    struct stress_ask ask;
    double asked_ms;            /* before its first byte was sent */
    unsigned long id;           /* number of its id; 0: none of ours */
    bool repeats_id;            /* a job with this id was alive a moment ago */
    bool may_be_deleted;        /* a DELETE for its id was sent */
    bool must_be_unknown;       /* a DELETE of an id that no job can have */
    char reason[32];            /* of a generation that has ended, as its reply says */
    bool must_be_answered;      /* it reached the daemon before the signal to end */
};

struct stress_moment {
    const struct stress_setting *setting;
    bool ending;                /* SIGTERM was sent */
    bool cutting;               /* ... twice, or with a short drain_timeout */
};

/* How it ended ("200 length", "503 queue-full"; static), or NULL with a sentence in `why`. */
const char *stress_check_reply(struct stress_slot *s, const struct stress_moment *m, char *why, size_t size);
/* The connection ended before the reply was complete: allowed at this moment? And was what came right? */
bool stress_check_loss(struct stress_slot *s, const struct stress_moment *m, char *why, size_t size);
/* An unsigned member of a reply's JSON; -1: absent. */
long stress_number(const char *json, const char *key);

#endif
