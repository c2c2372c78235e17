#include "node/events.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/lock.h"

struct listener {
    events_fn *fn;
    void *ctx;
};

struct events {
    u32 epoch;
    struct lock lock; /* guards the rest but `now`: the node's thread and those that listen */
    u64 n;            /* events so far; the latest has this number */
    char *kept[EVENTS_KEPT];
    struct listener listeners[EVENTS_LISTENERS_MAX];
    u32 n_listeners;
    bool closed;
    struct str now; /* of the node's thread: the event that is being written */
    char type[48];
};

struct events *events_new(u64 boot) {
    struct events *e = xcalloc(1, sizeof *e);
    e->epoch = (u32)(boot ^ boot >> 32);
    lock_init(&e->lock);
    return e;
}

void events_free(struct events *e) {
    if (!e) return;
    ASSERT(e->n_listeners == 0);
    for (u32 i = 0; i < EVENTS_KEPT; i++) free(e->kept[i]);
    str_deinit(&e->now);
    lock_deinit(&e->lock);
    free(e);
}

static void id_text(const struct events *e, u64 n, char out[32]) {
    snprintf(out, 32, "%08x-%llu", e->epoch, (unsigned long long)n);
}

/* Both fields come first in the object, so that they are there whatever follows. */
static void begin_object(struct str *o, const char *id, const char *type) {
    char iso[32];
    str_clear(o);
    str_addc(o, '{');
    json_put_str(o, "id", id);
    json_put_str(o, "time", clock_iso8601(clock_wall_ms() / 1000, iso));
    json_put_str(o, "type", type);
}

/* JSON has no raw line breaks, so one data line holds it. */
static char *frame(const char *id, const char *type, const struct str *object) {
    struct str s = {0};
    str_addf(&s, "id: %s\nevent: %s\ndata: %s\n\n", id, type, str_z(object));
    return str_take(&s);
}

struct str *events_begin(struct events *e, const char *type) {
    char id[32];
    id_text(e, e->n + 1, id); /* only this thread counts up */
    str_copy(e->type, sizeof e->type, type);
    begin_object(&e->now, id, type);
    return &e->now;
}

static void tell_all(struct events *e, const char *p, size_t n) {
    for (u32 i = 0; i < e->n_listeners; i++)
        if (!e->listeners[i].fn(e->listeners[i].ctx, p, n))
            e->listeners[i--] = e->listeners[--e->n_listeners];
}

void events_end(struct events *e) {
    char id[32];
    str_addc(&e->now, '}');
    id_text(e, e->n + 1, id);
    char *text = frame(id, e->type, &e->now);
    lock_take(&e->lock);
    char **slot = &e->kept[++e->n % EVENTS_KEPT];
    free(*slot);
    *slot = text;
    tell_all(e, text, strlen(text));
    lock_give(&e->lock);
}

/* The number in an id of ours; UINT64_MAX when it is none, or of another process. */
static u64 number_of(const struct events *e, const char *id) {
    char *end, prefix[16];
    snprintf(prefix, sizeof prefix, "%08x-", e->epoch);
    if (strncmp(id, prefix, strlen(prefix)) != 0) return UINT64_MAX;
    id += strlen(prefix);
    if (*id < '0' || *id > '9') return UINT64_MAX;
    u64 n = strtoull(id, &end, 10);
    return *end || n > e->n ? UINT64_MAX : n;
}

static bool send_reset(struct events *e, const struct listener *l) {
    char id[32];
    struct str o = {0};
    id_text(e, e->n, id);
    begin_object(&o, id, "reset");
    json_put_str(&o, "text",
                 "events were missed that are no longer kept: GET /state has all there is");
    str_addc(&o, '}');
    char *text = frame(id, "reset", &o);
    bool ok = l->fn(l->ctx, text, strlen(text));
    free(text);
    str_deinit(&o);
    return ok;
}

static bool catch_up(struct events *e, const struct listener *l, const char *last_id) {
    if (!last_id || !*last_id) return true;
    u64 heard = number_of(e, last_id);
    if (heard == UINT64_MAX || e->n - heard > EVENTS_KEPT - 1) return send_reset(e, l);
    for (u64 i = heard + 1; i <= e->n; i++) {
        const char *text = e->kept[i % EVENTS_KEPT];
        if (!l->fn(l->ctx, text, strlen(text))) return false;
    }
    return true;
}

bool events_listen(struct events *e, const char *last_id, events_fn *fn, void *ctx,
                   struct err *err) {
    struct listener l = {fn, ctx};
    bool ok = true;
    lock_take(&e->lock);
    if (e->closed)
        ok = err_set(err, ERR_BUSY, "the node is stopping");
    else if (e->n_listeners == EVENTS_LISTENERS_MAX)
        ok = err_set(err, ERR_BUSY, "%d clients listen to events already, the limit: close one",
                     EVENTS_LISTENERS_MAX);
    else if (fn(ctx, "", 0) && catch_up(e, &l, last_id))
        e->listeners[e->n_listeners++] = l;
    lock_give(&e->lock);
    return ok;
}

void events_look(struct events *e) {
    lock_take(&e->lock);
    tell_all(e, "", 0);
    lock_give(&e->lock);
}

void events_close(struct events *e) {
    lock_take(&e->lock);
    e->closed = true;
    for (u32 i = 0; i < e->n_listeners; i++) e->listeners[i].fn(e->listeners[i].ctx, NULL, 0);
    e->n_listeners = 0;
    lock_give(&e->lock);
}

void events_last_id(struct events *e, char out[32]) {
    lock_take(&e->lock);
    id_text(e, e->n, out);
    lock_give(&e->lock);
}
