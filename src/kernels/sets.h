/* sets.h - the kernel sets of this architecture, as kernels.c sees them.
 *
 * Each fills in the entries that it does better than the sets below it. Only kernels.c, a set
 * above and tests call them, and only on a CPU that can run them. */
#pragma once

#include "kernels/kernels.h"

void ref_fill(struct kernels *k);
#if defined(__x86_64__)
void avx2_fill(struct kernels *k);
void avx512_fill(struct kernels *k);
void vnni_fill(struct kernels *k);
/* Whether this CPU takes 512-bit registers in halves; the set for such a one, or others. */
bool vnni_halves(void);
void vnni_fill_halves(struct kernels *k, bool halves);
/* What amx leaves to it. */
const struct matmul_kernel *vnni_kernel(enum dtype type);
enum { VNNI_ALONE_ROWS = 64 };
void amx_fill(struct kernels *k);
/* Asks the system for the tile registers, for this process. */
bool amx_allowed(void);
#elif defined(__aarch64__)
void neon_fill(struct kernels *k);
void dotprod_fill(struct kernels *k);
void i8mm_fill(struct kernels *k);
#endif
