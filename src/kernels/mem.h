/* mem.h - large anonymous memory for weights, KV blocks and activations.
 *
 * Pages come zeroed, are advised to be huge where the system has huge pages, and belong to the
 * caller. Weights are packed into such memory rather than used in the mapped file, because idle
 * file pages may be reclaimed under a running model. Any thread. */
#pragma once

#include "base/base.h"
#include "base/err.h"

/* NULL and ERR_MEMORY, with the size in the sentence, when the system has no room. Aligned to a
 * page (2 MiB for sizes from there up). bytes == 0 counts as 1. */
void *mem_map(u64 bytes, const char *what, struct err *e);
void mem_unmap(void *p, u64 bytes); /* p may be NULL */
