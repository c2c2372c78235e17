/* bus.h - authenticated messages between node processes: ZeroMQ ROUTER/DEALER under CURVE.
 *
 * Every node binds one ROUTER and dials the addresses it was told of, each with a DEALER. A peer is
 * known by its node id; whoever dialled, both sides can send once the peer is up, and a second
 * connection between the same two nodes is closed by the bus itself. The join secret (argon2id) or,
 * without one, the namespace alone yields the key pair that all members share; who lacks it can't
 * complete a handshake. Which member it is each side then proves by signing both sides' greetings,
 * with fresh random numbers in them, with the key that its node id is made of. Two processes with
 * one key (a copied disk) are noticed, and the junior of them is told.
 *
 * Messages are at most 16 MiB, travel in fragments of 48 KiB, and are delivered whole or not at
 * all. Messages up to 48 KiB keep their order between two nodes; a longer one may arrive after
 * short ones that were sent later, so that heartbeats never wait behind it. What was sent to a peer
 * that goes down may be lost.
 *
 * One thread owns a bus. It polls bus_fd and calls bus_recv until that returns false, at the latest
 * after bus_timeout_ms. Nothing blocks except bus_open, which takes about 0.3 s for a secret seen
 * first. */
#pragma once

#include "base/err.h"
#include "net/identity.h"

enum {
    BUS_MESSAGE_MAX = 16 << 20,
    BUS_NODE_ID_MAX = 32,
    BUS_HOST_CAP = 256,
    BUS_ADDRESS_CAP = 264
};

struct bus;

struct bus_cfg {
    const char *listen_host;         /* NULL or "" or "*": every address */
    u16 port;                        /* 0: any free one */
    u16 n_more_ports; /* so many behind it will do as well, while a passing connection has it */
    const char *secret;              /* NULL or "": an open cluster */
    const char *name_space;          /* separates clusters; also the salt of the secret */
    const struct identity *identity; /* copied */
    u64 boot;                        /* 0: a random one */
    u64 started; /* Unix time of the start, ms: the later of twins is the junior */
    bool moved;  /* the key was made on another machine: of twins, always the junior */
    /* How good the way to a numeric host is, larger being better; NULL: all are alike. */
    u32 (*rank)(void *ctx, const char *host);
    void *rank_ctx;
    u32 peer_timeout_ms; /* silence after which a peer is down; 0: 5 s. (A closed connection counts
                            at once.) */
};

enum bus_event_kind {
    BUS_MESSAGE = 1,
    BUS_PEER_UP,     /* messages can be sent to it; address tells where it listens. Told again when
                        that has changed */
    BUS_PEER_DOWN,   /* reason in text */
    BUS_PEER_GONE,   /* after BUS_PEER_DOWN: its machine answers, and its process has ended */
    BUS_DIAL_FAILED, /* told once for each change of reason; dialling goes on, at most every 30 s */
    BUS_TWIN,        /* another process uses this node's key, and this one is the junior: it has to
                        become another node; address: where it was learned */
};
enum bus_reason {
    BUS_WRONG_SECRET = 1, /* a bus, but another secret or namespace */
    BUS_HTTP_PORT,        /* that is an HTTP server (maybe the API port of a node) */
    BUS_NOT_SKEIN,        /* something else answers there */
    BUS_NOBODY,           /* refused, unreachable, or no such host */
    BUS_SELF,             /* this very node; it is not dialled again */
    BUS_OTHER_VERSION,    /* a node that does not answer our greeting */
};

struct bus_event {
    enum bus_event_kind kind;
    const char *peer;    /* node id; "" for BUS_DIAL_FAILED */
    const char *address; /* "10.0.0.7:52416" or "[fe80::1%2]:52416": where the peer listens, as
                            dialled or as seen; "" for BUS_MESSAGE */
    u32 type;            /* BUS_MESSAGE: what the sender gave */
    const u8 *bytes;
    size_t n;
    enum bus_reason reason; /* BUS_DIAL_FAILED */
    const char *text;       /* BUS_DIAL_FAILED, BUS_PEER_DOWN: a sentence for the log */
};

/* ERR_IO naming host:port when the port is taken; ERR_ARG for a bad host. */
struct bus *bus_open(const struct bus_cfg *cfg, struct err *e);
/* Sends what is queued for at most 200 ms, then closes everything. */
void bus_close(struct bus *b);

u16 bus_port(const struct bus *b);
bool bus_is_open(const struct bus *b); /* no secret: whoever knows the namespace can join */
int bus_fd(const struct bus *b);       /* readable when bus_recv may have something */
int bus_timeout_ms(const struct bus *b);

/* Dials "host:port" until bus_hangup; again after every failure. An address that is dialled already
 * is fine. ERR_ARG when it is no address. */
bool bus_connect(struct bus *b, const char *address, struct err *e);
void bus_hangup(struct bus *b, const char *address);

/* Is this address the way to a peer that is up? */
bool bus_uses(const struct bus *b, const char *address);

/* Queues one message. ERR_NET when the peer is not up, ERR_BUSY when its queue is full (it does not
 * keep up), ERR_LIMIT over BUS_MESSAGE_MAX. */
bool bus_send(struct bus *b, const char *peer, u32 type, const void *bytes, size_t n,
              struct err *e);

/* The next event, if there is one; its pointers live until the next call with this bus. */
bool bus_recv(struct bus *b, struct bus_event *ev);

/* The way that messages to a peer take at present. False when it is not up. */
struct bus_path {
    char address[BUS_ADDRESS_CAP]; /* where the peer listens, as dialled or as seen */
    char host[BUS_HOST_CAP];       /* numeric */
    u32 rtt_us;                    /* 0: not measured yet */
    bool is_dialled;               /* by this side */
};
bool bus_path(const struct bus *b, const char *peer, struct bus_path *out);
/* Round trip to a peer as the bus measured it last, in microseconds; 0: not measured yet. */
u32 bus_rtt_us(const struct bus *b, const char *peer);
/* Frames thrown away because they were malformed. */
u64 bus_n_bad(const struct bus *b);
