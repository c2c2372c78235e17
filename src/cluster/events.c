/* events.c - what became different, told to whoever watches. Instances are compared with what was
 * said of them last, so that an event comes of every change, whoever made it. */
#include <stdlib.h>
#include <string.h>

#include "cluster/parts.h"

struct shown {
    char id[CLUSTER_ID_CAP];
    char *model;
    u64 place;
    enum instance_status status;
};

static const char *const NAMES[] = {
    [EVENT_NODE_JOINED] = "node_joined",         [EVENT_NODE_LOST] = "node_lost",
    [EVENT_NODE_RETURNED] = "node_returned",     [EVENT_NODE_REFUSED] = "node_refused",
    [EVENT_NODE_FORGOTTEN] = "node_forgotten",   [EVENT_NODE_DRAINED] = "node_drained",
    [EVENT_NODE_UNDRAINED] = "node_undrained",   [EVENT_MASTER] = "master_changed",
    [EVENT_INSTANCE_WANTED] = "instance_wanted", [EVENT_INSTANCE_PLACED] = "instance_placed",
    [EVENT_INSTANCE_READY] = "instance_ready",   [EVENT_INSTANCE_UNPLACED] = "instance_unplaced",
    [EVENT_INSTANCE_FAILED] = "instance_failed", [EVENT_INSTANCE_DELETED] = "instance_deleted",
};

const char *cluster_event_name(enum cluster_event_kind kind) {
    return kind < ARRAY_LEN(NAMES) && NAMES[kind] ? NAMES[kind] : "";
}

static const char *text_copy(struct cluster_output *out, const char *s) {
    return s && *s ? arena_strdup(&out->mem, s) : "";
}

void core_event(const struct cluster *c, struct cluster_output *out,
                const struct cluster_event *event) {
    if (out->n_events >= CLUSTER_EVENTS_MAX) {
        out->events_lost = true;
        return;
    }
    LIST_GROW(out->events, out->n_events, out->events_cap);
    out->events[out->n_events++] =
        (struct cluster_event){.kind = event->kind,
                               .node = text_copy(out, event->node),
                               .name = text_copy(out, event->name),
                               .instance = text_copy(out, event->instance),
                               .model = text_copy(out, event->model),
                               .text = text_copy(out, event->text),
                               .term = c->claim.term,
                               .index = c->index};
}

void core_event_node(const struct cluster *c, struct cluster_output *out,
                     enum cluster_event_kind kind, const struct member *m, const char *text) {
    struct cluster_event e = {.kind = kind, .node = m->id, .name = m->hello.name, .text = text};
    core_event(c, out, &e);
}

static void tell(const struct cluster *c, struct cluster_output *out, enum cluster_event_kind kind,
                 const char *id, const char *model, const char *text) {
    struct cluster_event e = {.kind = kind, .instance = id, .model = model, .text = text};
    core_event(c, out, &e);
}

/* "alpha layers 0-11, beta layers 12-23" */
static char *where(const struct cluster *c, const struct cluster_instance *i, struct arena *tmp) {
    char *text = arena_strdup(tmp, "");
    for (u32 r = 0; r < i->n_ranks && r < 16; r++) {
        const struct member *m = members_find(c, i->ranks[r].node);
        const char *name = m && m->hello.name && *m->hello.name ? m->hello.name : i->ranks[r].node;
        text = arena_printf(tmp, "%s%s%s layers %u-%u", text, r ? ", " : "", name,
                            i->ranks[r].layer_first, i->ranks[r].layer_end - 1);
    }
    return text;
}

static void compare(const struct cluster *c, struct shown *was, const struct cluster_instance *i,
                    struct cluster_output *out) {
    const char *id = i->wanted->id, *model = i->wanted->model;
    const struct msg_placement *p = i->placement;
    if (p->place != was->place && p->place) {
        struct arena tmp = {0};
        tell(c, out, EVENT_INSTANCE_PLACED, id, model, where(c, i, &tmp));
        arena_deinit(&tmp);
    }
    bool failed = i->status == INSTANCE_FAILED;
    if (failed && was->status != INSTANCE_FAILED)
        tell(c, out, EVENT_INSTANCE_FAILED, id, model, p->reason);
    else if (!p->place && was->place)
        tell(c, out, EVENT_INSTANCE_UNPLACED, id, model, p->reason);
    bool ready = i->status == INSTANCE_READY;
    if (ready && (was->status != INSTANCE_READY || was->place != p->place))
        tell(c, out, EVENT_INSTANCE_READY, id, model, "");
    was->place = p->place;
    was->status = i->status;
}

static void compare_instances(struct cluster *c, struct cluster_output *out) {
    struct shown *now = xcalloc(c->n_entries, sizeof *now);
    u32 old = 0;
    for (u32 k = 0; k < c->n_entries || old < c->n_shown;) {
        struct cluster_instance i = {0};
        int order = 1; /* of the next entry against the next one shown */
        if (k < c->n_entries) {
            cluster_instance(c, k, &i);
            order = old < c->n_shown ? strcmp(i.wanted->id, c->shown[old].id) : -1;
        }
        if (order > 0) {
            struct shown *gone = &c->shown[old++];
            tell(c, out, EVENT_INSTANCE_DELETED, gone->id, gone->model, "");
            free(gone->model);
            continue;
        }
        struct shown *s = &now[k++];
        if (order == 0) {
            *s = c->shown[old++];
        } else {
            str_copy(s->id, sizeof s->id, i.wanted->id);
            s->model = xstrdup(i.wanted->model);
            s->status = INSTANCE_WAITING;
            tell(c, out, EVENT_INSTANCE_WANTED, s->id, s->model, "");
        }
        compare(c, s, &i, out);
    }
    free(c->shown);
    c->shown = now;
    c->n_shown = c->n_entries;
}

static void tell_drained(const struct cluster *c, const struct drain *d,
                         struct cluster_output *out) {
    struct member *m = members_find(c, d->node);
    if (!m || m->shown_drained == (bool)d->d.is_drained) return;
    m->shown_drained = d->d.is_drained;
    core_event_node(c, out, m->shown_drained ? EVENT_NODE_DRAINED : EVENT_NODE_UNDRAINED, m, "");
}

void events_step(struct cluster *c, struct cluster_output *out) {
    if (!same(c->shown_master, c->claim_master)) {
        const struct member *m = members_find(c, c->claim_master);
        memcpy(c->shown_master, c->claim_master, sizeof c->shown_master);
        struct cluster_event e = {
            .kind = EVENT_MASTER, .node = c->claim_master, .name = m ? m->hello.name : ""};
        core_event(c, out, &e);
    }
    for (u32 i = 0; c->look && i < c->n_drains; i++) tell_drained(c, &c->drains[i], out);
    if (c->look) compare_instances(c, out);
    c->look = false;
}

void events_deinit(struct cluster *c) {
    for (u32 i = 0; i < c->n_shown; i++) free(c->shown[i].model);
    free(c->shown);
}
