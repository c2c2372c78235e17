/* bus_frame.h - what travels on the bus: the frames of bus.c, and putting fragments together.
 *
 * Little-endian: u8 0xB5, u8 version, u8 kind, then by kind
 *   HELLO, WELCOME  u64 boot, u16 port, node id to the end
 *   PING, PONG      u64 time of the pinging side, in its microseconds
 *   DATA            u32 type, u32 id, u32 total, u32 offset, bytes to the end
 *   BYE             nothing
 * Pure. */
#pragma once

#include "base/err.h"
#include "base/str.h"
#include "net/bus.h"

enum { BUS_FRAME_MAGIC = 0xB5, BUS_FRAME_VERSION = 1, BUS_FRAGMENT_MAX = 48 << 10 };

enum bus_frame_kind {
    BUS_FRAME_HELLO = 1,
    BUS_FRAME_WELCOME,
    BUS_FRAME_PING,
    BUS_FRAME_PONG,
    BUS_FRAME_DATA,
    BUS_FRAME_BYE,
};

struct bus_frame {
    enum bus_frame_kind kind;
    u64 boot; /* HELLO, WELCOME: random at each start, tells a restart */
    u16 port; /* where the sender's bus listens */
    char node_id[BUS_NODE_ID_MAX + 1];
    u64 time_us;                 /* PING, PONG */
    u32 type, id, total, offset; /* DATA: fragment [offset, offset + n) of message `id` */
    const u8 *bytes;             /* DATA, borrowed */
    size_t n;
};

/* False for anything that bus_frame_write could not have written. */
bool bus_frame_parse(struct bus_frame *f, const void *data, size_t n);
void bus_frame_write(const struct bus_frame *f, struct str *out);

bool bus_node_id_valid(const char *id, size_t n);

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
