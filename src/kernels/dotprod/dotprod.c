/* As neon/, but dot.h multiplies bytes with SDOT; the vector functions there are as good. */
#include "kernels/neon/dot.h"

#define MATMUL_SET   "dotprod"
#define MATMUL_TILE  4
#define GEMM_FROM    8
#define GEMM_FROM_16 4
#define GEMM_BY_LANE
#include "kernels/matmul.inc"
#include "kernels/sets.h"

void dotprod_fill(struct kernels *k) {
    fill_matmul(k);
}
