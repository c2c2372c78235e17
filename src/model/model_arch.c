#include "model/model_arch.h"

#include <string.h>

#include "model/model_impl.h"

#define KNOWN "llama, qwen2, qwen3, gemma2, gemma3"

static const struct arch ARCHS[] = {
    {.name = "llama", .rope_layout = ROPE_NORM, .forward = llama_forward},
    {.name = "qwen2", .rope_layout = ROPE_NEOX, .qkv_bias = true, .forward = llama_forward},
    {.name = "qwen3", .rope_layout = ROPE_NEOX, .qk_norm = true, .forward = llama_forward},
    {.name = "gemma2",
     .rope_layout = ROPE_NEOX,
     .post_norms = true,
     .embed_scaled = true,
     .sliding_window = 4096,
     .sliding_pattern = 2,
     .attn_softcap = 50,
     .logit_softcap = 30,
     .n_layers_27b = 46,
     .forward = gemma_forward},
    {.name = "gemma3",
     .rope_layout = ROPE_NEOX,
     .qk_norm = true,
     .post_norms = true,
     .embed_scaled = true,
     .sliding_pattern = 6,
     .rope_theta_local = 10000,
     .n_layers_27b = 62,
     .forward = gemma_forward},
};

const struct arch *model_arch_find(const char *name) {
    for (size_t i = 0; i < ARRAY_LEN(ARCHS); i++)
        if (!strcmp(ARCHS[i].name, name)) return &ARCHS[i];
    return NULL;
}

const char *model_arch_known(void) {
    return KNOWN;
}
