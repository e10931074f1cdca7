/* systemd/: the units verify and stay below their exposure, checked with systemd's own tools. daemon/notify: datagrams
 * and handed-over sockets against sockets of our own. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "daemon/notify.h"
#include "engine/base/buffer.h"
#include "tests/support/suite.h"

#define EXPOSURE_MAX 1.5
static const char *const units[] = {"ggufd.service", "ggufd@.service", "ggufd.socket"};

/* ---- units ---- */

/* Exit status of a shell command; its output, terminated, in out. */
static int run(const char *command, struct buffer *out)
{
    char chunk[512];
    out->size = 0;
    FILE *f = popen(command, "r");
    ck_assert_ptr_nonnull(f);
    for (size_t n; (n = fread(chunk, 1, sizeof chunk, f)) > 0;)
        buffer_append(out, chunk, n);
    buffer_byte(out, 0);
    int status = pclose(f);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

static bool has_analyze(void)
{
    struct buffer b = {0};
    bool found = run("systemd-analyze --help 2>/dev/null | grep -q -- --offline", &b) == 0;
    buffer_clear(&b);
    return found;
}

/* Copies the units with `binary` as their program; returns the directory. */
static const char *copy_units(const char *binary)
{
    static char directory[300];
    snprintf(directory, sizeof directory, "%s/units", suite_tmp());
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        char command[2048], from[600];
        struct buffer b = {0};
        snprintf(from, sizeof from, "systemd/%s", units[i]);
        snprintf(command, sizeof command, "mkdir -p %s && sed 's#/usr/local/bin/ggufd#%s#' '%s' > %s/%s", directory, binary,
                 suite_root(from), directory, units[i]);
        ck_assert_int_eq(run(command, &b), 0);
        buffer_clear(&b);
    }
    return directory;
}

static int verify(const char *directory, struct buffer *out)
{
    char command[1024];
    snprintf(command, sizeof command, "cd %s && systemd-analyze verify --man=no ./%s ./%s ./%s 2>&1", directory, units[0], units[1],
             units[2]);
    return run(command, out);
}

TEST(the_units_verify_without_a_word)
{
    const char *binary = getenv("GGUFD_BINARY");
    struct buffer b = {0};
    if (!has_analyze())
        SKIP("there is no systemd-analyze with --offline");
    if (!binary || access(binary, X_OK) != 0)
        SKIP("the daemon is not built");
    int status = verify(copy_units(binary), &b);
    if (status != 0 || b.size > 1)
        ck_abort_msg("%d: %s", status, b.data);
    status = verify(copy_units("/nonexistent/ggufd"), &b); /* the check can fail */
    ck_assert_msg(status != 0 && strstr(b.data, "/nonexistent/ggufd"), "%d: %s", status, b.data);
    buffer_clear(&b);
}
END

static double exposure_of(const char *directory, const char *unit)
{
    char command[512];
    struct buffer b = {0};
    snprintf(command, sizeof command, "cd %s && systemd-analyze security --offline=yes --no-pager ./%s 2>&1", directory, unit);
    run(command, &b);
    const char *found = strstr(b.data, "Overall exposure level for");
    if (!found || !(found = strstr(found, ": ")))
        ck_abort_msg("%s: %s", unit, b.data);
    double exposure = strtod(found + 2, NULL);
    buffer_clear(&b);
    return exposure;
}

TEST(the_services_are_hardly_exposed)
{
    if (!has_analyze())
        SKIP("there is no systemd-analyze with --offline");
    const char *directory = copy_units("/bin/true");
    for (size_t i = 0; i < 2; i++) {
        double exposure = exposure_of(directory, units[i]);
        ck_assert_msg(exposure > 0 && exposure <= EXPOSURE_MAX, "%s: %.1f", units[i], exposure);
    }
    char plain[400];
    snprintf(plain, sizeof plain, "printf '[Service]\\nExecStart=/bin/true\\n' > %s/plain.service", directory);
    ck_assert_int_eq(system(plain), 0);
    ck_assert(exposure_of(directory, "plain.service") > 9); /* the check can fail */
}
END

