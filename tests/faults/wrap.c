/* Calls that fail on command; see tests/support/faults.h. Linked with -Wl,--wrap=NAME for every row below. */
#include <cJSON.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <microhttpd.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <uv.h>

#include "tests/support/faults.h"

extern const char __executable_start[];
static struct faults *faults;

__attribute__((constructor)) static void map_faults(void)
{
    const char *path = getenv("GGUFD_FAULTS");
    int fd = path ? (open)(path, O_RDWR | O_CLOEXEC) : -1;
    void *p = fd >= 0 ? (mmap)(NULL, sizeof *faults, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
    if (fd >= 0)
        close(fd);
    if (p != MAP_FAILED)
        faults = p;
}

/* What runs behind main is not the daemon's. */
void faults_end(void);
__attribute__((destructor)) void faults_end(void)
{
    faults = NULL;
}

/* True for the call that is to fail; it then has the errno. */
static bool fails(const char *function, const void *caller, int error)
{
    if (!faults)
        return false;
    unsigned long n = atomic_fetch_add(&faults->calls, 1) + 1;
    if (n != atomic_load(&faults->fail_at))
        return false;
    snprintf(faults->function, sizeof faults->function, "%s", function);
    faults->caller = (unsigned long)((const char *)caller - __executable_start);
    atomic_fetch_add(&faults->failed, 1);
    if (error)
        errno = error;
    return true;
}

/* type name(parameters): `failure` with errno `error`, or what the function itself gives. */
#define WRAP(type, name, parameters, arguments, failure, error)  \
    type __real_##name parameters;                               \
    type __wrap_##name parameters;                               \
    type __wrap_##name parameters                                \
    {                                                            \
        if (fails(#name, __builtin_return_address(0), error))    \
            return failure;                                      \
        return __real_##name arguments;                          \
    }

/* ---- memory ---- */
WRAP(void *, malloc, (size_t n), (n), NULL, ENOMEM)
WRAP(void *, calloc, (size_t n, size_t size), (n, size), NULL, ENOMEM)
WRAP(void *, realloc, (void *p, size_t n), (p, n), NULL, ENOMEM)
WRAP(void *, aligned_alloc, (size_t alignment, size_t n), (alignment, n), NULL, ENOMEM)
WRAP(char *, strdup, (const char *s), (s), NULL, ENOMEM)
WRAP(char *, strndup, (const char *s, size_t n), (s, n), NULL, ENOMEM)
WRAP(void *, mmap, (void *p, size_t n, int prot, int flags, int fd, off_t at), (p, n, prot, flags, fd, at), MAP_FAILED,
     ENOMEM)
WRAP(int, madvise, (void *p, size_t n, int advice), (p, n, advice), -1, EAGAIN)
WRAP(int, mlock, (const void *p, size_t n), (p, n), -1, ENOMEM)

/* ---- files ---- */
WRAP(ssize_t, read, (int fd, void *p, size_t n), (fd, p, n), -1, EIO)
WRAP(ssize_t, write, (int fd, const void *p, size_t n), (fd, p, n), -1, ENOSPC)
WRAP(int, fstat, (int fd, struct stat *st), (fd, st), -1, EOVERFLOW)
WRAP(int, lstat, (const char *path, struct stat *st), (path, st), -1, EACCES)
WRAP(int, unlink, (const char *path), (path), -1, EACCES)
WRAP(int, chmod, (const char *path, mode_t mode), (path, mode), -1, EPERM)
WRAP(int, dup3, (int from, int to, int flags), (from, to, flags), -1, EBUSY)
WRAP(FILE *, fopen, (const char *path, const char *mode), (path, mode), NULL, EMFILE)
WRAP(DIR *, opendir, (const char *path), (path), NULL, EMFILE)
WRAP(ssize_t, __getdelim, (char **line, size_t *size, int end, FILE *f), (line, size, end, f), -1, ENOMEM)
WRAP(ssize_t, getline, (char **line, size_t *size, FILE *f), (line, size, f), -1, ENOMEM)
WRAP(ssize_t, getrandom, (void *p, size_t n, unsigned flags), (p, n, flags), -1, ENOSYS)

/* ---- sockets ---- */
WRAP(int, socket, (int domain, int type, int protocol), (domain, type, protocol), -1, EMFILE)
WRAP(int, bind, (int fd, const struct sockaddr *a, socklen_t n), (fd, a, n), -1, EADDRINUSE)
WRAP(int, listen, (int fd, int backlog), (fd, backlog), -1, EADDRINUSE)
WRAP(int, accept4, (int fd, struct sockaddr *a, socklen_t *n, int flags), (fd, a, n, flags), -1, EMFILE)
WRAP(int, connect, (int fd, const struct sockaddr *a, socklen_t n), (fd, a, n), -1, EAGAIN)
WRAP(int, getsockname, (int fd, struct sockaddr *a, socklen_t *n), (fd, a, n), -1, ENOBUFS)
WRAP(int, getpeername, (int fd, struct sockaddr *a, socklen_t *n), (fd, a, n), -1, ENOTCONN)
WRAP(int, getsockopt, (int fd, int level, int option, void *p, socklen_t *n), (fd, level, option, p, n), -1, ENOBUFS)
WRAP(int, setsockopt, (int fd, int level, int option, const void *p, socklen_t n), (fd, level, option, p, n), -1,
     ENOBUFS)
WRAP(int, poll, (struct pollfd * p, nfds_t n, int timeout), (p, n, timeout), -1, ENOMEM)
WRAP(int, getaddrinfo, (const char *h, const char *s, const struct addrinfo *hints, struct addrinfo **found),
     (h, s, hints, found), EAI_MEMORY, 0)
WRAP(int, getnameinfo, (const struct sockaddr *a, socklen_t n, char *h, socklen_t hn, char *s, socklen_t sn, int flags),
     (a, n, h, hn, s, sn, flags), EAI_MEMORY, 0)

/* ---- threads ---- */
WRAP(int, pthread_create, (pthread_t * t, const pthread_attr_t *a, void *(*f)(void *), void *context),
     (t, a, f, context), EAGAIN, 0)
WRAP(int, sched_getaffinity, (pid_t pid, size_t n, cpu_set_t *set), (pid, n, set), -1, EINVAL)

/* ---- libraries ---- */
WRAP(int, uv_loop_init, (uv_loop_t * l), (l), UV_EMFILE, 0)
WRAP(int, uv_async_init, (uv_loop_t * l, uv_async_t *h, uv_async_cb f), (l, h, f), UV_EMFILE, 0)
WRAP(int, uv_signal_init, (uv_loop_t * l, uv_signal_t *h), (l, h), UV_EMFILE, 0)
WRAP(int, uv_signal_start, (uv_signal_t * h, uv_signal_cb f, int number), (h, f, number), UV_EMFILE, 0)
WRAP(int, uv_poll_init, (uv_loop_t * l, uv_poll_t *h, int fd), (l, h, fd), UV_ENOMEM, 0)
WRAP(struct MHD_Response *, MHD_create_response_from_buffer, (size_t n, void *p, enum MHD_ResponseMemoryMode mode),
     (n, p, mode), NULL, 0)
WRAP(struct MHD_Response *, MHD_create_response_from_callback,
     (uint64_t n, size_t block, MHD_ContentReaderCallback f, void *context, MHD_ContentReaderFreeCallback end),
     (n, block, f, context, end), NULL, 0)
WRAP(enum MHD_Result, MHD_add_response_header, (struct MHD_Response * r, const char *name, const char *value),
     (r, name, value), MHD_NO, 0)
WRAP(enum MHD_Result, MHD_queue_response, (struct MHD_Connection * c, unsigned status, struct MHD_Response *r),
     (c, status, r), MHD_NO, 0)
WRAP(cJSON *, cJSON_ParseWithLength, (const char *text, size_t n), (text, n), NULL, 0)

/* ---- those with a list of arguments, or with something to undo ---- */

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    mode_t mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;
    va_end(args);
    return fails("open", __builtin_return_address(0), EMFILE) ? -1 : __real_open(path, flags, mode);
}

int __real_fcntl(int fd, int command, ...);
int __wrap_fcntl(int fd, int command, ...);
int __wrap_fcntl(int fd, int command, ...)
{
    va_list args;
    va_start(args, command);
    int argument = va_arg(args, int);
    va_end(args);
    return fails("fcntl", __builtin_return_address(0), EINVAL) ? -1 : __real_fcntl(fd, command, argument);
}

enum MHD_Result __real_MHD_add_connection(struct MHD_Daemon *d, int fd, const struct sockaddr *a, socklen_t n);
enum MHD_Result __wrap_MHD_add_connection(struct MHD_Daemon *d, int fd, const struct sockaddr *a, socklen_t n);
enum MHD_Result __wrap_MHD_add_connection(struct MHD_Daemon *d, int fd, const struct sockaddr *a, socklen_t n)
{
    if (!fails("MHD_add_connection", __builtin_return_address(0), ENOMEM))
        return __real_MHD_add_connection(d, fd, a, n);
    close(fd); /* as it does */
    return MHD_NO;
}

static _Atomic(uv_work_cb) behind_gate; /* there is one kind of work */

static void pass_gate(uv_work_t *work)
{
    struct faults *f = faults;
    if (f)
        atomic_fetch_add(&f->at_gate, 1);
    while (f && atomic_load(&f->gate_closed))
        usleep(500);
    atomic_load(&behind_gate)(work); /* a plain call reads it without atomicity */
}

int __real_uv_queue_work(uv_loop_t *l, uv_work_t *w, uv_work_cb f, uv_after_work_cb after);
int __wrap_uv_queue_work(uv_loop_t *l, uv_work_t *w, uv_work_cb f, uv_after_work_cb after);
int __wrap_uv_queue_work(uv_loop_t *l, uv_work_t *w, uv_work_cb f, uv_after_work_cb after)
{
    behind_gate = f;
    return fails("uv_queue_work", __builtin_return_address(0), 0) ? UV_ENOMEM
                                                                  : __real_uv_queue_work(l, w, pass_gate, after);
}

/* asprintf under either of its names. */
__attribute__((format(printf, 3, 0))) static int print(const void *caller, char **out, const char *format, va_list args)
{
    return fails("asprintf", caller, ENOMEM) ? -1 : vasprintf(out, format, args);
}

int __wrap_asprintf(char **out, const char *format, ...) __attribute__((format(printf, 2, 3)));
int __wrap_asprintf(char **out, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = print(__builtin_return_address(0), out, format, args);
    va_end(args);
    return n;
}

int __wrap___asprintf_chk(char **out, int flag, const char *format, ...) __attribute__((format(printf, 3, 4)));
int __wrap___asprintf_chk(char **out, int flag, const char *format, ...)
{
    va_list args;
    (void)flag;
    va_start(args, format);
    int n = print(__builtin_return_address(0), out, format, args);
    va_end(args);
    return n;
}

static struct MHD_Daemon *start_daemon(const void *caller, unsigned flags, uint16_t port, MHD_AcceptPolicyCallback accept,
                                       void *accept_context, MHD_AccessHandlerCallback handler, void *context, va_list args)
{
    if (fails("MHD_start_daemon", caller, ENOMEM))
        return NULL;
    return MHD_start_daemon_va(flags, port, accept, accept_context, handler, context, args);
}

struct MHD_Daemon *__wrap_MHD_start_daemon(unsigned flags, uint16_t port, MHD_AcceptPolicyCallback accept,
                                           void *accept_context, MHD_AccessHandlerCallback handler, void *context, ...);
struct MHD_Daemon *__wrap_MHD_start_daemon(unsigned flags, uint16_t port, MHD_AcceptPolicyCallback accept,
                                           void *accept_context, MHD_AccessHandlerCallback handler, void *context, ...)
{
    va_list args;
    va_start(args, context);
    struct MHD_Daemon *d = start_daemon(__builtin_return_address(0), flags, port, accept, accept_context, handler,
                                        context, args);
    va_end(args);
    return d;
}

/* ---- calls of libmicrohttpd and libuv: the program's own symbols are found first ---- */

static bool comes_from(const void *caller, const char *library)
{
    Dl_info info;
    return dladdr(caller, &info) && info.dli_fname && strstr(info.dli_fname, library);
}

/* type name(parameters) fails for callers in `library`; "" is any. Visible, so that libraries bind to it. */
#define INTERPOSE(type, name, parameters, arguments, library, failure, error)                            \
    type name parameters;                                                                                \
    __attribute__((visibility("default"))) type name parameters                                          \
    {                                                                                                    \
        static type(*_Atomic real) parameters;                                                           \
        const void *caller = __builtin_return_address(0);                                                \
        if (!real)                                                                                       \
            real = (type(*) parameters)(uintptr_t)dlsym(RTLD_NEXT, #name);                                \
        if (faults && comes_from(caller, library) && fails(#name, caller, error))                         \
            return failure;                                                                              \
        return real arguments;                                                                           \
    }

INTERPOSE(ssize_t, recv, (int fd, void *p, size_t n, int flags), (fd, p, n, flags), "", -1, ECONNRESET)
INTERPOSE(ssize_t, send, (int fd, const void *p, size_t n, int flags), (fd, p, n, flags), "", -1, ENOBUFS)
INTERPOSE(ssize_t, sendmsg, (int fd, const struct msghdr *m, int flags), (fd, m, flags), "", -1, ECONNRESET)
INTERPOSE(int, epoll_create1, (int flags), (flags), "", -1, EMFILE)
INTERPOSE(int, eventfd, (unsigned count, int flags), (count, flags), "", -1, EMFILE)

/* Only what the kernel may refuse; libuv ends the process by itself when its own watch fails. */
int epoll_ctl(int set, int operation, int fd, struct epoll_event *event);
__attribute__((visibility("default"))) int epoll_ctl(int set, int operation, int fd, struct epoll_event *event)
{
    static int (*_Atomic real)(int, int, int, struct epoll_event *);
    const void *caller = __builtin_return_address(0);
    if (!real)
        real = (int (*)(int, int, int, struct epoll_event *))(uintptr_t)dlsym(RTLD_NEXT, "epoll_ctl");
    if (faults && operation == EPOLL_CTL_ADD && comes_from(caller, "microhttpd") && fails("epoll_ctl", caller, ENOSPC))
        return -1;
    return real(set, operation, fd, event);
}

/* ---- a clock that is set while the daemon runs ---- */

int __real_clock_gettime(clockid_t clock, struct timespec *t);
int __wrap_clock_gettime(clockid_t clock, struct timespec *t);
int __wrap_clock_gettime(clockid_t clock, struct timespec *t)
{
    int r = __real_clock_gettime(clock, t);
    if (faults && clock == CLOCK_REALTIME)
        t->tv_sec += atomic_load(&faults->clock_step_s);
    return r;
}
