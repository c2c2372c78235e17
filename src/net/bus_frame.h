/* bus_frame.h - what travels on the bus: the frames of bus.c, and putting fragments together.
 *
 * Little-endian: u8 0xB5, u8 version, u8 kind, then by kind
 *   HELLO           greeting: u64 boot, u64 started, u16 port, u8 moved, public key[32], nonce[32]
 *   WELCOME         greeting, signature[64]
 *   PROOF           signature[64]
 *   TWIN            u64 boot of the other process with the same key
 *   PING, PONG      u64 time of the pinging side, in its microseconds
 *   DATA            u32 type, u32 id, u32 total, u32 offset, bytes to the end
 *   BYE, USE        nothing
 * Pure. */
#pragma once

#include "base/err.h"
#include "base/str.h"
#include "net/bus.h"

enum { BUS_FRAME_MAGIC = 0xB5, BUS_FRAME_VERSION = 2, BUS_FRAGMENT_MAX = 48 << 10 };

enum bus_frame_kind {
    BUS_FRAME_HELLO = 1,
    BUS_FRAME_WELCOME,
    BUS_FRAME_PING,
    BUS_FRAME_PONG,
    BUS_FRAME_DATA,
    BUS_FRAME_BYE,
    BUS_FRAME_PROOF,
    BUS_FRAME_TWIN,
    BUS_FRAME_USE,           /* the connection it comes over is to carry the messages */
    BUS_FRAME_OTHER_VERSION, /* parsed only: of a build that speaks another version */
};

/* What a side says of itself when a connection begins. */
struct bus_greeting {
    u64 boot;    /* random at each start, tells a restart */
    u64 started; /* Unix time, ms */
    u16 port;    /* where its bus listens */
    bool moved;  /* its key was made on another machine */
    u8 public[32], nonce[32];
};

struct bus_frame {
    enum bus_frame_kind kind;
    struct bus_greeting greeting; /* HELLO, WELCOME */
    u8 signature[64];             /* WELCOME, PROOF */
    u64 boot;                     /* TWIN */
    u8 version;                   /* OTHER_VERSION */
    u64 time_us;                  /* PING, PONG */
    u32 type, id, total, offset;  /* DATA: fragment [offset, offset + n) of message `id` */
    const u8 *bytes;              /* DATA, borrowed */
    size_t n;
};

/* False for anything that bus_frame_write could not have written. */
void bus_greeting_write(const struct bus_greeting *g, struct str *out);
bool bus_frame_parse(struct bus_frame *f, const void *data, size_t n);
void bus_frame_write(const struct bus_frame *f, struct str *out);

/* The one message of more than one fragment that a peer is sending. Zeroed is valid and empty. */
struct bus_assembly {
    bool active;
    u32 type, id, total;
    struct str bytes;
};

/* Takes the next DATA frame. 1: whole in *out (borrowed from the frame or the assembly until its
 * next use); 0: more to come; -1: it does not belong, and is dropped (with what was there, when it
 * begins another message in the middle). */
int bus_assembly_add(struct bus_assembly *a, const struct bus_frame *f, struct view *out);
void bus_assembly_reset(struct bus_assembly *a);
