#!/usr/bin/env python3
"""Records the token ids of llama.cpp that the tokenizer's golden test compares with.

    record_tokens.py --lib libllama.so --models DIR [--vocabs] [--only NAME...]

Writes tests/golden/tokens/: corpus.txt (tools/token_corpus.py), with --vocabs also *.vocab (small
vocabularies trained on the corpus, with `pip install sentencepiece`), and per recording a *.ids
file: a few header lines, then one line per text with a 64-bit FNV-1a hash over two encodings of it
(special tokens parsed and nothing added; not parsed, BOS and EOS added), every 50th followed by the
ids of the first. --lib is llama.cpp's shared library, of the version named by STRUCT below; only
vocabularies are loaded. Needs `pip install gguf`.

A *.vocab file is a GGUF file's metadata as lines: str KEY VALUE, bool KEY 0|1, u32 KEY N, bytes KEY
HEX, t TYPE SCORE TEXT (a token), m LEFT RIGHT (a merge); texts are escaped as in corpus.txt, and
spaces in them as \\x20. `pairs all` stands for a merge of every two byte-level characters, with the
tokens that are new: so the ids show every place where a word ends.
"""

import argparse
import collections
import ctypes
import io
import os
import struct
import tempfile

import gguf

import token_corpus

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(HERE, "..", "tests", "golden", "tokens")
STRUCT = "v0.4.0"  # the release whose llama_model_params this mirrors

# One name of each row of src/formats/tokenizer_pre_tab.c that works on byte-level characters.
BPE_PRES = """default llama-bpe dbrx jais-2 deepseek-llm deepseek-coder deepseek-v3 youtu falcon smollm gpt-2
qwen2 qwen35 bloom viking tekken chameleon gpt-4o granite-embed-multi-97m tiny_aya superbpe bailingmoe seed-coder
kimi-k2 afmoe laguna exaone-moe minicpm5 jina-v2-code""".split()

# name: vocabulary, and what replaces or extends its metadata
RECORDINGS = {"pairs-" + pre: ("pairs", ["str tokenizer.ggml.pre " + pre]) for pre in BPE_PRES}
for pre in ("default", "llama-bpe", "smollm", "qwen2"):
    RECORDINGS["bpe-" + pre] = ("bpe", ["str tokenizer.ggml.pre " + pre])
RECORDINGS["raw-gemma4"] = ("raw", ["str tokenizer.ggml.pre gemma4"])
RECORDINGS["raw-sarvam-moe"] = ("raw", ["str tokenizer.ggml.pre sarvam-moe"])
RECORDINGS["spm"] = ("spm", [])
RECORDINGS["spm-no-prefix"] = ("spm", ["bool tokenizer.ggml.add_space_prefix 0", "bool tokenizer.ggml.add_eos_token 1"])
RECORDINGS["spm-phi3"] = ("spm", ["str general.name Phi-3 mini", "bool tokenizer.ggml.add_bos_token 0"])
RECORDINGS["ugm"] = ("ugm", [])
RECORDINGS["ugm-prefix"] = ("ugm", ["bool tokenizer.ggml.add_space_prefix 1"])
RECORDINGS["ugm-merge"] = ("ugm", ["bool tokenizer.ggml.add_space_prefix 1", "bool tokenizer.ggml.remove_extra_whitespaces 1"])
MODELS = {"smollm2": "SmolLM2-135M-Instruct.Q4_1.gguf", "gemma3": "gemma-3-270m-q4_k_m.gguf"}

NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = 1, 2, 3, 4, 5, 6


# ---- llama.cpp through ctypes -----------------------------------------------------------------


class Params(ctypes.Structure):
    _fields_ = [(n, ctypes.c_void_p) for n in ("devices", "overrides")] + \
               [(n, ctypes.c_int32) for n in ("n_gpu_layers", "split_mode", "load_mode", "lazy_mode", "main_gpu")] + \
               [(n, ctypes.c_void_p) for n in ("tensor_split", "progress", "progress_data", "kv_overrides")] + \
               [(n, ctypes.c_bool) for n in ("vocab_only", "check", "extra", "no_host", "no_alloc", "mtp")]


