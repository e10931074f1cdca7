/* Sessions: which tokens are kept, which logits are handed out, what remains after a cancel or a fault, and that steps
 * allocate nothing. */
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/support/evaluate.h"
#include "tests/support/gguf_builder.h"
#include "tests/support/suite.h"

/* ---- counting allocations of all threads ---- */

static atomic_bool counting;
static atomic_size_t n_allocations;

static void count_allocation(void)
{
    if (atomic_load(&counting))
        atomic_fetch_add(&n_allocations, 1);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif

#ifdef SANITIZED
int __sanitizer_install_malloc_and_free_hooks(void (*on_malloc)(const volatile void *, size_t),
                                              void (*on_free)(const volatile void *));
static void on_malloc(const volatile void *p, size_t size)
{
    (void)p, (void)size;
    count_allocation();
}
static void on_free(const volatile void *p)
{
    (void)p;
}
static void install_counter(void)
{
    ck_assert_int_gt(__sanitizer_install_malloc_and_free_hooks(on_malloc, on_free), 0);
}
#else
/* The program's own definitions come before the C library's, for every thread and library. */
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *p, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);

void *malloc(size_t size)
{
    count_allocation();
    return __libc_malloc(size);
}

void *calloc(size_t n, size_t size)
{
    count_allocation();
    return __libc_calloc(n, size);
}

