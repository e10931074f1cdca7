/* Counters, gauges and histograms, one row each in metrics.def, written in Prometheus' text format 0.0.4. Loop thread.
 */
#ifndef GGUFD_DAEMON_METRICS_H
#define GGUFD_DAEMON_METRICS_H

#include <stdint.h>

#include "engine/base/buffer.h"

#define METRICS_CONTENT_TYPE "text/plain; version=0.0.4; charset=utf-8"
#define METRICS_LABELS_MAX 3
/* Series of one metric; what comes beyond is counted with every label "other", so outside input cannot grow it. */
#define METRICS_SERIES_MAX 256

enum metric {
#define METRIC(identifier, type, name, labels, help) METRIC_##identifier,
#include "daemon/metrics.def"
#undef METRIC
    METRIC_COUNT
};

struct metrics;
struct metrics *metrics_new(void); /* NULL: no memory */
void metrics_free(struct metrics *m);

/* Label values follow in the table's order, METRICS_LABELS_MAX at most; they are copied. None: NULL. */
void metrics_add(struct metrics *m, enum metric metric, const char *const *labels, uint64_t amount); /* counter */
void metrics_set(struct metrics *m, enum metric metric, const char *const *labels, double value);    /* gauge */
void metrics_observe(struct metrics *m, enum metric metric, double seconds);                          /* histogram */
#define METRICS_LABELS(...) ((const char *const[METRICS_LABELS_MAX]){__VA_ARGS__})

void metrics_write(const struct metrics *m, struct buffer *out);

#endif
