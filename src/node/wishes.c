/* wishes.c - what somebody asks of a placement, from the words of people to those of the cluster.
 */
#include <string.h>

#include "node/node_parts.h"

enum { PREFIX_MIN = 4 };

static const char *dup(struct arena *a, const char *s) {
    return s ? arena_strdup(a, s) : NULL;
}

static struct wire_list copy_strings(struct arena *a, const struct wire_list *l) {
    struct msg_string *to = arena_array(a, l->n, sizeof *to);
    const struct msg_string *from = l->v;
    for (u64 i = 0; i < l->n; i++) to[i].s = arena_strdup(a, from[i].s);
    return (struct wire_list){to, l->n};
}

void wish_copy(struct arena *a, struct node_place *dst, const struct node_place *src) {
    *dst = *src;
    dst->model = dup(a, src->model);
    dst->instance_id = dup(a, src->instance_id);
    dst->wish.nodes = copy_strings(a, &src->wish.nodes);
    dst->wish.exclude = copy_strings(a, &src->wish.exclude);
    struct msg_rank *ranks = arena_array(a, src->wish.ranks.n, sizeof *ranks);
    for (u64 i = 0; i < src->wish.ranks.n; i++) {
        ranks[i] = ((const struct msg_rank *)src->wish.ranks.v)[i];
        ranks[i].node = arena_strdup(a, ranks[i].node);
    }
    dst->wish.ranks = (struct wire_list){ranks, src->wish.ranks.n};
    struct node_extra *extra = arena_array(a, src->n_extra, sizeof *extra);
    for (u32 i = 0; i < src->n_extra; i++) {
        extra[i] = src->extra[i];
        extra[i].name = arena_strdup(a, extra[i].name);
    }
    dst->extra = extra;
}

static bool refuse(const struct node *n, const char *text, bool several, struct err *e) {
    struct str names = {0};
    struct cluster_member m;
    if (several)
        return err_set(e, ERR_ARG, "more than one node is called %s: name it by its id", text);
    for (u32 i = 0; i < cluster_n_members(n->cluster) && i < 12; i++) {
        cluster_member(n->cluster, i, clock_ms(), &m);
        if (m.state > MEMBER_LIVE) continue;
        str_addf(&names, "%s%s", names.n ? ", " : "", m.hello->name);
    }
    err_set(e, ERR_NOT_FOUND, "there is no node %s: the nodes are %s", text, str_z(&names));
    str_deinit(&names);
    return false;
}

/* The id itself, else a name, else the beginning of an id; each of one node only. */
bool wish_node(const struct node *n, struct arena *a, const char **text, struct err *e) {
    const char *found = NULL;
    struct cluster_member m;
    for (int pass = 0; pass < 3 && !found; pass++)
        for (u32 i = 0; i < cluster_n_members(n->cluster); i++) {
            cluster_member(n->cluster, i, clock_ms(), &m);
            bool fits = pass == 0   ? strcmp(m.id, *text) == 0
                        : pass == 1 ? strcmp(m.hello->name ? m.hello->name : "", *text) == 0
                                    : strlen(*text) >= PREFIX_MIN &&
                                          strncmp(m.id, *text, strlen(*text)) == 0;
            if (fits && found) return refuse(n, *text, true, e);
            if (fits) found = m.id;
        }
    if (!found) return refuse(n, *text, false, e);
    *text = arena_strdup(a, found);
    return true;
}

bool wish_resolve(const struct node *n, struct arena *a, struct msg_wish *w, struct err *e) {
    struct msg_string *s[] = {w->nodes.v, w->exclude.v};
    const u64 len[] = {w->nodes.n, w->exclude.n};
    struct msg_rank *r = w->ranks.v;
    for (int k = 0; k < 2; k++)
        for (u64 i = 0; i < len[k]; i++)
            if (!wish_node(n, a, &s[k][i].s, e)) return false;
    for (u64 i = 0; i < w->ranks.n; i++)
        if (!wish_node(n, a, &r[i].node, e)) return false;
    return true;
}
