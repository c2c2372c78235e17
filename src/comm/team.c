#include "comm/team.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/hash.h"
#include "comm/group_internal.h"
#include "comm/group_shm.h"
#include "comm/team_wire.h"

enum {
    TYPE_PART = GROUP_TYPE_RESERVED + 1, /* all of one rank's part, or a segment of it */
    TYPE_SUMMED,                         /* a segment that its owner has added up */
    TYPE_ROW,
    TYPE_BYTES,
    TYPE_BARRIER,
    TYPE_HASH,
    /* Elements of a message. Segments of the wire types divide it. */
    PIECE = 256 << 10,
    /* Elements from which three and more ranks share the additions: below, one hop is faster. */
    SCATTER_MIN = 16 << 10,
    UNDER_WAY_MAX = 8, /* sums */
};

struct team {
    struct group *g;
    u32 first, n, me; /* me: counted from first */
    enum team_wire wire;
    const struct kernels *k;
    bool check;
    float *acc;    /* [PIECE] */
    u8 *out;       /* a piece, encoded */
    struct way {
        float *x;
        size_t n;
    } way[UNDER_WAY_MAX]; /* sums that were sent and not taken, in order */
    u32 under_way;
    u32 spread;  /* pieces of them, from the first on, whose segment of ours is on its way */
    bool failed; /* that went wrong, and err says how */
    struct err err;
};

static const char *const WIRE_NAMES[TEAM_WIRES] = {"f16", "f32", "q8"};

bool team_wire_parse(const char *name, enum team_wire *out) {
    for (u32 i = 0; i < TEAM_WIRES; i++) {
        if (strcmp(name, WIRE_NAMES[i]) != 0) continue;
        *out = (enum team_wire)i;
        return true;
    }
    return false;
}

const char *team_wire_name(enum team_wire wire) {
    return WIRE_NAMES[wire];
}

struct team *team_new(struct group *g, u32 first, u32 n, enum team_wire wire,
                      const struct kernels *k, bool check) {
    if (n == 1) return NULL;
    u32 rank = group_rank(g);
    ASSERT(n && first + n <= group_size(g) && rank >= first && rank < first + n);
    struct team *t = xcalloc(1, sizeof *t);
    *t = (struct team){.g = g, .first = first, .n = n, .me = rank - first, .wire = wire, .k = k};
    t->check = check;
    t->acc = xcalloc(PIECE, sizeof *t->acc);
    t->out = xcalloc(1, team_wire_bytes(TEAM_F32, PIECE) + 64);
    return t;
}

void team_free(struct team *t) {
    if (!t) return;
    free(t->acc);
    free(t->out);
    free(t);
}

u32 team_size(const struct team *t) {
    return t ? t->n : 1;
}
u32 team_rank(const struct team *t) {
    return t ? t->me : 0;
}

static bool send_to(struct team *t, u32 to, u32 type, const void *p, size_t n, struct err *e) {
    struct iovec iov = {(void *)(uintptr_t)p, n};
    return group_send_frame(t->g, t->first + to, type, &iov, 1, e);
}

static bool send_to_all(struct team *t, u32 type, const void *p, size_t n, struct err *e) {
    for (u32 i = 1; i < t->n; i++) /* not all ranks to the same one first */
        if (!send_to(t, (t->me + i) % t->n, type, p, n, e)) return false;
    return true;
}

/* Parts of sums: who sends has something else to do. */
static bool send_late(struct team *t, u32 to, u32 type, const void *p, size_t n, struct err *e) {
    struct iovec iov = {(void *)(uintptr_t)p, n};
    return group_send_late(t->g, t->first + to, type, &iov, 1, e);
}

static bool send_late_to_all(struct team *t, u32 type, const void *p, size_t n, struct err *e) {
    for (u32 i = 1; i < t->n; i++)
        if (!send_late(t, (t->me + i) % t->n, type, p, n, e)) return false;
    return true;
}

static bool recv_from(struct team *t, u32 from, u32 type, size_t n, const void **p, struct err *e) {
    struct group_msg m;
    if (!group_recv_type(t->g, t->first + from, type, n, &m, e)) return false;
    *p = m.body;
    return true;
}

/* The next part of rank `from`, in wire type w, is added to y[n], or becomes it. */
static bool take_part(struct team *t, u32 from, u32 type, enum team_wire w, float *y, size_t n,
                      bool add, struct err *e) {
    const void *part;
    u32 rank = t->first + from;
    if (!group_recv_part(t->g, rank, type, team_wire_bytes(w, n), &part, e)) return false;
    team_wire_decode(t->k, w, y, part, n, add);
    group_part_done(t->g, rank);
    return true;
}

/* The elements that rank r adds up for all: whole blocks of every wire type. */
static size_t segment_at(const struct team *t, size_t n, u32 r) {
    return r == t->n ? n : n * r / t->n / TEAM_Q8_BLOCK * TEAM_Q8_BLOCK;
}