TEST(the_services_say_what_the_daemon_relies_on)
{
    static const char *const lines[] = {"Type=notify\n", "RestartPreventExitStatus=2\n", "WatchdogSec=30\n", "DynamicUser=yes\n",
                                        "LoadCredential=api_key:", "LimitNOFILE=", "ExecReload=/bin/kill -HUP $MAINPID\n",
                                        "MemoryDenyWriteExecute=yes\n", "ProtectSystem=strict\n", "SystemCallFilter=@system-service\n"};
    for (size_t i = 0; i < 2; i++) {
        char path[100];
        snprintf(path, sizeof path, "systemd/%s", units[i]);
        char *text = suite_read(suite_root(path), NULL);
        ck_assert_ptr_nonnull(text);
        for (size_t k = 0; k < sizeof lines / sizeof lines[0]; k++)
            ck_assert_msg(strstr(text, lines[k]), "%s lacks %s", path, lines[k]);
        ck_assert_int_eq(strstr(text, "PrivateNetwork=yes\n") != NULL, i == 0); /* its sockets come from the socket unit */
        free(text);
    }
}
END

/* ---- notify ---- */

/* A datagram socket bound to name, which stands in NOTIFY_SOCKET too; '@': abstract. */
static int bind_receiver(const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    memcpy(address.sun_path, name, strlen(name));
    if (*name == '@')
        address.sun_path[0] = 0;
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name))), 0);
    setenv("NOTIFY_SOCKET", name, 1);
    return fd;
}

static const char *receive(int fd)
{
    static char text[4096];
    ssize_t n = recv(fd, text, sizeof text - 1, 0);
    ck_assert_msg(n >= 0, "nothing came: %s", strerror(errno));
    text[n] = 0;
    return text;
}

static void check_messages(const char *name)
{
    struct notify n;
    struct error err;
    int fd = bind_receiver(name);
    ck_assert_int_eq(notify_open(&n, &err), STATUS_OK);
    ck_assert_ptr_null(getenv("NOTIFY_SOCKET"));
    ck_assert(notify_status(&n, "loading 50 %"));
    ck_assert_str_eq(receive(fd), "STATUS=loading 50 %");
    ck_assert(notify_extend(&n, 15000));
    ck_assert_str_eq(receive(fd), "EXTEND_TIMEOUT_USEC=15000000");
    ck_assert(notify_ready(&n, "serving a\nSTOPPING=1\x7f"));
    ck_assert_str_eq(receive(fd), "READY=1\nSTATUS=serving a STOPPING=1 ");
    ck_assert(notify_send(&n, "STATUS=%2000s", "x")); /* cut, not lost */
    ck_assert_uint_eq(strlen(receive(fd)), 1023);
    ck_assert(notify_watchdog(&n));
    ck_assert_str_eq(receive(fd), "WATCHDOG=1");
    ck_assert(notify_reloading(&n));
    ck_assert_int_eq(strncmp(receive(fd), "RELOADING=1\nMONOTONIC_USEC=", 27), 0);
    ck_assert(notify_stopping(&n, "draining"));
    ck_assert_str_eq(receive(fd), "STOPPING=1\nSTATUS=draining");
    close(fd);
    ck_assert(!notify_watchdog(&n)); /* nobody there any more: told, not fatal */
    notify_close(&n);
    notify_close(&n);
    ck_assert(notify_watchdog(&n)); /* closed: nothing to do */
}

TEST(messages_reach_a_socket_with_a_path)
{
    char name[100];
    snprintf(name, sizeof name, "%s/notify", suite_tmp());
    check_messages(name);
}
END

TEST(messages_reach_an_abstract_socket)
{
    char name[100];
    snprintf(name, sizeof name, "@ggufd-test-%d", (int)getpid());
    check_messages(name);
}
END

