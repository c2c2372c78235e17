#include "cli/inspect.h"

#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "cli/cli.h"
#include "cli/opts.h"
#include "model/model.h"

enum {
    TEXT_MAX = 100,  /* bytes of a string value that are shown */
    ARRAY_SHOWN = 8, /* elements of an array that are shown */
    NAME_WIDTH = 20, /* of the first column */
    KEY_BYTES = 160,
};

/* The facts worth a line of their own: keys below the architecture's name. */
static const struct {
    const char *label, *json, *suffix;
} FACTS[] = {
    {"layers", "layers", "block_count"},
    {"embedding", "embedding_length", "embedding_length"},
    {"feed-forward", "feed_forward_length", "feed_forward_length"},
    {"heads", "heads", "attention.head_count"},
    {"KV heads", "kv_heads", "attention.head_count_kv"},
    {"head size", "key_length", "attention.key_length"},
    {"experts", "experts", "expert_count"},
    {"experts used", "experts_used", "expert_used_count"},
    {"context", "context_length", "context_length"},
    {"sliding window", "sliding_window", "attention.sliding_window"},
    {"RoPE dimensions", "rope_dimensions", "rope.dimension_count"},
    {"RoPE base", "rope_freq_base", "rope.freq_base"},
    {"RoPE scaling", "rope_scaling", "rope.scaling.type"},
    {"RoPE factor", "rope_scaling_factor", "rope.scaling.factor"},
};

/* Control characters and ill-formed UTF-8 escaped, cut after max bytes. */
static void add_escaped(struct str *out, struct view s, size_t max) {
    for (size_t i = 0; i < MIN(s.n, max);) {
        u32 cp;
        int n = utf8_decode(s.p + i, s.n - i, &cp);
        bool control = n > 0 && (cp < 0x20 || (cp >= 0x7F && cp < 0xA0));
        if (s.p[i] == '\n')
            str_addz(out, "\\n");
        else if (s.p[i] == '\t')
            str_addz(out, "\\t");
        else if (n > 0 && !control)
            str_add(out, s.p + i, (size_t)n);
        else
            for (int k = 0; k < MAX(n, 1); k++) str_addf(out, "\\x%02X", (u8)s.p[i + (size_t)k]);
        i += (size_t)MAX(n, 1);
    }
    if (s.n > max) str_addz(out, "...");
}

static void add_quoted(struct str *out, struct view s, size_t max) {
    str_addc(out, '"');
    add_escaped(out, s, max);
    str_addc(out, '"');
}

/* One number or boolean; both for text and JSON, where a NaN is null. */
static void add_number(struct str *out, const struct gguf_kv *kv, u64 i, bool json) {
    if (kv->elem == GGUF_BOOL) {
        str_addz(out, gguf_arr_i64(kv, i) ? "true" : "false");
    } else if (kv->elem == GGUF_F32 || kv->elem == GGUF_F64) {
        double v = gguf_arr_f64(kv, i);
        bool finite = v - v == 0;
        if (json && !finite)
            str_addz(out, "null");
        else
            str_addf(out, kv->elem == GGUF_F32 ? "%.7g" : "%.17g", v);
    } else if (kv->elem == GGUF_U64) {
        u64 v;
        memcpy(&v, kv->data + 8 * i, sizeof v);
        str_addf(out, "%llu", (unsigned long long)v);
    } else {
        str_addf(out, "%lld", (long long)gguf_arr_i64(kv, i));
    }
}

/* The first elements, separated by commas. */
static void add_elements(struct str *out, const struct gguf_kv *kv, bool json) {
    size_t at = 0;
    struct view s;
    for (u64 i = 0; i < MIN(kv->n, (u64)ARRAY_SHOWN); i++) {
        if (i > 0) str_addz(out, json ? "," : ", ");
        if (kv->elem != GGUF_STR)
            add_number(out, kv, i, json);
        else if (gguf_arr_next_str(kv, &at, &s)) {
            if (json)
                json_add_str(out, s);
            else
                add_quoted(out, s, kv->type == GGUF_ARR ? 24 : TEXT_MAX);
        }
    }
}

