/* Building a locale that has nothing but its decimal comma; see comma_locale.h. */
#include "tests/support/comma_locale.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/support/suite.h"

bool comma_locale_set(void)
{
    char source[300], command[1024];
    if (setlocale(LC_NUMERIC, "de_DE.UTF-8") || setlocale(LC_NUMERIC, "de_DE"))
        return true;
    snprintf(source, sizeof source, "%s/comma", suite_tmp());
    FILE *f = fopen(source, "w");
    if (!f)
        return false;
    fputs("comment_char %\nescape_char /\nLC_NUMERIC\ndecimal_point \",\"\nthousands_sep \"\"\ngrouping -1\n"
          "END LC_NUMERIC\n", f);
    fclose(f);
    /* -c: the other categories are missing, which it says with its status; setlocale decides */
    snprintf(command, sizeof command, "localedef -c -i %s -f UTF-8 %s/xx_XX.UTF-8 >/dev/null 2>&1", source, suite_tmp());
    (void)!system(command);
    setenv("LOCPATH", suite_tmp(), 1);
    return setlocale(LC_NUMERIC, "xx_XX.UTF-8") != NULL;
}
