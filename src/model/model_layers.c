#include "model/model_impl.h"

/* The layers of a step. A rank of a team computes a part of what attention or feed-forward add, and
 * the parts of all ranks are summed. While a sum travels there is something else to do only if the
 * step has tokens that do not wait for it: so a prompt goes through in two pieces, one half layer
 * after the other, and each sum has the other piece's half layer to arrive in. Later tokens see the
 * keys of earlier ones, which the first piece stores before the second attends. */

enum {
    PIECE_MIN_TOK = 32, /* below, weights are unpacked and read for too few */
    PIECE_ALIGN = 16,   /* tiles of matrix kernels */
};

/* Tokens [lo, hi) of b's spans, the first counted as 0, to out; how many spans that are. */
static u32 part_spans(const struct batch *b, u32 lo, u32 hi, struct kv_span *out) {
    u32 n = 0;
    for (u32 i = 0; i < b->n_spans; i++) {
        struct kv_span s = b->spans[i];
        u32 from = MAX(s.first, lo), to = MIN(s.first + s.n, hi);
        if (from >= to) continue;
        s.pos0 += from - s.first;
        s.first = from - lo;
        s.n = to - from;
        out[n++] = s;
    }
    return n;
}

/* Nothing is there on the cost table. */
static float *rows(float *a, u32 first, u64 cols) {
    return a ? a + first * cols : NULL;
}

static bool overlaps(const struct model *m, const struct batch *b) {
    return m->spec.tp_ranks > 1 && b->n_tok >= MODEL_PIECES * PIECE_MIN_TOK &&
           b->n_spans <= m->max_spans;
}

static u32 cut(struct model *m, const struct model_step *s, struct kv_pool *kv, float *x,
               struct piece *p) {
    const struct batch *b = s->batch;
    struct kv_span *spans = m->spans;
    u32 n = overlaps(m, b) ? MODEL_PIECES : 1, tok = 0, out = 0;
    for (u32 k = 0; k < n; k++) {
        u32 end = (u32)MIN(align_up((u64)b->n_tok * (k + 1) / n, PIECE_ALIGN), (u64)b->n_tok);
        p[k] = (struct piece){.step = s, .kv = kv, .batch = *b, .first = tok, .out_first = out};
        if (n > 1) {
            p[k].batch = (struct batch){.n_tok = end - tok, .spans = spans};
            p[k].batch.n_spans = part_spans(b, tok, end, spans);
            spans += p[k].batch.n_spans;
        }
        while (end < b->n_tok && out < s->n_out && s->out[out] < end) out++;
        p[k].n_out = (end < b->n_tok ? out : s->n_out) - p[k].out_first;
        p[k].n = end - tok;
        p[k].x = rows(x, tok, m->p.dim);
        p[k].step_x = x;
        p[k].out_x = rows(x, p[k].out_first, m->p.dim);
        p[k].y = rows(m->act.y, tok, m->p.dim);
        p[k].att = rows(m->act.att, tok, m->slice.att_cols);
        tok = end;
    }
    return n;
}

/* i counts half layers. */
static bool begin(struct model *m, const struct half halves[2], u32 i, struct piece *p,
                  struct err *e) {
    if (!p->n) return true;
    ops_part(m->ops, &p->batch, p->first);
    halves[i % 2].part(m, i / 2, p);
    return !p->n || ops_sum_send(m->ops, m->tp, p->y, (u64)p->n * m->p.dim, e) ||
           err_wrap(e, "layer %u", m->spec.layer_first + i / 2);
}

static bool finish(struct model *m, const struct half halves[2], u32 i, struct piece *p,
                   struct err *e) {
    if (!p->n) return true;
    if (!ops_sum_take(m->ops, m->tp, p->y, (u64)p->n * m->p.dim, e))
        return err_wrap(e, "layer %u", m->spec.layer_first + i / 2);
    halves[i % 2].add(m, i / 2, p);
    return true;
}

bool model_layers(struct model *m, const struct model_step *s, struct kv_pool *kv, float *x,
                  const struct half halves[2], struct err *e) {
    struct piece p[MODEL_PIECES];
    u32 n = cut(m, s, kv, x, p), n_halves = 2 * m->w.n_layers;
    for (u32 i = 0; i <= n_halves; i++)
        for (u32 k = 0; k < n; k++) {
            if (i > 0 && !finish(m, halves, i - 1, &p[k], e)) return false;
            if (i < n_halves && !begin(m, halves, i, &p[k], e)) return false;
        }
    return true;
}
