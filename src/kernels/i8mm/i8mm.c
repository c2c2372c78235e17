/* As dotprod/, but several tokens are multiplied with SMMLA: two rows by two vectors of eight bytes
 * in one instruction. One token gains nothing from it and goes as there. */
#include "kernels/i8mm/pairs.h"

#define MATMUL_SET   "i8mm"
#define MATMUL_TILE  4
#define MATMUL_PAIRS 1
#define GEMM_FROM    4
#include "kernels/matmul.inc"
#include "kernels/sets.h"

void i8mm_fill(struct kernels *k) {
    fill_matmul(k);
}