class Llama:
    def __init__(self, path):
        self.lib = lib = ctypes.CDLL(path)
        self.log = []
        self.on_log = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda _, t, __: self.log.append(t))
        lib.llama_log_set(self.on_log, None)
        lib.llama_model_default_params.restype = Params
        lib.llama_model_load_from_file.restype = ctypes.c_void_p
        lib.llama_model_load_from_file.argtypes = [ctypes.c_char_p, Params]
        lib.llama_model_get_vocab.restype = ctypes.c_void_p
        lib.llama_model_get_vocab.argtypes = [ctypes.c_void_p]
        lib.llama_model_free.argtypes = [ctypes.c_void_p]
        lib.llama_tokenize.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int32, ctypes.c_void_p, ctypes.c_int32,
                                       ctypes.c_bool, ctypes.c_bool]
        lib.llama_vocab_is_eog.argtypes = [ctypes.c_void_p, ctypes.c_int32]
        lib.llama_vocab_is_eog.restype = ctypes.c_bool
        lib.llama_vocab_bos.argtypes = lib.llama_vocab_n_tokens.argtypes = [ctypes.c_void_p]
        lib.llama_backend_init()

    def load(self, path):
        params = self.lib.llama_model_default_params()
        params.vocab_only = True
        self.model = self.lib.llama_model_load_from_file(path.encode(), params)
        if not self.model:
            raise RuntimeError(b"".join(self.log[-8:]).decode())
        self.vocab = self.lib.llama_model_get_vocab(self.model)

    def encode(self, text, add_special, parse_special):
        ids = (ctypes.c_int32 * (4 * len(text) + 16))()
        n = self.lib.llama_tokenize(self.vocab, text, len(text), ids, len(ids), add_special, parse_special)
        assert n >= 0
        return ids[:n]

    def eog(self):
        n = self.lib.llama_vocab_n_tokens(self.vocab)
        return [i for i in range(n) if self.lib.llama_vocab_is_eog(self.vocab, i)]


# ---- the small vocabularies -------------------------------------------------------------------


def byte_chars():
    """The character of each byte in byte-level BPE."""
    prints = [b for b in range(256) if 0x21 <= b <= 0x7e or 0xa1 <= b <= 0xff and b != 0xad]
    rest = [b for b in range(256) if b not in prints]
    return [chr(b) if b in prints else chr(256 + rest.index(b)) for b in range(256)]


def train_merges(lines, n):
    """Plain BPE over whole lines, so that merges reach across every place where a pre-tokenizer may cut."""
    lines = [list(x) for x in lines if x]
    merges = []
    while len(merges) < n:
        pairs = collections.Counter(p for x in lines for p in zip(x, x[1:]))
        left, right = max(pairs.items(), key=lambda kv: (kv[1], kv[0]))[0]
        merges.append((left, right))
        for k, x in enumerate(lines):
            if left not in x:
                continue
            out, i = [], 0
            while i < len(x):
                step = 2 if x[i] == left and x[i + 1:i + 2] == [right] else 1
                out.append("".join(x[i:i + step]))
                i += step
            lines[k] = out
    return merges


def token(kind, text, score):
    return "t %d %.9g %s" % (kind, score, token_corpus.escape(text.encode()).replace(" ", "\\x20"))


# A text that training has found too keeps its place and gets the kind given here.
SPECIALS = [(CONTROL, t) for t in ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|eot_id|>", "<|start_header_id|>", "<|fim_prefix|>",
                                   "<|end|>", "<mask>", "<bos>", "abc")] + \
           [(USER, t) for t in ("<think>", "</think>", "<tool_call>", "ab", "bcd", "   ", "\n\n\n", "<0xE4>")] + [(NORMAL, "<|eom_id|>")]


def tokens_of(tokens):
    """Token lines of (kind, text, score), with SPECIALS."""
    special = {t: k for k, t in SPECIALS}
    tokens = [(special.get(t, k) if k == NORMAL else k, t, s) for k, t, s in tokens]
    taken = {t for _, t, _ in tokens}
    return [token(*t) for t in tokens + [(k, t, 0.0) for k, t in SPECIALS if t not in taken]]


# Tokens that no merge makes: reached only where merges are ignored.
WORDS = (" yellow", "yellow", "HTTPServer", " mountain", "     ", "\n\n\n\n", "123", "1234", "\u673a\u5668")


def byte_level(text):
    chars = byte_chars()
    return "".join(chars[b] for b in text.encode())


def vocab_bpe(lines):
    merges = train_merges([byte_level(x) for x in lines], 900)
    return vocab_of_merges(merges) + ["m " + " ".join(token_corpus.escape(x.encode()) for x in m) for m in merges]


def vocab_pairs(_):
    return vocab_of_merges([]) + ["pairs all"]


