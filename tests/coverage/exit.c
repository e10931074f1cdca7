/* Linked into every program of MODE=coverage: _exit() writes the counters first, as exit() does by itself. */
#include <unistd.h>

void __gcov_dump(void);
_Noreturn void __real__exit(int status);
_Noreturn void __wrap__exit(int status);
void faults_end(void) __attribute__((weak)); /* tests/faults/wrap.c: what writes the counters must not fail */

_Noreturn void __wrap__exit(int status)
{
    if (faults_end)
        faults_end();
    __gcov_dump();
    __real__exit(status);
}
