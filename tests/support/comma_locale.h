/* A numeric locale whose decimal point is a comma, for tests that numbers do not depend on it. */
#ifndef GGUFD_TESTS_COMMA_LOCALE_H
#define GGUFD_TESTS_COMMA_LOCALE_H

#include <stdbool.h>

/* Sets LC_NUMERIC to an installed one, or to one built with localedef in the suite's temporary directory; false where
 * neither is possible. */
bool comma_locale_set(void);

#endif
