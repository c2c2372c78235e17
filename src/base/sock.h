/* sock.h - TCP addresses as text, and listening sockets. Any thread.
 *
 * An address is "host:port"; the host is a name, an IPv4 address, or an IPv6 address in brackets
 * ("[fe80::1%eth0]:52416"). */
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include "base/err.h"

/* Where send() can't be told not to raise SIGPIPE (macOS), every process of ours ignores the
 * signal. */
#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0
#endif

enum {
    SOCK_HOST_CAP = 256,
    SOCK_ADDRESS_CAP = SOCK_HOST_CAP + 8,
    /* For so long at most ranks that compute the same layer ask again before they sleep, and links
     * between machines are measured alike. */
    SOCK_SPIN_MAX_US = 600,
};

/* Splits "host:port", "[v6]:port", a bare host or a bare IPv6 address (those get default_port).
 * ERR_ARG when it is none of these, or when the port is missing and default_port is 0. */
bool sock_split(const char *address, u16 default_port, char host[SOCK_HOST_CAP], u16 *port,
                struct err *e);
/* The other way round, with brackets where they are needed. */
const char *sock_join(const char *host, u16 port, char out[SOCK_ADDRESS_CAP]);

/* Resolves; takes the first address. ERR_ARG for an unknown host. A name may block on DNS. */
bool sock_resolve(const char *host, u16 port, struct sockaddr_storage *out, socklen_t *n,
                  struct err *e);
/* Numeric host (IPv4-mapped IPv6 shown as IPv4) and port. Either output may be NULL. */
void sock_text(const struct sockaddr *a, char host[SOCK_HOST_CAP], u16 *port);
bool sock_is_loopback(const struct sockaddr *a);

/* A non-blocking, close-on-exec listening socket. host NULL, "" or "*": every address, IPv6 and
 * IPv4 together where the system has both. *port 0: any free one, written back. -1 and *e: ERR_ARG
 * for the host; ERR_IO naming host and port, and saying so when the port is taken. */
int sock_listen(const char *host, u16 *port, struct err *e);
/* Whether some process of this machine listens there; host as sock_listen's. A port can be taken
 * and not be listened at: by a connection that was dialled from it, for as long as that lives. */
bool sock_is_listened(const char *host, u16 port);
/* Both non-blocking and close-on-exec. */
bool sock_prepare(int fd);
