/* mkmodel - writes a GGUF model of any family and block format with random weights.
 *
 * Tests and benchmarks use it where a real model would have to be downloaded. Weights follow from
 * the seed; a model of any size is written through a small buffer. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "formats/toymodel.h"

static const char USAGE[] =
    "usage: mkmodel [options] OUT.gguf\n"
    "  --arch NAME         llama, mistral, qwen2, qwen3, gemma2, gemma3 [llama]\n"
    "  --type NAME         block format of the matrices: F32, F16, BF16, Q4_0 ... MXFP4 [F32]\n"
    "                      Q4_K_M, Q5_K_M: Q6_K for the output matrix (tied: the embedding) and\n"
    "                      attn_v and ffn_down of some layers, as llama.cpp's quantizer has it\n"
    "  --layers N  --dim N  --heads N  --kv-heads N  --head-dim N  --ffn N  --vocab N  --ctx N\n"
    "  --seed N            [0]\n"
    "  --split N           N files, OUT-00001-of-0000N.gguf and so on\n"
    "  --tied              no output.weight: the embedding is used\n"
    "  --rope-scaling NAME none, linear, llama3, yarn [none]\n"
    "  --rope-factor X     [4]\n"
    "  --rope-theta X\n"
    "  --sliding-window N  --sliding-pattern N  --softcap X      (gemma)\n";

struct options {
    struct toymodel_spec spec;
    u32 n_split;
    const char *out;
};

static bool parse_u64(const char *name, const char *text, u64 most, u64 *out, struct err *e) {
    char *end;
    errno = 0;
    unsigned long long v = strtoull(text, &end, 10);
    if (errno || *end || end == text || *text == '-' || v > most)
        return err_set(e, ERR_ARG, "%s %s: expected a number from 0 to %llu", name, text,
                       (unsigned long long)most);
    *out = v;
    return true;
}

static bool parse_float(const char *name, const char *text, float *out, struct err *e) {
    char *end;
    *out = strtof(text, &end);
    if (*end || end == text || !(*out > 0) || *out > 1e9f)
        return err_set(e, ERR_ARG, "%s %s: expected a positive number", name, text);
    return true;
}

static bool parse_type(const char *text, struct toymodel_spec *s, struct err *e) {
    size_t n = strlen(text);
    s->mixed = n > 2 && strcmp(text + n - 2, "_M") == 0;
    if (s->mixed) n -= 2;
    for (u32 t = 0; t < DTYPE_N; t++) {
        if (!dtype_info(t)->name || !view_is((struct view){text, n}, dtype_info(t)->name)) continue;
        s->type = (enum dtype)t;
        return true;
    }
    return err_set(e, ERR_ARG, "--type %s: no such block format", text);
}

static bool parse_rope(const char *text, enum toymodel_rope *out, struct err *e) {
    static const char *const NAMES[] = {"none", "linear", "llama3", "yarn"};
    for (u32 i = 0; i < ARRAY_LEN(NAMES); i++) {
        if (strcmp(NAMES[i], text) != 0) continue;
        *out = (enum toymodel_rope)i;
        return true;
    }
    return err_set(e, ERR_ARG, "--rope-scaling %s: expected none, linear, llama3 or yarn", text);
}

/* One option with a value. */
static bool set_option(struct options *o, const char *name, const char *value, struct err *e) {
    struct toymodel_spec *s = &o->spec;
    const struct {
        const char *name;
        u32 *value;
    } COUNTS[] = {
        {"--layers", &s->n_layers},
        {"--dim", &s->dim},
        {"--heads", &s->n_heads},
        {"--kv-heads", &s->n_kv_heads},
        {"--head-dim", &s->head_dim},
        {"--ffn", &s->n_ff},
        {"--vocab", &s->n_vocab},
        {"--ctx", &s->n_ctx},
        {"--split", &o->n_split},
        {"--sliding-window", &s->sliding_window},
        {"--sliding-pattern", &s->sliding_pattern},
    };
    for (size_t i = 0; i < ARRAY_LEN(COUNTS); i++) {
        u64 v;
        if (strcmp(name, COUNTS[i].name) != 0) continue;
        if (!parse_u64(name, value, 1 << 24, &v, e)) return false;
        *COUNTS[i].value = (u32)v;
        return true;
    }
    if (strcmp(name, "--arch") == 0)
        s->family = value;
    else if (strcmp(name, "--type") == 0)
        return parse_type(value, s, e);
    else if (strcmp(name, "--seed") == 0)
        return parse_u64(name, value, UINT64_MAX, &s->seed, e);
    else if (strcmp(name, "--rope-scaling") == 0)
        return parse_rope(value, &s->rope, e);
    else if (strcmp(name, "--rope-factor") == 0)
        return parse_float(name, value, &s->rope_factor, e);
    else if (strcmp(name, "--rope-theta") == 0)
        return parse_float(name, value, &s->rope_theta, e);
    else if (strcmp(name, "--softcap") == 0)
        return parse_float(name, value, &s->logit_softcap, e);
    else
        return err_set(e, ERR_ARG, "unknown option %s", name);
    return true;
}

