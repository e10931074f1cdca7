/* The page served at "/": daemon/page.html, built into the binary. */
#ifndef GGUFD_DAEMON_PAGE_H
#define GGUFD_DAEMON_PAGE_H

#include "engine/base/span.h"

/* Static storage; UTF-8 HTML without external references. */
struct span page_html(void);

#endif
