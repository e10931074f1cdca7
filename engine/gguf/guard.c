/* The SIGBUS handler; see guard.h. Slots are a fixed array of atomics, because the handler may neither lock nor
 * allocate. */
#include "engine/gguf/guard.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

static struct slot {
    atomic_bool taken, faulted;
    atomic_uintptr_t begin, end; /* end == 0: not live */
} slots[GUARD_SLOTS];

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct sigaction previous;
static uintptr_t page_bytes;

/* Zero pages from the page of `address` to the end of the mapping; false if the kernel refuses. */
static bool cover(struct slot *s, uintptr_t address, uintptr_t end)
{
    uintptr_t page = address & ~(page_bytes - 1);
    /* Marked first: whoever sees a zero page can also see the mark. */
    atomic_store(&s->faulted, true);
    return mmap((void *)page, end - page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED;
}

static bool handled(uintptr_t address)
{
    for (size_t i = 0; i < GUARD_SLOTS; i++) {
        uintptr_t end = atomic_load(&slots[i].end);
        if (end != 0 && address < end && address >= atomic_load(&slots[i].begin))
            return cover(&slots[i], address, end);
    }
    return false;
}

static void on_sigbus(int number, siginfo_t *info, void *context)
{
    int saved = errno;
    bool done = info->si_code > 0 && handled((uintptr_t)info->si_addr);
    errno = saved;
    if (done)
        return;
    if (previous.sa_flags & SA_SIGINFO)
        previous.sa_sigaction(number, info, context);
    else if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN)
        previous.sa_handler(number);
    else if (info->si_code > 0 || previous.sa_handler == SIG_DFL) {
        /* A fault repeats when the handler returns and now ends the process; a sent signal is sent once more. */
        signal(number, SIG_DFL);
        if (info->si_code <= 0)
            raise(number);
    }
}

static void install(void)
{
    struct sigaction action = {.sa_flags = SA_SIGINFO | SA_ONSTACK};
    page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
    action.sa_sigaction = on_sigbus;
    sigemptyset(&action.sa_mask);
    int refused = sigaction(SIGBUS, &action, &previous);
    assert(!refused); /* only for a number that is no signal */
    (void)refused;
}

enum status guard_add(const void *data, size_t size, int *slot, struct error *err)
{
    pthread_once(&once, install);
    for (int i = 0; i < GUARD_SLOTS; i++) {
        if (atomic_exchange(&slots[i].taken, true))
            continue;
        atomic_store(&slots[i].faulted, false);
        atomic_store(&slots[i].begin, (uintptr_t)data);
        atomic_store(&slots[i].end, (uintptr_t)data + size);
        *slot = i;
        return STATUS_OK;
    }
    return error_set(err, STATUS_RANGE, "more than %d model files mapped at one time", GUARD_SLOTS);
}

void guard_remove(int slot)
{
    atomic_store(&slots[slot].end, 0);
    atomic_store(&slots[slot].taken, false);
}

bool guard_has_faulted(int slot)
{
    return atomic_load(&slots[slot].faulted);
}
