/* 16 registers: four tokens' sums and products of half a row group, four of codes. */
#include "kernels/avx2/dot.h"

#define MATMUL_SET  "avx2"
#define MATMUL_TILE 4
#define GEMM_FROM   8
#define GEMM_MADD   2
#define GEMV_GROUPS 2
#define ATTEND_TILE 2
#include "kernels/matmul.inc"
#include "kernels/vector.inc"
#include "kernels/attend.inc"
#include "kernels/sets.h"

void avx2_fill(struct kernels *k) {
    fill_matmul(k);
    fill_vector(k);
    k->attend = v_attend;
    k->attend_merge = v_attend_merge;
}
