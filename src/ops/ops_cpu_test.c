/* The CPU table: shapes, spans, threads. Kernels have their own test; here their results are put
 * together, and decoded weights are compared with formats/blocks.c, which reads the block formats
 * independently of kernels/. */
#include "ops/ops_cpu.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "base/test.h"
#include "formats/blocks.h"
#include "kernels/mem.h"

static u64 seed, counter;
static float uniform(void) {
    return (float)(random_unit(seed, counter++) * 2 - 1);
}

struct rig {
    struct kernels k;
    struct pool *pool;
    struct ops *o;
};

static const struct ops_cpu_dims DIMS = {
    .max_tok = 40, .max_cols = 512, .max_rot = 64, .n_ropes = 2, .max_dv = 48};

static void rig_open(struct rig *r, const char *set, u32 threads) {
    struct err e = {0};
    assert_true(kernels_select(&r->k, set ? set : getenv("SKEIN_CPU_MASK"), &e));
    r->pool = pool_new(threads, false, &e);
    r->o = ops_cpu_new(&r->k, r->pool, &DIMS, &e);
    assert_non_null(r->o);
}
static void rig_close(struct rig *r) {
    ops_free(r->o);
    pool_free(r->pool);
}

/* Random bytes with sane scales: every other byte is a valid code in every format. */
static u8 *weights(u32 type, u64 rows, u64 cols) {
    u64 bytes;
    const struct dtype_info *t = dtype_info(type);
    dtype_row_bytes(type, cols, &bytes);
    u8 *w = malloc(rows * bytes);
    for (u64 i = 0; i < rows * bytes; i++) w[i] = (u8)random_at(seed, counter++);
    for (u8 *b = w; b < w + rows * bytes; b += t->block_bytes) {
        u16 h = f32_to_f16(uniform() * 0.01f), m = f32_to_f16(uniform() * 0.01f);
        float f = uniform();
        switch (type) {
        case DTYPE_F32: memcpy(b, &f, 4); break;
        case DTYPE_F16: memcpy(b, &h, 2); break;
        case DTYPE_BF16:
            h = f32_to_bf16(f);
            memcpy(b, &h, 2);
            break;
        case DTYPE_Q2_K: memcpy(b + 80, &h, 2), memcpy(b + 82, &m, 2); break;
        case DTYPE_Q3_K: memcpy(b + 108, &h, 2); break;
        case DTYPE_Q6_K: memcpy(b + 208, &h, 2); break;
        case DTYPE_MXFP4: b[0] = (u8)(random_at(seed, counter++) % 250); break;
        case DTYPE_Q4_1:
        case DTYPE_Q5_1:
        case DTYPE_Q4_K:
        case DTYPE_Q5_K: memcpy(b + 2, &m, 2); /* fall through */
        default: memcpy(b, &h, 2);
        }
    }
    return w;
}

static void load(struct rig *r, struct tensor *t, u32 type, u64 rows, u64 cols, const void *data) {
    u64 bytes;
    struct err e = {0};
    *t = (struct tensor){.type = type, .rows = rows, .cols = cols, .data = data, .name = "t"};
    assert_true(ops_matrix_bytes(r->o, type, rows, cols, &bytes));
    assert_int_equal(bytes % KERNEL_ALIGN, 0);
    void *mem = mem_map(bytes, "a matrix", &e);
    assert_true(ops_load_matrix(r->o, t, mem, &e));
}
static void unload(struct rig *r, struct tensor *t) {
    u64 bytes;
    ops_matrix_bytes(r->o, t->type, t->rows, t->cols, &bytes);
    mem_unmap(t->packed, bytes);
}

/* Embedding rows of every type and set are, bit for bit, what formats/ decodes. */
static void embed_equals_blocks(void **state) {
    (void)state;
    enum { ROWS = 37, COLS = 512, N = 3 };
    u32 known, usable;
    const char *const *sets = kernels_sets(&known, &usable);
    float *y = malloc(N * COLS * sizeof *y), *want = malloc(COLS * sizeof *want);
    for (u32 s = 0; s < usable; s++) {
        struct rig r;
        rig_open(&r, sets[s], 2);
        for (u32 type = 0; type < DTYPE_N; type++) {
            if (!blocks_can_decode(type)) {
                assert_null(r.k.matmul[type]);
                continue;
            }
            u64 row_bytes;
            struct tensor t;
            u8 *w = weights(type, ROWS, COLS);
            u32 ids[N] = {36, 0, 16};
            dtype_row_bytes(type, COLS, &row_bytes);
            load(&r, &t, type, ROWS, COLS, w);
            ops_embed(r.o, y, &t, ids, N);
            for (u32 i = 0; i < N; i++) {
                blocks_decode(type, want, w + ids[i] * row_bytes, COLS);
                for (u32 c = 0; c < COLS; c++)
                    if (want[c] != y[i * COLS + c] && !(isnan(want[c]) && isnan(y[i * COLS + c])))
                        fail_msg("%s %s row %u col %u: %a, blocks.c has %a", sets[s],
                                 dtype_info(type)->name, ids[i], c, (double)y[i * COLS + c],
                                 (double)want[c]);
            }
            unload(&r, &t);
            free(w);
        }
        rig_close(&r);
    }
    free(y);
    free(want);
}