static void add_text_value(struct str *out, const struct gguf_kv *kv) {
    if (kv->type != GGUF_ARR) {
        add_elements(out, kv, false);
        return;
    }
    str_addc(out, '[');
    add_elements(out, kv, false);
    if (kv->n > ARRAY_SHOWN) str_addz(out, ", ...");
    str_addf(out, "] (%llu)", (unsigned long long)kv->n);
}

/* Scalars as they are, arrays as {"n": all, "first": [some]}. */
static void add_json_value(struct str *out, const struct gguf_kv *kv) {
    if (kv->type != GGUF_ARR) {
        add_elements(out, kv, true);
        return;
    }
    str_addf(out, "{\"type\":\"%s\",\"n\":%llu,\"first\":[", gguf_type_name(kv->elem),
             (unsigned long long)kv->n);
    add_elements(out, kv, true);
    str_addz(out, "]}");
}

struct counts {
    u64 n[DTYPE_N], bytes[DTYPE_N];
    u64 n_extra; /* tensors of a vision or audio tower */
};

static void count_tensors(const struct model_file *f, struct counts *c) {
    *c = (struct counts){0};
    for (u32 i = 0; i < f->n_parts; i++) {
        const struct gguf *g = f->part[i].g;
        for (u64 t = 0; t < g->n_tensors; t++) {
            c->n[g->tensor[t].type]++;
            c->bytes[g->tensor[t].type] += g->tensor[t].size_bytes;
            c->n_extra += model_file_is_extra(g->tensor[t].name);
        }
    }
}

/* A string key's value; empty where it is missing or of another type. */
static struct view text_of(const struct gguf *g, const char *key) {
    struct view v = {"", 0};
    struct err ignored;
    gguf_get_str(g, key, &v, &ignored);
    return v;
}

/* The metadata "<architecture>.<suffix>", or NULL. */
static const struct gguf_kv *arch_kv(const struct gguf *g, const char *suffix) {
    char key[KEY_BYTES];
    struct view arch = text_of(g, "general.architecture");
    int n = snprintf(key, sizeof key, "%.*s.%s", VIEW_FMT(arch), suffix);
    return n > 0 && (size_t)n < sizeof key ? gguf_find(g, key) : NULL;
}

static struct view first_line(struct view s) {
    const char *end = memchr(s.p, '\n', s.n);
    return end ? (struct view){s.p, (size_t)(end - s.p)} : s;
}

static void label(struct str *out, const char *name) {
    str_addf(out, "%-*s", NAME_WIDTH, name);
}

static void text_summary(const struct model_file *f, struct str *out) {
    char size[32];
    label(out, "file");
    str_addf(out, "%s\n", f->part[0].path);
    label(out, "format");
    str_addf(out, "GGUF v%u, %s", f->meta->version, size_text(f->size_bytes, size));
    if (f->n_parts > 1) str_addf(out, " in %u parts", f->n_parts);
    str_addc(out, '\n');
    label(out, "architecture");
    add_quoted(out, text_of(f->meta, "general.architecture"), TEXT_MAX);
    str_addc(out, '\n');
    label(out, "name");
    add_quoted(out, text_of(f->meta, "general.name"), TEXT_MAX);
    str_addc(out, '\n');
    label(out, "parameters");
    str_addf(out, "%.1f M in %llu tensors\n", (double)model_file_n_params(f) / 1e6,
             (unsigned long long)f->n_tensors);
}

static void text_types(const struct counts *c, struct str *out) {
    char size[32], name[24];
    const char *before = "";
    label(out, "types");
    for (u32 t = 0; t < DTYPE_N; t++) {
        if (!c->n[t]) continue;
        str_addf(out, "%s%llu %s (%s)", before, (unsigned long long)c->n[t], dtype_name(t, name),
                 size_text(c->bytes[t], size));
        before = ", ";
    }
    str_addc(out, '\n');
    if (!c->n_extra) return;
    label(out, "not used");
    str_addf(out, "%llu tensors of a vision or audio tower\n", (unsigned long long)c->n_extra);
}

