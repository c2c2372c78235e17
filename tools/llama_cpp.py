"""The part of llama.cpp's C interface that recordings and benchmarks call, through ctypes.

The struct layouts are those of release v0.4.0, which the npm package @node-llama-cpp/linux-x64 3.21.1
has prebuilt; callers check them against known defaults with check_layout.
"""
import ctypes as C
import os

LOAD_MODE_NONE = 0


class ModelParams(C.Structure):
    _fields_ = [("devices", C.c_void_p), ("buft_overrides", C.c_void_p), ("n_gpu_layers", C.c_int32),
                ("split_mode", C.c_int), ("load_mode", C.c_int), ("lazy_mode", C.c_int),
                ("main_gpu", C.c_int32), ("tensor_split", C.c_void_p), ("progress", C.c_void_p),
                ("progress_ctx", C.c_void_p), ("kv_overrides", C.c_void_p), ("vocab_only", C.c_bool),
                ("check_tensors", C.c_bool), ("use_extra_bufts", C.c_bool), ("no_host", C.c_bool),
                ("no_alloc", C.c_bool), ("load_mtp", C.c_bool)]


class ContextParams(C.Structure):
    _fields_ = [(n, C.c_uint32) for n in ("n_ctx", "n_batch", "n_ubatch", "n_seq_max", "n_rs_seq",
                                          "n_outputs_max", "n_outputs_max_per_seq")]
    _fields_ += [(n, C.c_int32) for n in ("n_threads", "n_threads_batch", "ctx_type", "rope_scaling",
                                          "pooling", "attention", "flash_attn")]
    _fields_ += [(n, C.c_float) for n in ("rope_base", "rope_scale", "yarn_ext", "yarn_attn",
                                          "yarn_fast", "yarn_slow")]
    _fields_ += [("yarn_orig_ctx", C.c_uint32), ("defrag_thold", C.c_float), ("cb_eval", C.c_void_p),
                 ("cb_eval_ctx", C.c_void_p), ("type_k", C.c_int), ("type_v", C.c_int),
                 ("abort", C.c_void_p), ("abort_ctx", C.c_void_p)]
    _fields_ += [(n, C.c_bool) for n in ("embeddings", "offload_kqv", "no_perf", "op_offload",
                                         "swa_full", "kv_unified")]
    _fields_ += [("samplers", C.c_void_p), ("n_samplers", C.c_size_t), ("ctx_other", C.c_void_p)]


class Batch(C.Structure):
    _fields_ = [("n_tokens", C.c_int32)] + [(n, C.c_void_p) for n in (
        "token", "embd", "pos", "n_seq_id", "seq_id", "logits")]


QUIET = C.CFUNCTYPE(None, C.c_int, C.c_char_p, C.c_void_p)(lambda level, text, ctx: None)


def open_library(folder):
    """libllama with its CPU backend loaded and the signatures used here set."""
    found = {n.split(".")[0]: os.path.join(folder, n) for n in sorted(os.listdir(folder))}
    C.CDLL(found["libggml-base"], mode=C.RTLD_GLOBAL)
    ggml = C.CDLL(found["libggml"], mode=C.RTLD_GLOBAL)
    lib = C.CDLL(found["libllama"], mode=C.RTLD_GLOBAL)
    lib.llama_log_set(QUIET, None)
    ggml.ggml_backend_load_all_from_path(folder.encode())
    p, i32 = C.c_void_p, C.c_int32
    for name, res, args in (
            ("llama_model_default_params", ModelParams, []),
            ("llama_context_default_params", ContextParams, []),
            ("llama_model_load_from_file", p, [C.c_char_p, ModelParams]),
            ("llama_init_from_model", p, [p, ContextParams]),
            ("llama_free", None, [p]),
            ("llama_model_get_vocab", p, [p]),
            ("llama_vocab_n_tokens", i32, [p]),
            ("llama_tokenize", i32, [p, C.c_char_p, i32, p, i32, C.c_bool, C.c_bool]),
            ("llama_batch_get_one", Batch, [p, i32]),
            ("llama_decode", i32, [p, Batch]),
            ("llama_get_logits_ith", C.POINTER(C.c_float), [p, i32]),
            ("llama_get_memory", p, [p]),
            ("llama_memory_clear", None, [p, C.c_bool]),
            ("llama_synchronize", None, [p])):
        fn = getattr(lib, name)
        fn.restype, fn.argtypes = res, args
    return lib


def check_layout(context_params):
    """ContextParams as the library fills them: nonsense where the layout is another."""
    cp = context_params
    assert cp.n_ubatch == 512 and cp.yarn_ext == -1 and cp.type_k == 1, "another struct layout"