/* Several matrices at once, any number of threads, any split of the batch: the same bits, and
 * about the product in double precision. */
static void matmuls_right_and_stable(void **state) {
    (void)state;
    enum { COLS = 256, N = 33, M = 4 };
    static const u32 TYPES[] = {DTYPE_Q4_0, DTYPE_F16, DTYPE_BF16, DTYPE_Q6_K};
    static const u64 ROWS[] = {320, 50, 200, 1000};
    u8 *data[M];
    float *x = malloc(N * COLS * sizeof *x), *first[M] = {NULL};
    for (u32 i = 0; i < N * COLS; i++) x[i] = uniform();
    for (u32 m = 0; m < M; m++) data[m] = weights(TYPES[m], ROWS[m], COLS);
    for (u32 threads = 1; threads <= 3; threads++) {
        struct rig r;
        struct tensor t[M];
        const struct tensor *w[M] = {&t[0], &t[1], &t[2], &t[3]};
        float *y[M], *yt[M];
        rig_open(&r, NULL, threads);
        for (u32 m = 0; m < M; m++) {
            load(&r, &t[m], TYPES[m], ROWS[m], COLS, data[m]);
            y[m] = calloc(N * ROWS[m], sizeof(float));
        }
        if (threads == 2) {
            for (u32 i = 0; i < N; i++) { /* token by token */
                for (u32 m = 0; m < M; m++) yt[m] = y[m] + i * ROWS[m];
                ops_matmuls(r.o, yt, w, M, x + i * COLS, 1);
            }
        } else {
            ops_matmuls(r.o, y, w, M, x, N);
        }
        for (u32 m = 0; m < M; m++) {
            if (!first[m]) {
                first[m] = y[m];
            } else {
                assert_memory_equal(first[m], y[m], N * ROWS[m] * sizeof(float));
                free(y[m]);
            }
            unload(&r, &t[m]);
        }
        rig_close(&r);
    }
    for (u32 m = 0; m < M; m++) {
        float row[COLS];
        u64 row_bytes;
        dtype_row_bytes(TYPES[m], COLS, &row_bytes);
        for (u64 i = 0; i < ROWS[m]; i++) {
            double want = 0, size = 0;
            blocks_decode(TYPES[m], row, data[m] + i * row_bytes, COLS);
            for (u32 c = 0; c < COLS; c++) {
                want += (double)row[c] * (double)x[5 * COLS + c];
                size += fabs((double)row[c]);
            }
            assert_true(fabs((double)first[m][5 * ROWS[m] + i] - want) <= size * 4e-5);
        }
        free(first[m]);
        free(data[m]);
    }
    free(x);
}

/* Long enough for two parts of attention. */
enum { LAYERS = 2, HEADS = 6, KV_HEADS = 2, DIM = 32, SEQ = 290, SEQ_BLOCKS = 10, BLOCKS = 21 };

/* Two sequences, their blocks interleaved in the pool. */
static const u32 TABLE[2][SEQ_BLOCKS] = {{7, 0, 4, 19, 3, 9, 20, 12, 14, 10},
                                         {2, 8, 5, 18, 1, 6, 11, 13, 17, 15}};

static void random_qkv(float *q, float *k, float *v) {
    for (u32 i = 0; i < SEQ * HEADS * DIM; i++) q[i] = uniform();
    for (u32 i = 0; i < SEQ * KV_HEADS * DIM; i++) {
        k[i] = uniform() * 2;
        v[i] = uniform();
    }
}

