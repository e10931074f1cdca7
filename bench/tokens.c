/* Tokens per second of a model through the engine, prefill and decode at some depth, and of llama.cpp on the same file.
 *
 *   bench/tokens [--threads N] [--tier NAME] [--peer DIR] [--rounds N] [--steps N] [--batch N]
 *                [--prefill N]... [--depth N]... MODEL
 *
 * Wall time; engine and peer take turns, medians of the rounds. With a peer the logits of the first 8 tokens are first
 * compared with its portable build bit for bit: no speed is printed for wrong bits. One row per measurement:
 * model TAB what TAB tok/s TAB % of read bandwidth (decode) TAB peer's tok/s TAB ratio. */
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bench/measure.h"
#include "bench/read.h"
#include "engine/engine.h"
#include "tests/support/encode.h"

enum { ROUNDS_MAX = 31, LIST_MAX = 8, CHECKED_TOKENS = 8, THREADS_MAX = 64 };

struct options {
    const char *model, *tier, *peer;
    unsigned threads, rounds, steps, batch;
    unsigned prefill[LIST_MAX], depth[LIST_MAX];
    size_t n_prefill, n_depth;
};

static struct options options = {.tier = "auto", .rounds = 3, .steps = 16, .batch = 512};
static struct engine *engine;
static struct session *session;
static int32_t *tokens;

static void die(const char *what)
{
    fprintf(stderr, "bench/tokens: %s: %s\n", options.model ? options.model : "", what);
    exit(1);
}

/* ---- the engine ---- */

static enum status keep_logits(void *context, size_t position, const float *logits)
{
    float *rows = context;
    size_t n_vocab = engine_info(engine)->n_vocab;
    if (rows)
        memcpy(rows + position * n_vocab, logits, n_vocab * sizeof *rows);
    return STATUS_OK;
}

/* Seconds for making the session hold tokens[0..n); logits of the last are computed, of all when rows is given. */
static double run_seconds(size_t n, size_t reuse, float *rows)
{
    struct error err;
    struct session_sync sync = {
        .tokens = tokens,
        .n_tokens = n,
        .reuse_limit = reuse,
        .want_all_from = rows ? 0 : n - 1,
        .on_logits = keep_logits,
        .context = rows,
    };
    double start = wall_seconds();
    if (session_run(session, &sync, NULL, &err) != STATUS_OK)
        die(err.text);
    return wall_seconds() - start;
}

static double prefill_rate(size_t n)
{
    return (double)n / run_seconds(n, 0, NULL);
}

static double decode_rate(size_t depth)
{
    size_t first = depth ? depth : 1;
    if (session_length(session) != first)
        run_seconds(first, first, NULL);
    double start = wall_seconds();
    for (size_t i = 1; i <= options.steps; i++)
        run_seconds(first + i, SIZE_MAX, NULL);
    return options.steps / (wall_seconds() - start);
}

/* ---- read bandwidth, as many threads as the engine has ---- */

struct reader {
    const char *data;
    size_t size;
};

static void *read_thread(void *argument)
{
    const struct reader *r = argument;
    read_through(r->data, r->size);
    return NULL;
}

static double read_rate(void)
{
    static const char *map;
    static size_t size;
    if (!map) {
        struct stat st;
        int fd = open(options.model, O_RDONLY | O_CLOEXEC);
        if (fd < 0 || fstat(fd, &st) != 0)
            die("cannot read the file");
        size = (size_t)st.st_size;
        map = mmap(NULL, size, PROT_READ, MAP_SHARED | MAP_POPULATE, fd, 0);
        close(fd);
        if (map == MAP_FAILED)
            die("cannot map the file");
    }
    pthread_t threads[THREADS_MAX];
    struct reader readers[THREADS_MAX];
    size_t share = size / options.threads / 4096 * 4096;
    double start = wall_seconds();
    for (unsigned i = 0; i < options.threads; i++) {
        readers[i] = (struct reader){map + i * share, share};
        if (pthread_create(&threads[i], NULL, read_thread, &readers[i]) != 0)
            die("cannot start a thread");
    }
    for (unsigned i = 0; i < options.threads; i++)
        pthread_join(threads[i], NULL);
    return (double)share * options.threads / (wall_seconds() - start);
}

/* ---- the peer ---- */

static FILE *peer_start(const char *backends, const char *arguments)
{
    char command[4096];
    snprintf(command, sizeof command, "PEER_BACKENDS='%s/%s' PEER_THREADS=%u '%s/peer' %s", options.peer, backends,
             options.threads, options.peer, arguments);
    FILE *f = popen(command, "r");
    if (!f)
        die("cannot start the peer");
    return f;
}

/* Rates of the second of two repetitions in one process: the first warms up. */
static void peer_rates(unsigned prompt, unsigned steps, double *prefill, double *decode)
{
    char arguments[2048], line[256];
    snprintf(arguments, sizeof arguments, "bench '%s' %u %u %u 2 %u 0", options.model, prompt, steps, options.threads,
             options.batch);
    FILE *f = peer_start("native", arguments);
    unsigned p, d;
    *prefill = *decode = 0;
    while (fgets(line, sizeof line, f))
        if (sscanf(line, "prefill %u %lf tok/s decode %u %lf tok/s", &p, prefill, &d, decode) != 4)
            die("unexpected output of the peer");
    if (pclose(f) != 0 || (steps && *decode <= 0))
        die("the peer failed");
}

