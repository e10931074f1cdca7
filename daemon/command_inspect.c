/* --inspect: not here yet. */
#include "daemon/commands.h"
#include "daemon/config.h"

int command_inspect(const struct config *config)
{
    (void)config;
    return EXIT_REFUSED;
}
