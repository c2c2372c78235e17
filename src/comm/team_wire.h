/* team_wire.h - the formats in which parts of a sum travel. Little-endian; pure.
 *
 * F32: the floats. F16: an f32 power of two for each TEAM_SEGMENT elements, then the halves. Q8: an
 * f32 scale for each 32 elements, then the signed bytes. */
#pragma once

#include "comm/team.h"

enum { TEAM_SEGMENT = 4096, TEAM_Q8_BLOCK = 32 };

u64 team_wire_bytes(enum team_wire w, size_t n);
/* out: team_wire_bytes, aligned to 4. x becomes what the receivers will decode, bit by bit. */
void team_wire_encode(const struct kernels *k, enum team_wire w, void *out, float *x, size_t n);
/* y[n] = the part, or with `add` y += the part; the additions of all wire types are one f32
 * addition an element. in: aligned to 4. */
void team_wire_decode(const struct kernels *k, enum team_wire w, float *y, const void *in, size_t n,
                      bool add);
