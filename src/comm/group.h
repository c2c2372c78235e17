/* group.h - the ranks that compute one model together, and how bytes travel between them.
 *
 * A group is a full mesh of TCP connections between runner processes: non-blocking, TCP_NODELAY,
 * authenticated once by an HMAC-SHA256 challenge with the instance's key, on request encrypted
 * (AES-GCM with keys of that handshake: base/seal.h). A pair may have several, which share its
 * large frames. Ranks on one machine put their frames into shared memory instead, where they find
 * that they can; where it is asked for frames travel through libfabric (ofi.h). Beside each data
 * connection runs another one, the pulse, on which a thread of the group's own sends a byte every
 * 100 ms: a process that computes for long stays alive for its peers, one that died, froze or lost
 * its network is noticed within a second, whatever carries the frames.
 *
 * A group of one has no connections. What ranks compute together is in team.h. Once a call has
 * failed with a lost rank, every later call fails with the same error: throw the group away. One
 * thread drives a group. Nothing is allocated once buffers have grown to the largest frame in use.
 */
#pragma once

#include <poll.h>
#include <sys/uio.h>

#include "base/err.h"

enum {
    GROUP_ANY = -1,
    GROUP_RANKS_MAX = 64,
    GROUP_KEY_BYTES = 32,
    GROUP_IOV_MAX = 8,
    GROUP_STREAMS_MAX = 8,
};
/* Frame types from here on belong to the group itself. */
enum { GROUP_TYPE_RESERVED = 0xFF00 };

struct group;

struct group_peer {
    u32 rank;
    const char *host;
    u16 port;
    u32 n_streams; /* connections for data, if this side dials: 0 is 1 */
};

struct group_cfg {
    u32 rank, n_ranks;
    int listen_fd; /* from group_listen; borrowed: the caller closes it. -1 when n_ranks is 1 */
    const struct group_peer *peers; /* the n_ranks - 1 others, any order */
    const u8 *key;                  /* [GROUP_KEY_BYTES] */
    u32 timeout_ms;                 /* for all connections to stand; 0: 30 s */
    u32 silence_ms;                 /* pulse missing for so long: the rank is lost; 0: 800 */
    bool no_shm;                    /* TCP even within a machine */
    bool encrypt;                   /* what leaves the machine; all ranks alike */
    /* A provider of libfabric: frames travel through it, within a machine, too; all ranks alike.
     * "auto": between machines that both have one with hardware of its own. NULL or "off": none. */
    const char *fabric;
    /* Asked a few times a second while connecting; true gives up (ERR_CANCELLED). May be NULL. */
    bool (*give_up)(void *ctx);
    void *ctx;
};

/* Listens on host (NULL or "": every address) and *port (0: any, written back). -1 and *e on
 * failure. */
int group_listen(const char *host, u16 *port, struct err *e);

/* Can a group be asked for this fabric here? ERR_UNSUPPORTED for a provider that libfabric does not
 * have on this machine, or where this build has no libfabric. */
bool group_fabric_check(const char *name, struct err *e);

/* Connects to all peers; the higher rank dials the lower. NULL and *e within timeout_ms: ERR_NET
 * naming rank and address that is missing, ERR_AUTH for a peer with another key, ERR_UNSUPPORTED
 * for another version. Connections from strangers are dropped and don't count. Safe to call with
 * peers not listening yet. */
struct group *group_connect(const struct group_cfg *cfg, struct err *e);
void group_free(struct group *g);
/* The same by somebody's wish: the others' calls then fail with ERR_CANCELLED, not ERR_NET. */
void group_leave(struct group *g);
/* What carries the frames between this rank and another one, from group_connect on. */
enum group_carrier { GROUP_CARRIER_TCP, GROUP_CARRIER_SHM, GROUP_CARRIER_FABRIC };
struct group_link {
    enum group_carrier carrier;
    u32 n_streams;        /* connections for data; 1 unless it is TCP */
    bool is_encrypted;    /* never in shared memory: nothing leaves the machine */
    const char *provider; /* libfabric's name, the group's; "" unless it is that */
};
struct group_link group_link(const struct group *g, u32 rank); /* not for its own rank */

u32 group_rank(const struct group *g);
u32 group_size(const struct group *g);

/* Sends one frame: the iov parts behind one another. Blocks until the kernel has taken everything;
 * reads what comes in meanwhile, so two ranks that send to each other at once never lock up. type <
 * GROUP_TYPE_RESERVED. */
bool group_send(struct group *g, u32 to, u32 type, const struct iovec *iov, int n_iov,
                struct err *e);

struct group_msg {
    u32 from, type;
    const u8 *body; /* aligned to 64 bytes; borrowed until the next group_recv from the same rank */
    size_t n;
};
/* The next frame of rank `from`, or of whichever rank has one (GROUP_ANY). Spins briefly, then
 * sleeps in poll. timeout_ms < 0: waits as long as the peers are alive. ERR_BUSY when the time is
 * over (the group lives on), ERR_NET when a rank is lost (rank and address named),
 * ERR_CANCELLED when it has left. */
bool group_recv(struct group *g, int from, int timeout_ms, struct group_msg *out, struct err *e);

/* Waits for a frame from any rank or for one of the caller's own descriptors; fills extra[].revents
 * as poll does. *has_msg: group_recv(GROUP_ANY) will return at once. False only when a rank is
 * lost. */
bool group_poll(struct group *g, struct pollfd *extra, int n_extra, int timeout_ms, bool *has_msg,
                struct err *e);