static void text_tokenizer(const struct gguf *g, struct str *out) {
    const struct gguf_kv *tokens = gguf_find(g, "tokenizer.ggml.tokens");
    struct view chat = text_of(g, "tokenizer.chat_template");
    label(out, "tokenizer");
    add_quoted(out, text_of(g, "tokenizer.ggml.model"), TEXT_MAX);
    str_addz(out, ", pre-tokenizer ");
    add_quoted(out, text_of(g, "tokenizer.ggml.pre"), TEXT_MAX);
    str_addf(out, ", %llu tokens\n", tokens ? (unsigned long long)tokens->n : 0);
    label(out, "chat template");
    if (chat.n == 0) {
        str_addz(out, "none\n");
        return;
    }
    str_addf(out, "%zu bytes, begins ", chat.n);
    add_quoted(out, first_line(chat), 60);
    str_addc(out, '\n');
}

static void text_lists(const struct model_file *f, const struct inspect_options *o,
                       struct str *out) {
    char size[32], name[24];
    if (o->kv) str_addf(out, "\nmetadata (%llu)\n", (unsigned long long)f->meta->n_kv);
    for (u64 i = 0; o->kv && i < f->meta->n_kv; i++) {
        const struct gguf_kv *kv = &f->meta->kv[i];
        str_addf(out, "  %.*s  %s  ", VIEW_FMT(kv->key), gguf_type_name(kv->elem));
        add_text_value(out, kv);
        str_addc(out, '\n');
    }
    if (o->tensors) str_addf(out, "\ntensors (%llu)\n", (unsigned long long)f->n_tensors);
    for (u32 p = 0; o->tensors && p < f->n_parts; p++) {
        const struct gguf *g = f->part[p].g;
        for (u64 i = 0; i < g->n_tensors; i++) {
            const struct gguf_tensor *t = &g->tensor[i];
            str_addf(out, "  %-40.*s %-7s ", VIEW_FMT(t->name), dtype_name(t->type, name));
            for (u32 d = 0; d < t->n_dims; d++)
                str_addf(out, "%s%llu", d ? " x " : "", (unsigned long long)t->dims[d]);
            str_addf(out, "  %s", size_text(t->size_bytes, size));
            if (f->n_parts > 1) str_addf(out, "  part %u", p + 1);
            str_addc(out, '\n');
        }
    }
}

static void text_report(const struct model_file *f, const struct inspect_options *o,
                        struct str *out) {
    struct counts c;
    struct model_params params;
    struct err e = {0};
    count_tensors(f, &c);
    text_summary(f, out);
    text_types(&c, out);
    for (size_t i = 0; i < ARRAY_LEN(FACTS); i++) {
        const struct gguf_kv *kv = arch_kv(f->meta, FACTS[i].suffix);
        if (!kv) continue;
        label(out, FACTS[i].label);
        add_text_value(out, kv);
        str_addc(out, '\n');
    }
    text_tokenizer(f->meta, out);
    label(out, "skein runs it");
    if (model_params_read(f, &params, &e))
        str_addz(out, "yes\n");
    else
        str_addf(out, "no: %s\n", e.msg);
    text_lists(f, o, out);
}

static void json_lists(const struct model_file *f, const struct inspect_options *o,
                       struct str *out) {
    char name[24];
    if (o->kv) {
        json_key(out, "metadata");
        str_addc(out, '{');
        for (u64 i = 0; i < f->meta->n_kv; i++) {
            json_comma(out);
            json_add_str(out, f->meta->kv[i].key);
            str_addc(out, ':');
            add_json_value(out, &f->meta->kv[i]);
        }
        str_addc(out, '}');
    }
    if (!o->tensors) return;
    json_key(out, "tensors");
    str_addc(out, '[');
    for (u32 p = 0; p < f->n_parts; p++) {
        const struct gguf *g = f->part[p].g;
        for (u64 i = 0; i < g->n_tensors; i++) {
            const struct gguf_tensor *t = &g->tensor[i];
            json_comma(out);
            str_addc(out, '{');
            json_put_view(out, "name", t->name);
            json_put_str(out, "type", dtype_name(t->type, name));
            json_key(out, "shape");
            for (u32 d = 0; d < t->n_dims; d++)
                str_addf(out, "%c%llu", d ? ',' : '[', (unsigned long long)t->dims[d]);
            str_addc(out, ']');
            json_put_u64(out, "size_bytes", t->size_bytes);
            json_put_u64(out, "part", p + 1);
            json_put_u64(out, "offset", t->offset);
            str_addc(out, '}');
        }
    }
    str_addc(out, ']');
}

