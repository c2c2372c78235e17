/* random.h - two kinds of random numbers.
 *
 * random_at is a counter-based generator: the value depends on (seed, counter) alone, so sampling
 * at a position gives the same draw whatever else ran. It is Philox4x32-10 (Salmon et al.,
 * "Parallel random numbers: as easy as 1, 2, 3", SC 2011). random_bytes asks the operating system:
 * keys, ids. Any thread. */
#pragma once

#include "base/base.h"

/* 64 random bits of stream `seed` at `counter`. */
u64 random_at(u64 seed, u64 counter);
/* The same as a double in [0, 1) with 53 bits. */
double random_unit(u64 seed, u64 counter);

/* Cryptographic; aborts when the system has none to give. */
void random_bytes(void *p, size_t n);
u64 random_u64(void);
