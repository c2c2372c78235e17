/* ofi.h - libfabric, as little of it as a group needs: whole messages of at most OFI_MSG_BYTES to
 * and from numbered peers, through buffers that are registered once.
 *
 * A reliable datagram endpoint (FI_EP_RDM, plain messages, in order). Sending never waits, nothing
 * is copied here, and nothing is allocated after ofi_open but what a provider takes for itself.
 * Progress is made in ofi_poll alone. In a build without libfabric (-DHAVE_LIBFABRIC not given)
 * ofi_open and ofi_check fail with ERR_UNSUPPORTED and the rest is never called. One thread. */
#pragma once

#include "base/err.h"

enum {
    OFI_MSG_BYTES = 32 << 10,
    OFI_ADDRESS_BYTES = 256,
    OFI_PROVIDER_CAP = 32,
    OFI_WHY_CAP = 100
};

struct ofi;

/* Can this provider be used on this machine? ERR_UNSUPPORTED with the ones that can. "auto" always
 * is: see ofi_open. */
bool ofi_check(const char *provider, struct err *e);

/* provider: a name ("tcp", "shm", "efa", "verbs"), or "auto" for the best one that has hardware of
 * its own. near_host: a numeric address of this machine; a provider that works over IP listens
 * there. n_peers, n_recv, n_send: how many of each at most. NULL and *e. */
struct ofi *ofi_open(const char *provider, const char *near_host, u32 n_peers, u32 n_recv,
                     u32 n_send, struct err *e);
void ofi_close(struct ofi *o); /* NULL is allowed */
/* The name in full, as both sides must have it. */
const char *ofi_provider(const struct ofi *o);
const void *ofi_address(const struct ofi *o, size_t *n); /* at most OFI_ADDRESS_BYTES */
/* From now on peer i is who has that address. */
bool ofi_add_peer(struct ofi *o, u32 i, const void *address, size_t n, struct err *e);

/* A buffer of OFI_MSG_BYTES for the next message, the caller's until ofi_send has taken it or
 * ofi_drop_buf; NULL: all are on their way. */
u8 *ofi_send_buf(struct ofi *o);
void ofi_drop_buf(struct ofi *o, u8 *buf);
/* Sends the first n bytes of what ofi_send_buf gave. 1: on its way; 0: try again, after ofi_poll,
 * the buffer stays the caller's; -1: never (why). */
int ofi_send(struct ofi *o, u32 peer, u8 *buf, size_t n, char why[OFI_WHY_CAP]);
u32 ofi_n_sending(const struct ofi *o);

enum ofi_kind { OFI_RECEIVED, OFI_SENT, OFI_FAILED };
struct ofi_event {
    enum ofi_kind kind;
    u8 *buf; /* RECEIVED: n bytes, until ofi_repost */
    size_t n;
    u32 peer; /* FAILED: to whom the message was; UINT32_MAX: not known */
    char why[OFI_WHY_CAP];
};
/* Makes progress; false when nothing has happened. */
bool ofi_poll(struct ofi *o, struct ofi_event *ev);
void ofi_repost(struct ofi *o, u8 *buf);
/* Before sleeping in poll(): false: there is something to do. *fd: readable when there is; -1: the
 * provider has no such thing. */
bool ofi_may_sleep(struct ofi *o, int *fd);
