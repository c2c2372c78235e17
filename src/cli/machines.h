/* machines.h - hardware that is not there, for "what would one more bring?": by the name of a kind
 * people buy, or by its figures. Pure. */
#pragma once

#include "base/err.h"
#include "node/node_place.h"

enum { MACHINE_NAME_CAP = 64 };

/* "m3-ultra", "NAME=m3-ultra", or "NAME=MEMORY_GIB:BANDWIDTH_GB_S[:LINK_GBIT_S[:DELAY_US]]". name
 * is the storage for m->name. ERR_ARG lists the kinds. */
bool machine_parse(const char *text, struct node_extra *m, char name[MACHINE_NAME_CAP],
                   struct err *e);
/* From memory and bandwidth alone: a 1 Gbit/s network, and as many products as usual for that. */
struct node_extra machine_of(const char *name, double memory_bytes, double read_bytes_s);