static bool scatters(const struct team *t, size_t n) {
    return t->n > 2 && n >= SCATTER_MIN;
}

static bool sum_send(struct team *t, enum team_wire w, float *x, size_t n, struct err *e) {
    ASSERT(n <= PIECE);
    if (scatters(t, n)) {
        for (u32 i = 0; i < t->n; i++) { /* our own segment, too, is rounded as the others' are */
            u32 r = (t->me + i) % t->n;
            size_t lo = segment_at(t, n, r), len = segment_at(t, n, r + 1) - lo;
            team_wire_encode(t->k, w, t->out, x + lo, len);
            if (i && !send_late(t, r, TYPE_PART, t->out, team_wire_bytes(w, len), e)) return false;
        }
        return true;
    }
    if (w == TEAM_F32) return send_late_to_all(t, TYPE_PART, x, n * sizeof *x, e);
    team_wire_encode(t->k, w, t->out, x, n);
    return send_late_to_all(t, TYPE_PART, t->out, team_wire_bytes(w, n), e);
}

/* x[n] is our part; afterwards the sum of all. */
static bool add_parts(struct team *t, enum team_wire w, float *x, size_t n, struct err *e) {
    float *sum = t->n == 2 ? x : t->acc; /* of two parts either order gives the same bits */
    for (u32 r = 0; r < t->n; r++) {
        if (r == t->me) {
            if (sum == x) continue;
            if (r == 0)
                memcpy(sum, x, n * sizeof *x);
            else
                t->k->add(sum, x, n);
            continue;
        }
        if (!take_part(t, r, TYPE_PART, w, sum, n, sum == x || r > 0, e)) return false;
    }
    if (sum != x) memcpy(x, sum, n * sizeof *x);
    return true;
}

/* Adds up our segment of x[n] and sends it to all. */
static bool spread(struct team *t, enum team_wire w, float *x, size_t n, struct err *e) {
    size_t lo = segment_at(t, n, t->me), len = segment_at(t, n, t->me + 1) - lo;
    if (!add_parts(t, w, x + lo, len, e)) return false;
    team_wire_encode(t->k, w, t->out, x + lo, len);
    return send_late_to_all(t, TYPE_SUMMED, t->out, team_wire_bytes(w, len), e);
}

static bool sum_scattered(struct team *t, enum team_wire w, float *x, size_t n, struct err *e) {
    bool is_spread = t->spread > 0;
    t->spread -= is_spread;
    if (!is_spread && !spread(t, w, x, n, e)) return false;
    for (u32 i = 1; i < t->n; i++) {
        u32 r = (t->me + i) % t->n;
        size_t lo = segment_at(t, n, r), len = segment_at(t, n, r + 1) - lo;
        if (!take_part(t, r, TYPE_SUMMED, w, x + lo, len, false, e)) return false;
    }
    return true;
}

/* Where the team was made with `check`: ERR_INTERNAL unless all ranks hold the same x. */
static bool check_sum(struct team *t, const float *x, size_t n, struct err *e) {
    if (!t->check) return true;
    u64 mine = hash_bytes(x, n * sizeof *x), other;
    const void *p;
    if (!send_to_all(t, TYPE_HASH, &mine, sizeof mine, e)) return false;
    for (u32 r = 0; r < t->n; r++) {
        if (r == t->me) continue;
        if (!recv_from(t, r, TYPE_HASH, sizeof mine, &p, e)) return false;
        memcpy(&other, p, sizeof other);
        if (other != mine)
            return err_set(e, ERR_INTERNAL, "ranks %u and %u hold different bits after a sum",
                           t->first + t->me, t->first + r);
    }
    return true;
}

static bool sum_take(struct team *t, enum team_wire w, float *x, size_t n, struct err *e) {
    return scatters(t, n) ? sum_scattered(t, w, x, n, e) : add_parts(t, w, x, n, e);
}

static bool sum_all(struct team *t, enum team_wire w, float *x, size_t n, struct err *e) {
    if (!t || n == 0) return true;
    ASSERT(!t->under_way);
    for (size_t at = 0, sent = 0; at < n; at += PIECE) {
        for (; sent < n && sent <= at + PIECE; sent += PIECE)
            if (!sum_send(t, w, x + sent, MIN(n - sent, (size_t)PIECE), e)) return false;
        if (!sum_take(t, w, x + at, MIN(n - at, (size_t)PIECE), e)) return false;
    }
    return group_flush(t->g, e) && check_sum(t, x, n, e);
}

bool team_sum(struct team *t, float *x, size_t n, struct err *e) {
    return sum_all(t, t ? t->wire : TEAM_F32, x, n, e);
}
bool team_sum_exact(struct team *t, float *x, size_t n, struct err *e) {
    return sum_all(t, TEAM_F32, x, n, e);
}
bool team_sum_send(struct team *t, float *x, size_t n, struct err *e) {
    if (!t) return true;
    ASSERT(t->under_way < UNDER_WAY_MAX);
    t->way[t->under_way++] = (struct way){x, n};
    for (size_t at = 0; at < n; at += PIECE)
        if (!sum_send(t, t->wire, x + at, MIN(n - at, (size_t)PIECE), e)) return false;
    return true;
}

