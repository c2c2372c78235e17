/* As avx512/, but dot.h multiplies bytes with VPDPBUSD; the vector functions there are as good. */
#include "kernels/avx512/dot.h"

#define MATMUL_SET  "vnni"
#define MATMUL_TILE 8
#define GEMM_FROM   4
#define GEMV_GROUPS 4
#define GEMV_AHEAD  1024
#include "kernels/matmul.inc"
#include "kernels/sets.h"

#if defined(__x86_64__)
#include <cpuid.h>

/* Zen 4 passes each half of a 512-bit register through pipes of 256 bits: a multiplication takes
 * so long that a tile has the time to unpack its codes again, and panels don't pay
 * (bench/README.md). Codes with scales for 16 columns take longer to unpack. Weights that are asked
 * for take places from those that hardware fetches by itself. */
#undef GEMV_AHEAD
#define GEMV_AHEAD 0
static const struct matmul_kernel HALVES[] = KERNELS(UINT32_MAX, 32, 32);

bool vnni_halves(void) {
    u32 a, b, c, d;
    if (!__get_cpuid(0, &a, &b, &c, &d) || b != signature_AMD_ebx) return false;
    return __get_cpuid(1, &a, &b, &c, &d) && (a >> 8 & 15) + (a >> 20 & 255) == 0x19;
}

void vnni_fill_halves(struct kernels *k, bool halves) {
    fill_matmul(k);
    if (!halves) return;
    for (u32 i = 0; i < ARRAY_LEN(HALVES); i++) k->matmul[HALVES[i].type] = &HALVES[i];
    k->words_from = UINT32_MAX;
}

void vnni_fill(struct kernels *k) {
    vnni_fill_halves(k, vnni_halves());
}

_Static_assert(VNNI_ALONE_ROWS == ALONE(ACT_Q16), "as said");
const struct matmul_kernel *vnni_kernel(enum dtype type) {
    u32 i = 0;
    while (MATMUL[i].type != type) i++;
    return &MATMUL[i];
}
#endif
