/* group_internal.h - what the files of a group share. Not for others. */
#pragma once

#include <pthread.h>

#include "base/seal.h"
#include "base/shm.h"
#include "base/sock.h"
#include "comm/group.h"
#include "comm/group_auth.h"

enum {
    GROUP_STAGE_BYTES = 64 << 10,
    GROUP_SEAL_BYTES = 32 << 10, /* of text in a record: it fits behind the rest of a head */
    GROUP_RECORD_BYTES = 4 + GROUP_SEAL_BYTES + SEAL_TAG_BYTES,
    GROUP_READY_MAX_BYTES =
        128 << 20, /* received and not yet asked for, of one rank: beyond it, TCP waits */
};

/* One received frame. */
struct group_buf {
    struct group_buf *next;
    u32 type;
    size_t n, cap;
    u8 *body; /* aligned to 64 bytes */
};

struct group_rank {
    u32 rank;
    char address[SOCK_ADDRESS_CAP]; /* as given by the caller */
    int fd, pulse_fd;               /* -1: not connected; for ourselves always */
    /* Of a rank on this machine frames travel in shared memory, and a byte on fd means "wake up".
     */
    void *shm; /* NULL: frames travel on fd */
    struct ring to, from;
    /* Of an encrypted connection: records of u32 length and sealed bytes, as they come and go. */
    struct seal seal_out, seal_in;
    u8 *sealed_out, *sealed_in; /* [GROUP_RECORD_BYTES] */
    u8 *seal_text;              /* [GROUP_SEAL_BYTES] */
    size_t sealed_n;

    /* receiving; the driving thread's */
    u8 *stage; /* [GROUP_STAGE_BYTES] bytes from the socket, not yet looked at: [stage_off, stage_n)
                */
    size_t stage_off, stage_n;
    struct group_buf *filling; /* a body of which `filled` bytes are there */
    size_t filled;
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
    bool failed;
    struct err err; /* of the lost rank, when failed */

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
};

/* group_shm.c: agrees with every rank on this machine to use shared memory; the others stay with
 * their sockets. False only when a rank is lost. */
bool group_share(struct group *g, struct err *e);
void group_unshare(struct group_rank *r);

/* group_pulse.c */
bool group_pulse_start(struct group *g, struct err *e);
void group_pulse_stop(struct group *g);

/* Sends a byte to a rank that sleeps. */
void group_bell(struct group_rank *r);

/* group.c: frames of the group's own types. */
bool group_send_frame(struct group *g, u32 to, u32 type, const struct iovec *iov, int n_iov,
                      struct err *e);
/* The next frame of this type from that rank; frames of other types wait. n: what it must have. */
#define GROUP_ANY_SIZE SIZE_MAX
bool group_recv_type(struct group *g, u32 rank, u32 type, size_t n, struct group_msg *m,
                     struct err *e);
