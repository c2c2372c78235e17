#include "tools/linkem_line.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "base/str.h"

enum { SMALL_BYTES = 2048, ETHERNET_BYTES = 14, VLAN_BYTES = 4 };

/* struct virtio_net_hdr as the kernel puts it before each frame (little-endian here). */
struct vnet_header {
    u8 flags, gso_type;
    u16 header_bytes, gso_bytes, csum_start, csum_offset;
};

void line_init(struct line *l, u64 seed) {
    memset(l, 0, sizeof *l);
    l->cfg.carrier = true;
    l->seed = seed;
    l->heap = calloc(LINE_FRAMES_MAX, sizeof *l->heap);
    ASSERT(l->heap);
}

void line_deinit(struct line *l) {
    for (u32 i = 0; i < l->n; i++) free(l->heap[i]);
    free(l->heap);
    for (int k = 0; k < 2; k++)
        while (l->unused[k]) {
            struct line_frame *f = l->unused[k];
            l->unused[k] = (struct line_frame *)(uintptr_t)f->seq;
            free(f);
        }
    memset(l, 0, sizeof *l);
}

static bool unit_of(const char *unit, bool is_time, double *scale) {
    static const struct {
        const char *unit;
        bool is_time;
        double scale;
    } UNITS[] = {{"ns", true, 1},   {"us", true, 1e3}, {"ms", true, 1e6}, {"s", true, 1e9},
                 {"", true, 1e3},   {"", false, 1},    {"K", false, 1e3}, {"M", false, 1e6},
                 {"G", false, 1e9}, {"%", false, 1}};
    for (u32 i = 0; i < ARRAY_LEN(UNITS); i++)
        if (UNITS[i].is_time == is_time && strcmp(UNITS[i].unit, unit) == 0) {
            *scale = UNITS[i].scale;
            return true;
        }
    return false;
}

static bool number(const char *text, bool is_time, double most, double *out) {
    char *end;
    double scale, v = strtod(text, &end);
    if (end == text || !unit_of(end, is_time, &scale) || !(v >= 0) || v * scale > most)
        return false;
    *out = v * scale;
    return true;
}

static bool set_word(struct line_cfg *c, const char *key, const char *value) {
    double v;
    struct {
        const char *key;
        u64 *out;
        bool is_time;
        double most;
    } whole[] = {{"delay", &c->delay_ns, true, 60e9},
                 {"jitter", &c->jitter_ns, true, 60e9},
                 {"reorder-by", &c->reorder_ns, true, 60e9},
                 {"rate", &c->rate_bytes_s, false, 1e12},
                 {"queue", &c->queue_bytes, false, 1e12}};
    struct {
        const char *key;
        double *out;
    } percent[] = {{"loss", &c->loss_pct}, {"dup", &c->dup_pct}, {"reorder", &c->reorder_pct}};
    for (u32 i = 0; i < ARRAY_LEN(whole); i++)
        if (strcmp(whole[i].key, key) == 0)
            return number(value, whole[i].is_time, whole[i].most, &v) &&
                   (*whole[i].out = (u64)v, true);
    for (u32 i = 0; i < ARRAY_LEN(percent); i++)
        if (strcmp(percent[i].key, key) == 0)
            return number(value, false, 100, &v) && (*percent[i].out = v, true);
    if (strcmp(key, "mtu") == 0) return number(value, false, 65536, &v) && (c->mtu = (u32)v, true);
    if (strcmp(key, "carrier") == 0)
        return number(value, false, 1, &v) && (c->carrier = v > 0, true);
    return false;
}

bool line_set(struct line_cfg *cfg, const char *words, struct err *e) {
    struct line_cfg c = *cfg;
    char word[64], *eq;
    for (const char *p = words + strspn(words, " \n"); *p; p += strspn(p, " \n")) {
        size_t n = strcspn(p, " \n");
        snprintf(word, sizeof word, "%.*s", (int)MIN(n, sizeof word - 1), p);
        p += n;
        if (strcmp(word, "reset") == 0) {
            c = (struct line_cfg){.carrier = true};
            continue;
        }
        eq = strchr(word, '=');
        if (eq) *eq = 0;
        if (!eq || !set_word(&c, word, eq + 1))
            return err_set(e, ERR_ARG,
                           "\"%s%s%s\": expected reset, or one of delay, jitter, "
                           "reorder-by (200us, 5ms), loss, dup, reorder (percent), "
                           "rate, queue (bytes: 125M), mtu, carrier (0 or 1), as KEY=VALUE",
                           word, eq ? "=" : "", eq ? eq + 1 : "");
    }
    *cfg = c;
    return true;
}

void line_text(const struct line_cfg *c, char *out, size_t cap) {
    snprintf(out, cap,
             "delay=%gus jitter=%gus loss=%g dup=%g reorder=%g reorder-by=%gus rate=%llu "
             "queue=%llu mtu=%u carrier=%d",
             (double)c->delay_ns / 1e3, (double)c->jitter_ns / 1e3, c->loss_pct, c->dup_pct,
             c->reorder_pct, (double)c->reorder_ns / 1e3, (unsigned long long)c->rate_bytes_s,
             (unsigned long long)c->queue_bytes, c->mtu, c->carrier);
}

bool line_wants_single_frames(const struct line_cfg *c) {
    return c->loss_pct > 0 || c->dup_pct > 0 || c->reorder_pct > 0;
}

static double draw(struct line *l) {
    return random_unit(l->seed, l->n_drawn++);
}

static bool chance(struct line *l, double pct) {
    return pct > 0 && draw(l) * 100 < pct;
}

