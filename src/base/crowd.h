/* crowd.h - how many processes of this user compute on this machine at the moment.
 *
 * Runners of several instances, or of several nodes on one machine, would each take every core:
 * then threads wait for others that have no processor, and all are slow. So each says when it
 * computes, in a small table that they share, and takes its share of the cores. A process that dies
 * is forgotten when its last word expires. One thread of a process uses its struct. */
#pragma once

#include "base/base.h"

struct crowd;

/* path NULL: the user's table in shared memory, or in /tmp. NULL where it can't be had, which
 * crowd_enter takes as being alone. */
struct crowd *crowd_join(const char *path);
void crowd_free(struct crowd *c); /* NULL is fine */

/* This process computes from now on, until crowd_leave or for some seconds at most. How many do,
 * itself included. */
u32 crowd_enter(struct crowd *c, u64 now_ms);
void crowd_leave(struct crowd *c);