/* Causal attention of one sequence in double precision, with keys and values as f16. */
static void attend_naive(double *y, const float *q, const float *k, const float *v,
                         const struct attn *a) {
    for (u32 t = 0; t < SEQ; t++)
        for (u32 h = 0; h < HEADS; h++) {
            double s[SEQ], sum = 0, *out = y + (t * HEADS + h) * DIM;
            u32 lo = a->window && t + 1 > a->window ? t + 1 - a->window : 0;
            u32 g = h / (HEADS / KV_HEADS);
            memset(out, 0, DIM * sizeof *out);
            for (u32 p = lo; p <= t; p++) {
                double dot = 0;
                for (u32 d = 0; d < DIM; d++)
                    dot += (double)q[(t * HEADS + h) * DIM + d] *
                           (double)f16_to_f32(f32_to_f16(k[(p * KV_HEADS + g) * DIM + d]));
                dot *= (double)a->scale;
                if (a->softcap > 0) dot = (double)a->softcap * tanh(dot / (double)a->softcap);
                sum += s[p] = exp(dot);
            }
            for (u32 p = lo; p <= t; p++)
                for (u32 d = 0; d < DIM; d++)
                    out[d] += s[p] / sum *
                              (double)f16_to_f32(f32_to_f16(v[(p * KV_HEADS + g) * DIM + d]));
        }
}

/* Feeds both sequences in steps of n0 and n1 tokens that share batches. */
static void attend_in_steps(struct rig *r, struct kv_pool *kv, const struct attn *a, u32 n0, u32 n1,
                            const float *const q[2], const float *const k[2],
                            const float *const v[2], float *const y[2]) {
    enum { Q = HEADS * DIM, K = KV_HEADS * DIM };
    u32 at[2] = {0, 0}, step[2] = {n0, n1};
    static float bq[40 * Q], bk[40 * K], bv[40 * K], by[40 * Q];
    memset(kv->mem, 0xFF, kv->mem_bytes); /* NaN where nothing was written */
    while (at[0] < SEQ || at[1] < SEQ) {
        struct kv_span spans[2];
        struct batch b = {.spans = spans};
        for (u32 s = 0; s < 2; s++) {
            u32 n = MIN(step[s], SEQ - at[s]);
            if (!n) continue;
            memcpy(bq + b.n_tok * Q, q[s] + at[s] * Q, n * Q * sizeof(float));
            memcpy(bk + b.n_tok * K, k[s] + at[s] * K, n * K * sizeof(float));
            memcpy(bv + b.n_tok * K, v[s] + at[s] * K, n * K * sizeof(float));
            spans[b.n_spans++] = (struct kv_span){b.n_tok, n, at[s], s, TABLE[s], SEQ_BLOCKS};
            b.n_tok += n;
        }
        assert_true(ops_begin(r->o, &b, NULL));
        ops_kv_store(r->o, kv, 1, bk, bv);
        ops_attend(r->o, by, bq, kv, 1, a);
        for (u32 i = 0; i < b.n_spans; i++) {
            u32 s = spans[i].slot;
            memcpy(y[s] + at[s] * Q, by + spans[i].first * Q, spans[i].n * Q * sizeof(float));
            at[s] += spans[i].n;
        }
    }
}

/* The same bits whatever the steps, the threads and the set; q8 is as near as 127 steps allow. */
static void check_attend(enum kv_type type, double tolerance) {
    static const struct attn KINDS[] = {
        {.n_heads = HEADS, .scale = 0.2f},
        {.n_heads = HEADS, .scale = 0.2f, .window = 1},
        {.n_heads = HEADS, .scale = 0.2f, .softcap = 5, .window = 40},
        {.n_heads = HEADS, .scale = 0.2f, .window = 33}};
    static const u32 STEPS[][2] = {{1, 1}, {7, 2}, {32, 1}, {13, 27}, {1, 32}, {1, 1}};
    static float qkv[2][3][SEQ * HEADS * DIM], first[2][SEQ * HEADS * DIM],
        again[2][SEQ * HEADS * DIM];
    static double want[SEQ * HEADS * DIM];
    const float *const q[2] = {qkv[0][0], qkv[1][0]}, *const k[2] = {qkv[0][1], qkv[1][1]},
                       *const v[2] = {qkv[0][2], qkv[1][2]};
    for (u32 s = 0; s < 2; s++) random_qkv(qkv[s][0], qkv[s][1], qkv[s][2]);
    struct kv_pool kv;
    assert_true(kv_pool_init(&kv, type, LAYERS, BLOCKS, KV_HEADS, DIM, DIM, NULL));
    for (u32 i = 0; i < ARRAY_LEN(KINDS); i++)
        for (u32 j = 0; j < ARRAY_LEN(STEPS); j++) {
            struct rig r;
            float *const y1[2] = {first[0], first[1]}, *const y2[2] = {again[0], again[1]};
            rig_open(&r, j == 1 ? "ref" : NULL, 1 + j % 3);
            attend_in_steps(&r, &kv, &KINDS[i], STEPS[j][0], STEPS[j][1], q, k, v, j ? y2 : y1);
            if (j) assert_memory_equal(first, again, sizeof first);
            rig_close(&r);
            for (u32 s = 0; s < 2 && !j; s++) {
                attend_naive(want, q[s], k[s], v[s], &KINDS[i]);
                for (u32 n = 0; n < SEQ * HEADS * DIM; n++)
                    assert_true(fabs(want[n] - (double)first[s][n]) < tolerance);
            }
        }
    kv_pool_deinit(&kv);
}

