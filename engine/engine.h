/* ggufd's engine: one GGUF model, mapped read-only, and sessions that evaluate token sequences on it.
 *
 * Logits are bit for bit those of the reference (docs/numerics.md), on every tier, thread count, batch split and cache
 * state. An engine is immutable after engine_open and may be shared by threads. A session belongs to one thread at a
 * time. Greedy choice only. */
#ifndef GGUFD_ENGINE_H
#define GGUFD_ENGINE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/buffer.h"
#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/base/span.h"

struct engine;
struct session;

#define ENGINE_NUMERICS_VERSION "llama.cpp-0.5.0-portable/1"

struct engine_options {
    const char *model;      /* path of the file or of the first shard */
    const char *tier;       /* "auto" or a tier's name */
    unsigned threads;       /* 0: usable cores */
    unsigned context;       /* tokens; 0: min(the model's, 4096) */
    unsigned batch;         /* tokens of one prefill step; 0: 256 */
    bool prefault;          /* read the file in before returning */
    bool lock_memory;       /* mlock the mapping; a refusal is logged and not fatal */
    struct log_sink log;
    void (*progress)(void *context, const char *stage, double fraction); /* may be NULL; from the calling thread */
    void *progress_context;
};

/* Maps, checks and binds the model; allocates nothing of size beyond the vocabulary. */
enum status engine_open(const struct engine_options *options, struct engine **out, struct error *err);
void engine_close(struct engine *e); /* NULL is fine; sessions must be gone */

struct engine_type_count {
    const char *name; /* "Q4_K" */
    size_t tensors;
    uint64_t bytes;
};

struct engine_memory {
    uint64_t file_bytes;        /* mapped, shared through the page cache */
    uint64_t kv_bytes, arena_bytes, vocabulary_bytes;
    uint64_t anonymous_bytes;   /* sum of the three */
    uint64_t available_bytes;   /* min(available memory, cgroup limit); 0 when unknown */
};

struct engine_info {
    char name[128];             /* general.name, printable; "" if absent */
    char architecture[64];
    bool vocabulary_only;
    uint64_t parameters, file_bytes;
    uint32_t n_vocab, context, context_trained, n_layers, n_embd, n_heads, n_heads_kv;
    size_t n_types;
    struct engine_type_count types[32];
    int32_t bos, eos, eot, unknown, padding; /* -1: none */
    bool add_bos, add_eos;
    char tokenizer[16];         /* "llama", "gpt2" */
    char fingerprint[17];       /* 16 hex digits over metadata and tensor directory */
    const char *tier;
    unsigned threads, batch;
    char threads_reason[96];
    struct engine_memory memory;
};
const struct engine_info *engine_info(const struct engine *e);

/* True once the model file was truncated or rewritten under the mapping; *why (may be NULL) says how. Sticky. */
bool engine_model_changed(struct engine *e, const char **why);

/* ---- looking through the file ---- */

struct engine_key {
    char name[ERROR_QUOTE_BYTES];  /* printable */
    const char *type;              /* "string"; of an array its elements' */
    bool is_array;
    uint64_t count;                /* array length; 1 for scalars */
    char value[ERROR_QUOTE_BYTES]; /* of a scalar, printable; long strings are cut; "" for arrays */
};
/* Every metadata key in file order. */
void engine_metadata(const struct engine *e, void (*on_key)(void *context, const struct engine_key *key), void *context);

struct engine_tensor {
    char name[ERROR_QUOTE_BYTES]; /* printable */
    const char *type;             /* "Q4_K" */
    uint32_t n_dims;
    uint64_t dims[4];             /* innermost first, 1-filled */
    uint64_t bytes;
    uint64_t checksum;            /* FNV-1a over the data as stored */
    uint64_t non_finite;          /* values that dequantize to NaN or infinity: 0 in a sound file */
    uint64_t first_non_finite;    /* element number of the first such value */
    double fraction;              /* of all bytes, looked through so far */
};
/* Reads every tensor in file order, about a second a gigabyte; STATUS_MODEL_CHANGED if the file changes meanwhile. */
enum status engine_inspect(struct engine *e, void (*on_tensor)(void *context, const struct engine_tensor *tensor),
                           void *context, struct error *err);

