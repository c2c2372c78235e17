/* As neon/, but vec.h multiplies bytes with SDOT; the vector functions there are as good. */
#include "kernels/neon/vec.h"

#define MATMUL_SET  "dotprod"
#define MATMUL_TILE 4
#include "kernels/matmul.inc"
#include "kernels/sets.h"

void dotprod_fill(struct kernels *k) {
    fill_matmul(k);
}