static void attend_any_batch(void **state) {
    (void)state;
    check_attend(KV_F16, 3e-6);
    check_attend(KV_Q8, 0.02);
}

static void rope_at_positions(void **state) {
    (void)state;
    struct rig r;
    rig_open(&r, NULL, 2);
    double inv[2][8];
    for (u32 i = 0; i < 8; i++) {
        inv[0][i] = pow(10000, -(double)i / 8);
        inv[1][i] = inv[0][i] / 8;
    }
    struct rope two[2] = {{.head_dim = 24, .n_rot = 16, .layout = ROPE_NEOX, .mscale = 1},
                          {.head_dim = 24, .n_rot = 16, .layout = ROPE_NORM, .mscale = 1.25}};
    struct kv_span spans[] = {{.first = 0, .n = 2, .pos0 = 5}, {.first = 2, .n = 1, .pos0 = 70000}};
    struct batch b = {3, spans, 2};
    double pos[3] = {5, 6, 70000};
    for (u32 n = 0; n < 8; n++) { /* twice each in a batch: made once, then reused */
        if (n == 4) {             /* the next batch is elsewhere */
            spans[0].pos0 = 7;
            pos[0] = 7;
            pos[1] = 8;
        }
        if (n % 4 == 0) assert_true(ops_begin(r.o, &b, NULL));
        const struct rope *rp = &two[n % 2];
        float x[3 * 2 * 24], was[3 * 2 * 24];
        for (u32 i = 0; i < ARRAY_LEN(x); i++) was[i] = x[i] = uniform();
        two[n % 2].inv_freq = inv[n % 2];
        ops_rope(r.o, x, rp, 2);
        for (u32 row = 0; row < 6; row++)
            for (u32 i = 0; i < 8; i++) {
                u32 ia = row * 24 + (n % 2 ? 2 * i : i), ib = ia + (n % 2 ? 1 : 8);
                double w = pos[row / 2] * inv[n % 2][i], c = cos(w) * rp->mscale,
                       s = sin(w) * rp->mscale;
                assert_true(fabs((double)x[ia] - ((double)was[ia] * c - (double)was[ib] * s)) <
                            1e-6);
                assert_true(fabs((double)x[ib] - ((double)was[ib] * c + (double)was[ia] * s)) <
                            1e-6);
            }
        for (u32 row = 0; row < 6; row++) /* beyond n_rot: untouched */
            assert_memory_equal(x + row * 24 + 16, was + row * 24 + 16, 8 * sizeof(float));
    }
    rig_close(&r);
}

static void small_ops(void **state) {
    (void)state;
    struct rig r;
    struct err e = {0};
    rig_open(&r, NULL, 3);
    static float x[40 * 1000], y[40 * 1000];
    u16 half[4] = {f32_to_f16(1), f32_to_f16(2), f32_to_f16(3), f32_to_f16(4)};
    float vec[4];
    struct tensor b = {.type = DTYPE_F16, .rows = 1, .cols = 4, .data = half, .name = "b"};
    assert_true(ops_load_vector(&b, vec, &e) && b.vec[3] == 4);
    memset(x, 0, sizeof x);
    ops_bias(r.o, x, &b, 10000); /* large enough for all threads */
    for (u32 i = 0; i < 40000; i++) assert_true(x[i] == (float)(1 + i % 4));
    ops_norm(r.o, y, x, &b, 10000, 4, 0);
    for (u32 i = 0; i < 40000; i++) {
        double v = 1 + i % 4;
        assert_true(fabs((double)y[i] - v * v / sqrt(7.5)) < 1e-5);
    }
    ops_add(r.o, y, y, 40000);
    ops_scale(r.o, y, 0.5f, 40000);
    ops_softcap(r.o, y, 2, 40000);
    ops_gate(r.o, y, x, y, 40000, GATE_SILU);
    for (u32 i = 0; i < 40000; i++) {
        double v = 1 + i % 4, t = 2 * tanh(v * v / sqrt(7.5) / 2);
        assert_true(fabs((double)y[i] - v / (1 + exp(-v)) * t) < 1e-5);
    }
    u32 idx[2] = {1, 0};
    float g[8];
    ops_gather(r.o, g, x + 2, idx, 2, 4);
    assert_memory_equal(g, x + 6, 16);
    assert_memory_equal(g + 4, x + 2, 16);
    assert_true(ops_sum(r.o, NULL, x, 4, &e));
    rig_close(&r);
}