def vocab_of_merges(merges):
    texts = byte_chars() + [a + b for a, b in merges] + [byte_level(w) for w in WORDS] + ["<|endoftext|>", "<bos>"]
    texts = list(dict.fromkeys(texts))
    return ["str tokenizer.ggml.model gpt2", "u32 tokenizer.ggml.bos_token_id %d" % texts.index("<bos>"),
            "u32 tokenizer.ggml.eos_token_id %d" % texts.index("<|endoftext|>")] + tokens_of([(NORMAL, t, 0.0) for t in texts])


def vocab_raw(lines):
    pieces = [p for x in lines for p in x.replace(" ", "\u2581").split("\n") if p]
    merges = train_merges(pieces, 600)
    common = collections.Counter(c for p in pieces for c in p)
    texts = list(dict.fromkeys([c for c, n in common.most_common(700)] + [a + b for a, b in merges]))
    texts += ["\n" * n for n in (1, 2, 4, 5, 8)]
    return ["str tokenizer.ggml.model gpt2", "u32 tokenizer.ggml.bos_token_id 1", "u32 tokenizer.ggml.eos_token_id 2"] + \
        tokens_of([(UNKNOWN, "<unk>", 0.0), (CONTROL, "<bos>", 0.0), (CONTROL, "<eos>", 0.0)] +
                  [(BYTE, "<0x%02X>" % b, 0.0) for b in range(256)] + [(NORMAL, t, 0.0) for t in texts]) + \
        ["m " + " ".join(token_corpus.escape(x.encode()) for x in m) for m in merges]


def fields(data):
    """A protobuf message as (field number, value) pairs: bytes, or the raw number."""
    at = 0

    def varint():
        nonlocal at
        v = shift = 0
        while True:
            b = data[at]
            at += 1
            v |= (b & 127) << shift
            shift += 7
            if b < 128:
                return v

    while at < len(data):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
            continue
        n = {1: 8, 5: 4}.get(key & 7) or varint()
        yield key >> 3, data[at:at + n]
        at += n


def train_sentencepiece(lines, **options):
    import sentencepiece
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([x.replace("\n", " ") for x in lines if x.strip() and "\0" not in x]), model_writer=model,
        character_coverage=0.98, max_sentence_length=10000, num_threads=1, minloglevel=2, hard_vocab_limit=False, **options)
    tokens, charsmap = [], b""
    for number, value in fields(model.getvalue()):
        if number == 1:
            piece = dict(fields(value))
            tokens.append((piece.get(3, NORMAL), piece[1].decode(), struct.unpack("<f", piece.get(2, bytes(4)))[0]))
        elif number == 3:
            charsmap = dict(fields(value)).get(2, b"")
    return tokens, charsmap


def vocab_spm(lines):
    tokens, _ = train_sentencepiece(lines, model_type="bpe", vocab_size=1500, byte_fallback=True, normalization_rule_name="identity",
                                    remove_extra_whitespaces=False, add_dummy_prefix=False)
    return ["str tokenizer.ggml.model llama"] + tokens_of(tokens)


def vocab_ugm(lines):
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as rules:
        for source, target in [("\u00a0", " "), ("\u3000", " "), ("\t", " "), ("\n", " "), ("\u200b", ""), ("\ufb01", "fi"), ("\u2026", "..."),
                               ("\uff01", "!"), ("e\u0301", "\u00e9"), ("a\u0308", "\u00e4"), ("\uff76\uff9e", "\u30ac"), ("\uff76", "\u30ab")] + \
                              [(chr(0xff21 + i), chr(0x41 + i)) for i in range(26)]:
            rules.write("%s\t%s\n" % (" ".join("%X" % ord(c) for c in source), " ".join("%X" % ord(c) for c in target)))
        rules.flush()
        tokens, charsmap = train_sentencepiece(lines, model_type="unigram", vocab_size=1200, normalization_rule_tsv=rules.name,
                                               pad_id=0, eos_id=1, unk_id=2, bos_id=-1, remove_extra_whitespaces=False)
    tokens = [t for t in tokens if t[1] != "\ua66e"]  # only two of them in a row are a token
    tokens += [(USER, t, 0.0) for t in ("<extra_id_0>", "<extra_id_1>", "\uff21bc")] + \
        [(UNUSED, "\u2581antidis", -3.0), (NORMAL, "\ua66e\ua66e", -5.0)]
    return ["str tokenizer.ggml.model t5", "bytes tokenizer.ggml.precompiled_charsmap " + charsmap.hex()] + tokens_of(tokens)


# ---- files ------------------------------------------------------------------------------------


def unescape(text):
    out, i = b"", 0
    while i < len(text):
        n = 1 if text[i] != "\\" else 4 if text[i + 1] == "x" else 2
        if n == 4:
            out += bytes([int(text[i + 2:i + 4], 16)])
        else:
            out += text[i].encode() if n == 1 else {"n": b"\n", "r": b"\r", "t": b"\t", "\\": b"\\"}[text[i + 1]]
        i += n
    return out


