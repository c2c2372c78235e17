#!/usr/bin/env python3
"""Records what transformers computes on tiny models, for tests/golden/transformers_test.c.

    make build/mkmodel && record_transformers.py build/mkmodel tests/golden/logits/transformers.bin

Needs torch, transformers and gguf (PyPI), CPU only. mkmodel writes a model with random F32 weights
in the layout of llama.cpp's converters; here the tensors go back to the names and the layout of
transformers, whose forward pass in F32 is the reference. The test writes the same model with the
same arguments, so only logits are stored.

The file, little-endian: "SKTF0001", u32 n_cases, then per case
    u32 bytes, mkmodel's arguments joined by single spaces
    u32 n_tok, u32 ids[n_tok]
    u32 n_rows, u32 rows[n_rows]    positions that were recorded
    u32 n_vocab, f32 logits[n_rows][n_vocab]
"""
import os
import struct
import subprocess
import sys
import tempfile

import gguf
import numpy as np
import torch
import transformers as tf

N_TOK = 48
CASES = [
    "--arch llama --layers 3",
    "--arch llama --tied --heads 4 --kv-heads 4 --dim 128 --ffn 96",
    "--arch llama --rope-scaling linear --rope-factor 4",
    "--arch llama --rope-scaling llama3 --rope-factor 8 --dim 128 --ctx 256",
    "--arch llama --rope-scaling yarn --rope-factor 4 --dim 128 --ctx 128",
    "--arch mistral --heads 6 --kv-heads 2 --head-dim 32",
    "--arch qwen2 --layers 3 --heads 4 --kv-heads 1",
    "--arch qwen2 --rope-scaling yarn --rope-factor 2 --dim 128 --ctx 64",
    "--arch qwen3 --layers 3 --head-dim 32",
    "--arch qwen3 --tied --rope-scaling yarn --dim 128 --ctx 128",
    "--arch gemma2 --layers 3 --head-dim 32 --sliding-window 16",
    "--arch gemma2 --layers 4 --head-dim 32 --sliding-window 8 --softcap 3",
    "--arch gemma3 --layers 7 --head-dim 32 --sliding-window 16",
    "--arch gemma3 --layers 4 --head-dim 32 --sliding-window 8 --sliding-pattern 2 --softcap 5",
    "--arch gemma3 --layers 6 --head-dim 32 --sliding-window 16 --rope-scaling linear",
]

LAYER = {
    "attn_norm.weight": "input_layernorm.weight",
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
    "ffn_norm.weight": "post_attention_layernorm.weight",
}
GEMMA_LAYER = LAYER | {
    "post_attention_norm.weight": "post_attention_layernorm.weight",
    "ffn_norm.weight": "pre_feedforward_layernorm.weight",
    "post_ffw_norm.weight": "post_feedforward_layernorm.weight",
}
GLOBAL = {"token_embd.weight": "model.embed_tokens.weight", "output.weight": "lm_head.weight",
          "output_norm.weight": "model.norm.weight"}


class File:
    def __init__(self, path):
        self.reader = gguf.GGUFReader(path)
        self.arch = self.reader.fields["general.architecture"].contents()
        self.tensors = {t.name: t for t in self.reader.tensors}

    def key(self, suffix, default=None):
        f = self.reader.fields.get(f"{self.arch}.{suffix}")
        return f.contents() if f else default


