/* ggufd: reads the configuration and does what it asks for. */
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "daemon/commands.h"
#include "daemon/config.h"
#include "daemon/log.h"
#include "daemon/server.h"

static int print_help(void)
{
    struct buffer text = {0};
    config_help(&text);
    fwrite(text.data, 1, text.size, stdout);
    buffer_clear(&text);
    return fflush(stdout) ? EXIT_RUNTIME : EXIT_ORDERLY;
}

static int print_version(void)
{
    printf("ggufd %s, numerics %s\n", GGUFD_VERSION, ENGINE_NUMERICS_VERSION);
    return fflush(stdout) ? EXIT_RUNTIME : EXIT_ORDERLY;
}

static int act(const struct config *config)
{
    switch (config->action) {
    case CONFIG_HELP:
        return print_help();
    case CONFIG_VERSION:
        return print_version();
    case CONFIG_CHECK:
        return command_check(config);
    case CONFIG_INSPECT:
        return command_inspect(config);
    case CONFIG_ONE_SHOT:
        return command_prompt(config);
    case CONFIG_SERVE:
        break;
    }
    return server_run(config);
}

int main(int argc, char **argv)
{
    struct config config;
    struct error err;
    signal(SIGPIPE, SIG_IGN); /* before the first line of the log */
    if (config_load(&config, argc, argv, environ, &err) ||
        log_open(config.log_file, log_format_parse(config.log_format), log_level_parse(config.log_level), &err)) {
        fprintf(stderr, "ggufd: %s\n", err.text);
        config_clear(&config);
        return EXIT_REFUSED;
    }
    for (size_t i = 0; i < config.unknown_environment.count; i++)
        LOG(LOG_LEVEL_WARN, "unknown-environment", LOG_TEXT("name", config.unknown_environment.items[i]));
    int status = act(&config);
    config_clear(&config);
    log_close();
    return status;
}
