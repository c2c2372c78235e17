/* core.h - the inside of struct cluster, shared by the files of this folder and by nobody else. */
#pragma once

#include "base/log.h"
#include "cluster/cluster.h"

struct member {
    char id[CLUSTER_ID_CAP];
    u64 hash;           /* of id */
    char *address;      /* where its bus was reached, "host:port"; "" when not known */
    bool up;            /* the bus has a link */
    bool counted;       /* was live once, in this run or before: counts for the majority */
    bool shown_drained; /* as events.c told it last */
    bool was_seen;      /* was live in this run */
    bool was_live;      /* at the last look, to log changes */
    bool dialled;
    bool left;   /* it said goodbye and was not heard since */
    u64 live_ms; /* since when it is live */
    u64 seen_ms; /* last word from it; 0: never, or it said goodbye */
    u64 kept_ms; /* forgotten CLUSTER_FORGET_MS after this, unless it is live */
    u64 hello_sent_ms, state_sent_ms, facts_sent_ms;
    u64 told_roster, told_theirs; /* rosters when routes went there last, */
    u32 n_told;                   /* and how often they did since these changed */
    bool beat_now;                /* it waits for a heartbeat: it has just come */
    u64 facts_sent;               /* seq of this node's facts that went there last; 0: none */
    char *refused;                /* why; NULL: it is not */
    struct arena hello_mem, beat_mem, facts_mem;
    struct msg_hello hello; /* zero until it came */
    struct msg_heartbeat beat;
    struct msg_facts facts;
};

/* A wanted instance and where it is. Both structs live in arenas of their own and are replaced
 * whole. */
struct entry {
    struct arena wanted_mem, placement_mem;
    struct msg_wanted w;
    struct msg_placement p;
    bool restored; /* came from the disk, not placed since */
    /* of the master alone: */
    u64 retry_ms, ready_ms; /* not before; ready since (0: it isn't) */
    u64 workers;            /* hash of the live workers at the last try */
    u64 move_ms;            /* it does not move before */
    u32 n_move_fails, n_losses;
    u64 used_ms;  /* last time that it had something to do */
    bool leaving; /* while it is considered */
    u64 hurry_ms; /* until then memory is about to get free */
    u64 n_served; /* as its runner said then */
    struct arena freed_mem;
    struct wire_list freed; /* struct msg_rank: where it was, and what ends there */
    u64 freed_ms;           /* until then that memory may not show as free yet */
};

struct drain {
    char node[CLUSTER_ID_CAP];
    struct msg_drain d; /* d.node points to node when it is handed out */
};

/* A runner that this node was told to start. */
struct local {
    u64 place;
    struct arena mem;
    struct msg_runner fact;
};

/* A proposal of this node's users that waits for the master's answer. */
struct pending {
    u64 id, deadline_ms, sent_ms;
    struct str body; /* an encoded msg_propose */
};

struct cluster {
    char id[CLUSTER_ID_CAP];
    u32 timeout_ms;
    u64 wall_ahead_ms;     /* as cluster_machine has it */
    u64 start_ms, last_ms; /* last_ms: time of the last step */

    struct member **members; /* [0] is this node */
    u32 n_members, members_cap;
    struct member **by_hash; /* [hash_cap] open addressing, a power of two */
    u32 hash_cap;
    u64 roster;          /* sum of the hashes of the live ones */
    u64 gossip_ms;       /* no routes before */
    u32 gossip_at;       /* whose turn it is */
    u64 beat_ms;         /* next regular heartbeat */
    u64 beaten_ms;       /* last heartbeat to all */
    bool beat_now;       /* something changed that the others should know */
    bool beat_some;      /* a member's beat_now is set */
    struct member *from; /* whom the input was from; in this step alone */
    u64 look_ms;         /* next time that all members are looked at */
    bool save_soon;      /* something that can wait a second: it was a matter of routes */
    u64 saved_ms;
    bool deferred;      /* there are news to look at before the next regular look */
    bool routine;       /* what came changes no decision: members_beat */
    u64 full_ms;        /* last step that looked at everything */
    u64 state_quota_ms; /* no state because of a digest before */

    struct msg_claim claim; /* master points to claim_master */
    char claim_master[CLUSTER_ID_CAP];
    u64 term;
    u64 quiet_ms;  /* no election before */
    u64 orphan_ms; /* since when there is no master; 0: there is one */
    u64 stable_ms; /* since when this master has a majority without an established claim */
    bool force;    /* its user wants it to lead */
    u64 follow_ms; /* since when it follows the present master and has its orders; 0: it doesn't */
    u64 outbid_ms; /* since when a higher term than that of its claim is known */
    u64 woke_ms;   /* when it was found to have been stopped; 0: never */

    struct entry **entries; /* by id */
    u32 n_entries, entries_cap;
    char (*gone)[CLUSTER_ID_CAP]; /* deleted ids, by id, which is by age */
    u32 n_gone;
    struct msg_seen *seen; /* by session */
    u32 n_seen;
    struct drain *drains; /* by node */
    u32 n_drains, drains_cap;
    u64 born_in; /* of the instances that this node takes as master: new for every claim */
    u32 n_born;
    struct msg_claim session; /* whose orders the placements are; master points to session_master */
    char session_master[CLUSTER_ID_CAP];
    u64 index;
    u64 digest;
    bool state_dirty; /* the digest is stale */
    bool spread;      /* the master changed the state in this step */
    bool save, changed;
    u64 n_places;
    struct shown *shown; /* by id: what events.c said of the instances last */
    u32 n_shown;
    char shown_master[CLUSTER_ID_CAP];
    bool look; /* an instance may be different from what was said */

    struct local **locals;
    u32 n_locals, locals_cap;
    struct pending *pending;
    u32 n_pending, pending_cap;
};

/* Grows a list of pointers or structs so that one more fits. */
#define LIST_GROW(v, n, cap)                                  \
    do {                                                      \
        if ((n) == (cap)) {                                   \
            (cap) = (cap) ? (cap)*2 : 8;                      \
            (v) = xrealloc((v), (size_t)(cap) * sizeof *(v)); \
        }                                                     \
    } while (0)

/* cluster.c: output. What they return is zeroed and belongs to `out`. */
struct cluster_action *core_do(struct cluster_output *out, enum cluster_do what);
void core_send(struct cluster_output *out, const char *to, u32 type, const void *msg);
/* To several: encoded once. */
struct core_bytes {
    const void *p;
    size_t n;
};
struct core_bytes core_encode(struct cluster_output *out, u32 type, const void *msg);
void core_send_bytes(struct cluster_output *out, const char *to, u32 type, struct core_bytes b);
void core_log(struct cluster_output *out, enum log_level level, const char *fmt, ...)
    PRINTF_LIKE(3, 4);
/* Replaces *dst (living in mem) by a deep copy of *src; src may point into mem. False, with *dst
 * zeroed, when a text in it is not UTF-8. */
bool core_copy(const struct wire_table *t, struct arena *mem, void *dst, const void *src);
/* Texts are copied; NULL is "". */
void core_event(const struct cluster *c, struct cluster_output *out,
                const struct cluster_event *event);
void core_event_node(const struct cluster *c, struct cluster_output *out,
                     enum cluster_event_kind kind, const struct member *m, const char *text);
static inline bool same(const char *a, const char *b) {
    return __builtin_strcmp(a, b) == 0;
}