static void check_bits(void)
{
    char path[] = "/tmp/bench-logits-XXXXXX", arguments[2048];
    int fd = mkstemp(path);
    size_t bytes = CHECKED_TOKENS * (size_t)engine_info(engine)->n_vocab * sizeof(float);
    float *expected = malloc(bytes), *own = malloc(bytes);
    if (fd < 0 || !expected || !own)
        die("cannot compare logits");
    int n = snprintf(arguments, sizeof arguments, "logits '%s' %s 1 %d", options.model, path, CHECKED_TOKENS);
    for (int i = 0; i < CHECKED_TOKENS; i++)
        n += snprintf(arguments + n, sizeof arguments - (size_t)n, " %" PRId32, tokens[i]);
    strcat(arguments, " >/dev/null");
    if (pclose(peer_start("portable", arguments)) != 0)
        die("the peer's portable build failed");
    ssize_t got = pread(fd, expected, bytes, 0);
    close(fd);
    unlink(path);
    run_seconds(CHECKED_TOKENS, 0, own);
    if (got != (ssize_t)bytes || memcmp(expected, own, bytes) != 0)
        die("the logits differ from those of the peer's portable build; no speeds for wrong bits");
    fprintf(stderr, "%s: logits of %d tokens equal the peer's portable build bit for bit\n", options.model,
            CHECKED_TOKENS);
    free(expected);
    free(own);
}

/* ---- measurements ---- */

static const char *model_name(void)
{
    const char *slash = strrchr(options.model, '/');
    return slash ? slash + 1 : options.model;
}

static void print_row(const char *what, unsigned n, double own, double share, double peer)
{
    printf("%s\t%s %u\t%.1f\t", model_name(), what, n, own);
    if (share > 0)
        printf("%.0f\t", share * 100);
    else
        printf("-\t");
    if (peer > 0)
        printf("%.1f\t%.2f\n", peer, own / peer);
    else
        printf("-\t-\n");
    fflush(stdout);
}

static void measure_prefill(unsigned n)
{
    double own[ROUNDS_MAX], peer[ROUNDS_MAX], unused;
    for (unsigned r = 0; r < options.rounds; r++) {
        own[r] = prefill_rate(n);
        if (options.peer)
            peer_rates(n, 0, &peer[r], &unused);
    }
    print_row("prefill", n, median(own, options.rounds), 0, options.peer ? median(peer, options.rounds) : 0);
}

/* Bytes a decoded token reads: the whole file but for the embedding of an untied model, which the mixes here lack. */
static void measure_decode(unsigned depth)
{
    double own[ROUNDS_MAX], share[ROUNDS_MAX], peer[ROUNDS_MAX], unused;
    for (unsigned r = 0; r < options.rounds; r++) {
        double read = read_rate();
        own[r] = decode_rate(depth);
        share[r] = own[r] * (double)engine_info(engine)->file_bytes / read;
        if (options.peer)
            peer_rates(depth ? depth : 1, options.steps, &unused, &peer[r]);
    }
    print_row("decode at", depth, median(own, options.rounds), median(share, options.rounds),
              options.peer ? median(peer, options.rounds) : 0);
}

static void parse(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        unsigned n = (unsigned)strtoul(value, NULL, 10);
        if (argv[i][0] != '-') {
            options.model = argv[i];
            continue;
        }
        if (strcmp(argv[i], "--threads") == 0)
            options.threads = n;
        else if (strcmp(argv[i], "--rounds") == 0)
            options.rounds = n > ROUNDS_MAX ? ROUNDS_MAX : n;
        else if (strcmp(argv[i], "--steps") == 0)
            options.steps = n;
        else if (strcmp(argv[i], "--batch") == 0)
            options.batch = n;
        else if (strcmp(argv[i], "--tier") == 0)
            options.tier = value;
        else if (strcmp(argv[i], "--peer") == 0)
            options.peer = value;
        else if (strcmp(argv[i], "--prefill") == 0 && options.n_prefill < LIST_MAX)
            options.prefill[options.n_prefill++] = n;
        else if (strcmp(argv[i], "--depth") == 0 && options.n_depth < LIST_MAX)
            options.depth[options.n_depth++] = n;
        else
            die("unknown option; see the head of bench/tokens.c");
        i++;
    }
    if (!options.model || options.rounds == 0 || options.threads > THREADS_MAX)
        die("needs a model, at least one round, at most 64 threads");
}

static unsigned longest(void)
{
    unsigned n = CHECKED_TOKENS;
    for (size_t i = 0; i < options.n_prefill; i++)
        n = options.prefill[i] > n ? options.prefill[i] : n;
    for (size_t i = 0; i < options.n_depth; i++)
        n = options.depth[i] > n ? options.depth[i] : n;
    return n + options.steps + 2;
}

int main(int argc, char **argv)
{
    struct error err;
    parse(argc, argv);
    unsigned n_tokens = longest();
    struct engine_options open = {.model = options.model, .tier = options.tier, .threads = options.threads,
                                  .context = n_tokens, .batch = options.batch, .prefault = true};
    if (engine_open(&open, &engine, &err) != STATUS_OK || session_new(engine, &session, &err) != STATUS_OK)
        die(err.text);
    options.threads = engine_info(engine)->threads;
    tokens = malloc(n_tokens * sizeof *tokens);
    if (!tokens)
        die("no memory");
    uint64_t seed = 3;
    for (unsigned i = 0; i < n_tokens; i++)
        tokens[i] = (int32_t)(random_u64(&seed) % engine_info(engine)->n_vocab);
    if (options.peer)
        check_bits();
    for (size_t i = 0; i < options.n_prefill; i++)
        measure_prefill(options.prefill[i]);
    for (size_t i = 0; i < options.n_depth; i++)
        measure_decode(options.depth[i]);
    session_free(session);
    engine_close(engine);
    free(tokens);
    return 0;
}
