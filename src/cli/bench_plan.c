/* What a bench runs and what it makes of the figures: the part without a model. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "cli/bench.h"

bool bench_list_read(const char *option, const struct opt_list *in, u32 min, u32 max, u32 fallback,
                     struct bench_list *out, struct err *e) {
    *out = (struct bench_list){{fallback}, 1};
    for (u32 i = 0; i < in->n; i++) {
        char *end;
        errno = 0;
        unsigned long long v = strtoull(in->v[i], &end, 10);
        if (errno || *end || in->v[i][0] < '0' || in->v[i][0] > '9' || v < min || v > max)
            return err_set(e, ERR_ARG, "--%s %s: expected whole numbers from %u to %u", option,
                           in->v[i], min, max);
        out->v[i] = (u32)v;
        out->n = i + 1;
    }
    return true;
}

bool bench_cases(const struct bench_lists *l, struct bench_case **out, u32 *n, struct err *e) {
    bool pairs = l->pp.n == l->tg.n && !l->all_combinations;
    u32 n_lengths = pairs ? l->pp.n : l->pp.n * l->tg.n;
    u64 total = (u64)l->threads.n * l->batch.n * l->depth.n * n_lengths;
    if (total > BENCH_CASES_MAX)
        return err_set(e, ERR_LIMIT, "%llu combinations: at most %d in one run",
                       (unsigned long long)total, (int)BENCH_CASES_MAX);
    struct bench_case *c = xcalloc(total, sizeof *c);
    for (u32 i = 0; i < total; i++) {
        u32 k = i % n_lengths, rest = i / n_lengths;
        c[i].pp = l->pp.v[pairs ? k : k / l->tg.n];
        c[i].tg = l->tg.v[pairs ? k : k % l->tg.n];
        c[i].depth = l->depth.v[rest % l->depth.n];
        rest /= l->depth.n;
        c[i].batch = l->batch.v[rest % l->batch.n];
        c[i].threads = l->threads.v[rest / l->batch.n];
        if (c[i].pp || c[i].tg) continue;
        free(c);
        return err_set(e, ERR_ARG, "a prompt of 0 tokens and 0 tokens to generate: nothing to do");
    }
    *out = c;
    *n = (u32)total;
    return true;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

struct bench_stats bench_stats(const double *v, u32 n) {
    double sorted[BENCH_REPEAT_MAX];
    ASSERT(n <= BENCH_REPEAT_MAX);
    if (n == 0) return (struct bench_stats){0};
    memcpy(sorted, v, n * sizeof *v);
    qsort(sorted, n, sizeof *sorted, ascending);
    return (struct bench_stats){sorted[0], (sorted[(n - 1) / 2] + sorted[n / 2]) / 2,
                                sorted[n - 1]};
}

/* Memory and arithmetic can overlap, so the slower of the two is the limit. Activations stay in the
 * caches. */
double bench_roof_tps(const struct ops_cost *cost, const struct peak *p, u64 n_tok) {
    double read_s = (double)(cost->weight_bytes + cost->kv_bytes) / p->read_bytes_s;
    double compute_s = (double)cost->int_ops / p->int8_ops_s +
                       (double)cost->bf16_ops / p->bf16_ops_s +
                       (double)(cost->float_ops - cost->bf16_ops) / p->f32_ops_s;
    double s = MAX(read_s, compute_s);
    return s > 0 ? (double)n_tok / s : 0;
}
