/* The side that is measured. A stranger gets nothing but a greeting: no echo, no sink. */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/random.h"
#include "net/link_internal.h"

enum { PROOF_MS = 500, DATAGRAM_MS = 150 };

static void greet(struct link_meter *m, int fd, enum link_state state, u8 nonce[LINK_NONCE_BYTES]) {
    u8 bytes[LINK_GREETING_BYTES];
    struct link_greeting g = {
        .state = state, .computing = link_is_computing(m), .udp_port = m->udp_port};
    random_bytes(g.nonce, sizeof g.nonce);
    memcpy(nonce, g.nonce, sizeof g.nonce);
    link_greeting_put(&g, bytes);
    ssize_t k = send(fd, bytes, sizeof bytes, MSG_NOSIGNAL); /* fits into any new socket */
    (void)k;                                                 /* who is gone already reads nothing */
}

void link_turn_away(struct link_meter *m, int fd) {
    u8 nonce[LINK_NONCE_BYTES];
    greet(m, fd, LINK_TAKEN, nonce);
    close(fd);
}

static bool swallow(struct link_meter *m, int fd, u64 n, u64 deadline_ms, u64 *ns, struct err *e) {
    u64 begin = clock_ns();
    while (n > 0) {
        ssize_t k = recv(fd, m->chunk, MIN(n, (u64)LINK_CHUNK_BYTES), 0);
        if (k > 0)
            n -= (u64)k;
        else if (k == 0)
            return err_set(e, ERR_NET, "it closed the connection");
        else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            if (link_wait_fd(m, fd, POLLIN, deadline_ms) != LINK_READY)
                return err_set(e, ERR_NET, "the burst did not come in time");
        } else if (errno != EINTR)
            return err_errno(e, ERR_NET, "the connection broke");
    }
    *ns = MAX(clock_ns() - begin, 1);
    return true;
}

/* The size of the session's datagram, or 0. */
static u64 await_datagram(struct link_meter *m, const u8 nonce[LINK_NONCE_BYTES]) {
    u64 until = clock_ms() + DATAGRAM_MS;
    for (;;) {
        struct iovec v = {m->chunk, LINK_CHUNK_BYTES};
        struct msghdr h = {.msg_iov = &v, .msg_iovlen = 1};
        ssize_t k = recvmsg(m->udp_fd, &h, 0);
        if (k >= LINK_NONCE_BYTES && memcmp(m->chunk, nonce, LINK_NONCE_BYTES) == 0) return (u64)k;
        if (k >= 0) continue; /* somebody else's */
        if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) return 0;
        if (link_wait_fd(m, m->udp_fd, POLLIN, until) != LINK_READY) return 0;
    }
}

static bool obey(struct link_meter *m, int fd, struct link_order *o, const u8 *nonce,
                 u64 *bytes_left, u64 deadline_ms, struct err *e) {
    if (o->op == LINK_SINK) {
        if (o->value > *bytes_left) return err_set(e, ERR_LIMIT, "more than a session may bring");
        *bytes_left -= o->value;
        if (!swallow(m, fd, o->value, deadline_ms, &o->value, e)) return false;
    } else if (o->op == LINK_DATAGRAM) {
        o->value = await_datagram(m, nonce);
    }
    u8 bytes[LINK_ORDER_BYTES];
    link_order_put(*o, bytes);
    return link_send_all(m, fd, bytes, sizeof bytes, deadline_ms, e);
}

void link_serve(struct link_meter *m, int fd) {
    u8 nonce[LINK_NONCE_BYTES], proof[LINK_PROOF_BYTES], bytes[LINK_ORDER_BYTES];
    u64 now = clock_ms(), deadline = now + LINK_SESSION_MS, left = LINK_SESSION_BYTES;
    struct link_order o;
    struct err e = {0};
    greet(m, fd, LINK_FREE, nonce);
    bool ok = link_recv_all(m, fd, proof, sizeof proof, now + PROOF_MS, &e) &&
              link_proof_ok(proof, m->cfg.token, nonce);
    while (ok && clock_ms() < deadline) {
        ok = link_recv_all(m, fd, bytes, sizeof bytes, deadline, &e) && link_order_get(bytes, &o) &&
             o.op != LINK_BYE && obey(m, fd, &o, nonce, &left, deadline, &e);
    }
    close(fd);
}
