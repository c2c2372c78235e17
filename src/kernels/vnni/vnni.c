/* As avx512/, but dot.h multiplies bytes with VPDPBUSD; the vector functions there are as good. */
#include "kernels/avx512/dot.h"

#define MATMUL_SET  "vnni"
#define MATMUL_TILE 8
#define GEMM_FROM   4
#define GEMV_GROUPS 4
#include "kernels/matmul.inc"
#include "kernels/sets.h"

void vnni_fill(struct kernels *k) {
    fill_matmul(k);
}
