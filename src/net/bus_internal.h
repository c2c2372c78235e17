/* bus_internal.h - what bus.c, bus_link.c and bus_peer.c share. Not for others.
 *
 * A link is an address that we dial, with a DEALER of its own; an `in` is a connection that
 * somebody dialled to our ROUTER, known by its routing id. Either can be the path to a peer. */
#pragma once

#include <zmq.h>

#include "base/sock.h"
#include "net/bus.h"
#include "net/bus_frame.h"
#include "net/bus_greet.h"
#include "net/bus_key.h"
#include "net/watch.h"

_Static_assert((int)BUS_HOST_CAP == (int)SOCK_HOST_CAP, "texts");
_Static_assert((int)BUS_ADDRESS_CAP == (int)SOCK_ADDRESS_CAP, "texts");

enum { BUS_RID_MAX = 16, BUS_INS_MAX = 4096, BUS_PING_MS = 1000 };

enum link_state {
    LINK_DIALLING, /* socket open; ZeroMQ connects, again and again */
    LINK_UP,       /* the peer welcomed us */
    LINK_WAITING,  /* no socket; dialled again at redial_ms */
    LINK_PARKED,   /* no socket: the peer is reached through another link */
    LINK_SELF,     /* it is this node: never dialled again */
};

/* What the pings of a connection tell. */
struct bus_gauge {
    u32 n_pongs, rtt_us;
    u32 least_us, before_us; /* of the pings that are counted now, and of the 8 before */
};

struct bus_link {
    struct bus_link *next;
    char address[SOCK_ADDRESS_CAP];
    enum link_state state;
    void *sock, *monitor;
    struct bus_peer *peer; /* LINK_UP */
    bool handshaken;       /* CURVE is done: HELLO is sent until WELCOME comes */
    bool refused;          /* the handshake failed; the probe tells why */
    u64 since_ms;          /* when dialling began */
    u64 connected_ms;      /* TCP stands, no handshake yet; 0: not so */
    u64 hello_ms, ping_ms; /* due */
    u64 heard_ms, redial_ms;
    u32 backoff_ms;
    struct bus_greeting hello; /* as sent on this connection; its nonce is drawn once */
    u64 greeting_ms;           /* first HELLO of this connection; 0: none yet */
    char host[SOCK_HOST_CAP];  /* numeric, of the connection; "" before there is one */
    struct bus_gauge gauge;
    u64 spare_ms;                         /* since when it is up and not its peer's `link` */
    enum bus_reason reported;             /* told in an event; 0 when up */
    char parked_for[BUS_NODE_ID_MAX + 1]; /* LINK_PARKED: whose other link is in use */
    int probe_fd;                         /* -1: none */
    bool probe_sent;
    u64 probe_end_ms;
};

struct bus_in {
    struct bus_in *next;
    u8 rid[BUS_RID_MAX];
    size_t n_rid;
    struct bus_peer *peer; /* NULL: it has not proven who it is */
    u64 heard_ms;
    struct bus_greeting hello, welcome; /* what was exchanged; welcome.boot 0: nothing yet */
    bool proven;
    struct bus_gauge gauge;
    u64 ping_ms;                    /* due */
    char address[SOCK_ADDRESS_CAP]; /* where it listens, when proven */
};

struct bus_out; /* a queued message */

/* One of the two. */
struct bus_way {
    struct bus_link *link;
    struct bus_in *in;
};
/* A change of the way that waits for the old one to run dry. */
struct bus_turn {
    bool active;
    struct bus_way to;
    u64 ping_us, since_ms;
};

struct bus_peer {
    struct bus_peer *next;
    char id[BUS_NODE_ID_MAX + 1];
    struct bus_greeting who;
    u64 pong_us;                        /* time of our latest ping that it answered */
    u64 rival_boot, rival_ms, rival_us; /* another process that claims its id, since when */
    bool up;
    struct bus_link *link; /* either or both NULL */
    struct bus_in *in;
    bool use_in;                    /* which is in use; changed by bus_path.c, or when it is lost */
    char address[SOCK_ADDRESS_CAP]; /* that was told of it */
    struct bus_turn turn;
    u64 unparked_ms;
    struct bus_assembly assembly;
    struct bus_out *head[2], *tail[2]; /* 0: messages of one fragment, 1: longer ones */
    size_t queued_bytes;
    u32 n_queued;
};

struct bus_note {
    struct bus_note *next;
    struct bus_event ev;
    char peer[BUS_NODE_ID_MAX + 1], address[SOCK_ADDRESS_CAP], text[400];
};

