/* toymodel_impl.h - what the two files of the toy model generator share. */
#pragma once

#include "formats/toymodel.h"

enum toymodel_vocab { TOYMODEL_VOCAB_BPE, TOYMODEL_VOCAB_SPM_LLAMA, TOYMODEL_VOCAB_SPM_GEMMA };

struct toymodel_family {
    const char *name, *arch; /* the option and general.architecture */
    enum toymodel_vocab vocab;
    const char *pre; /* tokenizer.ggml.pre */
    float rope_theta, rms_eps;
    /* Embedding rows get this norm, and output_norm this mean; together they give logits of a few
     * units that depend on the context more than on the last token. */
    float embed_norm, out_norm;
    bool qkv_bias, qk_norm, post_norm, tied, key_length;
};

/* The least n_vocab that the kind of vocabulary needs. */
u32 toymodel_vocab_least(enum toymodel_vocab kind);
/* The tokenizer.* keys. */
void toymodel_vocab_write(const struct toymodel *m, struct gguf_writer *w);
