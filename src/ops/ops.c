#include "ops/ops.h"

#include "formats/blocks.h"

bool ops_load_vector(struct tensor *t, float *mem, struct err *e) {
    u64 bytes;
    char name[24];
    if (!blocks_can_decode(t->type) || !dtype_row_bytes(t->type, t->cols, &bytes))
        return err_set(e, ERR_UNSUPPORTED, "tensor %s: %s of %llu elements can't be a vector",
                       t->name, dtype_name(t->type, name), (unsigned long long)t->cols);
    blocks_decode(t->type, mem, t->data, t->cols);
    t->vec = mem;
    return true;
}
