/* bus_gone.h - peers that went down: is the process gone, or only the way to it? Part of
 * bus_internal.h's inside, of the thread that owns the bus. */
#pragma once

#include "net/bus_internal.h"

/* A peer's connection was closed: its port at `address` is asked. BUS_PEER_GONE follows when nobody
 * listens there any more. */
void bus_gone_ask(struct bus *b, const char *id, const char *address, u64 now_ms);
/* True when one is done with. */
bool bus_gone_serve(struct bus *b, u64 now_ms);
void bus_gone_free_all(struct bus *b);