/* Activations of 8 bits: another, coarser product, the same token by token and in a batch. */
static void matmul_act_bits(void **state) {
    (void)state;
    enum { ROWS = 64, COLS = 256, N = 9 };
    struct rig r;
    struct tensor t;
    struct err e = {0};
    struct ops_cpu_dims dims = DIMS;
    float x[N * COLS], y[3][N * ROWS];
    const struct tensor *w[1] = {&t};
    u8 *data = weights(DTYPE_Q4_0, ROWS, COLS);
    for (u32 i = 0; i < N * COLS; i++) x[i] = uniform();
    rig_open(&r, NULL, 1);
    load(&r, &t, DTYPE_Q4_0, ROWS, COLS, data);
    float *out = y[0];
    ops_matmuls(r.o, &out, w, 1, x, N);
    ops_free(r.o);
    dims.act_bits = 8;
    r.o = ops_cpu_new(&r.k, r.pool, &dims, &e);
    out = y[1];
    ops_matmuls(r.o, &out, w, 1, x, N);
    for (u32 i = 0; i < N; i++) {
        out = y[2] + i * ROWS;
        ops_matmuls(r.o, &out, w, 1, x + i * COLS, 1);
    }
    assert_memory_equal(y[1], y[2], sizeof y[1]);
    double diff = 0, norm = 0;
    for (u32 i = 0; i < N * ROWS; i++) {
        diff += pow((double)y[1][i] - (double)y[0][i], 2);
        norm += pow((double)y[0][i], 2);
    }
    assert_true(sqrt(diff / norm) > 1e-3 && sqrt(diff / norm) < 2e-2);
    assert_true(ops_cpu_act_bits(8, &e) && ops_cpu_act_bits(16, &e));
    assert_false(ops_cpu_act_bits(12, &e));
    assert_int_equal(e.code, ERR_ARG);
    unload(&r, &t);
    free(data);
    rig_close(&r);
}

static void refusals(void **state) {
    (void)state;
    struct rig r;
    struct err e = {0};
    u64 bytes;
    rig_open(&r, NULL, 1);
    struct batch b = {.n_tok = 41};
    assert_false(ops_begin(r.o, &b, &e));
    assert_int_equal(e.code, ERR_LIMIT);
    struct tensor t = {.type = DTYPE_Q4_K, .rows = 4, .cols = 320, .name = "blk.3.x"};
    assert_false(ops_matrix_bytes(r.o, t.type, t.rows, t.cols, &bytes));
    assert_false(ops_load_matrix(r.o, &t, NULL, &e));
    assert_int_equal(e.code, ERR_UNSUPPORTED);
    assert_non_null(strstr(e.msg, "blk.3.x"));
    assert_false(ops_load_vector(&t, NULL, &e));
    assert_false(ops_matrix_bytes(r.o, DTYPE_F64, 4, 32, &bytes));
    assert_false(ops_matrix_bytes(r.o, DTYPE_F32, UINT64_MAX, UINT64_MAX, &bytes));
    rig_close(&r);
    struct ops_cpu_dims huge = {.max_tok = UINT32_MAX, .max_cols = 1ull << 44, .n_ropes = 1};
    assert_null(ops_cpu_new(&r.k, NULL, &huge, &e));
    assert_int_equal(e.code, ERR_MEMORY);
}

int main(void) {
    const char *s = getenv("SKEIN_TEST_SEED");
    seed = s ? strtoull(s, NULL, 0) : random_u64();
    printf("ops_cpu_test: SKEIN_TEST_SEED=%llu\n", (unsigned long long)seed);
    fflush(stdout);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(embed_equals_blocks),
        cmocka_unit_test(matmuls_right_and_stable),
        cmocka_unit_test(attend_any_batch),
        cmocka_unit_test(rope_at_positions),
        cmocka_unit_test(small_ops),
        cmocka_unit_test(matmul_act_bits),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
