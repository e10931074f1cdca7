/* Who may ask: API keys, and the origins that browsers name. */
#ifndef GGUFD_DAEMON_AUTH_H
#define GGUFD_DAEMON_AUTH_H

#include <stdbool.h>
#include <stddef.h>

#include "engine/base/error.h"
#include "engine/base/span.h"

struct request;

struct auth_keys;

/* One key a line; blank lines and lines that begin with # are skipped. No key at all is refused: an empty file must not
 * open the door. path "": no keys are wanted (*out NULL). */
enum status auth_keys_load(const char *path, struct auth_keys **out, struct error *err);
void auth_keys_free(struct auth_keys *k);

/* `authorization` is the header's value. Time does not depend on where a wrong key differs. NULL keys: always. */
bool auth_key_allowed(const struct auth_keys *k, struct span authorization);

/* True without an Origin. Sets r->cors_origin for one of allowed_origins. */
bool auth_origin_allowed(struct request *r);

#endif
