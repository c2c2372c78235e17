#!/usr/bin/env python3
"""Records what llama.cpp answers, for tests/golden/golden_test.c.

    record_golden.py --lib DIR MODEL.gguf tests/golden/logits/NAME.golden [--top K] [--prompts A,B]

DIR holds libllama and the ggml CPU libraries; the npm package @node-llama-cpp/linux-x64 has them
prebuilt (llama_cpp.py says which release). Needs numpy and gguf (PyPI). Run once; the result is committed.

The weights are decoded to F32 before llama.cpp sees them. With the quantized file it would round
activations to 8 bits, and what comes out then depends on the order of additions: on SmolLM2 in
Q4_1 its own AVX2 and AVX-512 builds differ by 2.1 % (mean of 20 prompts; at most 4.4 %) in the
logits and give the same 32 tokens on 12 prompts of 20. Recorded on the CPU with an f16 KV cache,
without flash attention.

The file, little-endian: "SKGOLD1\\0", u32 n_vocab, u32 n_prompts, then per prompt
    u32 name_bytes, name            u32 text_bytes, text (UTF-8)
    u32 n_prompt, i32 ids[n_prompt]
    u32 n_gen, i32 ids[n_gen]       greedy continuation
    f32 gap[n_gen]                  logit of the chosen token minus that of the runner-up
    f64 norm                        L2 norm of the first token's logits
    u32 k                           0: f16 logits[n_vocab]; else u32 ids[k], f32 logits[k], largest first
"""
import argparse
import ctypes as C
import os
import struct
import tempfile

import gguf
import numpy as np

from llama_cpp import check_layout, open_library

SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"


def chatml(user, system=SYSTEM):
    return (f"<|im_start|>system\n{system}<|im_end|>\n<|im_start|>user\n{user}<|im_end|>\n"
            "<|im_start|>assistant\n")


HARBOUR = (
    "The harbour master kept two books. In the first he wrote down every boat that came in, its "
    "colour, its captain and what it carried. In the second he wrote down the weather, because he "
    "believed that one explained the other. On calm days there was fish and rope, on windy days there "
    "were stories, and after a storm there was nothing at all for a week. ")

# Own text: prose, lists, code, several languages, odd white space, chat turns, one longer than a
# sliding window of 512 tokens.
PROMPTS = [
    ("capital", "The capital of France is"),
    ("tale", "Once upon a time, in a village between two rivers, there lived"),
    ("science", "Photosynthesis is the process by which plants"),
    ("list", "Three things to pack for a walk in the rain:\n1."),
    ("sum", "Question: I have 17 apples and give away 5. How many are left?\nAnswer:"),
    ("python", "def fibonacci(n):\n    \"\"\"Return the n-th Fibonacci number.\"\"\"\n"),
    ("c", "#include <stdio.h>\n\nint main(void) {\n    for (int i = 0; i < 10; i++) {\n"),
    ("sql", "-- customers who ordered more than twice\nSELECT c.name, COUNT(o.id)\nFROM customers c\n"),
    ("json", "{\"name\": \"skein\", \"kind\": \"server\", \"ports\": ["),
    ("german", "Der schnellste Weg vom Bahnhof zum Hafen ist"),
    ("spanish", "La receta de la abuela empieza con dos cebollas y"),
    ("chinese", "北京是中国的首都，它"),
    ("mixed", "naïve café — “quotes”, emoji 🐦🧶, and\ttabs\n\n   then"),
    ("letter", "Dear Ms. Okafor,\n\nThank you for your letter of 3 March. I am pleased to"),
    ("chat-hello", chatml("Hello! Who are you?")),
    ("chat-gravity", chatml("What is gravity?")),
    ("chat-haiku", chatml("Write a haiku about geese.", "You answer briefly.")),
    ("chat-code", chatml("Write a Python function that reverses a string.")),
    ("chat-turns", chatml("Name a colour.") + "Blue.<|im_end|>\n<|im_start|>user\nAnother one, "
     "and say why.<|im_end|>\n<|im_start|>assistant\n"),
    ("long", HARBOUR * 8 + "One morning a boat came in that was in neither book. The harbour master"),
]


