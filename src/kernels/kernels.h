/* kernels.h - the table of compute kernels, filled once from what this CPU can do.
 *
 * A set (ref, avx2, avx512, vnni, amx; neon, dotprod, i8mm) is a folder compiled with its own
 * compiler flags. kernels_select starts with ref/ and lets each better set that the CPU and the
 * system support replace entries. The table is read-only afterwards: any thread.
 *
 * Every set gives the same bits as ref/. Integer dot products are exact; what is added in f32 is
 * added in one stated order per output, with explicit fused multiply-adds, whatever the vector
 * width: a row of a matrix product is one chain over the blocks of its columns, and a sum over a
 * vector is 16 interleaved partial sums folded in halves (8, 4, 2, 1). So a token's result depends
 * neither on the size of the batch nor on the machine in a mixed cluster that computed it.
 *
 * But for BF16 in amx, whose tiles have an order of their own, and take activations as sums of two
 * bf16: amx/bf16.c. The batch makes no difference there either. */
#pragma once

#include "base/base.h"
#include "base/dtype.h"
#include "base/err.h"
#include "kernels/act.h"
#include "kernels/kv.h"

struct mul_args {
    float *y; /* [n_tok][ldy]; rows row0..row1 of each token are written */
    u64 ldy;
    const void *packed; /* the whole packed matrix */
    u64 rows, cols;     /* of the whole matrix */
    u64 row0, row1;     /* what to compute: row0 % row_align == 0, row1 too or row1 == rows */
    u64 apart; /* of one token: if not 0, also the rows so far behind these, twice so far, and so
                * on, alone_rows / row_align times in all; a multiple of row_align */
    const void *act; /* [n_tok][kernels_act_bytes(cols)] */
    u32 n_tok;
    enum act_kind kind; /* what act holds: of the kernel's class (integers, floats, bf16) */
};

/* Product with a matrix of one dtype. Packing is apart from multiplying, one packed copy serves one
 * token and many, and activations are converted once per product, by whoever calls. */
struct matmul_kernel {
    const char *set; /* "vnni": for logs and tests */
    enum dtype type;
    enum act_kind act; /* ACT_F32, ACT_BF16X2, or ACT_Q16 for all that is made of integers */
    u32 row_align;     /* granularity of row ranges */
    u32 tok_tile; /* tokens whose accumulators share one pass over the weights; data, not contract
                   */

    /* Size of the packed matrix; false on overflow or when cols is no multiple of the block. */
    bool (*packed_bytes)(const struct matmul_kernel *k, u64 rows, u64 cols, u64 *bytes);
    /* Rewrites rows row0..row1-1 (as in mul_args) of src, the file's row-major blocks, into
     * dst (KERNEL_ALIGN, packed_bytes long). src's rows begin `stride` bytes apart: cols may be
     * some of a longer row. Threads may pack disjoint ranges at once. */
    void (*pack)(const struct matmul_kernel *k, void *dst, const void *src, u64 stride, u64 rows,
                 u64 cols, u64 row0, u64 row1);
    void (*mul)(const struct matmul_kernel *k, const struct mul_args *a);
    /* Decodes one row of a packed matrix to cols floats (embedding look-up). */
    void (*get_row)(const struct matmul_kernel *k, float *dst, const void *packed, u64 rows,
                    u64 cols, u64 row);
    /* Products of panels_from tokens or more (UINT32_MAX: none; words always, whatever they come
     * with) take panel_rows at a time, whether they are there or not. Activations are read again
     * after pass_rows. 0: the set has no panels. */
    u32 panels_from, panel_rows, pass_rows;
    u32 alone_rows; /* that one token's product takes at once: see apart. 0: it goes row by row */
    u32 ahead; /* bytes by which gemv_fused.inc and floats ask for its weights before their turn; 0:
                * hardware does it alone */
};

/* One query row of attention: a head of a token. */
struct attend_row {
    const float *q; /* [dk] */
    float *out;     /* [dv], written */
    u32 lo, hi;     /* key positions lo..hi-1 are seen; lo < hi */
};
/* What belongs to an `out` that is not normalized yet: the largest score and the sum of the
 * weights. */
struct attend_sum {
    float max, sum;
};

/* ATTEND_PART: positions whose sums are one chain. What a row sees of each part (they begin at
 * multiples of it) is added up alone; then the parts of a row are merged in order. So a long
 * context can be shared by threads, and the bits are the same when it is not. */
enum { ATTEND_ROWS = 16 /* of one call */, ATTEND_PART = 256 };

/* Rows of one sequence that share one KV head, over one part of its positions. Layout: kv.h. */
struct attend_args {
    const struct attend_row *rows;
    struct attend_sum *sums; /* [n_rows], written; max is -infinity where the row sees nothing */
    u32 n_rows;              /* 1..ATTEND_ROWS */
    u32 part;                /* positions part * ATTEND_PART and up */
    enum kv_type type;
    u32 dk, dv; /* multiples of 16 */
    /* Block i of the sequence holds positions i*KV_BLOCK_TOKENS and up; this head's part of it
     * begins at kv + blocks[i] * block_stride. Lanes beyond what was written may be read but
     * never change a result. */
    const u8 *kv;
    u64 block_stride; /* in bytes */
    const u32 *blocks;
    float scale;   /* on q . k */
    float softcap; /* cap * tanh(s / cap) on scaled scores; 0: none */
};

