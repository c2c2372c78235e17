#!/usr/bin/env python3
"""Records tests/golden/blocks.bin: random blocks of every format and what they decode to.

The decoder is the `gguf` package (PyPI), which is written independently of skein. Layout,
little-endian: "BLKS", u32 number of formats, then for each: u32 GGUF type id, u32 elements,
u32 bytes, the bytes, the elements as f32. Usage: record_blocks.py OUT (needs gguf and numpy)."""

import struct
import sys

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType as T
from gguf.quants import dequantize

FORMATS = [T.F32, T.F16, T.BF16, T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1, T.Q8_0, T.Q2_K, T.Q3_K, T.Q4_K,
           T.Q5_K, T.Q6_K, T.IQ4_NL, T.IQ4_XS, T.MXFP4]
ELEMS = 1024  # 4 blocks of 256, 32 blocks of 32

# Where the f16 scales stand in a block; random bytes there could be infinities or NaNs.
F16_AT = {T.Q4_0: [0], T.Q4_1: [0, 2], T.Q5_0: [0], T.Q5_1: [0, 2], T.Q8_0: [0], T.Q2_K: [80, 82],
          T.Q3_K: [108], T.Q4_K: [0, 2], T.Q5_K: [0, 2], T.Q6_K: [208], T.IQ4_NL: [0],
          T.IQ4_XS: [0]}


def random_blocks(rng, t):
    elems, size = GGML_QUANT_SIZES[t]
    n = ELEMS // elems
    if t == T.F32:
        return rng.standard_normal(n, dtype=np.float32).view(np.uint8).reshape(n, 4)
    if t == T.F16:
        return rng.standard_normal(n).astype(np.float16).view(np.uint8).reshape(n, 2)
    blocks = rng.integers(0, 256, (n, size), dtype=np.uint8)
    if t == T.BF16:
        blocks[:, 1] &= 0xBF  # keeps the exponent below infinity
    if t == T.MXFP4:
        blocks[:, 0] = np.arange(n) * 255 // n  # 0, 1 (subnormal scales) to large, never NaN
        blocks[1, 0] = 1
    for at in F16_AT.get(t, []):
        scales = rng.standard_normal(n).astype(np.float16)
        scales[0] = np.float16(3e-7)  # a subnormal
        blocks[:, at:at + 2] = scales.view(np.uint8).reshape(n, 2)
    return blocks


def main():
    rng = np.random.default_rng(20240607)
    with open(sys.argv[1], "wb") as f:
        f.write(b"BLKS" + struct.pack("<I", len(FORMATS)))
        for t in FORMATS:
            blocks = random_blocks(rng, t).reshape(-1)
            values = dequantize(blocks, t).astype("<f4").reshape(-1)
            assert len(values) == ELEMS and np.isfinite(values).all(), t
            f.write(struct.pack("<III", t, ELEMS, len(blocks)) + blocks.tobytes())
            f.write(values.tobytes())


main()
