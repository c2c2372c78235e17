#include "kernels/ref/ref.h"

#include "kernels/sets.h"

void ref_fill(struct kernels *k) {
    *k = (struct kernels){
        .set = "ref",
        .act_q = ref_act_q,
        .words_from = UINT32_MAX,
        .rms_norm = ref_rms_norm,
        .add = ref_add,
        .scale = ref_scale,
        .softcap = ref_softcap,
        .softmax = ref_softmax,
        .silu_mul = ref_silu_mul,
        .gelu_mul = ref_gelu_mul,
        .rope = ref_rope,
        .to_f16 = ref_to_f16,
        .from_f16 = ref_from_f16,
        .attend = ref_attend,
        .attend_merge = ref_attend_merge,
    };
    for (u32 i = 0; i < REF_N_MATMUL; i++) k->matmul[REF_MATMUL[i].type] = &REF_MATMUL[i];
}
