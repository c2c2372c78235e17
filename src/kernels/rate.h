/* rate.h - how fast this machine is, in a second: what the cluster places layers by.
 *
 * Read bandwidth as peak.h measures it, over less memory; matrix products by the kernels in use,
 * over a prompt's worth of tokens. Rougher than `skein bench`, good enough to compare machines. One
 * thread at a time, the pool's. */
#pragma once

#include "kernels/kernels.h"
#include "kernels/pool.h"

struct rate {
    double read_bytes_s;
    double int8_ops_s;  /* of a 4-bit matrix: byte products; a product and its sum count as two */
    double float_ops_s; /* of a matrix of floats */
};

/* Takes half a second or so, more on slow machines. mem_bytes: how much memory it may take, from
 * 1 MiB; RATE_MEM_BYTES is plenty. ERR_MEMORY. */
enum { RATE_MEM_BYTES = 256 << 20 };
bool rate_measure(struct pool *pool, const struct kernels *k, u64 mem_bytes, struct rate *out,
                  struct err *e);
