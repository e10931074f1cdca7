/* What the program does besides serving. Each returns the exit status. */
#ifndef GGUFD_DAEMON_COMMANDS_H
#define GGUFD_DAEMON_COMMANDS_H

struct config;

/* --check: opens the model as serving would, prints what it needs and why; 0, or 2 with the reason. */
int command_check(const struct config *config);
/* --inspect MODEL [--json]: metadata, tensors, memory need, values that are not finite, checksums. */
int command_inspect(const struct config *config);
/* --prompt TEXT or --prompt-tokens IDS: generates max_tokens to standard output. */
int command_prompt(const struct config *config);

#endif