struct bus {
    struct identity identity;
    struct bus_greeting own; /* without a nonce */
    u16 port;
    bool open, twin_noted;
    u32 timeout_ms;
    u32 (*rank)(void *ctx, const char *host);
    void *rank_ctx;
    struct bus_key key;
    void *ctx, *router, *monitor, *zap;
    struct watch *watch;
    struct bus_link *links;
    struct bus_in *ins;
    u32 n_ins;
    struct bus_peer *peers;
    struct bus_gone *gone; /* bus_gone.h */
    struct bus_note *first_note, *last_note, *shown_note;
    zmq_msg_t msg; /* the frame being looked at; lives until the next bus_recv */
    struct str scratch;
    u32 next_monitor, next_message;
    bool dirty; /* something was sent: ZeroMQ's descriptor may not tell of what came in meanwhile */
    u64 next_tick_ms, look_ms, look_until_ms, n_bad, n_refused, refused_log_ms, version_log_ms;
};

/* bus.c */
void bus_note_add(struct bus *b, enum bus_event_kind kind, const char *peer, const char *address,
                  enum bus_reason reason, const char *text);
/* A socket with the options that all have; watched. NULL and *e on failure. */
void *bus_socket(struct bus *b, int type, struct err *e);
void bus_socket_close(struct bus *b, void *sock);
/* A PAIR that tells of the socket's connections. */
void *bus_monitor(struct bus *b, void *sock, struct err *e);
/* The next connection event: ZMQ_EVENT_*; 0 when there is none. value (may be NULL): a descriptor,
 * for most. */
u32 bus_monitor_next(void *monitor, u32 *value);

/* bus_link.c */
struct bus_link *bus_link_find(struct bus *b, const char *address);
void bus_link_dial(struct bus *b, struct bus_link *l, u64 now_ms);
/* Closes the socket; the state is the caller's to set. */
void bus_link_close(struct bus *b, struct bus_link *l);
/* Monitor events, greeting, ping, probe, redial. True when something happened. */
bool bus_link_serve(struct bus *b, struct bus_link *l, u64 now_ms);
/* Closed until its peer is lost, or unparked. */
void bus_link_park(struct bus *b, struct bus_link *l, const char *peer);
void bus_link_unpark(struct bus *b, const char *peer);
/* No longer the path to a peer; HELLO again when the connection stands. */
void bus_link_lost(struct bus_link *l, u64 now_ms);
void bus_link_welcome(struct bus *b, struct bus_link *l, const struct bus_frame *f, u64 now_ms);

/* bus_path.c: which connection carries the messages. */
void bus_path_tick(struct bus *b, struct bus_peer *p, u64 now_ms);
void bus_path_pong(struct bus *b, struct bus_peer *p, struct bus_way w, u64 time_us);
void bus_path_use(struct bus *b, struct bus_peer *p, struct bus_way w, u64 now_ms);
/* Before it is taken from its peer. */
void bus_path_lost(struct bus *b, struct bus_peer *p, struct bus_way w);
u32 bus_path_ping_ms(const struct bus_gauge *g);

/* bus_peer.c */
/* Why a path was lost: it was closed. Compared by its address. */
extern const char BUS_CLOSED[];
/* A message that was half sent starts over, under a new number. */
void bus_peer_restart_message(struct bus *b, struct bus_peer *p);
struct bus_peer *bus_peer_find(const struct bus *b, const char *id);
enum bus_meeting { BUS_MET, BUS_MEET_LATER, BUS_MEET_JUNIOR };
/* The peer of a proven greeting, made if need be, in *out. One that restarted is taken down first,
 * once it is sure that the old process is gone: MEET_LATER until then. JUNIOR: both live, and the
 * newcomer has to become somebody else. */
enum bus_meeting bus_peer_meet(struct bus *b, const struct bus_greeting *g, u64 now_ms,
                               struct bus_peer **out);
void bus_peer_add_path(struct bus *b, struct bus_peer *p, struct bus_link *l, struct bus_in *in);
/* BUS_PEER_UP, when it is news: the path in use leads elsewhere. */
void bus_peer_tell(struct bus *b, struct bus_peer *p);
/* A path is gone; `in` is freed. Without another one the peer is down, and freed. */
void bus_peer_lose_link(struct bus *b, struct bus_peer *p, struct bus_link *l, const char *why);
void bus_peer_lose_in(struct bus *b, struct bus_in *in, const char *why);
/* The same, but the connection stays and may greet anew. */
void bus_peer_lose_path(struct bus *b, struct bus_in *in, const char *why);
bool bus_peer_queue(struct bus *b, struct bus_peer *p, u32 type, const void *bytes, size_t n,
                    struct err *e);
/* Sends what the sockets take. True when something was sent. */
bool bus_peer_flush(struct bus *b, struct bus_peer *p);
struct bus_in *bus_in_find(struct bus *b, const void *rid, size_t n);
struct bus_in *bus_in_add(struct bus *b, const void *rid, size_t n); /* its peer is set next */
void bus_in_free(struct bus *b, struct bus_in *in);
void bus_peer_free_all(struct bus *b);
/* Frames without a queue. False when the socket does not take it now, or knows no such peer. */
bool bus_send_link(struct bus *b, struct bus_link *l, const struct bus_frame *f);
bool bus_send_in(struct bus *b, const void *rid, size_t n, const struct bus_frame *f);