void *realloc(void *p, size_t size)
{
    count_allocation();
    return __libc_realloc(p, size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
    count_allocation();
    return __libc_memalign(alignment, size);
}

int posix_memalign(void **out, size_t alignment, size_t size)
{
    count_allocation();
    *out = __libc_memalign(alignment, size);
    return *out ? 0 : 12;
}

void *mmap(void *address, size_t size, int protection, int flags, int fd, off_t offset)
{
    count_allocation();
    return (void *)syscall(SYS_mmap, address, size, protection, flags, fd, offset);
}

static void install_counter(void)
{
}
#endif

/* ---- models and sequences ---- */

enum { N = 96 };

/* A name of its own for every file: rewriting a mapped one counts as a change. The last one is in `path`. */
static char path[256];

static struct evaluation open_built(struct gguf_builder *b, unsigned context, unsigned batch, unsigned threads)
{
    static unsigned n;
    snprintf(path, sizeof path, "%s/model-%u.gguf", suite_tmp(), n++);
    gguf_builder_write(b, path);
    gguf_builder_free(b);
    return evaluation_open(path, "auto", context, batch, threads);
}

static struct evaluation open_tiny(unsigned context, unsigned batch, unsigned threads)
{
    struct tiny_model tiny = {.architecture = "llama", .type = 8, .seed = 11};
    return open_built(gguf_builder_tiny(&tiny), context, batch, threads);
}

static void random_tokens(uint64_t seed, int32_t *tokens, size_t n)
{
    for (size_t i = 0; i < n; i++)
        tokens[i] = (int32_t)(test_random(&seed) % 355);
}

/* What a run delivered. */
struct delivery {
    size_t n_vocab, n, progress_calls, evaluated;
    size_t positions[1024];
    float *rows;          /* by position; NULL: not kept */
    enum status answer;   /* of on_logits from `answer_at` on */
    size_t answer_at;
    atomic_bool *cancel;  /* set once `cancel_at` tokens are evaluated */
    size_t cancel_at;
};

static enum status on_logits(void *context, size_t position, const float *logits)
{
    struct delivery *d = context;
    d->positions[d->n++] = position;
    if (d->rows)
        memcpy(d->rows + position * d->n_vocab, logits, d->n_vocab * sizeof *logits);
    return d->n > d->answer_at ? d->answer : STATUS_OK;
}

static void on_progress(void *context, size_t evaluated)
{
    struct delivery *d = context;
    d->progress_calls++;
    d->evaluated = evaluated;
    if (d->cancel && evaluated >= d->cancel_at)
        atomic_store(d->cancel, true);
}

static struct session_sync sync_of(const int32_t *tokens, size_t n, struct delivery *d)
{
    return (struct session_sync){.tokens = tokens, .n_tokens = n, .reuse_limit = SIZE_MAX, .want_all_from = SIZE_MAX,
                                 .on_logits = on_logits, .on_progress = on_progress, .context = d};
}

static float *fresh_rows(const struct evaluation *e)
{
    return calloc((size_t)N * engine_info(e->engine)->n_vocab, sizeof(float));
}

/* All logits of a sequence from a session of its own. */
static float *expected_rows(const int32_t *tokens, size_t n)
{
    struct evaluation e = open_tiny(N, 1, 1);
    float *rows = fresh_rows(&e);
    struct error err;
    ck_assert_int_eq(evaluation_logits(&e, tokens, n, 0, 0, rows, &err), STATUS_OK);
    evaluation_close(&e);
    return rows;
}

/* ---- what is handed out ---- */

TEST(exactly_the_wanted_positions_come_in_order)
{
    struct evaluation e = open_tiny(N, 40, 2);
    int32_t tokens[N];
    random_tokens(1, tokens, N);
    float *expected = expected_rows(tokens, N);
    struct delivery d = {.n_vocab = engine_info(e.engine)->n_vocab, .rows = fresh_rows(&e)};
    uint32_t want[] = {0, 5, 6, 39, 40, 41, 63};
    struct session_sync sync = sync_of(tokens, N, &d);
    struct error err;
    sync.want = want;
    sync.n_want = sizeof want / sizeof want[0];
    sync.want_all_from = 60;
    ck_assert_int_eq(session_run(e.session, &sync, NULL, &err), STATUS_OK);
    ck_assert_uint_eq(d.n, 6 + (N - 60));
    for (size_t i = 0; i < d.n; i++) {
        size_t p = i < 6 ? want[i] : 60 + i - 6, at = p * d.n_vocab;
        ck_assert_uint_eq(d.positions[i], p);
        ck_assert_mem_eq(d.rows + at, expected + at, d.n_vocab * sizeof(float));
    }
    ck_assert_uint_eq(d.progress_calls, 3);
    ck_assert_uint_eq(d.evaluated, N);
    ck_assert_uint_eq(session_length(e.session), N);
    free(expected);
    free(d.rows);
    evaluation_close(&e);
}
END

TEST(the_common_prefix_is_kept_below_the_lowest_wanted_position)
{
    struct evaluation e = open_tiny(N, 16, 1);
    int32_t tokens[N];
    random_tokens(2, tokens, N);
    struct delivery d = {.n_vocab = engine_info(e.engine)->n_vocab};
    struct session_sync sync = sync_of(tokens, 50, &d);
    struct error err;
    size_t reused = 99;
    ck_assert_int_eq(session_run(e.session, &sync, &reused, &err), STATUS_OK);
    ck_assert_uint_eq(reused, 0);
    ck_assert_uint_eq(d.n, 0);
    ck_assert_int_eq(session_run(e.session, &sync, &reused, &err), STATUS_OK); /* nothing left to do */
    ck_assert_uint_eq(reused, 50);
    sync.want_all_from = 49;
    ck_assert_int_eq(session_run(e.session, &sync, &reused, &err), STATUS_OK);
    ck_assert_uint_eq(reused, 49);
    sync.reuse_limit = 20;
    ck_assert_int_eq(session_run(e.session, &sync, &reused, &err), STATUS_OK);
    ck_assert_uint_eq(reused, 20);
    sync.reuse_limit = SIZE_MAX;
    uint32_t want = 7;
    sync.want = &want;
    sync.n_want = 1;
    ck_assert_int_eq(session_run(e.session, &sync, &reused, &err), STATUS_OK);
    ck_assert_uint_eq(reused, 7);
    sync.n_want = 0;
    tokens[30] = (tokens[30] + 1) % 355;
    sync.n_tokens = 40;
    sync.want_all_from = 39;
    ck_assert_int_eq(session_run(e.session, &sync, &reused, &err), STATUS_OK);
    ck_assert_uint_eq(reused, 30);
    ck_assert_uint_eq(session_length(e.session), 40);
    evaluation_close(&e);
}
END

TEST(sequences_that_do_not_fit_are_refused_and_change_nothing)
{
    struct evaluation e = open_tiny(N, 16, 1);
    int32_t tokens[N + 1];
    random_tokens(3, tokens, N + 1);
    struct delivery d = {.n_vocab = engine_info(e.engine)->n_vocab};
    struct session_sync sync = sync_of(tokens, 10, &d);
    struct error err;
    ck_assert_int_eq(session_run(e.session, &sync, NULL, &err), STATUS_OK);
    sync.n_tokens = N + 1;
    ck_assert_int_eq(session_run(e.session, &sync, NULL, &err), STATUS_OVERFLOW);
    sync.n_tokens = 0;
    ck_assert_int_eq(session_run(e.session, &sync, NULL, &err), STATUS_RANGE);
    sync.n_tokens = 20;
    tokens[15] = 355;
    ck_assert_int_eq(session_run(e.session, &sync, NULL, &err), STATUS_RANGE);
    ck_assert_str_eq(err.text, "token 15 is 355, must be 0 to 354");
    tokens[15] = -1;
    ck_assert_int_eq(session_run(e.session, &sync, NULL, &err), STATUS_RANGE);
    tokens[15] = 0;
    uint32_t want[2] = {5, 5};
    sync.want = want;
    sync.n_want = 2;
    ck_assert_int_eq(session_run(e.session, &sync, NULL, &err), STATUS_RANGE);
    want[1] = 20;
    ck_assert_int_eq(session_run(e.session, &sync, NULL, &err), STATUS_RANGE);
    ck_assert_uint_eq(session_length(e.session), 10);
    evaluation_close(&e);
}
END

TEST(the_receivers_answer_ends_the_run)
{
    struct evaluation e = open_tiny(N, 16, 2);
    int32_t tokens[N];
    random_tokens(4, tokens, N);
    struct delivery d = {.n_vocab = engine_info(e.engine)->n_vocab, .answer = STATUS_IO, .answer_at = 20};
    struct session_sync sync = sync_of(tokens, N, &d);
    struct error err;
    sync.want_all_from = 0;
    ck_assert_int_eq(session_run(e.session, &sync, NULL, &err), STATUS_IO);
    ck_assert_uint_eq(d.n, 21);
    ck_assert_uint_eq(session_length(e.session), 32);
    evaluation_close(&e);
}
END

/* ---- cancel ---- */

TEST(a_cancelled_step_leaves_the_length_and_the_next_run_is_exact)
{
    struct evaluation e = open_tiny(N, 16, 3);
    int32_t tokens[N];
    random_tokens(5, tokens, N);
    atomic_bool cancel = false;
    struct delivery d = {.n_vocab = engine_info(e.engine)->n_vocab, .rows = fresh_rows(&e), .cancel = &cancel,
                         .cancel_at = 32};
    struct session_sync sync = sync_of(tokens, N, &d);
    struct error err;
    sync.cancel = &cancel;
    sync.want_all_from = N - 1;
    ck_assert_int_eq(session_run(e.session, &sync, NULL, &err), STATUS_CANCELLED);
    ck_assert_uint_eq(session_length(e.session), 32);
    ck_assert_int_eq(session_run(e.session, &sync, NULL, &err), STATUS_CANCELLED);
    ck_assert_uint_eq(session_length(e.session), 32);
    ck_assert_uint_eq(d.n, 0);
    size_t reused;
    d.cancel = NULL;
    atomic_store(&cancel, false);
    ck_assert_int_eq(session_run(e.session, &sync, &reused, &err), STATUS_OK);
    ck_assert_uint_eq(reused, 32);
    float *expected = expected_rows(tokens, N);
    size_t at = (N - 1) * d.n_vocab;
    ck_assert_mem_eq(d.rows + at, expected + at, d.n_vocab * sizeof(float));
    free(expected);
    free(d.rows);
    evaluation_close(&e);
}
END

struct watcher {
    const struct session *session;
    uint64_t at;
    atomic_bool cancel, done;
};

static void *watch(void *context)
{
    struct watcher *w = context;
    while (session_steps(w->session) < w->at && !atomic_load(&w->done))
        sched_yield();
    atomic_store(&w->cancel, true);
    return NULL;
}

/* Wherever in the graph the cancel arrives, the length is that of a finished step and a later run is exact. */
TEST(a_cancel_may_come_at_any_node)
{
    struct evaluation e = open_tiny(N, 8, 2);
    int32_t tokens[N];
    random_tokens(6, tokens, N);
    float *expected = expected_rows(tokens, N);
    struct delivery d = {.n_vocab = engine_info(e.engine)->n_vocab, .rows = fresh_rows(&e)};
    struct session_sync sync = sync_of(tokens, N, &d);
    struct error err;
    int n_cancelled = 0;
    for (uint64_t round = 0; round < 40 || (n_cancelled == 0 && round < 4000); round++) { /* a watcher may be late */
        struct watcher w = {.session = e.session, .at = session_steps(e.session) + 7 * (round % 40)};
        pthread_t thread;
        ck_assert_int_eq(pthread_create(&thread, NULL, watch, &w), 0);
        sync.cancel = &w.cancel;
        sync.reuse_limit = 0;
        enum status s = session_run(e.session, &sync, NULL, &err);
        atomic_store(&w.done, true);
        pthread_join(thread, NULL);
        ck_assert(s == STATUS_OK || s == STATUS_CANCELLED);
        ck_assert(session_length(e.session) % 8 == 0 && (s == STATUS_OK) == (session_length(e.session) == N));
        n_cancelled += s == STATUS_CANCELLED;
        sync.cancel = NULL;
        sync.reuse_limit = SIZE_MAX;
        sync.want_all_from = N - 1;
        ck_assert_int_eq(session_run(e.session, &sync, NULL, &err), STATUS_OK);
        sync.want_all_from = SIZE_MAX;
        size_t at = (N - 1) * d.n_vocab;
        ck_assert_mem_eq(d.rows + at, expected + at, d.n_vocab * sizeof(float));
    }
    ck_assert_int_gt(n_cancelled, 0);
    free(expected);
    free(d.rows);
    evaluation_close(&e);
}
END

/* ---- many runs on one session ---- */

/* Random prefixes, wants, limits, cancels and refusals: what is delivered equals a fresh evaluation. */
TEST(any_history_gives_the_same_logits)
{
    struct evaluation e = open_tiny(N, 7, 2), fresh = open_tiny(N, 64, 1);
    size_t n_vocab = engine_info(e.engine)->n_vocab;
    float *rows = fresh_rows(&e), *expected = fresh_rows(&e);
    int32_t tokens[N];
    uint64_t state = 7;
    random_tokens(8, tokens, N);
    for (int round = 0; round < (suite_sanitized() ? 20 : 60); round++) {
        size_t n = 1 + test_random(&state) % N;
        for (uint64_t changes = test_random(&state) % 3; changes > 0; changes--)
            tokens[test_random(&state) % n] = (int32_t)(test_random(&state) % 355);
        atomic_bool cancel = false;
        struct delivery d = {.n_vocab = n_vocab, .rows = rows, .cancel = &cancel,
                             .cancel_at = test_random(&state) % 3 ? SIZE_MAX : test_random(&state) % N};
        struct session_sync sync = sync_of(tokens, n, &d);
        struct error err;
        uint32_t want[2] = {(uint32_t)(test_random(&state) % n), (uint32_t)n - 1};
        sync.want = want;
        sync.n_want = want[0] < want[1] ? 2 : 1;
        sync.want_all_from = test_random(&state) % (2 * N);
        sync.cancel = &cancel;
        sync.reuse_limit = test_random(&state) % 2 ? SIZE_MAX : test_random(&state) % N;
        enum status s = session_run(e.session, &sync, NULL, &err);
        ck_assert(s == STATUS_OK || s == STATUS_CANCELLED);
        ck_assert_int_eq(evaluation_logits(&fresh, tokens, n, 0, 0, expected, &err), STATUS_OK);
        for (size_t i = 0; i < d.n; i++) {
            size_t at = d.positions[i] * n_vocab;
            if (memcmp(rows + at, expected + at, n_vocab * sizeof(float)) != 0)
                ck_abort_msg("round %d: logits of position %zu differ", round, d.positions[i]);
        }
    }
    free(rows);
    free(expected);
    evaluation_close(&e);
    evaluation_close(&fresh);
}
END

/* ---- faults ---- */

/* A model whose token `bad` has an embedding that is not finite. */
static struct evaluation open_spoilt(int32_t bad, float value)
{
    struct tiny_model tiny = {.architecture = "llama", .seed = 11};
    struct gguf_builder *b = gguf_builder_tiny(&tiny);
    size_t bytes;
    char *data = gguf_builder_tensor_data(b, "token_embd.weight", &bytes);
    memcpy(data + (size_t)bad * 64 * sizeof(float), &value, sizeof value);
    return open_built(b, N, 8, 2);
}

TEST(a_logit_that_is_not_finite_ends_the_run_and_later_runs_are_exact)
{
    const float values[] = {NAN, INFINITY, -INFINITY};
    for (size_t v = 0; v < sizeof values / sizeof values[0]; v++) {
        struct evaluation e = open_spoilt(9, values[v]), other = open_spoilt(9, values[v]);
        size_t n_vocab = engine_info(e.engine)->n_vocab;
        int32_t tokens[30];
        random_tokens(10, tokens, 30);
        for (size_t i = 0; i < 30; i++)
            tokens[i] = i == 20 ? 9 : tokens[i] == 9 ? 8 : tokens[i];
        float *rows = fresh_rows(&e), *expected = fresh_rows(&e);
        struct error err;
        ck_assert_int_eq(evaluation_logits(&e, tokens, 30, 0, SIZE_MAX, rows, &err), STATUS_NON_FINITE);
        ck_assert_ptr_nonnull(strstr(err.text, "position 20"));
        tokens[20] = 8; /* the poisoned keys and values behind position 20 must not matter */
        ck_assert_int_eq(evaluation_logits(&e, tokens, 30, 10, SIZE_MAX, rows, &err), STATUS_OK);
        ck_assert_int_eq(evaluation_logits(&other, tokens, 30, 10, 0, expected, &err), STATUS_OK);
        ck_assert_mem_eq(rows + 10 * n_vocab, expected + 10 * n_vocab, 20 * n_vocab * sizeof(float));
        free(rows);
        free(expected);
        evaluation_close(&e);
        evaluation_close(&other);
    }
}
END

TEST(a_changed_file_is_noticed_before_logits_are_handed_out)
{
    struct evaluation e = open_tiny(N, 16, 1);
    int32_t tokens[N];
    random_tokens(12, tokens, N);
    struct delivery d = {.n_vocab = engine_info(e.engine)->n_vocab};
    struct session_sync sync = sync_of(tokens, 20, &d);
    struct error err;
    sync.want_all_from = 19;
    ck_assert_int_eq(session_run(e.session, &sync, NULL, &err), STATUS_OK);
    int fd = open(path, O_WRONLY);
    ck_assert_int_eq(pwrite(fd, "GGUF", 4, 0), 4);
    const struct timespec long_ago[2] = {{.tv_sec = 1}, {.tv_sec = 1}};
    ck_assert_int_eq(futimens(fd, long_ago), 0); /* whatever the clock's grain is */
    close(fd);
    ck_assert_int_eq(session_run(e.session, &sync, NULL, &err), STATUS_MODEL_CHANGED);
    ck_assert_uint_eq(d.n, 1);
    ck_assert(engine_model_changed(e.engine, NULL));
    evaluation_close(&e);
}
END

/* ---- memory ---- */

TEST(steps_allocate_nothing)
{
    install_counter();
    struct evaluation e = open_tiny(N, 32, 3);
    int32_t tokens[N];
    random_tokens(13, tokens, N);
    struct delivery d = {.n_vocab = engine_info(e.engine)->n_vocab};
    struct session_sync sync = sync_of(tokens, 1, &d);
    struct error err;
    ck_assert_int_eq(session_run(e.session, &sync, NULL, &err), STATUS_OK); /* all workers have started */
    sync.n_tokens = 60;
    atomic_store(&counting, true);
    void *volatile probe = malloc(16); /* volatile: the compiler may drop an unused pair */
    size_t at_first = atomic_load(&n_allocations);
    sync.want_all_from = 30;
    enum status s = session_run(e.session, &sync, NULL, &err);
    for (sync.n_tokens = 61; sync.n_tokens < N && s == STATUS_OK; sync.n_tokens++) {
        sync.want_all_from = sync.n_tokens - 1;
        s = session_run(e.session, &sync, NULL, &err);
    }
    atomic_store(&counting, false);
    size_t counted = atomic_load(&n_allocations) - at_first;
    free(probe);
    ck_assert_int_eq(s, STATUS_OK);
    ck_assert_uint_ge(at_first, 1); /* the counter counts */
    printf("note: %zu allocations in %zu tokens\n", counted, sync.n_tokens - 1);
    ck_assert_uint_eq(counted, 0);
    evaluation_close(&e);
}
END

SUITE(session, T(exactly_the_wanted_positions_come_in_order),
      T(the_common_prefix_is_kept_below_the_lowest_wanted_position),
      T(sequences_that_do_not_fit_are_refused_and_change_nothing), T(the_receivers_answer_ends_the_run),
      T(a_cancelled_step_leaves_the_length_and_the_next_run_is_exact), T(a_cancel_may_come_at_any_node),
      T(any_history_gives_the_same_logits), T(a_logit_that_is_not_finite_ends_the_run_and_later_runs_are_exact),
      T(a_changed_file_is_noticed_before_logits_are_handed_out), T(steps_allocate_nothing))
