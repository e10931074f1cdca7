/* Any bytes on a connection of the whole daemon, in this process: it neither dies nor hangs, leaves nothing open, and
 * answers /health after each input.
 *
 * In an input, byte 0xfe ends a write (fragmentation), 0xff ends the connection and opens the next one. Every
 * connection is half-closed at its end, or closed without reading where its last byte is 0xfd, and must then be ended
 * by the daemon. The model is a tiny one, the limits are low, and everything is logged, to nowhere. */
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/config.h"
#include "daemon/log.h"
#include "daemon/server.h"
#include "tests/support/gguf_builder.h"
#include "tests/support/http_client.h"

enum { FLUSH = 0xfe, NEXT = 0xff, LEAVE = 0xfd };
enum {
    SLICE_MS = 70,    /* no divisor of the daemon's tick: the two must not fall into step */
    IDLE_SLICES = 80, /* so many looks at a process that rests are a hang */
    START_SLICES = 2000
};

static char directory[] = "/tmp/fuzz_http.XXXXXX";
static char model[64], address[64];

static void must(bool condition, const char *what)
{
    if (condition)
        return;
    fprintf(stderr, "fuzz_http: %s\n", what);
    abort();
}

static void remove_files(void)
{
    unlink(model);
    unlink(address + strlen("unix:"));
    rmdir(directory);
}

static void *serve(void *context)
{
    (void)context;
    char *argv[] = {"ggufd", "--model", model, "--listen", address, "--context", "64", "--threads", "1",
                    "--max-tokens", "4", "--max-tokens-limit", "8", "--max-body", "6000", "--queue", "2",
                    "--log-level", "debug", "--log-file", "/dev/null", NULL};
    static struct config config;
    struct error err;
    must(config_load(&config, (int)(sizeof argv / sizeof argv[0]) - 1, argv, environ, &err) == STATUS_OK, "configuration");
    must(log_open(config.log_file, LOG_FORMAT_JSON, LOG_LEVEL_DEBUG, &err) == STATUS_OK, "log");
    server_run(&config);
    must(false, "the daemon has ended");
    return NULL;
}

static int status_of(const char *path)
{
    struct http_reply r;
    http_call(address, "GET", path, NULL, NULL, &r);
    int status = r.status;
    http_reply_clear(&r);
    return status;
}

static void start(void)
{
    pthread_t thread;
    signal(SIGPIPE, SIG_IGN);
    must(mkdtemp(directory) != NULL, "directory");
    snprintf(model, sizeof model, "%s/model", directory);
    snprintf(address, sizeof address, "unix:%s/socket", directory);
    atexit(remove_files);
    struct gguf_builder *b = gguf_builder_tiny(&(struct tiny_model){.type = 8, .n_layers = 1, .context = 64, .seed = 7});
    gguf_builder_write(b, model);
    gguf_builder_free(b);
    must(pthread_create(&thread, NULL, serve, NULL) == 0, "thread");
    int tries = START_SLICES;
    while (status_of("/ready") != 200 && tries-- > 0)
        sleep_ms(SLICE_MS);
    must(tries > 0, "the daemon does not become ready");
}

static bool thread_sleeps(const char *id)
{
    char path[64], text[512] = "";
    snprintf(path, sizeof path, "/proc/self/task/%.20s/stat", id);
    FILE *file = fopen(path, "r");
    if (!file)
        return errno == ENOENT; /* it has ended */
    const char *name_end = fgets(text, sizeof text, file) ? strrchr(text, ')') : NULL;
    fclose(file);
    return name_end && strncmp(name_end, ") S", 3) == 0;
}

/* Whether no other thread of the process runs or wants to: on a busy machine those that wait for a processor do not
 * sleep, so that slowness is never taken for a hang. One that works wakes others before it sleeps: a look that finds
 * all of them asleep finds nothing left to do, but for a timer. */
static bool others_sleep(void)
{
    char self[16];
    snprintf(self, sizeof self, "%d", gettid());
    DIR *tasks = opendir("/proc/self/task");
    must(tasks != NULL, "/proc/self/task");
    bool sleep = true;
    for (const struct dirent *e; sleep && (e = readdir(tasks));)
        sleep = e->d_name[0] == '.' || strcmp(e->d_name, self) == 0 || thread_sleeps(e->d_name);
    closedir(tasks);
    return sleep;
}

/* Waits as long as the daemon works. libFuzzer's timer interrupts a poll() every few seconds. A daemon that is busy for
 * ever is found by libFuzzer's -timeout. */
static short wait_for(int fd, short events, const char *otherwise)
{
    struct pollfd p = {.fd = fd, .events = events};
    for (int idle = 0; idle < IDLE_SLICES;) {
        int r = poll(&p, 1, SLICE_MS);
        if (r > 0)
            return p.revents;
        must(r == 0 || errno == EINTR, "poll");
        if (r == 0)
            idle += others_sleep();
    }
    must(false, otherwise);
    return 0;
}

/* Sends a fragment while taking what comes back, so that neither side waits for the other. */
static bool send_fragment(int fd, const uint8_t *data, size_t size)
{
    char reply[4096];
    while (size) {
        short ready = wait_for(fd, POLLIN | POLLOUT, "the daemon neither reads nor writes");
        if (ready & POLLIN && recv(fd, reply, sizeof reply, MSG_DONTWAIT) == 0)
            return false;
        ssize_t n = ready & POLLOUT ? send(fd, data, size, MSG_NOSIGNAL | MSG_DONTWAIT) : 0;
        if (n < 0 || ready & (POLLERR | POLLHUP))
            return false;
        data += n;
        size -= (size_t)n;
    }
    return true;
}

static void read_to_end(int fd)
{
    char reply[4096];
    for (ssize_t n = 1; n > 0;) {
        wait_for(fd, POLLIN, "a half-closed connection stays open");
        n = recv(fd, reply, sizeof reply, MSG_DONTWAIT);
    }
}

static void talk(const uint8_t *data, size_t size)
{
    struct http h;
    must(http_open(&h, address), "no connection");
    bool open = true, leave = size && data[size - 1] == LEAVE;
    while (open && size) {
        const uint8_t *end = memchr(data, FLUSH, size);
        size_t n = end ? (size_t)(end - data) : size;
        open = send_fragment(h.fd, data, n);
        n += end != NULL;
        data += n;
        size -= n;
    }
    if (!leave) {
        shutdown(h.fd, SHUT_WR);
        read_to_end(h.fd);
    }
    http_close(&h);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (address[0] == 0)
        start();
    while (size) {
        const uint8_t *end = memchr(data, NEXT, size);
        size_t n = end ? (size_t)(end - data) : size;
        talk(data, n);
        n += end != NULL;
        data += n;
        size -= n;
    }
    must(status_of("/health") == 200, "/health does not answer");
    return 0;
}
