/* team.h - ranks that hold slices of the same layers, and what they compute together.
 *
 * A team is a run of neighbouring ranks of a group: one stage of a pipeline. Every collective is
 * called by all its ranks in the same order and with the same lengths. Partial sums are added in
 * rank order, and a rank's own part is rounded to the wire type as those of the others are, so
 * that all ranks hold the same bits afterwards. Small sums go from everybody to everybody, one hop;
 * large ones of three ranks and more as reduce-scatter and all-gather.
 *
 * NULL is a team of one, and every collective on it is a no-op. A team is driven by the thread that
 * drives its group and allocates nothing after team_new. A lost rank fails the call (ERR_NET) on
 * all others, see group.h. */
#pragma once

#include "comm/group.h"
#include "kernels/kernels.h"

/* How the parts of a sum travel. F16 has a power of two for each few thousand elements, so that
 * hidden states beyond 65,504 pass; Q8 is 8 bits and a scale for each 32 elements. */
enum team_wire { TEAM_F16, TEAM_F32, TEAM_Q8, TEAM_WIRES };

struct team;

/* Ranks first..first+n-1 of g, which includes g's own; g and k are borrowed. check: after each sum
 * the ranks compare a hash of the result, for tests. NULL when n is 1. */
struct team *team_new(struct group *g, u32 first, u32 n, enum team_wire wire,
                      const struct kernels *k, bool check);
void team_free(struct team *t);      /* NULL is allowed */
u32 team_size(const struct team *t); /* 1 for NULL */
u32 team_rank(const struct team *t); /* counted from the team's first; 0 for NULL */
/* "f16", "f32", "q8": false for anything else. */
bool team_wire_parse(const char *name, enum team_wire *out);
const char *team_wire_name(enum team_wire wire);

/* x[n] becomes the sum over the team, parts travelling in the team's wire type, or exactly (f32).
 */
bool team_sum(struct team *t, float *x, size_t n, struct err *e);
bool team_sum_exact(struct team *t, float *x, size_t n, struct err *e);
/* team_sum in two halves, so that a part travels while something else is computed: after the sends
 * of one or several sums, as many takes, in the same order and with the same x and n, eight sums at
 * most. x[n] must stay in between. */
bool team_sum_send(struct team *t, float *x, size_t n, struct err *e);
bool team_sum_take(struct team *t, float *x, size_t n, struct err *e);
/* Between the two, now and then while computing: sends and receives what can be. What a send finds
 * no room for, and what comes and finds none, waits for this; and where segments are added up and
 * then spread, those whose parts have come are. */
void team_progress(struct team *t);

/* The team's first rank gets whole rows: x[n_rows][cols] of each rank (any cols, 0 too) become
 * x[n_rows][sum of cols] there, in rank order; elsewhere x stays. room: columns that a whole row
 * must have. ERR_INTERNAL when they don't add up to that. */
bool team_gather_rows(struct team *t, float *x, u32 n_rows, u64 cols, u64 room, struct err *e);
/* Every rank gets all[team_size][n] from mine[n] bytes of each. */
bool team_all_gather(struct team *t, const void *mine, size_t n, void *all, struct err *e);
/* p[n] bytes of rank `root` (of the team) become everybody's. */
bool team_broadcast(struct team *t, u32 root, void *p, size_t n, struct err *e);
/* Returns once every rank of the team has called it. */
bool team_barrier(struct team *t, struct err *e);
