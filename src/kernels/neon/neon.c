/* 32 registers of 4 lanes: a group of 16 rows is four of them, several tokens take two at a time.
 */
#include "kernels/neon/dot.h"

#define MATMUL_SET  "neon"
#define MATMUL_TILE 4
#define GEMM_FROM   2
#define GEMM_BY_LANE
#define GEMM_WORDS
#define ATTEND_TILE 2
#include "kernels/matmul.inc"
#include "kernels/vector.inc"
#include "kernels/attend.inc"
#include "kernels/sets.h"

void neon_fill(struct kernels *k) {
    fill_matmul(k);
    fill_vector(k);
    k->attend = v_attend;
    k->attend_merge = v_attend_merge;
}
