#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "formats/toymodel_impl.h"

/* Vocabularies of the toy models: special tokens, all bytes, common English merges, and fillers up
 * to the wanted size. Token types are those of tokenizer.ggml.token_type. */

enum { NORMAL = 1, UNKNOWN = 2, CONTROL = 3, BYTE = 6 };

/* In the order of a trained merge list: both halves exist before they are joined. "Ġ" (U+0120)
 * stands for a space in byte-level BPE; in SentencePiece vocabularies it becomes U+2581. */
static const char *const MERGES[] = {
    "Ġ t",   "Ġ a",  "h e",   "i n",    "r e",   "o n",    "Ġt he",   "e r",  "Ġ s",   "a t",
    "Ġ o",   "n d",  "i s",   "o r",    "Ġ w",   "e n",    "i t",     "o u",  "e s",   "in g",
    "Ġ c",   "a n",  "e d",   "l l",    "Ġ p",   "Ġa nd",  "a l",     "Ġ b",  "o m",   "Ġ f",
    "a r",   "Ġ h",  "Ġt o",  "Ġo f",   "Ġ m",   "l e",    "Ġ in",    "a s",  "Ġw h",  "r o",
    "Ġ d",   "i c",  "e l",   "Ġ l",    "v e",   "Ġ is",   "Ġth at",  "Ġ y",  "Ġy ou", "Ġ he",
    "i on",  "e nt", "s t",   "Ġwh at", "Ġs t",  "Ġ it",   "Ġ on",    "Ġb e", "Ġf or", "o w",
    "Ġwh o", "H e",  "He ll", "Hell o", "Ġw or", "Ġwor l", "Ġworl d",
};

struct vocab {
    struct str tokens, types, scores;
    u32 n;
};

static void add_token(struct vocab *v, const char *text, i32 type, float score) {
    gguf_writer_add_str(&v->tokens, view_of(text));
    wr_u32(&v->types, (u32)type);
    wr_f32(&v->scores, score);
    v->n++;
}

static void add_special(struct vocab *v, const char *const *texts, size_t n) {
    for (size_t i = 0; i < n; i++)
        add_token(v, texts[i], strcmp(texts[i], "<unk>") == 0 ? UNKNOWN : CONTROL, -1000);
}

static void add_fillers(struct vocab *v, const char *space, u32 n_vocab) {
    for (u32 first = v->n; v->n < n_vocab;) {
        char text[32];
        snprintf(text, sizeof text, "%sw%u", space, v->n - first);
        add_token(v, text, NORMAL, -(float)v->n);
    }
}

static void write_tokens(struct vocab *v, bool scores, struct gguf_writer *w) {
    gguf_writer_array(w, "tokenizer.ggml.tokens", GGUF_STR, v->n, v->tokens.p, v->tokens.n);
    if (scores)
        gguf_writer_array(w, "tokenizer.ggml.scores", GGUF_F32, v->n, v->scores.p, v->scores.n);
    gguf_writer_array(w, "tokenizer.ggml.token_type", GGUF_I32, v->n, v->types.p, v->types.n);
    str_deinit(&v->tokens);
    str_deinit(&v->types);
    str_deinit(&v->scores);
}

/* A merge as one token: the halves joined, with `space` for "Ġ". */
static void joined(const char *merge, const char *space, char out[32]) {
    size_t n = 0;
    for (const char *p = merge; *p; p++) {
        if (*p == ' ') continue;
        if (strncmp(p, "Ġ", 2) == 0) {
            memcpy(out + n, space, strlen(space));
            n += strlen(space);
            p++;
        } else {
            out[n++] = *p;
        }
    }
    out[n] = 0;
}

static const char *const BPE_SPECIAL[] = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};

static const char CHATML[] = "{% for message in messages %}{{ '<|im_start|>' + message['role'] + "
                             "'\n' + message['content'] + "
                             "'<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ "
                             "'<|im_start|>assistant\n' }}{% endif %}";

/* GPT-2's printable stand-ins: bytes that are visible in Latin-1 stand for themselves, the others
 * for U+0100 onwards in order. */
static void byte_text(u32 byte, u32 *next, char out[5]) {
    bool visible = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
    int n = utf8_encode(visible ? byte : 0x100 + (*next)++, out);
    out[n] = 0;
}

