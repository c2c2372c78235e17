#include "engine/stops.h"

#include <string.h>

void stops_deinit(struct stops *s) {
    for (u32 i = 0; i < s->n; i++) str_deinit(&s->stop[i]);
    str_deinit(&s->held);
    s->n = 0;
}

bool stops_add_string(struct stops *s, struct view stop) {
    if (s->n == STOPS_MAX || stop.n == 0 || stop.n > STOP_BYTES_MAX) return false;
    str_addv(&s->stop[s->n++], stop);
    return true;
}

/* Length of the longest suffix of p[0..n) that is a proper prefix of `stop`. */
static size_t partial(const char *p, size_t n, const struct str *stop) {
    for (size_t k = MIN(n, stop->n - 1); k > 0; k--)
        if (memcmp(p + n - k, stop->p, k) == 0) return k;
    return 0;
}

int stops_add(struct stops *s, struct view text, struct str *out) {
    if (s->n == 0) {
        str_addv(out, text);
        return -1;
    }
    str_addv(&s->held, text);
    int met = -1;
    const char *first = NULL;
    size_t keep = 0;
    for (u32 i = 0; i < s->n; i++) {
        const struct str *stop = &s->stop[i];
        const char *at = s->held.n ? memmem(s->held.p, s->held.n, stop->p, stop->n) : NULL;
        if (at && (!first || at < first || (at == first && stop->n > s->stop[met].n))) {
            first = at;
            met = (int)i;
        }
        keep = MAX(keep, partial(str_z(&s->held), s->held.n, stop));
    }
    size_t show = first ? (size_t)(first - s->held.p) : s->held.n - keep;
    str_add(out, s->held.p, show);
    if (first) {
        str_clear(&s->held);
    } else if (show) {
        memmove(s->held.p, s->held.p + show, keep + 1);
        s->held.n = keep;
    }
    return met;
}

void stops_end(struct stops *s, struct str *out) {
    str_addv(out, str_view(&s->held));
    str_clear(&s->held);
}
