/* daemon/page.html as bytes of the binary; see page.h. */
#include "daemon/page.h"

__asm__(".section .rodata\n"
        "ggufd_page_begin:\n"
        ".incbin \"daemon/page.html\"\n"
        "ggufd_page_end:\n"
        ".byte 0\n"
        ".previous\n");

extern const char ggufd_page_begin[] __attribute__((visibility("hidden")));
extern const char ggufd_page_end[] __attribute__((visibility("hidden")));

struct span page_html(void)
{
    return (struct span){ggufd_page_begin, (size_t)(ggufd_page_end - ggufd_page_begin)};
}
