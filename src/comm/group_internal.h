/* group_internal.h - what the files of a group share. Not for others. */
#pragma once

#include <pthread.h>

#include "base/seal.h"
#include "base/shm.h"
#include "base/sock.h"
#include "comm/group.h"
#include "comm/group_auth.h"
#include "comm/group_fabric_wire.h"
#include "wire/frame.h"

enum {
    /* Asking a socket again costs a microsecond, falling asleep and waking up about fifty. */
    GROUP_SPIN_US = 40,
    GROUP_STAGE_BYTES = 64 << 10, /* and a connection's share of a frame that several carry: more */
    GROUP_SEAL_BYTES = 32 << 10,  /* of text in a record: it fits behind the rest of a head */
    GROUP_RECORD_BYTES = 4 + GROUP_SEAL_BYTES + SEAL_TAG_BYTES,
    GROUP_BUF_PAD = 64,
    /* In shared memory head and body begin at multiples of this: copies to odd places take longer,
     * and on some processors ten times as long. */
    GROUP_LINE = 64,
    GROUP_PARTS_MAX = GROUP_IOV_MAX + 2, /* of a frame: head, what was given, and what fills up */
    GROUP_READY_MAX_BYTES =
        128 << 20, /* received and not yet asked for, of one rank: beyond it, TCP waits */
};

/* One received frame. */
struct group_buf {
    struct group_buf *next;
    u32 type;
    size_t n, cap;
    u8 *body; /* aligned to 64 bytes, GROUP_BUF_PAD before it are ours, too */
};

/* One of the connections to a rank. The first carries frames; of a large one the others carry
 * shares, without a head: the receiver knows from the length what is on its way. */
struct group_lane {
    int fd; /* -1: not connected */
    /* Encrypted: records of u32 length and sealed bytes, as they come and go. */
    struct seal seal_out, seal_in;
    u8 *sealed_out, *sealed_in; /* [GROUP_RECORD_BYTES] */
    size_t record_at, record_n; /* of sealed_out, what has still to go */
    size_t sealed_n;
    /* Of the frame that goes, head and all (of one in shared memory, too); of the body that comes:
     * not yet [at, end). */
    size_t out_at, out_end, in_at, in_end;
};

/* Of a pair that uses libfabric; counts of messages with bytes. */
struct fabric_pair {
    u8 token_in[FABRIC_TOKEN_BYTES], token_out[FABRIC_TOKEN_BYTES];
    u64 sent, passed;   /* ours, and those of them that the other side has done with */
    u64 arrived, told;  /* its, and those of them that we told it of */
    bool said, greeted; /* the first message went; one came */
    /* Messages that have come before their turn: the one with number i is at i % FABRIC_WINDOW. */
    u8 *held[FABRIC_WINDOW];
    size_t held_n[FABRIC_WINDOW];
};

struct group_rank {
    u32 rank;
    char address[SOCK_ADDRESS_CAP]; /* as given by the caller */
    int pulse_fd;                   /* -1: not connected; for ourselves always */
    struct group_lane lane[GROUP_STREAMS_MAX];
    u32 n_lanes; /* 0: not yet known */
    /* Of a rank on this machine frames travel in shared memory, and a byte on the first connection
     * means "wake up". */
    void *shm; /* NULL: frames travel on the connections */
    struct ring to, from;
    bool part_there; /* a part of a sum, of part_n bytes, is being read in `from` */
    size_t part_n;
    bool on_fabric; /* frames travel through libfabric, and nothing on the connections */
    struct fabric_pair fab;
    u8 *seal_text;          /* [GROUP_SEAL_BYTES], where text lies in several places */
    struct group_buf *late; /* frames that go as there is room, heads and all: the first is begun */

    /* receiving; the driving thread's */
    u8 *stage; /* [GROUP_STAGE_BYTES] where bytes arrive whose place is not known */
    u8 head[FRAME_HEAD_BYTES];
    u32 head_n;
    struct group_buf *filling; /* a body that is not all there */
    struct group_buf *ready, *ready_last, *lent, *spare;
    size_t ready_bytes;
    bool ended; /* the connection is over; what is ready may still be taken */
    char why[120];
};

struct group {
    u32 rank, n_ranks;
    struct group_rank *ranks; /* [n_ranks] */
    u32 next_any;             /* where the search for any rank's frame begins */
    u32 spin_us;              /* how long to spin within a step: learnt */
    u64 looked_us;            /* when the sockets of ranks in shared memory were last looked at */
    bool failed, leaves;
    struct err err; /* of the lost rank, when failed */

    struct ofi *ofi; /* NULL: no rank is reached through libfabric */

    pthread_t pulse; /* owns the pulse connections */
    bool has_pulse;
    u32 silence_ms;
    int stop[2]; /* pipe: ends the pulse thread */
    int lost[2]; /* pipe: it tells, once, which rank is lost */
};

/* What is written to the pipe: small enough to arrive whole. */
struct group_loss {
    u32 rank;
    u32 silent_ms; /* 0: the connection was closed */
    bool has_left; /* as it said before */
};

