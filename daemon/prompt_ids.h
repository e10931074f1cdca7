/* Prompts and texts to token ids, as the HTTP interface defines them. Any thread. */
#ifndef GGUFD_DAEMON_PROMPT_IDS_H
#define GGUFD_DAEMON_PROMPT_IDS_H

#include <stddef.h>

#include "engine/engine.h"
#include "proto/problem.h"
#include "proto/requests.h"

/* Appends the prompt's ids to *ids. More than `limit`: PROBLEM_CONTEXT_OVERFLOW (room: 1 if a token is to follow). No
 * id at all is refused too. */
enum status prompt_to_ids(const struct engine *e, const struct prompt *p, size_t limit, bool room,
                          struct engine_ids *ids, struct problem *problem);
/* One text with BOS and EOS around it as the model's metadata says, if add_special. No limit. */
enum status text_to_ids(const struct engine *e, struct span text, bool add_special, bool parse_special,
                        struct engine_ids *ids, struct problem *problem);

#endif