static bool parse_options(struct options *o, int argc, char **argv, struct err *e) {
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--tied") == 0) {
            o->spec.tied = true;
        } else if (argv[i][0] == '-') {
            if (i + 1 == argc) return err_set(e, ERR_ARG, "%s needs a value", argv[i]);
            if (!set_option(o, argv[i], argv[i + 1], e)) return false;
            i++;
        } else if (o->out) {
            return err_set(e, ERR_ARG, "two output files: %s and %s", o->out, argv[i]);
        } else {
            o->out = argv[i];
        }
    }
    return o->out || err_set(e, ERR_ARG, "the output file is missing");
}

/* The rows of one tensor, and zeros up to the alignment. */
static bool write_tensor(const struct toymodel *m, u32 i, FILE *f) {
    const struct toymodel_tensor *t = &m->tensor[i];
    u64 size = t->row_bytes * t->dims[1], rows_at_once = MAX((1u << 20) / t->row_bytes, 1u);
    struct str buf = {0};
    str_reserve(&buf, rows_at_once * t->row_bytes);
    bool ok = true;
    for (u64 row = 0; ok && row < t->dims[1]; row += rows_at_once) {
        u64 n = MIN(rows_at_once, t->dims[1] - row);
        toymodel_rows(m, i, row, n, buf.p);
        ok = fwrite(buf.p, t->row_bytes, n, f) == n;
    }
    for (; ok && size % GGUF_ALIGN_DEFAULT; size++) ok = fputc(0, f) != EOF;
    str_deinit(&buf);
    return ok;
}

/* Tensors first..end as part `no` of the set; the metadata is in part 0 alone. */
static bool write_part(const struct toymodel *m, u32 no, u32 n_parts, u32 first, u32 end,
                       const char *path, struct err *e) {
    struct gguf_writer w = {0};
    struct str head = {0};
    if (no == 0) toymodel_metadata(m, &w);
    if (n_parts > 1) {
        gguf_writer_scalar(&w, "split.no", GGUF_U16, &no, 2);
        gguf_writer_scalar(&w, "split.count", GGUF_U16, &n_parts, 2);
        gguf_writer_scalar(&w, "split.tensors.count", GGUF_I32, &m->n_tensors, 4);
    }
    for (u32 i = first; i < end; i++)
        gguf_writer_tensor(&w, m->tensor[i].name, m->tensor[i].type, m->tensor[i].n_dims,
                           m->tensor[i].dims, NULL);
    gguf_writer_head(&w, &head);
    FILE *f = fopen(path, "wb");
    bool ok = f && fwrite(head.p, 1, head.n, f) == head.n;
    for (u32 i = first; ok && i < end; i++) ok = write_tensor(m, i, f);
    if (!ok) err_errno(e, ERR_IO, "writing %s", path);
    if (f && fclose(f) != 0 && ok) ok = err_errno(e, ERR_IO, "writing %s", path);
    str_deinit(&head);
    gguf_writer_deinit(&w);
    return ok;
}

static bool write_files(const struct toymodel *m, const struct options *o, struct err *e) {
    u32 n = MAX(o->n_split, 1u);
    size_t stem = strlen(o->out);
    if (stem > 5 && strcmp(o->out + stem - 5, ".gguf") == 0) stem -= 5;
    if (n > m->n_tensors)
        return err_set(e, ERR_ARG, "--split %u: there are %u tensors", n, m->n_tensors);
    bool ok = true;
    for (u32 no = 0; ok && no < n; no++) {
        struct str path = {0};
        if (n == 1)
            str_addz(&path, o->out);
        else
            str_addf(&path, "%.*s-%05u-of-%05u.gguf", (int)stem, o->out, no + 1, n);
        u32 first = (u32)((u64)m->n_tensors * no / n),
            end = (u32)((u64)m->n_tensors * (no + 1) / n);
        ok = write_part(m, no, n, first, end, path.p, e);
        str_deinit(&path);
    }
    return ok;
}

/* What is written is there to be run. */
static bool is_computed(const struct toymodel *m, struct err *e) {
    return m->spec.head_dim % 16 == 0 ||
           err_set(e, ERR_ARG, "heads of %u elements: skein computes multiples of 16 (--head-dim)",
                   m->spec.head_dim);
}

int main(int argc, char **argv) {
    struct options o = {0};
    struct toymodel m = {0};
    struct err e = {0};
    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        fputs(USAGE, stdout);
        return 0;
    }
    if (!parse_options(&o, argc, argv, &e) || !toymodel_init(&m, &o.spec, &e) ||
        !is_computed(&m, &e)) {
        fprintf(stderr, "mkmodel: %s\n%s", e.msg, USAGE);
        return 2;
    }
    bool ok = write_files(&m, &o, &e);
    if (!ok) fprintf(stderr, "mkmodel: %s\n", e.msg);
    toymodel_deinit(&m);
    return ok ? 0 : 1;
}
