/* group_shm.h - frames between two ranks of one machine, in memory they share: a ring each way.
 *
 * Head and body lie at whole lines (GROUP_LINE) of the ring, so that a body that does not go round
 * its end can be read where it lies. The thread that drives the group calls. */
#pragma once

#include "comm/group_internal.h"

/* Agrees with every rank on this machine to use shared memory; the others stay with
 * their sockets. False only when a rank is lost. */
bool group_share(struct group *g, struct err *e);
void group_unshare(struct group_rank *r);
bool group_shm_pump(struct group_rank *r);
/* The body of the next frame where it lies, if that is whole and in one piece there, of this type
 * and n bytes; else NULL. group_shm_done lets go of it; only then may r be pumped. */
const u8 *group_shm_peek(const struct group_rank *r, u32 type, size_t n);
void group_shm_done(struct group_rank *r, size_t n);
/* Looks at the connection, which carries only bells. True when it is over. */
bool group_bells(struct group_rank *r);
bool group_shm_push(struct group_rank *r, const struct iovec *v, int n_iov); /* as group_tcp_push */

/* group.c: group_recv_type for a part of a sum. Its body may still lie where its sender put it, who
 * waits for that room: the group's next call is group_part_done. */
bool group_recv_part(struct group *g, u32 rank, u32 type, size_t n, const void **body,
                     struct err *e);
void group_part_done(struct group *g, u32 rank);