TEST(without_a_manager_nothing_is_sent)
{
    struct notify n;
    struct error err;
    unsetenv("NOTIFY_SOCKET");
    setenv("WATCHDOG_USEC", "1000000", 1);
    ck_assert_int_eq(notify_open(&n, &err), STATUS_OK);
    ck_assert(n.fd == -1 && n.watchdog_ms == 0 && notify_ready(&n, "x"));
    static const char *const bad[] = {"relative", "/", "@", "vsock:2:1"};
    for (size_t i = 0; i < 4; i++) {
        setenv("NOTIFY_SOCKET", bad[i], 1);
        ck_assert_int_eq(notify_open(&n, &err), STATUS_INVALID);
        ck_assert(n.fd == -1 && notify_ready(&n, "x"));
    }
    setenv("NOTIFY_SOCKET", "/nonexistent/notify", 1);
    ck_assert_int_eq(notify_open(&n, &err), STATUS_IO);
    ck_assert_ptr_nonnull(strstr(err.text, "/nonexistent/notify: No such file"));
    setenv("NOTIFY_SOCKET", "", 1);
    ck_assert(notify_open(&n, &err) == STATUS_OK && n.fd == -1);
    char path[200] = "/";
    memset(path + 1, 'n', 150);
    setenv("NOTIFY_SOCKET", path, 1);
    ck_assert_int_eq(notify_open(&n, &err), STATUS_INVALID);
    ck_assert_ptr_nonnull(strstr(err.text, "of 2..107 bytes"));
    notify_close(NULL);
}
END

/* Without a descriptor there is no connection to the manager, and no silent start without one. */
TEST(a_manager_that_cannot_be_reached_is_a_message)
{
    struct notify n;
    struct error err;
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    int next = dup(0);
    close(next);
    setenv("NOTIFY_SOCKET", "/nonexistent/notify", 1);
    setrlimit(RLIMIT_NOFILE, &(struct rlimit){(rlim_t)next, limit.rlim_max});
    enum status status = notify_open(&n, &err);
    setrlimit(RLIMIT_NOFILE, &limit);
    ck_assert_int_eq(status, STATUS_IO);
    ck_assert_str_eq(err.text, "NOTIFY_SOCKET: Too many open files");
    ck_assert_int_eq(n.fd, -1);
}
END

TEST(the_watchdog_interval_is_half_of_what_is_allowed)
{
    static const struct {
        const char *usec;
        int pid; /* 0: none, 1: ours, 2: somebody else's, 3: no number */
        uint64_t want_ms;
    } rows[] = {{"30000000", 0, 15000}, {"30000000", 1, 15000}, {"30000000", 2, 0}, {"30000000", 3, 0}, {"3000", 0, 1}, {"1", 0, 1}, {"0", 0, 0},
                {"", 0, 0}, {"-1", 0, 0}, {"1x", 0, 0}, {"99999999999999999999", 0, 0}};
    char name[100], pid[32];
    snprintf(name, sizeof name, "%s/watchdog", suite_tmp());
    int fd = bind_receiver(name);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct notify n;
        setenv("NOTIFY_SOCKET", name, 1);
        setenv("WATCHDOG_USEC", rows[i].usec, 1);
        snprintf(pid, sizeof pid, "%d", rows[i].pid == 1 ? (int)getpid() : 1);
        if (rows[i].pid)
            setenv("WATCHDOG_PID", rows[i].pid == 3 ? "us" : pid, 1);
        ck_assert_int_eq(notify_open(&n, NULL), STATUS_OK);
        ck_assert_msg(n.watchdog_ms == rows[i].want_ms, "row %zu: %ju", i, (uintmax_t)n.watchdog_ms);
        ck_assert(!getenv("WATCHDOG_USEC") && !getenv("WATCHDOG_PID"));
        notify_close(&n);
    }
    close(fd);
}
END

/* ---- handed-over sockets, in a process of its own: descriptors 3 and up belong to Check here ---- */

static int in_child(int (*body)(void))
{
    pid_t pid = fork();
    if (pid == 0)
        _exit(body());
    int status;
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

/* Puts fd at `number`, without close-on-exec, as systemd does. */
static void place(int fd, int number)
{
    if (fd != number) {
        dup2(fd, number);
        close(fd);
    }
    fcntl(number, F_SETFD, 0);
}

static int tcp_socket(bool listening)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    bind(fd, (struct sockaddr *)&address, sizeof address);
    if (listening)
        listen(fd, 5);
    return fd;
}

static int unix_socket(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "ggufd-listen-%d", (int)getpid());
    bind(fd, (struct sockaddr *)&address, sizeof address);
    listen(fd, 5);
    return fd;
}