/* ---- vocabulary: thread-safe, needs no session ---- */

/* Growable ids; zero-initialise, engine_ids_clear frees. */
struct engine_ids {
    int32_t *data;
    size_t count, capacity;
};
void engine_ids_clear(struct engine_ids *ids);
bool engine_ids_push(struct engine_ids *ids, int32_t id); /* false: no memory */

enum {
    ENGINE_PARSE_SPECIAL = 1, /* control tokens written in the text become tokens */
    ENGINE_NO_PREFIX = 2      /* text continues a text part: no SentencePiece blank in front */
};
/* Appends the ids of text. More than `limit` ids in all: STATUS_OVERFLOW, ids holds at least limit + 1. */
enum status engine_tokenize(const struct engine *e, struct span text, unsigned flags, size_t limit,
                            struct engine_ids *ids, struct error *err);
/* Bytes of a token (borrowed); id must be in 0..n_vocab-1. */
struct span engine_piece(const struct engine *e, int32_t id);
bool engine_is_eog(const struct engine *e, int32_t id);
bool engine_is_special(const struct engine *e, int32_t id); /* control or unknown: not shown as ordinary text */

/* ---- sessions: one timeline of tokens and its KV cache ---- */

/* Allocates everything it will ever need: a step does not allocate, lock or log. STATUS_VOCABULARY_ONLY if so. */
enum status session_new(struct engine *e, struct session **out, struct error *err);
void session_free(struct session *s);

size_t session_length(const struct session *s); /* tokens evaluated so far */

struct session_sync {
    const int32_t *tokens;      /* the whole sequence wanted */
    size_t n_tokens;            /* 1..context */
    size_t reuse_limit;         /* reuse at most this many tokens of the cache (SIZE_MAX: all but what is asked for) */
    /* Positions whose logits are wanted: `want_all_from` and everything behind it, and the ascending list `want`. */
    size_t want_all_from;       /* SIZE_MAX: none; n_tokens - 1: the last */
    const uint32_t *want;
    size_t n_want;
    /* Called in ascending position order as computed; logits [n_vocab], valid during the call. A status other than OK
     * ends the run with it. NULL: none wanted. */
    enum status (*on_logits)(void *context, size_t position, const float *logits);
    /* After each step: tokens of the sequence that are evaluated. May be NULL. */
    void (*on_progress)(void *context, size_t evaluated);
    void *context;
    const atomic_bool *cancel;  /* polled between graph nodes; may be NULL */
};

/* Makes the session hold exactly `tokens`: keeps the longest common prefix (below the lowest wanted position), evaluates
 * the rest. *reused (may be NULL) receives the kept length. On any failure the session holds the evaluated prefix.
 * STATUS_CANCELLED, STATUS_NON_FINITE (a wanted logit; err names the position), STATUS_MODEL_CHANGED, STATUS_OVERFLOW,
 * or what on_logits returned. */
enum status session_run(struct session *s, const struct session_sync *sync, size_t *reused, struct error *err);

/* Monotonic count of finished graph nodes, for watchdogs; any thread. */
uint64_t session_steps(const struct session *s);

/* ---- logits ---- */

/* Highest logit, lowest id on a tie. */
int32_t logits_argmax(const float *logits, size_t n);

struct logits_entry {
    int32_t id;
    float logit, logprob;
};
/* Best `k` (0..100) in order (ties: lower id first) into top; k is cut to n. */
size_t logits_top(const float *logits, size_t n, size_t k, struct logits_entry *top);
/* log of the softmax denominator: m = max; S = double sum of pexp(l - m) in id order. */
void logits_normalizer(const float *logits, size_t n, float *max, double *log_sum);
float logits_logprob(float logit, float max, double log_sum);
/* Number of ids before `id` in descending order (ties: lower id first). */
size_t logits_rank(const float *logits, size_t n, int32_t id);

#endif