static void json_counts(const struct model_file *f, struct str *out) {
    struct counts c;
    char name[24];
    count_tensors(f, &c);
    json_put_u64(out, "parameters", model_file_n_params(f));
    json_put_u64(out, "size_bytes", f->size_bytes);
    json_put_u64(out, "n_tensors", f->n_tensors);
    json_put_u64(out, "n_extra_tensors", c.n_extra);
    json_key(out, "types");
    str_addc(out, '{');
    for (u32 t = 0; t < DTYPE_N; t++) {
        if (!c.n[t]) continue;
        json_key(out, dtype_name(t, name));
        str_addc(out, '{');
        json_put_u64(out, "tensors", c.n[t]);
        json_put_u64(out, "size_bytes", c.bytes[t]);
        str_addc(out, '}');
    }
    str_addc(out, '}');
}

static void json_report(const struct model_file *f, const struct inspect_options *o,
                        struct str *out) {
    const struct gguf *g = f->meta;
    const struct gguf_kv *tokens = gguf_find(g, "tokenizer.ggml.tokens");
    struct model_params params;
    struct err e = {0};
    str_addc(out, '{');
    json_put_str(out, "format", "gguf");
    json_put_u64(out, "version", g->version);
    json_key(out, "files");
    str_addc(out, '[');
    for (u32 i = 0; i < f->n_parts; i++) {
        json_comma(out);
        json_add_str(out, view_of(f->part[i].path));
    }
    str_addc(out, ']');
    json_put_view(out, "architecture", text_of(g, "general.architecture"));
    json_put_view(out, "name", text_of(g, "general.name"));
    json_counts(f, out);
    for (size_t i = 0; i < ARRAY_LEN(FACTS); i++) {
        const struct gguf_kv *kv = arch_kv(g, FACTS[i].suffix);
        if (!kv) continue;
        json_key(out, FACTS[i].json);
        add_json_value(out, kv);
    }
    json_put_view(out, "tokenizer", text_of(g, "tokenizer.ggml.model"));
    json_put_view(out, "pre_tokenizer", text_of(g, "tokenizer.ggml.pre"));
    json_put_u64(out, "vocab_size", tokens ? tokens->n : 0);
    json_put_bool(out, "chat_template", text_of(g, "tokenizer.chat_template").n > 0);
    bool runs = model_params_read(f, &params, &e);
    json_put_bool(out, "supported", runs);
    if (!runs) json_put_str(out, "why_not", e.msg);
    json_lists(f, o, out);
    str_addz(out, "}\n");
}

void inspect_report(const struct model_file *f, const struct inspect_options *o, struct str *out) {
    if (o->json)
        json_report(f, o, out);
    else
        text_report(f, o, out);
}

int cmd_inspect(int argc, char **argv) {
    struct inspect_options o = {0};
    struct opt opts[] = {
        {"kv", OPT_FLAG, &o.kv, .help = "list all metadata (long arrays are shortened)"},
        {"tensors", OPT_FLAG, &o.tensors, .help = "list all tensors"},
        {"json", OPT_FLAG, &o.json, .help = "print one JSON object"},
    };
    const struct opts_cmd cmd = {
        .name = "inspect",
        .args = "FILE",
        .summary = "show what is in a model file",
        .text =
            "FILE is a GGUF file, any part of a split one, or the name of a model that is on this\n"
            "machine. Only the header is read.\n\n"
            "Examples:\n"
            "  skein inspect model.gguf\n"
            "  skein inspect smollm2\n"
            "  skein inspect --json --kv model-00001-of-00003.gguf",
        .opts = opts,
        .n_opts = ARRAY_LEN(opts),
        .args_min = 1,
        .args_max = 1,
    };
    int n_args, exit_code;
    if (!opts_parse(&cmd, argc, argv, &n_args, &exit_code)) return exit_code;
    struct err e = {0};
    char path[CLI_PATH_MAX];
    struct model_file *f = cli_model_path(argv[0], path, &e) ? model_file_open(path, &e) : NULL;
    if (!f) return opts_fail(&e);
    struct str out = {0};
    inspect_report(f, &o, &out);
    bool written = fwrite(str_z(&out), 1, out.n, stdout) == out.n && fflush(stdout) == 0;
    if (!written) err_errno(&e, ERR_IO, "writing to standard output");
    str_deinit(&out);
    model_file_close(f);
    return written ? EXIT_OK : opts_fail(&e);
}
