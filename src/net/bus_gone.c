/* bus_gone.c - a peer's last connection was closed: did its process end, or only the way to it? Its
 * port tells. Where the machine answers that nobody listens there any more, the process is gone,
 * and nobody needs to wait for its silence. A bus that lives greets unasked. Where nothing answers,
 * nothing is known. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/arena.h"
#include "net/bus_gone.h"

enum {
    ASK_MS = 1500,  /* for so long; then silence decides */
    AGAIN_MS = 50,  /* a process that ends may listen for a moment longer */
    ANSWER_MS = 300 /* a packet was lost: asked again */
};

struct bus_gone {
    struct bus_gone *next;
    char id[BUS_NODE_ID_MAX + 1], address[SOCK_ADDRESS_CAP];
    int fd; /* -1: to be opened at ask_ms */
    bool connected;
    u64 ask_ms, end_ms;
};

static void done(struct bus *b, struct bus_gone *g) {
    for (struct bus_gone **at = &b->gone; *at; at = &(*at)->next) {
        if (*at != g) continue;
        *at = g->next;
        break;
    }
    if (g->fd >= 0) close(g->fd);
    free(g);
}

void bus_gone_free_all(struct bus *b) {
    while (b->gone) done(b, b->gone);
}

void bus_gone_ask(struct bus *b, const char *id, const char *address, u64 now_ms) {
    struct bus_gone *g = xcalloc(1, sizeof *g);
    str_copy(g->id, sizeof g->id, id);
    str_copy(g->address, sizeof g->address, address);
    g->fd = -1;
    g->ask_ms = now_ms;
    g->end_ms = now_ms + ASK_MS;
    g->next = b->gone;
    b->gone = g;
    b->dirty = true;
}

/* 0, EINPROGRESS or why not. */
static int ask(struct bus_gone *g, u64 now_ms) {
    char host[SOCK_HOST_CAP];
    u16 port;
    struct sockaddr_storage a;
    socklen_t n;
    if (!sock_split(g->address, 0, host, &port, NULL) || !sock_resolve(host, port, &a, &n, NULL))
        return EINVAL;
    g->ask_ms = now_ms;
    g->connected = false;
    g->fd = socket(a.ss_family, SOCK_STREAM, 0);
    if (g->fd < 0) return errno;
    if (!sock_prepare(g->fd)) return EINVAL;
    return connect(g->fd, (struct sockaddr *)&a, n) == 0 ? 0 : errno;
}

static int answer(const struct bus_gone *g) {
    struct pollfd p = {.fd = g->fd, .events = POLLOUT};
    int no = 0;
    socklen_t n = sizeof no;
    if (poll(&p, 1, 0) < 1) return EINPROGRESS;
    return getsockopt(g->fd, SOL_SOCKET, SO_ERROR, &no, &n) == 0 ? no : errno;
}

static void ask_again(struct bus_gone *g, u64 now_ms) {
    close(g->fd);
    g->fd = -1;
    g->ask_ms = now_ms + AGAIN_MS;
}

/* True when g is over. */
static bool look(struct bus *b, struct bus_gone *g, u64 now_ms) {
    const struct bus_peer *p = bus_peer_find(b, g->id);
    if ((p && p->up) || now_ms >= g->end_ms) return true;
    if (g->fd < 0 && now_ms < g->ask_ms) return false;
    if (!g->connected) {
        int no = g->fd < 0 ? ask(g, now_ms) : answer(g);
        if (no == ECONNREFUSED) {
            bus_note_add(b, BUS_PEER_GONE, g->id, g->address, 0, "nobody listens at its port");
            return true;
        }
        g->connected = no == 0;
        if (no == EINPROGRESS && now_ms - g->ask_ms >= ANSWER_MS) ask_again(g, now_ms);
        return no != 0 && no != EINPROGRESS;
    }
    u8 byte;
    ssize_t n = recv(g->fd, &byte, 1, MSG_DONTWAIT);
    if (n > 0) return true; /* it lives */
    if (n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) ask_again(g, now_ms);
    return false;
}

bool bus_gone_serve(struct bus *b, u64 now_ms) {
    bool any = false;
    for (struct bus_gone *g = b->gone, *next; g; g = next) {
        next = g->next;
        if (!look(b, g, now_ms)) continue;
        done(b, g);
        any = true;
    }
    return any;
}
