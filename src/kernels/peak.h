/* peak.h - what this machine can do at most, measured: the roofline that rates are held against.
 *
 * Read bandwidth is that of one stream or four, whichever is faster, over anonymous memory far
 * larger than the caches, arithmetic that of loops which touch registers alone, each with the
 * widest instructions of the kernel set in use and all threads of a pool. Each figure is the best
 * of several tries: what other programs took away does not make a kernel look better. One thread at
 * a time, the pool's. */
#pragma once

#include "kernels/pool.h"

enum { PEAK_READ_BYTES = 512 << 20 };

struct peak {
    double read_bytes_s;
    /* A product and its sum count as two. Byte products as the set forms them for 4-bit codes:
     * amx with tiles of 32 columns, half of what a tile holds. bf16: as f32 where the set has no
     * products of bf16. */
    double int8_ops_s, f32_ops_s, bf16_ops_s;
};

/* set: the name in struct kernels. Takes a second or so, and PEAK_READ_BYTES of memory meanwhile.
 * ERR_MEMORY. */
bool peak_measure(struct pool *pool, const char *set, struct peak *out, struct err *e);
/* The first figure alone, over so much memory (at least 1 MiB). */
bool peak_bandwidth(struct pool *pool, const char *set, u64 bytes, double *bytes_s, struct err *e);
/* The better of both, figure by figure. */
struct peak peak_best(struct peak a, struct peak b);

/* The loops of one set (SET/peak.c). Results are returned so that nobody drops the work. */
struct peak_loops {
    /* Adds up p[0..n), n a multiple of 1024: from one end to the other, or in four streams. */
    float (*read)(const float *p, u64 n), (*read4)(const float *p, u64 n);
    float (*f32)(const float *seed, u64 rounds); /* seed: [PEAK_SEED] */
    i32 (*int8)(const i32 *seed, u64 rounds);
    float (*bf16)(const float *seed, u64 rounds); /* NULL: the set has none */
    u64 f32_ops, int8_ops, bf16_ops;              /* of one round */
};
enum { PEAK_SEED = 512 };
extern const struct peak_loops PEAK_REF, PEAK_AVX2, PEAK_AVX512, PEAK_VNNI, PEAK_AMX, PEAK_NEON,
    PEAK_DOTPROD, PEAK_I8MM;
