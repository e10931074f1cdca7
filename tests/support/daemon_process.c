/* See daemon_process.h. */
#include "tests/support/daemon_process.h"

#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/gguf_builder.h"
#include "tests/support/suite.h"

enum { OPTIONS_MAX = 64 };

void (*daemon_before_exec)(void);

static const char *binary(void)
{
    const char *path = getenv("GGUFD_BINARY");
    return path ? path : suite_root("build/ggufd");
}

static bool has_option(const char *const *options, const char *name)
{
    for (; options && *options; options++)
        if (strcmp(*options, name) == 0)
            return true;
    return false;
}

static void exec_daemon(const struct daemon *d, const char *model, const char *const *options)
{
    const char *argv[OPTIONS_MAX + 8] = {binary()};
    size_t n = 1;
    if (model) {
        argv[n++] = "--model";
        argv[n++] = model;
    }
    if (!has_option(options, "--listen")) {
        argv[n++] = "--listen";
        argv[n++] = "127.0.0.1:0";
    }
    for (; options && *options && n < OPTIONS_MAX; options++)
        argv[n++] = *options;
    int fd = open(d->log, O_WRONLY | O_CREAT | O_APPEND, 0600);
    dup2(fd, 1);
    dup2(fd, 2);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (daemon_before_exec)
        daemon_before_exec();
    execv(argv[0], (char *const *)(void *)argv);
    _exit(127);
}

/* The address behind "listening" in the log. */
static bool find_address(struct daemon *d)
{
    char *text = suite_read(d->log, NULL);
    const char *at = text ? strstr(text, "listening") : NULL;
    at = at ? strstr(at, "address") : NULL;
    if (at) {
        at += strlen("address");
        at += strspn(at, "\"=: ");
        snprintf(d->address, sizeof d->address, "%.*s", (int)strcspn(at, "\"\n ,}"), at);
    }
    free(text);
    return at != NULL;
}

void daemon_fork(struct daemon *d, const char *model, const char *const *options)
{
    static unsigned n;
    *d = (struct daemon){0};
    snprintf(d->log, sizeof d->log, "%s/daemon-%u.log", suite_tmp(), n++);
    d->pid = fork();
    if (d->pid == 0)
        exec_daemon(d, model, options);
}

bool daemon_wait_listening(struct daemon *d)
{
    for (double until = now_ms() + PATIENCE_MS; now_ms() < until; sleep_ms(5)) {
        int status;
        if (find_address(d))
            return true;
        if (waitpid(d->pid, &status, WNOHANG) == d->pid)
            return false;
    }
    return false;
}

bool daemon_spawn(struct daemon *d, const char *model, const char *const *options)
{
    daemon_fork(d, model, options);
    return daemon_wait_listening(d);
}

static void show_log(const struct daemon *d)
{
    size_t size;
    char *text = suite_read(d->log, &size);
    if (text)
        fprintf(stderr, "note: end of the daemon's log:\n%s\n", size > 3000 ? text + size - 3000 : text);
    free(text);
}

bool daemon_wait_ready(const struct daemon *d, int timeout_ms)
{
    for (double until = now_ms() + timeout_ms; now_ms() < until; sleep_ms(10)) {
        struct http_reply r;
        http_call(d->address, "GET", "/ready", NULL, NULL, &r);
        int status = r.status;
        http_reply_clear(&r);
        if (status == 200)
            return true;
    }
    return false;
}

void daemon_start(struct daemon *d, const char *model, const char *const *options)
{
    if (!daemon_spawn(d, model, options) || !daemon_wait_ready(d, PATIENCE_MS)) {
        show_log(d);
        ck_abort_msg("the daemon does not become ready");
    }
}

int daemon_wait(struct daemon *d, int timeout_ms)
{
    int status;
    for (double until = now_ms() + timeout_ms; now_ms() < until; sleep_ms(2))
        if (waitpid(d->pid, &status, WNOHANG) == d->pid)
            return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    kill(d->pid, SIGKILL);
    waitpid(d->pid, &status, 0);
    return -1;
}

void daemon_stop(struct daemon *d)
{
    kill(d->pid, SIGTERM);
    int status = daemon_wait(d, PATIENCE_MS);
    if (status != 0)
        show_log(d);
    ck_assert_int_eq(status, 0);
}

struct http_reply daemon_post(const struct daemon *d, const char *path, const char *body)
{
    struct http_reply r;
    http_call(d->address, "POST", path, NULL, body, &r);
    return r;
}

