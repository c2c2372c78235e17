#include "base/snapshot.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/lock.h"

struct snapshot {
    struct lock lock; /* guards `now` and every text's refs */
    struct snapshot_text *now;
};

static struct snapshot_text *text_new(struct view v) {
    struct snapshot_text *t = xcalloc(1, sizeof *t + v.n + 1);
    t->refs = 1;
    t->n = v.n;
    if (v.n) memcpy(t->p, v.p, v.n);
    return t;
}

/* Called with the lock taken. */
static void unref(struct snapshot_text *t) {
    ASSERT(t->refs > 0);
    if (--t->refs == 0) free(t);
}

struct snapshot *snapshot_new(void) {
    struct snapshot *s = xcalloc(1, sizeof *s);
    lock_init(&s->lock);
    s->now = text_new(VIEW(""));
    return s;
}

void snapshot_free(struct snapshot *s) {
    if (!s) return;
    ASSERT(s->now->refs == 1);
    free(s->now);
    lock_deinit(&s->lock);
    free(s);
}

void snapshot_set(struct snapshot *s, struct view text) {
    struct snapshot_text *t = text_new(text);
    lock_take(&s->lock);
    unref(s->now);
    s->now = t;
    lock_give(&s->lock);
}

const struct snapshot_text *snapshot_get(struct snapshot *s) {
    lock_take(&s->lock);
    struct snapshot_text *t = s->now;
    t->refs++;
    lock_give(&s->lock);
    return t;
}

void snapshot_let_go(struct snapshot *s, const struct snapshot_text *t) {
    lock_take(&s->lock);
    unref((struct snapshot_text *)t);
    lock_give(&s->lock);
}
