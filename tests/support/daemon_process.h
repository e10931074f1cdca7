/* The real daemon as a child of a test: on a free port, with its log in a file, killed when the test ends. */
#ifndef GGUFD_TESTS_DAEMON_PROCESS_H
#define GGUFD_TESTS_DAEMON_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "tests/support/http_client.h"

struct daemon {
    pid_t pid;
    char address[160];  /* of its first listener, for http_call */
    char log[128];      /* path */
};

/* Starts $GGUFD_BINARY with --model and --listen 127.0.0.1:0 (unless an option of yours says --listen) and waits until
 * /ready is 200. options: NULL-terminated, may be NULL. Aborts the test on failure. */
void daemon_start(struct daemon *d, const char *model, const char *const *options);
/* Without waiting for readiness: false when it ended before it listened. */
bool daemon_spawn(struct daemon *d, const char *model, const char *const *options);
/* The two halves of daemon_spawn. */
void daemon_fork(struct daemon *d, const char *model, const char *const *options);
bool daemon_wait_listening(struct daemon *d);
/* Runs in the child before exec: environment, descriptors, tracing. NULL: nothing. */
extern void (*daemon_before_exec)(void);
bool daemon_wait_ready(const struct daemon *d, int timeout_ms);
/* Exit status (128 + signal number if killed by one); -1: still running after the time, and killed. */
int daemon_wait(struct daemon *d, int timeout_ms);
/* SIGTERM and wait; asserts that the status is 0. */
void daemon_stop(struct daemon *d);
/* POST; http_reply_clear() it. */
struct http_reply daemon_post(const struct daemon *d, const char *path, const char *body);
/* The same; aborts the test unless the reply has this status and, if not NULL, holds the text. */
void daemon_expect(const struct daemon *d, const char *path, const char *body, int status, const char *text);
/* Waits for a text in the log. */
bool daemon_logged(const struct daemon *d, const char *text, int timeout_ms);
/* Value of a metric's series as it stands in /metrics ("ggufd_jobs_running"); -1 when absent. */
double daemon_metric(const struct daemon *d, const char *series);
/* Polls until a metric has the value. */
bool daemon_metric_becomes(const struct daemon *d, const char *series, double value, int timeout_ms);
long daemon_rss_anon_kb(const struct daemon *d);
int daemon_fds(const struct daemon *d);
double daemon_cpu_ms(const struct daemon *d);

/* Models made for tests, below suite_tmp(). Static storage. */
const char *model_tiny(void);        /* fast; context 512 */
const char *model_slow(void);        /* some milliseconds a token with --tier scalar --threads 1; context 4096 */
const char *model_vocabulary(void);

/* A prompt of n copies of a token, as JSON array text; free() it. */
char *prompt_of_ids(size_t n);

#endif
