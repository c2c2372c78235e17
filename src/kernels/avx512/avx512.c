/* 32 registers: eight tokens' sums and products, four of codes, and room for scales. */
#include "kernels/avx512/dot.h"

#define MATMUL_SET  "avx512"
#define MATMUL_TILE 8
#define GEMM_FROM   8
#define GEMM_MADD   4
#define GEMM_WORDS
#define GEMV_GROUPS 4
#define ATTEND_TILE 8
#include "kernels/matmul.inc"
#include "kernels/vector.inc"
#include "kernels/attend.inc"
#include "kernels/sets.h"

void avx512_fill(struct kernels *k) {
    fill_matmul(k);
    fill_vector(k);
    k->attend = v_attend;
    k->attend_merge = v_attend_merge;
}
