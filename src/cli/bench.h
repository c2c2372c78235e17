/* bench.h - how fast a model runs here, in tokens a second and as a share of what the machine can.
 *
 * `skein bench` drives a model in this process, without the runner, its queue and its sampler:
 * random tokens through model_forward. A case is one combination of lengths, batch, depth and
 * threads; it is run once to warm up and then as often as asked. Main thread only. */
#pragma once

#include "base/str.h"
#include "cli/opts.h"
#include "kernels/peak.h"
#include "model/model.h"
#include "ops/ops_cost.h"

enum { BENCH_CASES_MAX = 1024, BENCH_REPEAT_MAX = 100, BENCH_BATCH_MAX = 256 };

struct bench_list {
    u32 v[OPT_LIST_MAX], n;
};
/* Numbers from min to max; ERR_ARG names the option. An empty list becomes `fallback`. */
bool bench_list_read(const char *option, const struct opt_list *in, u32 min, u32 max, u32 fallback,
                     struct bench_list *out, struct err *e);

struct bench_case {
    u32 threads;
    u32 batch;  /* sequences decoding together */
    u32 depth;  /* tokens of context before the prompt */
    u32 pp, tg; /* tokens of the prompt, and generated, each sequence; 0: not measured */
};
struct bench_lists {
    struct bench_list threads, batch, depth, pp, tg;
    bool all_combinations; /* of pp and tg even when the lists are equally long */
};
/* Every combination, threads outermost. pp and tg go in pairs when they are equally long, as in
 * exo's bench. *out: [*n], free() it. ERR_LIMIT for more than BENCH_CASES_MAX, ERR_ARG where a
 * case would measure nothing. */
bool bench_cases(const struct bench_lists *l, struct bench_case **out, u32 *n, struct err *e);

struct bench_stats {
    double min, median, max;
};
/* v: [n]; the median of an even number is the mean of the two in the middle. Zeros when n is 0. */
struct bench_stats bench_stats(const double *v, u32 n);

struct bench_row {
    struct bench_case c;
    u32 n;                                                                 /* repeats */
    double prompt_tps[BENCH_REPEAT_MAX], generation_tps[BENCH_REPEAT_MAX]; /* of all sequences */
    struct ops_cost prompt, generation; /* what a perfect machine would move and compute */
    u64 peak_memory;                    /* resident bytes while it ran */
};
/* Rate that the roofline allows for n tokens of that cost; 0 when nothing was measured. */
double bench_roof_tps(const struct ops_cost *cost, const struct peak *p, u64 n_tok);

/* What does not differ between the rows of one number of threads. */
struct bench_machine {
    const char *path;
    struct model_params params;
    u64 file_bytes, weights_bytes, load_peak_memory;
    double load_s;
    const char *isa;
    enum kv_type kv_type;
    u32 act_bits;
    struct peak peak;
};
struct bench_run {
    const char *path, *cpu_mask;
    enum kv_type kv_type;
    u32 act_bits;
    u32 repeat;
    void (*progress)(const struct bench_case *c); /* before each case; may be NULL */
};
/* Loads the model with the threads of the first case and runs rows[0..n), whose `c` is set and has
 * the same threads. Blocks for as long as that takes. */
bool bench_measure(const struct bench_run *run, struct bench_machine *m, struct bench_row *rows,
                   u32 n, struct err *e);

void bench_table(const struct bench_machine *m, const struct bench_row *rows, u32 n,
                 struct str *out);
/* Elements of a JSON array, each complete in itself. */
void bench_json(const struct bench_machine *m, const struct bench_row *rows, u32 n,
                struct str *out);
