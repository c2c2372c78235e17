/* group_fabric_wire.h - what ranks tell each other about libfabric, and the head of its messages.
 *
 * The offer travels in a frame, on the authenticated connection. Each message carries the token
 * that its receiver gave its sender there: whoever else reaches the endpoint is not heard. Sizes
 * are fixed; little-endian; pure. */
#pragma once

#include "base/shm.h"
#include "comm/ofi.h"

enum {
    FABRIC_WINDOW = 8, /* messages on their way in one direction */
    FABRIC_TOKEN_BYTES = 16,
    FABRIC_HEAD_BYTES = FABRIC_TOKEN_BYTES + 4 + 4 + 8 + 8,
    FABRIC_TEXT_BYTES = OFI_MSG_BYTES - FABRIC_HEAD_BYTES,
    FABRIC_OFFER_BYTES =
        4 + 4 + FABRIC_TOKEN_BYTES + OFI_PROVIDER_CAP + SHM_HOST_CAP + OFI_ADDRESS_BYTES,
};

/* Auto: where both have it. Named: this provider, or the group does not come about. */
enum fabric_wish { FABRIC_OFF, FABRIC_AUTO, FABRIC_NAMED, FABRIC_WISHES };

struct fabric_offer {
    enum fabric_wish wish;
    char provider[OFI_PROVIDER_CAP]; /* "": has none */
    char host[SHM_HOST_CAP];         /* the machine; "": not known */
    u8 token[FABRIC_TOKEN_BYTES];    /* for messages to whom makes the offer */
    u8 address[OFI_ADDRESS_BYTES];
    u32 address_n;
};

/* Does this provider reach no other machine? */
bool fabric_is_local(const char *provider);

void fabric_put_offer(const struct fabric_offer *f, u8 out[FABRIC_OFFER_BYTES]);
/* ERR_FORMAT for what is none. */
bool fabric_parse_offer(struct fabric_offer *f, const void *in, size_t n, struct err *e);

struct fabric_head {
    u8 token[FABRIC_TOKEN_BYTES];
    u32 from, n; /* n: bytes that follow; 0: only tells what arrived */
    u64 seq;     /* messages with bytes that went before, in this direction */
    u64 arrived; /* those of the other direction that may be replaced by new ones */
};

void fabric_put_head(const struct fabric_head *h, u8 out[FABRIC_HEAD_BYTES]);
/* n: of the whole message. False for what is none. */
bool fabric_parse_head(struct fabric_head *h, const u8 *in, size_t n);