void daemon_expect(const struct daemon *d, const char *path, const char *body, int status, const char *text)
{
    struct http_reply r = daemon_post(d, path, body);
    if (r.status != status || (text && !http_has(&r, text)))
        ck_abort_msg("%s %.200s: %d %s, expected %d with %s", path, body, r.status, r.body.data ? r.body.data : "",
                     status, text ? text : "anything");
    http_reply_clear(&r);
}

bool daemon_logged(const struct daemon *d, const char *text, int timeout_ms)
{
    for (double until = now_ms() + timeout_ms;; sleep_ms(10)) {
        char *log = suite_read(d->log, NULL);
        bool found = log && strstr(log, text);
        free(log);
        if (found || now_ms() > until)
            return found;
    }
}

double daemon_metric(const struct daemon *d, const char *series)
{
    struct http_reply r;
    double value = -1;
    char line[256];
    http_call(d->address, "GET", "/metrics", NULL, NULL, &r);
    snprintf(line, sizeof line, "\n%s ", series);
    const char *at = r.status == 200 ? strstr(r.body.data, line) : NULL;
    if (at)
        value = strtod(at + strlen(line), NULL);
    http_reply_clear(&r);
    return value;
}

bool daemon_metric_becomes(const struct daemon *d, const char *series, double value, int timeout_ms)
{
    for (double until = now_ms() + timeout_ms;; sleep_ms(5)) {
        double now = daemon_metric(d, series);
        if (now >= value && now <= value)
            return true;
        if (now_ms() > until)
            return false;
    }
}

static char *read_proc(const struct daemon *d, const char *name)
{
    char path[64];
    static char text[8192];
    snprintf(path, sizeof path, "/proc/%d/%s", d->pid, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : 0;
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = 0;
    return text;
}

long daemon_rss_anon_kb(const struct daemon *d)
{
    const char *at = strstr(read_proc(d, "status"), "RssAnon:");
    return at ? atol(at + 8) : -1;
}

int daemon_fds(const struct daemon *d)
{
    char path[64];
    int n = 0;
    snprintf(path, sizeof path, "/proc/%d/fd", d->pid);
    DIR *dir = opendir(path);
    while (dir && readdir(dir))
        n++;
    if (dir)
        closedir(dir);
    return n - 2;
}

double daemon_cpu_ms(const struct daemon *d)
{
    /* schedstat counts nanoseconds; utime in /proc/PID/stat counts ticks of 10 ms. One thread after the other. */
    char path[64], line[128];
    double sum = 0;
    snprintf(path, sizeof path, "/proc/%d/task", d->pid);
    DIR *dir = opendir(path);
    for (struct dirent *e; dir && (e = readdir(dir)) != NULL;) {
        char name[400];
        snprintf(name, sizeof name, "%s/%s/schedstat", path, e->d_name);
        FILE *f = e->d_name[0] == '.' ? NULL : fopen(name, "r");
        if (f && fgets(line, sizeof line, f))
            sum += strtod(line, NULL) / 1e6;
        if (f)
            fclose(f);
    }
    if (dir)
        closedir(dir);
    return sum;
}

static const char *make_model(const char *name, const struct tiny_model *model)
{
    static char paths[4][160];
    static unsigned next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s.gguf", suite_tmp(), name);
    if (access(path, R_OK)) {
        struct gguf_builder *b = gguf_builder_tiny(model);
        gguf_builder_write(b, path);
        gguf_builder_free(b);
    }
    return path;
}

const char *model_tiny(void)
{
    return make_model("tiny", &(struct tiny_model){.type = 8, .context = 512, .seed = 3});
}

const char *model_slow(void)
{
    if (suite_tsan()) /* which makes the same work twenty times as slow */
        return make_model("slow", &(struct tiny_model){.type = 8, .n_layers = 2, .n_embd = 128, .n_heads = 4,
                                                       .n_heads_kv = 2, .n_ff = 256, .context = 4096, .seed = 4});
    return make_model("slow", &(struct tiny_model){.type = 8, .n_layers = 6, .n_embd = 256, .n_heads = 8,
                                                   .n_heads_kv = 4, .n_ff = 768, .context = 4096, .seed = 4});
}

const char *model_vocabulary(void)
{
    return make_model("vocabulary", &(struct tiny_model){.vocabulary_only = true, .seed = 5});
}

char *prompt_of_ids(size_t n)
{
    struct buffer b = {0};
    buffer_byte(&b, '[');
    for (size_t i = 0; i < n; i++)
        buffer_printf(&b, "%s%zu", i ? "," : "", 3 + i % 200);
    buffer_text(&b, "]");
    buffer_byte(&b, 0);
    return b.data;
}
