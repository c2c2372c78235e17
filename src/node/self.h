/* self.h - what this node tells of itself: probes, a measurement of its speed, its links and
 * interfaces, gathered into a msg_facts for the cluster. On the node's thread; nothing blocks.
 *
 * The speed is measured by a runner (the data half knows the kernels), and again while the node has
 * nothing to do, until two measurements agree: a machine that others share may be half as fast for
 * seconds. Then it is kept in the data folder with a fingerprint of the hardware: with another
 * processor, memory, number of threads or build it is measured anew. */
#pragma once

#include "node/node_impl.h"
#include "node/probe.h"

struct self;

/* Before the cluster is made. */
struct self *self_start(struct node *n, struct err *e);
void self_stop(struct self *s);
/* Reads what probes, runner and meter have found, and feeds the cluster when it is news. Cheap
 * enough for every turn; does something once a second. */
void self_step(struct node *n, u64 now_ms);
/* The latest probe of this machine. */
const struct probe *self_probe(const struct self *s);
/* Work comes: a measurement that would only make figures better ends, and is taken again later. */
void self_yield(struct node *n);
/* Of available_bytes of memory, what models may count on: with what a measurement has taken that
 * self_yield ends. s may be NULL. */
u64 self_available(const struct self *s, u64 available_bytes);

/* How many connections a rank here should have to one at that host: what was measured decides, or
 * the setting (node_cfg.n_streams). */
u32 self_streams(const struct node *n, const char *host);

/* Pure, for tests. */
/* The same for a path: one connection carries what fits into its window and what one flow is
 * allowed; on fast paths and on long ones four carry more. */
u32 self_streams_of(u32 rtt_us, u64 bytes_s);
/* The same as self_available beside a measurement that may take `lent`, before which there were
 * `before` bytes. */
u64 self_available_with(u64 available_bytes, u64 lent, u64 before);
/* The value to tell: `told` while `now` is within abs, or within pct percent, of it. */
u64 self_steady(u64 told, u64 now, u64 abs, u32 pct);
/* The file of the measurement. False: of other hardware, or no such file. Texts live in mem.
 * confirmed: by a second measurement. */
bool self_rates_read(struct view text, const char *fingerprint, struct arena *mem,
                     struct msg_measured *out, bool *confirmed);
/* Of two measurements the better figure counts, for others make it worse; of two that agree the
 * middle. */
void self_rates_better(struct msg_measured *m, const struct msg_measured *old);
/* Whether more than half of the figures of products, of those that were measured, are within 10 %
 * of each other. */
bool self_rates_agree(const struct msg_measured *m, const struct msg_measured *old);
void self_rates_write(struct str *out, const char *fingerprint, const struct msg_measured *m,
                      bool confirmed);
