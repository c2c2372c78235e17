#include "wire/msg_place.h"

/* As in msg.c: F(tag, kind, field), S(tag, kind, field, table); a tag is never reused. */
#define F(t, k, f)      {t, WIRE_##k, offsetof(struct MSG, f), NULL},
#define S(t, k, f, tab) {t, WIRE_##k, offsetof(struct MSG, f), &tab},
#define ROWS(var, name) \
    { name, sizeof(struct MSG), ARRAY_LEN(var##_FIELDS), var##_FIELDS }

#define MSG msg_layer_cost
static const struct wire_field LAYER_COST_FIELDS[] = {
    F(1, U64, attn_bytes) F(2, U64, ffn_bytes) F(3, U64, fixed_bytes) F(4, U64, attn_ops)
        F(5, U64, ffn_ops) F(6, U64, attend_ops) F(7, U32, window) F(8, U32, n_sums)
            F(9, U32, n_calls) F(10, U64, act_bytes)
                F(11, U64, act_whole_bytes)};
const struct wire_table MSG_LAYER_COST_TABLE = ROWS(LAYER_COST, "layer cost");
#undef MSG

#define MSG msg_type_ops
static const struct wire_field TYPE_OPS_FIELDS[] = {F(1, U32, type) F(2, U64, ops) F(3, U64, rows)};
const struct wire_table MSG_TYPE_OPS_TABLE = ROWS(TYPE_OPS, "operations of a format");
#undef MSG

#define MSG msg_shape
static const struct wire_field SHAPE_FIELDS[] = {
    F(1, U32, n_heads) F(2, U32, n_kv_heads) F(3, U32, head_dim_k) F(4, U32, head_dim_v)
        F(5, U32, n_ff) F(6, U32, ff_step) F(7, U32, is_float) F(8, U64, head_ops)
            S(9, LIST, kinds, MSG_LAYER_COST_TABLE) F(10, U64S, layer_kind)
                S(11, LIST, types, MSG_TYPE_OPS_TABLE) F(12, U32, head_type)};
const struct wire_table MSG_SHAPE_TABLE = ROWS(SHAPE, "shape");
#undef MSG