def interleaved_to_halves(w, n_heads):
    """Undoes the row order that converters give q and k of llama files: (2i, 2i+1) to (i, i+d/2)."""
    d = w.shape[0] // n_heads
    return w.reshape(n_heads, d // 2, 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def state_dict(f):
    names = GEMMA_LAYER if f.arch.startswith("gemma") else LAYER
    out = {}
    for name, t in f.tensors.items():
        w = np.array(t.data, dtype=np.float32).reshape([int(d) for d in reversed(t.shape)])
        if name == "rope_freqs.weight":
            continue
        if f.arch == "llama" and (".attn_q." in name or ".attn_k." in name):
            q = ".attn_q." in name
            w = interleaved_to_halves(w, f.key("attention.head_count" + ("" if q else "_kv")))
        if f.arch.startswith("gemma") and name.endswith("norm.weight"):
            w = w - 1
        if name.startswith("blk."):
            _, il, rest = name.split(".", 2)
            stem, kind = rest.rsplit(".", 1)
            new = f"model.layers.{il}." + (names[rest] if rest in names else f"{names[stem]}.{kind}")
        else:
            new = GLOBAL[name]
        out[new] = torch.from_numpy(w.copy())
    return out


def rope_parameters(f, argv):
    """The rule in transformers' words. A llama3 file holds only its result, so that comes from argv."""
    theta = f.key("rope.freq_base")
    kind, factor = f.key("rope.scaling.type"), f.key("rope.scaling.factor")
    if "rope_freqs.weight" in f.tensors:
        factor = float(argv[argv.index("--rope-factor") + 1])
        return {"rope_type": "llama3", "rope_theta": theta, "factor": factor, "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": int(f.key("context_length") / factor)}
    if kind == "linear":
        return {"rope_type": "linear", "rope_theta": theta, "factor": factor}
    if kind == "yarn":
        return {"rope_type": "yarn", "rope_theta": theta, "factor": factor,
                "original_max_position_embeddings": f.key("rope.scaling.original_context_length")}
    return {"rope_type": "default", "rope_theta": theta}


def config(f, argv, cls):
    heads = f.key("attention.head_count")
    c = {"vocab_size": int(f.tensors["token_embd.weight"].shape[1]),
         "hidden_size": f.key("embedding_length"), "intermediate_size": f.key("feed_forward_length"),
         "num_hidden_layers": f.key("block_count"), "num_attention_heads": heads,
         "num_key_value_heads": f.key("attention.head_count_kv"),
         "head_dim": f.key("attention.key_length", f.key("rope.dimension_count",
                                                         f.key("embedding_length") // heads)),
         "rms_norm_eps": f.key("attention.layer_norm_rms_epsilon"),
         "max_position_embeddings": f.key("context_length"),
         "tie_word_embeddings": "output.weight" not in f.tensors,
         "rope_parameters": rope_parameters(f, argv), "sliding_window": None,
         "attn_implementation": "eager"}
    if f.arch.startswith("gemma"):
        n = f.key("attention.sliding_window_pattern", 2 if f.arch == "gemma2" else 6)
        c |= {"sliding_window": f.key("attention.sliding_window"),
              "layer_types": ["sliding_attention" if (i + 1) % n else "full_attention"
                              for i in range(c["num_hidden_layers"])],
              "query_pre_attn_scalar": c["head_dim"],
              "final_logit_softcapping": f.key("final_logit_softcapping")}
    if f.arch == "gemma2":
        c |= {"final_logit_softcapping": f.key("final_logit_softcapping", 30.0),
              "attn_logit_softcapping": f.key("attn_logit_softcapping", 50.0)}
    if f.arch == "gemma3":
        c |= {"rope_parameters": {"full_attention": c["rope_parameters"], "sliding_attention": {
                  "rope_type": "default", "rope_theta": 10000.0}}}
    return cls(**c)


FAMILIES = {"llama": (tf.LlamaConfig, tf.LlamaForCausalLM),
            "mistral": (tf.MistralConfig, tf.MistralForCausalLM),
            "qwen2": (tf.Qwen2Config, tf.Qwen2ForCausalLM),
            "qwen3": (tf.Qwen3Config, tf.Qwen3ForCausalLM),
            "gemma2": (tf.Gemma2Config, tf.Gemma2ForCausalLM),
            "gemma3": (tf.Gemma3TextConfig, tf.Gemma3ForCausalLM)}


def run(args, mkmodel, tmp):
    argv, path = args.split(), os.path.join(tmp, "m.gguf")
    subprocess.run([mkmodel, *argv, path], check=True)
    f = File(path)
    config_cls, model_cls = FAMILIES[argv[1]]
    model = model_cls(config(f, argv, config_cls)).float().eval()
    missing, unexpected = model.load_state_dict(state_dict(f), strict=False)
    assert not unexpected and all(m == "lm_head.weight" for m in missing), (missing, unexpected)
    model.tie_weights()
    ids = np.random.default_rng(1).integers(0, model.config.vocab_size, N_TOK, dtype=np.uint32)
    with torch.no_grad():
        logits = model(torch.from_numpy(ids.astype(np.int64))[None]).logits[0].numpy()
    rows = np.arange(3, N_TOK, 4, dtype=np.uint32)
    print(f"{args}: logits {logits.mean():.3f} +- {logits.std():.3f}")
    out = struct.pack("<I", len(args)) + args.encode()
    out += struct.pack("<I", N_TOK) + ids.tobytes() + struct.pack("<I", len(rows)) + rows.tobytes()
    return out + struct.pack("<I", logits.shape[1]) + logits[rows].astype("<f4").tobytes()


def main():
    mkmodel, out = sys.argv[1:]
    with tempfile.TemporaryDirectory() as tmp:
        body = b"".join(run(args, mkmodel, tmp) for args in CASES)
    with open(out, "wb") as f:
        f.write(b"SKTF0001" + struct.pack("<I", len(CASES)) + body)


main()
