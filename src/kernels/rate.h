/* rate.h - how fast this machine is, in seconds: what the cluster places layers by.
 *
 * Read bandwidth as peak.h measures it, over less memory; matrix products by the kernels in
 * use, of each format that a model may have, as they are dealt to the threads in a step: of one
 * token, over more memory than caches hold, of few and of many; and attention of a prompt. Each
 * figure is taken in five rounds, a second apart, and the median counts: what a step reaches again
 * and again is wanted, and two rounds may be disturbed.
 * One thread at a time, the pool's.
 */
#pragma once

#include "kernels/kernels.h"
#include "kernels/pool.h"

enum {
    RATE_TYPES_MAX = 24,
    RATE_FEW_TOK = 8,
    RATE_MANY_TOK = 256,
    RATE_COLS = 2048,
    RATE_NARROW_COLS = 512
};

/* Operations a second, of all threads: a product and its sum count as two. */
struct rate_type {
    enum dtype type;
    double one_ops_s;    /* of one token: bandwidth or arithmetic, whichever is short */
    double narrow_ops_s; /* the same, of a matrix of RATE_NARROW_COLS and not RATE_COLS columns */
    double few_ops_s;    /* of RATE_FEW_TOK tokens */
    double many_ops_s;   /* of RATE_MANY_TOK tokens */
    double many8_ops_s;  /* the same with activations of 8 bits, where the format takes them */
    double narrow_many_ops_s; /* many_ops_s of a matrix of RATE_NARROW_COLS columns */
};

struct rate {
    double read_bytes_s;
    double call_s; /* until all threads have begun and ended an operation of no work */
    /* Heads of 64 dimensions: rows of a prompt that share keys and values; and four rows, as of one
     * token, that read them from memory. */
    double attend_ops_s, attend_one_ops_s;
    /* How many times as fast as its worst round the best was, in the median of all figures: 1 on a
     * machine that nobody disturbs. */
    double spread;
    u32 n_types;
    struct rate_type types[RATE_TYPES_MAX];
};

/* Takes some five seconds, more on slow machines. mem_bytes: how much memory weights may take,
 * from 8 MiB, beside 10 MiB for the rest; RATE_MEM_BYTES is plenty. ERR_MEMORY. */
enum { RATE_MEM_BYTES = 1 << 30 };
bool rate_measure(struct pool *pool, const struct kernels *k, u64 mem_bytes, struct rate *out,
                  struct err *e);
/* Of n figures, stride apart, the one that counts. *spread, where not NULL, gets how many times the
 * best is the worst. n: 1 to 5. */
double rate_of_rounds(const double *v, u32 n, u32 stride, double *spread);
/* The rates of one format; NULL where it was not measured. */
const struct rate_type *rate_find(const struct rate *r, enum dtype type);
