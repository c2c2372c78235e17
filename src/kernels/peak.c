#include "kernels/peak.h"

#include <string.h>

#include "base/clock.h"
#include "kernels/mem.h"

enum { TRIES = 5, ROUNDS = 1 << 17, PART_ALIGN = 1024 };

static const struct {
    const char *set;
    const struct peak_loops *loops;
} SETS[] = {
#if defined(__x86_64__)
    {"avx2", &PEAK_AVX2},
    {"avx512", &PEAK_AVX512},
    {"vnni", &PEAK_VNNI},
    {"amx", &PEAK_AMX},
#elif defined(__aarch64__)
    {"neon", &PEAK_NEON},
    {"dotprod", &PEAK_DOTPROD},
    {"i8mm", &PEAK_I8MM},
#endif
    {"ref", &PEAK_REF},
};

static const struct peak_loops *loops_of(const char *set) {
    for (u32 i = 0; i < ARRAY_LEN(SETS); i++)
        if (strcmp(SETS[i].set, set) == 0) return SETS[i].loops;
    return &PEAK_REF;
}

struct job {
    const struct peak_loops *loops;
    float *mem; /* [n] */
    u64 n;
    float f32_seed[PEAK_SEED];
    i32 int_seed[PEAK_SEED];
    /* Results, written so that they are computed; the threads may overwrite each other's. */
    volatile float f32;
    volatile i32 i32;
};

/* Each thread touches what it will read: untouched memory is one page of zeros. */
static void touch_part(void *ctx, u32 i, u32 n_threads) {
    struct job *j = ctx;
    struct pool_part p = pool_part(j->n, PART_ALIGN, i, n_threads);
    for (u64 k = p.lo; k < p.hi; k++) j->mem[k] = 1;
}

static void read_part(void *ctx, u32 i, u32 n_threads) {
    struct job *j = ctx;
    struct pool_part p = pool_part(j->n, PART_ALIGN, i, n_threads);
    j->f32 = j->loops->read(j->mem + p.lo, p.hi - p.lo);
}

static void read4_part(void *ctx, u32 i, u32 n_threads) {
    struct job *j = ctx;
    struct pool_part p = pool_part(j->n, PART_ALIGN, i, n_threads);
    j->f32 = j->loops->read4(j->mem + p.lo, p.hi - p.lo);
}

static void f32_part(void *ctx, u32 i, u32 n_threads) {
    struct job *j = ctx;
    (void)i;
    (void)n_threads;
    j->f32 = j->loops->f32(j->f32_seed, ROUNDS);
}

static void bf16_part(void *ctx, u32 i, u32 n_threads) {
    struct job *j = ctx;
    (void)i;
    (void)n_threads;
    j->f32 = j->loops->bf16(j->f32_seed, ROUNDS);
}

static void int8_part(void *ctx, u32 i, u32 n_threads) {
    struct job *j = ctx;
    (void)i;
    (void)n_threads;
    j->i32 = j->loops->int8(j->int_seed, ROUNDS);
}

static double best_rate(struct pool *pool, void (*fn)(void *ctx, u32 i, u32 n), struct job *j,
                        double work) {
    u64 best_ns = UINT64_MAX;
    for (u32 i = 0; i < TRIES; i++) {
        u64 t = clock_ns();
        pool_run(pool, fn, j);
        t = clock_ns() - t;
        best_ns = MIN(best_ns, MAX(t, 1));
    }
    return work * 1e9 / (double)best_ns;
}

bool peak_bandwidth(struct pool *pool, const char *set, u64 bytes, double *bytes_s, struct err *e) {
    bytes -= bytes % (PART_ALIGN * sizeof(float));
    struct job j = {.loops = loops_of(set), .n = bytes / sizeof(float)};
    j.mem = mem_map(bytes, "measuring the read bandwidth", e);
    if (!j.mem) return false;
    pool_run(pool, touch_part, &j);
    double one = best_rate(pool, read_part, &j, (double)bytes);
    double four = best_rate(pool, read4_part, &j, (double)bytes);
    *bytes_s = MAX(one, four); /* which is faster depends on the processor */
    mem_unmap(j.mem, bytes);
    return true;
}

bool peak_measure(struct pool *pool, const char *set, struct peak *out, struct err *e) {
    struct job j = {.loops = loops_of(set)};
    double n_threads = pool_threads(pool);
    for (u32 i = 0; i < PEAK_SEED; i++) { /* near a fixed point: no overflow, no subnormals */
        j.f32_seed[i] = 0.5f + (float)i / 4096;
        j.int_seed[i] = (i32)(i * 0x01020305);
    }
    if (!peak_bandwidth(pool, set, PEAK_READ_BYTES, &out->read_bytes_s, e)) return false;
    out->f32_ops_s = best_rate(pool, f32_part, &j, n_threads * ROUNDS * (double)j.loops->f32_ops);
    out->int8_ops_s =
        best_rate(pool, int8_part, &j, n_threads * ROUNDS * (double)j.loops->int8_ops);
    out->bf16_ops_s = out->f32_ops_s;
    if (j.loops->bf16)
        out->bf16_ops_s =
            best_rate(pool, bf16_part, &j, n_threads * ROUNDS * (double)j.loops->bf16_ops);
    return true;
}

struct peak peak_best(struct peak a, struct peak b) {
    return (struct peak){MAX(a.read_bytes_s, b.read_bytes_s), MAX(a.int8_ops_s, b.int8_ops_s),
                         MAX(a.f32_ops_s, b.f32_ops_s), MAX(a.bf16_ops_s, b.bf16_ops_s)};
}