enum rope_layout {
    ROPE_NORM, /* pairs (2i, 2i+1): Llama files */
    ROPE_NEOX  /* pairs (i, i + n_rot/2): Qwen, Gemma */
};

struct kernels {
    const char *set;                             /* the best set in use: "vnni" */
    const struct matmul_kernel *matmul[DTYPE_N]; /* NULL where no kernel computes the type */

    /* Converts one token to any kind but floats, dst aligned to KERNEL_ALIGN. A product of
     * words_from tokens or more wants ACT_Q16W in place of ACT_Q16 where the type's bit is in
     * words_many, and one of a token alone where it is in words_alone: of several matrices, if all
     * want them. */
    void (*act_q)(void *dst, const float *x, u64 cols, enum act_kind kind);
    u32 words_from;
    u64 words_many, words_alone; /* bit t: of type t; such a kernel takes ACT_Q16 too */

    /* Vectors: any length, any alignment of floats; y may be x unless said otherwise. */
    void (*rms_norm)(float *y, const float *x, const float *w, u64 n, float eps); /* w: NULL = 1 */
    void (*add)(float *y, const float *x, u64 n);                                 /* y += x */
    void (*scale)(float *x, float s, u64 n);
    void (*softcap)(float *x, float cap, u64 n); /* x = cap * tanh(x / cap) */
    void (*softmax)(float *x, u64 n);
    void (*silu_mul)(float *y, const float *gate, const float *up, u64 n);
    void (*gelu_mul)(float *y, const float *gate, const float *up, u64 n); /* tanh form */
    /* Rotates the first n_rot elements of one head; cs holds n_rot/2 cosines, then the sines. */
    void (*rope)(float *x, const float *cs, u32 n_rot, enum rope_layout layout);
    void (*to_f16)(u16 *dst, const float *src, u64 n); /* nearest even, clamped to +-65504 */
    void (*from_f16)(float *dst, const u16 *src, u64 n);
    void (*attend)(const struct attend_args *a);
    /* Adds the sums of a later part of the same row: out, s and add as attend wrote them. */
    void (*attend_merge)(float *out, struct attend_sum *s, const float *part,
                         const struct attend_sum *add, u32 dv);
};

/* What a product of n_tok tokens with matrices of these types (bit t: type t) wants in place of
 * ACT_Q16. */
static inline enum act_kind kernels_act_kind(const struct kernels *k, u64 types, u32 n_tok) {
    const u64 want = n_tok == 1 ? k->words_alone : n_tok >= k->words_from ? k->words_many : 0;
    return types && !(types & ~want) ? ACT_Q16W : ACT_Q16;
}

/* What matrices of these types, all of kernels with this `act`, take of n_tok tokens whose
 * activations keep 16 bits, or 8. */
static inline enum act_kind kernels_act_of(const struct kernels *k, enum act_kind act, u64 types,
                                           u32 n_tok, u32 bits) {
    if (act == ACT_F32) return ACT_F32;
    if (act == ACT_BF16X2) return bits == 8 ? ACT_BF16 : ACT_BF16X2;
    return bits == 8 ? ACT_Q8 : kernels_act_kind(k, types, n_tok);
}

/* Rows of a piece, a multiple of row_align, when n_threads share a product of n_tok tokens with a
 * matrix [rows][cols]. In pairs of row groups, which some sets take together.
 *
 * Four pieces for each thread, so that an unlucky one is waited for briefly; never more than half
 * an L2 cache, because tokens pass over a piece several times, unless they come in panels: then
 * whole passes, or whole panels where that is too much. For one token see below. */
u64 kernels_chunk_rows(const struct matmul_kernel *k, u64 rows, u64 cols, u32 n_tok, u32 n_threads);

/* One token's product in pieces of alone_rows: groups of rows that lie as far apart as they can, so
 * that pieces that follow each other read on where the last one stopped, in as many streams.
 * Hardware fetches ahead in a stream, and needs time to find out that a new one began. Threads take
 * runs of pieces (pool_next_run). kernels_alone_mul computes pieces first..end-1; rows of *a are
 * set here. */
u64 kernels_alone_pieces(const struct matmul_kernel *k, u64 rows);
void kernels_alone_mul(const struct matmul_kernel *k, const struct mul_args *a, u64 first, u64 end);

/* Fills *k for this CPU, and asks the system for the registers that it must be asked for. `mask`
 * (SKEIN_CPU_MASK, --cpu-mask) names a set and pretends that nothing above it exists; NULL or ""
 * means no mask. False and ERR_ARG, with the valid names listed, when the mask is no set of this
 * architecture. A mask above what the CPU has changes nothing. */
bool kernels_select(struct kernels *k, const char *mask, struct err *e);

/* Names of this architecture's sets, lowest first, and how many of them this CPU can run. */
const char *const *kernels_sets(u32 *n_known, u32 *n_usable);