static void write_bpe(const struct toymodel *m, struct gguf_writer *w) {
    struct vocab v = {0};
    struct str merges = {0};
    u32 next = 0, n_merges = 0;
    char text[32];
    add_special(&v, BPE_SPECIAL, ARRAY_LEN(BPE_SPECIAL));
    for (u32 b = 0; b < 256; b++) {
        byte_text(b, &next, text);
        add_token(&v, text, NORMAL, 0);
    }
    for (; n_merges < ARRAY_LEN(MERGES) && v.n < m->spec.n_vocab; n_merges++) {
        joined(MERGES[n_merges], "Ġ", text);
        add_token(&v, text, NORMAL, 0);
        gguf_writer_add_str(&merges, view_of(MERGES[n_merges]));
    }
    add_fillers(&v, "Ġ", m->spec.n_vocab);
    gguf_writer_str(w, "tokenizer.ggml.model", "gpt2");
    gguf_writer_str(w, "tokenizer.ggml.pre", m->family->pre);
    write_tokens(&v, false, w);
    gguf_writer_array(w, "tokenizer.ggml.merges", GGUF_STR, n_merges, str_z(&merges), merges.n);
    gguf_writer_u32(w, "tokenizer.ggml.bos_token_id", 1);
    gguf_writer_u32(w, "tokenizer.ggml.eos_token_id", 2);
    gguf_writer_u32(w, "tokenizer.ggml.padding_token_id", 0);
    gguf_writer_bool(w, "tokenizer.ggml.add_bos_token", false);
    gguf_writer_str(w, "tokenizer.chat_template", CHATML);
    str_deinit(&merges);
}

static const struct spm {
    const char *special[6];
    u32 n_special, bos, eos, unk;
    bool space_prefix;
    const char *chat_template;
} SPM_LLAMA =
    {
        .special = {"<unk>", "<s>", "</s>"},
        .n_special = 3,
        .unk = 0,
        .bos = 1,
        .eos = 2,
        .space_prefix = true,
        .chat_template = "{{ bos_token }}{% for message in messages %}{% if message['role'] == "
                         "'assistant' %}{{ ' ' + "
                         "message['content'] + eos_token }}{% else %}{{ '[INST] ' + "
                         "message['content'] + ' [/INST]' }}"
                         "{% endif %}{% endfor %}",
},
  SPM_GEMMA = {
      .special = {"<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>"},
      .n_special = 6,
      .unk = 3,
      .bos = 2,
      .eos = 1,
      .space_prefix = false,
      .chat_template =
          "{{ bos_token }}{% for message in messages %}{{ '<start_of_turn>' + ('model' if "
          "message['role'] "
          "== 'assistant' else message['role']) + '\n' + message['content'] + '<end_of_turn>\n' }}"
          "{% endfor %}{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}",
};

enum { N_SPM_CHARS = 1 + 0x7E - 0x21 + 1 }; /* the space and the visible ASCII characters */

/* SentencePiece joins the pair whose piece has the highest score, so scores fall with the rank. */
static void write_spm(const struct toymodel *m, const struct spm *s, struct gguf_writer *w) {
    static const char SPACE[] = "\xE2\x96\x81"; /* U+2581 */
    struct vocab v = {0};
    char text[32];
    add_special(&v, s->special, s->n_special);
    for (u32 b = 0; b < 256; b++) {
        snprintf(text, sizeof text, "<0x%02X>", b);
        add_token(&v, text, BYTE, -1000);
    }
    add_token(&v, SPACE, NORMAL, -900);
    for (char c = 0x21; c <= 0x7E; c++) add_token(&v, (char[]){c, 0}, NORMAL, -900);
    for (u32 i = 0; i < ARRAY_LEN(MERGES) && v.n < m->spec.n_vocab; i++) {
        joined(MERGES[i], SPACE, text);
        add_token(&v, text, NORMAL, -(float)i);
    }
    add_fillers(&v, SPACE, m->spec.n_vocab);
    gguf_writer_str(w, "tokenizer.ggml.model", "llama");
    gguf_writer_str(w, "tokenizer.ggml.pre", m->family->pre);
    write_tokens(&v, true, w);
    gguf_writer_u32(w, "tokenizer.ggml.bos_token_id", s->bos);
    gguf_writer_u32(w, "tokenizer.ggml.eos_token_id", s->eos);
    gguf_writer_u32(w, "tokenizer.ggml.unknown_token_id", s->unk);
    gguf_writer_bool(w, "tokenizer.ggml.add_bos_token", true);
    gguf_writer_bool(w, "tokenizer.ggml.add_eos_token", false);
    gguf_writer_bool(w, "tokenizer.ggml.add_space_prefix", s->space_prefix);
    gguf_writer_str(w, "tokenizer.chat_template", s->chat_template);
}

u32 toymodel_vocab_least(enum toymodel_vocab kind) {
    switch (kind) {
    case TOYMODEL_VOCAB_BPE: return ARRAY_LEN(BPE_SPECIAL) + 256;
    case TOYMODEL_VOCAB_SPM_LLAMA: return SPM_LLAMA.n_special + 256 + N_SPM_CHARS;
    case TOYMODEL_VOCAB_SPM_GEMMA: return SPM_GEMMA.n_special + 256 + N_SPM_CHARS;
    }
    return 0;
}

void toymodel_vocab_write(const struct toymodel *m, struct gguf_writer *w) {
    switch (m->family->vocab) {
    case TOYMODEL_VOCAB_BPE: write_bpe(m, w); break;
    case TOYMODEL_VOCAB_SPM_LLAMA: write_spm(m, &SPM_LLAMA, w); break;
    case TOYMODEL_VOCAB_SPM_GEMMA: write_spm(m, &SPM_GEMMA, w); break;
    }
}