bool team_sum_take(struct team *t, float *x, size_t n, struct err *e) {
    if (!t) return true;
    ASSERT(t->under_way && t->way[0].x == x && t->way[0].n == n);
    if (t->failed) {
        if (e) *e = t->err;
        return false;
    }
    for (size_t at = 0; at < n; at += PIECE)
        if (!sum_take(t, t->wire, x + at, MIN(n - at, (size_t)PIECE), e)) return false;
    /* Nobody may call us for long when this was the last. */
    t->under_way--;
    memmove(t->way, t->way + 1, t->under_way * sizeof *t->way);
    return (t->under_way || group_flush(t->g, e)) && check_sum(t, x, n, e);
}

/* The first piece under way that is not spread; NULL: none. *n: its length. */
static float *next_piece(const struct team *t, size_t *n) {
    u32 seen = 0;
    for (u32 i = 0; i < t->under_way; i++)
        for (size_t at = 0; at < t->way[i].n; at += PIECE)
            if (seen++ == t->spread) {
                *n = MIN(t->way[i].n - at, (size_t)PIECE);
                return t->way[i].x + at;
            }
    return NULL;
}

static bool has_parts(const struct team *t) {
    for (u32 r = 0; r < t->n; r++)
        if (r != t->me && !group_has_type(t->g, t->first + r, TYPE_PART)) return false;
    return true;
}

/* One that goes to everybody is added up when it is taken, and those behind it wait for that: parts
 * come in order. */
void team_progress(struct team *t) {
    size_t n;
    group_pump(t->g);
    float *x = t->failed ? NULL : next_piece(t, &n);
    if (!x || !scatters(t, n) || !has_parts(t)) return;
    t->failed = !spread(t, t->wire, x, n, &t->err);
    t->spread++;
}

/* In place: our own columns are spread from the last row on, so none is overwritten unread. */
static void spread_rows(float *x, u32 n_rows, u64 cols, u64 room) {
    for (u32 i = n_rows; i-- > 1;) memmove(x + i * room, x + i * cols, cols * sizeof *x);
}

bool team_gather_rows(struct team *t, float *x, u32 n_rows, u64 cols, u64 room, struct err *e) {
    if (!t) return true;
    if (t->me > 0) {
        for (u32 i = 0; i < n_rows; i++)
            if (!send_to(t, 0, TYPE_ROW, x + i * cols, cols * sizeof *x, e)) return false;
        return true;
    }
    u64 at = cols;
    if (cols > room)
        return err_set(e, ERR_INTERNAL, "a slice of %llu columns is wider than a row",
                       (unsigned long long)cols);
    spread_rows(x, n_rows, cols, room);
    for (u32 r = 1; r < t->n && n_rows; r++) {
        struct group_msg m = {.n = 0};
        for (u32 i = 0; i < n_rows; i++) {
            size_t first = m.n;
            if (!group_recv_type(t->g, t->first + r, TYPE_ROW, i ? first : GROUP_ANY_SIZE, &m, e))
                return false;
            if (m.n > (room - at) * sizeof *x)
                return err_set(e, ERR_INTERNAL, "rank %u sent no row that fits", t->first + r);
            memcpy(x + i * room + at, m.body, m.n);
        }
        at += m.n / sizeof *x;
    }
    return at == room || !n_rows ||
           err_set(e, ERR_INTERNAL, "the ranks' slices have %llu of %llu columns",
                   (unsigned long long)at, (unsigned long long)room);
}

bool team_all_gather(struct team *t, const void *mine, size_t n, void *all, struct err *e) {
    const void *p;
    memcpy((u8 *)all + team_rank(t) * n, mine, n);
    if (!t) return true;
    if (!send_to_all(t, TYPE_BYTES, mine, n, e)) return false;
    for (u32 r = 0; r < t->n; r++) {
        if (r == t->me) continue;
        if (!recv_from(t, r, TYPE_BYTES, n, &p, e)) return false;
        memcpy((u8 *)all + r * n, p, n);
    }
    return true;
}

bool team_broadcast(struct team *t, u32 root, void *p, size_t n, struct err *e) {
    const void *got;
    if (!t) return true;
    if (t->me == root) return send_to_all(t, TYPE_BYTES, p, n, e);
    if (!recv_from(t, root, TYPE_BYTES, n, &got, e)) return false;
    memcpy(p, got, n);
    return true;
}

bool team_barrier(struct team *t, struct err *e) {
    const void *p;
    if (!t) return true;
    if (!send_to_all(t, TYPE_BARRIER, "", 0, e)) return false;
    for (u32 r = 0; r < t->n; r++)
        if (r != t->me && !recv_from(t, r, TYPE_BARRIER, 0, &p, e)) return false;
    return true;
}