static void announce(const char *count, pid_t pid)
{
    char text[32];
    snprintf(text, sizeof text, "%d", (int)pid);
    setenv("LISTEN_FDS", count, 1);
    setenv("LISTEN_PID", text, 1);
    setenv("LISTEN_FDNAMES", "a:b", 1);
}

static int take_two(void)
{
    struct notify_socket sockets[NOTIFY_SOCKETS_MAX];
    struct error err;
    size_t n;
    place(tcp_socket(true), 3);
    place(unix_socket(), 4);
    announce("2", getpid());
    if (notify_sockets(sockets, &n, &err) != STATUS_OK || n != 2)
        return 1;
    if (sockets[0].fd != 3 || sockets[0].is_unix || sockets[1].fd != 4 || !sockets[1].is_unix)
        return 2;
    if (!(fcntl(3, F_GETFD) & FD_CLOEXEC) || !(fcntl(4, F_GETFD) & FD_CLOEXEC))
        return 3;
    if (getenv("LISTEN_FDS") || getenv("LISTEN_PID") || getenv("LISTEN_FDNAMES"))
        return 4;
    return notify_sockets(sockets, &n, &err) == STATUS_OK && n == 0 ? 0 : 5; /* a second call finds none */
}

static int ignore_foreign(void)
{
    struct notify_socket sockets[NOTIFY_SOCKETS_MAX];
    struct error err;
    size_t n = 9;
    place(tcp_socket(true), 3);
    announce("1", getpid() + 1);
    if (notify_sockets(sockets, &n, &err) != STATUS_OK || n != 0 || (fcntl(3, F_GETFD) & FD_CLOEXEC))
        return 1;
    setenv("LISTEN_FDS", "1", 1); /* without LISTEN_PID */
    return notify_sockets(sockets, &n, &err) == STATUS_OK && n == 0 ? 0 : 2;
}

static int refuse_others(void)
{
    struct notify_socket sockets[NOTIFY_SOCKETS_MAX];
    struct error err;
    size_t n;
    int made[] = {tcp_socket(false), socket(AF_UNIX, SOCK_DGRAM, 0), open("/dev/null", O_RDONLY),
                  socket(AF_NETLINK, SOCK_RAW, 0)};
    for (int i = 0; i < 4; i++)
        made[i] = fcntl(made[i], F_DUPFD, 10);
    static const char *const says[] = {"is no listening TCP", "is no listening TCP", "is no socket", "is no listening TCP"};
    for (int i = 0; i < 4; i++) {
        dup2(made[i], 3);
        announce("1", getpid());
        if (notify_sockets(sockets, &n, &err) != STATUS_INVALID || n != 0 || !strstr(err.text, says[i]))
            return 1 + i;
    }
    static const char *const counts[] = {"65", "x", "", "-1"};
    for (int i = 0; i < 4; i++) {
        announce(counts[i], getpid());
        if (notify_sockets(sockets, &n, &err) != STATUS_INVALID || !strstr(err.text, "0..64"))
            return 10 + i;
    }
    announce("0", getpid());
    return notify_sockets(sockets, &n, &err) == STATUS_OK && n == 0 ? 0 : 20;
}

TEST(handed_over_sockets_are_taken_once)
{
    ck_assert_int_eq(in_child(take_two), 0);
}
END

TEST(sockets_of_another_process_are_left_alone)
{
    ck_assert_int_eq(in_child(ignore_foreign), 0);
}
END

TEST(what_is_no_listening_socket_is_refused)
{
    ck_assert_int_eq(in_child(refuse_others), 0);
}
END

SUITE(systemd, T(the_units_verify_without_a_word), T(the_services_are_hardly_exposed), T(the_services_say_what_the_daemon_relies_on),
      T(messages_reach_a_socket_with_a_path), T(messages_reach_an_abstract_socket), T(without_a_manager_nothing_is_sent),
      T(a_manager_that_cannot_be_reached_is_a_message),
      T(the_watchdog_interval_is_half_of_what_is_allowed), T(handed_over_sockets_are_taken_once),
      T(sockets_of_another_process_are_left_alone), T(what_is_no_listening_socket_is_refused))