static bool before(const struct line_frame *a, const struct line_frame *b) {
    return a->due_ns != b->due_ns ? a->due_ns < b->due_ns : a->seq < b->seq;
}

static void heap_put(struct line *l, struct line_frame *f) {
    u32 i = l->n++;
    for (u32 up; i && before(f, l->heap[up = (i - 1) / 2]); i = up) l->heap[i] = l->heap[up];
    l->heap[i] = f;
}

static struct line_frame *heap_pop(struct line *l) {
    struct line_frame *first = l->heap[0], *last = l->heap[--l->n];
    u32 i = 0;
    for (u32 k; (k = 2 * i + 1) < l->n; i = k) {
        if (k + 1 < l->n && before(l->heap[k + 1], l->heap[k])) k++;
        if (!before(l->heap[k], last)) break;
        l->heap[i] = l->heap[k];
    }
    l->heap[i] = last;
    return first;
}

static struct line_frame *frame_new(struct line *l, u32 n) {
    int large = n > SMALL_BYTES;
    struct line_frame *f = l->unused[large];
    if (f) {
        l->unused[large] = (struct line_frame *)(uintptr_t)f->seq;
        return f;
    }
    u32 cap = large ? LINE_FRAME_MAX : SMALL_BYTES;
    f = malloc(sizeof *f + cap);
    ASSERT(f);
    f->cap = cap;
    return f;
}

void line_release(struct line *l, struct line_frame *f) {
    int large = f->cap > SMALL_BYTES;
    f->seq = (u64)(uintptr_t)l->unused[large];
    l->unused[large] = f;
}

/* What a frame becomes on the wire: how many frames, of how many bytes in all. */
static u64 wire_bytes(const u8 *frame, u32 n, u64 *n_frames, u32 *longest) {
    struct vnet_header h;
    memcpy(&h, frame, sizeof h);
    u64 bytes = n - LINE_HEADER_MAX;
    *n_frames = 1;
    *longest = (u32)bytes;
    if (h.gso_type && h.gso_bytes && h.header_bytes < bytes) {
        u64 payload = bytes - h.header_bytes;
        *n_frames = (payload + h.gso_bytes - 1) / h.gso_bytes;
        *longest = h.header_bytes + (u32)MIN(payload, h.gso_bytes);
        bytes = payload + *n_frames * h.header_bytes;
    }
    return bytes;
}

static u32 mtu_with_headers(const u8 *frame, u32 n, u32 mtu) {
    const u8 *type = frame + LINE_HEADER_MAX + 12;
    bool vlan = n >= LINE_HEADER_MAX + 18 && type[0] == 0x81 && type[1] == 0;
    return mtu + ETHERNET_BYTES + (vlan ? VLAN_BYTES : 0);
}

static void put_on_way(struct line *l, const u8 *frame, u32 n, u64 due_ns) {
    if (l->n == LINE_FRAMES_MAX) {
        l->stats.over_queue++;
        return;
    }
    struct line_frame *f = frame_new(l, n);
    f->n = n;
    f->due_ns = due_ns;
    f->seq = l->next_seq++;
    memcpy(f->bytes, frame, n);
    heap_put(l, f);
}

void line_accept(struct line *l, const u8 *frame, u32 n, u64 now_ns) {
    const struct line_cfg *c = &l->cfg;
    u64 n_frames;
    u32 longest;
    if (n <= LINE_HEADER_MAX || n > LINE_FRAME_MAX || !c->carrier) return;
    u64 bytes = wire_bytes(frame, n, &n_frames, &longest), sent_ns = now_ns;
    if (c->mtu && longest > mtu_with_headers(frame, n, c->mtu)) {
        l->stats.over_mtu++;
        return;
    }
    if (c->rate_bytes_s) {
        u64 queue_ns = c->queue_bytes
                           ? (u64)((double)c->queue_bytes * 1e9 / (double)c->rate_bytes_s)
                           : MAX(50000000, (u64)(262144e9 / (double)c->rate_bytes_s));
        u64 start = MAX(now_ns, l->free_ns);
        if (start - now_ns > queue_ns) {
            l->stats.over_queue++;
            return;
        }
        l->free_ns = sent_ns = start + (u64)((double)bytes * 1e9 / (double)c->rate_bytes_s);
    }
    if (chance(l, c->loss_pct)) { /* behind the rate: a lost frame took its time on the wire */
        l->stats.lost++;
        return;
    }
    double jitter = c->jitter_ns ? (2 * draw(l) - 1) * (double)c->jitter_ns : 0;
    double flight = MAX(0, (double)c->delay_ns + jitter);
    u64 due = MAX(sent_ns + (u64)flight, l->last_due_ns);
    if (chance(l, c->reorder_pct)) {
        l->stats.reordered++;
        due += c->reorder_ns ? c->reorder_ns : MAX(1000000, c->delay_ns);
    } else {
        l->last_due_ns = due;
    }
    l->stats.frames += n_frames;
    l->stats.bytes += bytes;
    put_on_way(l, frame, n, due);
    if (!chance(l, c->dup_pct)) return;
    l->stats.duplicated++;
    put_on_way(l, frame, n, due);
}

u64 line_next_ns(const struct line *l) {
    return l->n ? l->heap[0]->due_ns : UINT64_MAX;
}

struct line_frame *line_take(struct line *l, u64 now_ns) {
    if (!l->n || l->heap[0]->due_ns > now_ns) return NULL;
    struct line_frame *f = heap_pop(l);
    u64 late = now_ns - f->due_ns;
    l->stats.late_ns_max = MAX(l->stats.late_ns_max, late);
    l->stats.late_ns_sum += late;
    return f;
}