def write_gguf(path, lines):
    w = gguf.GGUFWriter(path, "llama")
    for key, v in (("context_length", 64), ("embedding_length", 64), ("block_count", 1), ("feed_forward_length", 64), ("attention.head_count", 1)):
        w.add_uint32("llama." + key, v)
    w.add_float32("llama.attention.layer_norm_rms_epsilon", 1e-5)
    kinds, scores, texts, merges, other = [], [], [], [], {}
    for line in lines:
        what, rest = line.split(" ", 1)
        if what == "t":
            kind, score, text = rest.split(" ")
            kinds.append(int(kind)), scores.append(float(score)), texts.append(unescape(text))
        elif what == "m":
            merges.append(b" ".join(unescape(x) for x in rest.split(" ")))
        elif what == "pairs":
            taken, chars = set(texts), [c.encode() for c in byte_chars()]
            for a, b in ((a, b) for a in chars for b in chars):
                merges.append(a + b" " + b)
                if a + b not in taken:
                    kinds.append(NORMAL), scores.append(0.0), texts.append(a + b)
        else:
            other[rest.split(" ")[0]] = (what, rest.split(" ", 1)[1])
    for key, (what, value) in other.items():
        if what == "bytes":
            w.add_array(key, bytes.fromhex(value))
        else:
            {"str": w.add_string, "u32": lambda k, v: w.add_uint32(k, int(v)), "bool": lambda k, v: w.add_bool(k, v == "1")}[what](key, value)
    w.add_token_list(texts)
    w.add_token_scores(scores)
    w.add_token_types(kinds)
    if merges:
        w.add_array("tokenizer.ggml.merges", merges)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.close()


def fnv(ids):
    h = 0xcbf29ce484222325
    for b in struct.pack("<%di" % len(ids), *ids):
        h = (h ^ b) * 0x100000001b3 & (1 << 64) - 1
    return h


def record(llama, name, header, path, texts):
    llama.load(path)
    bos = llama.lib.llama_vocab_bos(llama.vocab)
    out = ["# llama.cpp " + STRUCT] + header + ["eog " + " ".join(map(str, llama.eog()))]
    for i, text in enumerate(texts):
        parsed, added = llama.encode(text, False, True), llama.encode(text, True, False)
        assert not (len(added) > 1 and added[0] == added[1] == bos), "llama.cpp doubles BOS; skein does not"
        out.append("%016x" % fnv(parsed + [-1] + added) + ("" if i % 50 else "".join(" %d" % t for t in parsed)))
    llama.lib.llama_model_free(llama.model)
    with open(os.path.join(OUT, name + ".ids"), "w") as f:
        f.write("\n".join(out) + "\n")
    print(name, len(texts))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--lib", required=True)
    p.add_argument("--models", required=True, help="folder with the files of MODELS")
    p.add_argument("--vocabs", action="store_true", help="train the vocabularies again")
    p.add_argument("--only", nargs="*", default=[], help="names of recordings")
    args = p.parse_args()
    os.makedirs(OUT, exist_ok=True)
    texts = token_corpus.corpus()
    with open(os.path.join(OUT, "corpus.txt"), "w") as f:
        f.write("".join(token_corpus.escape(t) + "\n" for t in texts))
    assert [unescape(token_corpus.escape(t)) for t in texts] == texts
    if args.vocabs:
        lines = [t.decode() for t in texts if t.decode(errors="ignore").encode() == t]
        for name, make in (("bpe", vocab_bpe), ("pairs", vocab_pairs), ("raw", vocab_raw), ("spm", vocab_spm), ("ugm", vocab_ugm)):
            with open(os.path.join(OUT, name + ".vocab"), "w") as f:
                f.write("\n".join(make(lines)) + "\n")
    llama = Llama(args.lib)
    wanted = lambda name: not args.only or name in args.only
    for name, (vocab, extra) in RECORDINGS.items():
        if not wanted(name):
            continue
        with open(os.path.join(OUT, vocab + ".vocab")) as f, tempfile.NamedTemporaryFile(suffix=".gguf") as t:
            write_gguf(t.name, f.read().splitlines() + extra)
            record(llama, name, ["vocab " + vocab] + extra, t.name, texts)
    for name, file in MODELS.items():
        if wanted(name):
            record(llama, name, ["model " + file], os.path.join(args.models, file), texts)


if __name__ == "__main__":
    main()
