/* Addresses to listen on, as text and taken apart: HOST:PORT, [V6]:PORT, unix:/PATH, unix:@ABSTRACT. */
#ifndef GGUFD_DAEMON_ADDRESS_H
#define GGUFD_DAEMON_ADDRESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "engine/base/error.h"

struct address {
    bool is_unix;
    char host[256];     /* TCP: name or literal without brackets, "" for every address */
    uint16_t port;      /* TCP; 0: any */
    char path[sizeof((struct sockaddr_un *)0)->sun_path]; /* Unix; '@' in front: abstract */
};

/* Syntax only; no name is looked up. */
enum status address_parse(const char *text, struct address *out, struct error *err);

#endif