def decode_to_f32(path, out):
    """The same model with every tensor in F32."""
    r = gguf.GGUFReader(path)
    w = gguf.GGUFWriter(out, r.fields["general.architecture"].contents())
    for key, f in r.fields.items():
        if key.startswith("GGUF.") or key == "general.architecture":
            continue
        value = 0 if key == "general.file_type" else f.contents()
        array = f.types[0] == gguf.GGUFValueType.ARRAY
        w.add_key_value(key, value, f.types[0], sub_type=f.types[-1] if array else None)
    for t in r.tensors:
        data = gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float32)
        w.add_tensor(t.name, data.reshape([int(d) for d in reversed(t.shape)]))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


class Model:
    def __init__(self, folder, path):
        self.lib = open_library(folder)
        mp = self.lib.llama_model_default_params()
        mp.n_gpu_layers, mp.use_extra_bufts = 0, False
        self.model = self.lib.llama_model_load_from_file(path.encode(), mp)
        if not self.model:
            raise SystemExit(f"{path}: llama.cpp can't load it")
        self.vocab = self.lib.llama_model_get_vocab(self.model)
        self.n_vocab = self.lib.llama_vocab_n_tokens(self.vocab)

    def context(self, n_ctx=2048):
        cp = self.lib.llama_context_default_params()
        check_layout(cp)
        cp.n_ctx, cp.n_threads, cp.n_threads_batch, cp.flash_attn = n_ctx, 1, 1, 0
        return self.lib.llama_init_from_model(self.model, cp)

    def tokenize(self, text):
        raw, ids = text.encode(), (C.c_int32 * 4096)()
        n = self.lib.llama_tokenize(self.vocab, raw, len(raw), ids, 4096, True, True)
        return list(ids[:n])

    def decode(self, ctx, ids):
        """Logits behind the last of ids."""
        buf = (C.c_int32 * len(ids))(*ids)
        if self.lib.llama_decode(ctx, self.lib.llama_batch_get_one(buf, len(ids))):
            raise SystemExit("llama_decode failed")
        return np.ctypeslib.as_array(self.lib.llama_get_logits_ith(ctx, -1), (self.n_vocab,)).copy()

    def greedy(self, ids, n_gen):
        ctx = self.context()
        logits = first = self.decode(ctx, ids)
        gen, gap = [], []
        for _ in range(n_gen):
            second, best = np.sort(logits)[-2:]
            gen.append(int(np.argmax(logits)))
            gap.append(float(best - second))
            logits = self.decode(ctx, gen[-1:])
        self.lib.llama_free(ctx)
        return first, gen, gap


def record(model, name, text, n_gen, top):
    ids = model.tokenize(text)
    first, gen, gap = model.greedy(ids, n_gen)
    out = b""
    for s in (name.encode(), text.encode()):
        out += struct.pack("<I", len(s)) + s
    out += struct.pack("<I", len(ids)) + np.array(ids, "<i4").tobytes()
    out += struct.pack("<I", n_gen) + np.array(gen, "<i4").tobytes() + np.array(gap, "<f4").tobytes()
    out += struct.pack("<dI", float(np.linalg.norm(first.astype("f8"))), top)
    if top:
        best = np.argsort(-first, kind="stable")[:top]
        out += best.astype("<u4").tobytes() + first[best].astype("<f4").tobytes()
    else:
        out += first.astype("<f2").tobytes()
    print(f"{name}: {len(ids)} tokens, smallest gap {min(gap):.3f} at {int(np.argmin(gap))}")
    return out


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--lib", required=True)
    ap.add_argument("--top", type=int, default=0)
    ap.add_argument("--gen", type=int, default=48)
    ap.add_argument("--prompts", default="", help="names, comma-separated; all if empty")
    ap.add_argument("model")
    ap.add_argument("out")
    a = ap.parse_args()
    with tempfile.TemporaryDirectory() as tmp:
        f32 = os.path.join(tmp, "f32.gguf")
        decode_to_f32(a.model, f32)
        model = Model(a.lib, f32)
        chosen = [p for p in PROMPTS if not a.prompts or p[0] in a.prompts.split(",")]
        body = b"".join(record(model, name, text, a.gen, a.top) for name, text in chosen)
    with open(a.out, "wb") as f:
        f.write(b"SKGOLD1\0" + struct.pack("<II", model.n_vocab, len(chosen)) + body)


main()
