#include "base/sock.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/str.h"

static bool parse_port(const char *s, u16 *port) {
    char *end;
    if (*s < '0' || *s > '9') return false;
    unsigned long v = strtoul(s, &end, 10);
    if (*end || v == 0 || v > 65535) return false;
    *port = (u16)v;
    return true;
}

bool sock_split(const char *address, u16 default_port, char host[SOCK_HOST_CAP], u16 *port,
                struct err *e) {
    const char *begin = address, *end, *port_text = NULL;
    if (*address == '[') {
        begin++;
        end = strchr(begin, ']');
        if (!end || (end[1] && end[1] != ':')) goto bad;
        if (end[1]) port_text = end + 2;
    } else {
        const char *colon = strchr(address, ':');
        bool bare_v6 = colon && strchr(colon + 1, ':');
        end = colon && !bare_v6 ? colon : address + strlen(address);
        if (colon && !bare_v6) port_text = colon + 1;
    }
    size_t n = (size_t)(end - begin);
    if (n == 0 || n >= SOCK_HOST_CAP) goto bad;
    for (size_t i = 0; i < n; i++) {
        if ((unsigned char)begin[i] <= ' ' || begin[i] == '/') goto bad;
    }
    if (port_text ? !parse_port(port_text, port) : default_port == 0) goto bad;
    if (!port_text) *port = default_port;
    memcpy(host, begin, n);
    host[n] = '\0';
    return true;
bad:
    return err_set(e, ERR_ARG,
                   "\"%.200s\" is no address: expected HOST:PORT with a port of 1..65535", address);
}

const char *sock_join(const char *host, u16 port, char out[SOCK_ADDRESS_CAP]) {
    snprintf(out, SOCK_ADDRESS_CAP, strchr(host, ':') ? "[%s]:%u" : "%s:%u", host, port);
    return out;
}

bool sock_resolve(const char *host, u16 port, struct sockaddr_storage *out, socklen_t *n,
                  struct err *e) {
    char text[8];
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV}, *found;
    snprintf(text, sizeof text, "%u", port);
    int rc = getaddrinfo(host, text, &hints, &found);
    if (rc) return err_set(e, ERR_ARG, "host \"%.200s\": %s", host, gai_strerror(rc));
    memcpy(out, found->ai_addr, found->ai_addrlen);
    *n = found->ai_addrlen;
    freeaddrinfo(found);
    return true;
}

/* The IPv4 address inside ::ffff:a.b.c.d, which a dual-stack socket reports for IPv4 peers. */
static bool mapped_v4(const struct sockaddr *a, struct in_addr *v4) {
    const struct sockaddr_in6 *s = (const void *)a;
    if (a->sa_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&s->sin6_addr)) return false;
    memcpy(v4, s->sin6_addr.s6_addr + 12, 4);
    return true;
}

void sock_text(const struct sockaddr *a, char host[SOCK_HOST_CAP], u16 *port) {
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    u16 p = 0;
    if (a->sa_family == AF_INET6)
        p = ntohs(((const struct sockaddr_in6 *)(const void *)a)->sin6_port);
    if (a->sa_family == AF_INET) p = ntohs(((const struct sockaddr_in *)(const void *)a)->sin_port);
    if (port) *port = p;
    if (!host) return;
    socklen_t n = a->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof v4;
    if (mapped_v4(a, &v4.sin_addr)) {
        a = (const void *)&v4;
        n = sizeof v4;
    }
    if (getnameinfo(a, n, host, SOCK_HOST_CAP, NULL, 0, NI_NUMERICHOST)) {
        str_copy(host, SOCK_HOST_CAP, "?");
    }
}

bool sock_is_loopback(const struct sockaddr *a) {
    struct in_addr v4;
    if (a->sa_family == AF_INET)
        v4 = ((const struct sockaddr_in *)(const void *)a)->sin_addr;
    else if (!mapped_v4(a, &v4)) {
        const struct sockaddr_in6 *s = (const void *)a;
        return a->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&s->sin6_addr);
    }
    return ntohl(v4.s_addr) >> 24 == 127;
}

bool sock_prepare(int fd) {
    int flags = fcntl(fd, F_GETFL);
    return flags >= 0 && fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0 &&
           fcntl(fd, F_SETFD, FD_CLOEXEC) == 0;
}

bool sock_is_listened(const char *host, u16 port) {
    struct sockaddr_storage a;
    socklen_t n;
    bool any = !host || !*host || strcmp(host, "*") == 0;
    if (!sock_resolve(any ? "127.0.0.1" : host, port, &a, &n, NULL)) return false;
    int fd = socket(a.ss_family, SOCK_STREAM, 0);
    /* An address of this machine answers or refuses at once. */
    bool answered = fd >= 0 && connect(fd, (struct sockaddr *)&a, n) == 0;
    if (fd >= 0) close(fd);
    return answered;
}

/* -1 with errno set. */
static int listen_on(const struct sockaddr *a, socklen_t n) {
    int on = 1, off = 0;
    int fd = socket(a->sa_family, SOCK_STREAM, 0);
    if (fd < 0) return -1;
    bool ok = sock_prepare(fd) && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0;
    if (ok && a->sa_family == AF_INET6) {
        ok = setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) == 0;
    }
    if (ok && bind(fd, a, n) == 0 && listen(fd, SOMAXCONN) == 0) return fd;
    int saved = errno;
    close(fd);
    errno = saved;
    return -1;
}

int sock_listen(const char *host, u16 *port, struct err *e) {
    struct sockaddr_storage a = {0};
    socklen_t n;
    bool any = !host || !*host || strcmp(host, "*") == 0;
    const char *names[2] = {any ? "::" : host, "0.0.0.0"};
    int fd = -1;
    for (int i = 0; i < (any ? 2 : 1) && fd < 0; i++) {
        /* A machine without IPv6 says so at resolve or at socket; a taken port is final. */
        if (i && errno == EADDRINUSE) break;
        if (!sock_resolve(names[i], *port, &a, &n, e)) {
            if (!any) return -1;
            continue;
        }
        fd = listen_on((struct sockaddr *)&a, n);
    }
    if (fd < 0) {
        const char *where = any ? "every address" : host;
        if (errno == EADDRINUSE) {
            err_set(e, ERR_IO, "port %u on %s is in use by another program", *port, where);
        } else {
            err_errno(e, ERR_IO, "can't listen on port %u of %s", *port, where);
        }
        return -1;
    }
    n = sizeof a;
    if (getsockname(fd, (struct sockaddr *)&a, &n) == 0)
        sock_text((struct sockaddr *)&a, NULL, port);
    return fd;
}