/* group_frames.c: bytes become frames. */
void group_ended(struct group_rank *r, const char *why);
void group_bufs_free(struct group_buf *b);
/* A spare one with room for n bytes. A link soon has as many and as large ones as it ever needs;
 * until then a step takes memory. */
struct group_buf *group_buf_take(struct group_rank *r, size_t n);
void group_buf_give(struct group_rank *r, struct group_buf *b);
/* The frame whose head this is begins to arrive. False for nonsense. */
bool group_frame_begin(struct group_rank *r, const u8 head[FRAME_HEAD_BYTES]);
/* Puts the frame behind what is ready if it is whole. */
bool group_frame_finish(struct group_rank *r);
/* The next bytes of the first connection, or of whatever carries frames instead of it. False when
 * the peer sends nonsense. */
bool group_feed(struct group_rank *r, const u8 *p, size_t n);
/* A spare buffer of GROUP_STAGE_BYTES and more, which stays the first spare one. */
struct group_buf *group_buf_guess(struct group_rank *r);
/* n bytes have come, a head first, which lies before that buffer's body. False for nonsense. */
bool group_frame_guessed(struct group_rank *r, size_t n);
/* Over how many of its connections this body comes, and which part [at, end) lane i has. */
u32 group_stripes(const struct group_rank *r, size_t n_body);
size_t group_share_at(size_t n_body, u32 n_lanes, u32 i);

/* group_tcp.c */
/* Opens the whole records that lane i has. False when one does not open. */
bool group_unseal(struct group_rank *r, u32 i);
/* Seals the next part of the frame that goes on this lane, into sealed_out. */
void group_seal_next(struct group_rank *r, struct group_lane *l, const struct iovec *v, int n_iov);
bool group_tcp_pump(struct group_rank *r); /* true when something came */
/* Sends what there is room for of the frame in the lanes. True when no more of it will go: all has,
 * or the connection is over. */
bool group_tcp_push(struct group_rank *r, const struct iovec *v, int n_iov);
/* Bytes [at, end) of a frame's parts. Returns how many places that are. */
int group_window(const struct iovec *v, int n_iov, size_t at, size_t end,
                 struct iovec out[GROUP_PARTS_MAX]);
bool group_has_more(const struct group_lane *l); /* to send */
/* What poll should ask lane i for: 0 for nothing. sends: a frame is on its way out. */
short group_tcp_events(const struct group_rank *r, u32 i, bool sends);

/* group_connect.c: true and *e when the caller does not want to connect any more. */
bool group_gives_up(const struct group_cfg *c, struct err *e);

/* group_fabric.c: agrees with every rank on libfabric or something else. False when a rank is lost,
 * a provider that was named can't be used with all of them, or the caller gives up. */
bool group_fabric_meet(struct group *g, const struct group_cfg *c, struct err *e);
/* For g->ofi alone. */
bool group_fabric_pump(struct group *g);
bool group_fabric_send(struct group *g, struct group_rank *r, const struct iovec *v, int n_iov,
                       size_t n_bytes, struct err *e);
/* For how long poll may sleep, and at which descriptor (-1: none) it should look. */
int group_fabric_sleep(struct group *g, int *fd, int timeout_ms);
/* One message that has come, from whomever. False: done with it; else it is kept until its turn has
 * come, and given back then. */
bool group_fabric_take(struct group *g, u8 *msg, size_t n);

/* group_pulse.c */
bool group_pulse_start(struct group *g, struct err *e);
void group_pulse_stop(struct group *g);

/* group.c: false and *e, now and from now on, when a rank is lost. With `now`, asks in any case;
 * else a few thousand times a second. */
bool group_alive(struct group *g, bool now, struct err *e);
/* Makes room at rank r: whoever is there may be waiting to send, too, and is heard. */
bool group_wait_for_room(struct group *g, struct group_rank *r, struct err *e);

/* group_send.c */
/* Frames of the group's own types. */
bool group_send_frame(struct group *g, u32 to, u32 type, const struct iovec *iov, int n_iov,
                      struct err *e);
/* The same without waiting for room: what does not fit is copied, and goes, in its turn, with
 * whatever call of the group comes next. Through libfabric it does wait. */
bool group_send_late(struct group *g, u32 to, u32 type, const struct iovec *iov, int n_iov,
                     struct err *e);
/* Waits until nothing is left of that. */
bool group_flush(struct group *g, struct err *e);
/* Sends on what waits for room at rank r. True when a frame is through. */
bool group_go_on(struct group_rank *r);
/* group.c: sends and receives what can be without waiting. The next call tells of a lost rank. */
void group_pump(struct group *g);

/* Would group_recv_type return at once? */
bool group_has_type(const struct group *g, u32 rank, u32 type);
/* The next frame of this type from that rank; frames of other types wait. n: what it must have. */
#define GROUP_ANY_SIZE SIZE_MAX
bool group_recv_type(struct group *g, u32 rank, u32 type, size_t n, struct group_msg *m,
                     struct err *e);
