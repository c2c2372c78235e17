#include "cli/plan_table.h"

#include <string.h>

#include "cli/column.h"

static const char *text(const json_t *o, const char *key) {
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}
static double num(const json_t *o, const char *key) {
    return json_number_value(json_object_get(o, key));
}
static unsigned whole(const json_t *o, const char *key) {
    return (unsigned)json_integer_value(json_object_get(o, key));
}

/* "1234", "56.7", "3.21": three digits that matter. */
static void add_rate(struct str *out, double x) {
    str_addf(out, x >= 99.95 ? "%.0f" : x >= 9.995 ? "%.1f" : "%.2f", x);
}

static void add_ranks(const json_t *c, const char *indent, struct str *out) {
    size_t i;
    json_t *r;
    char need[32], room[32], name[COLUMN_CAP];
    json_array_foreach(json_object_get(c, "ranks"), i, r) {
        const json_t *s = json_object_get(r, "slice");
        str_addf(out, "%s%s layers %u-%u", indent,
                 column_text(text(r, "name"), 20, UINT32_MAX, name), whole(r, "layer_first"),
                 whole(r, "layer_end") - 1);
        if (s) str_addf(out, ", heads %u-%u", whole(s, "head_first"), whole(s, "head_end") - 1);
        str_addf(out, ": %s of %s free\n", size_text((u64)num(r, "need_bytes"), need),
                 size_text((u64)num(r, "free_bytes"), room));
    }
}

static void add_contexts(const json_t *c, const char *indent, struct str *out) {
    size_t i;
    json_t *x;
    str_addf(out, "%scontext    decode    prefill   first token   memory compute network\n",
             indent);
    json_array_foreach(json_object_get(c, "contexts"), i, x) {
        struct str d = {0}, p = {0}, f = {0};
        add_rate(&d, num(x, "decode_tokens_s"));
        add_rate(&p, num(x, "prefill_tokens_s"));
        add_rate(&f, num(x, "first_token_s"));
        str_addf(out, "%s%7u %9s %10s %11s s %7.0f%% %6.0f%% %6.0f%%\n", indent,
                 whole(x, "context"), str_z(&d), str_z(&p), str_z(&f), 100 * num(x, "memory"),
                 100 * num(x, "compute"), 100 * num(x, "network"));
        str_deinit(&d);
        str_deinit(&p);
        str_deinit(&f);
    }
    str_addf(out, "%s%u at once: ", indent, whole(c, "batch"));
    add_rate(out, num(c, "batch_tokens_s"));
    str_addf(out, " tokens/s together. The limit: %s.\n", text(c, "limit"));
}

static void add_candidate(const json_t *c, bool chosen, struct str *out) {
    unsigned n = whole(c, "n_nodes");
    str_addf(out, "%s %s over %u node%s\n", chosen ? "*" : " ", text(c, "sharding"), n,
             n == 1 ? "" : "s");
    add_ranks(c, "    ", out);
    add_contexts(c, "    ", out);
}

/* The decode rate in the middle of what is shown. */
static double decode_rate(const json_t *c) {
    const json_t *x = json_object_get(c, "contexts");
    return num(json_array_get(x, json_array_size(x) / 2), "decode_tokens_s");
}

static void add_copies(const json_t *plan, struct str *out) {
    const json_t *v = json_object_get(plan, "replicas");
    size_t i, k;
    json_t *r, *name;
    if (json_array_size(v) < 2) return;
    str_addz(out, "\nCopies (skein launch --replicas N):\n");
    json_array_foreach((json_t *)(uintptr_t)v, i, r) {
        str_addf(out, "  %u: ", whole(r, "replicas"));
        add_rate(out, num(r, "batch_tokens_s"));
        str_addz(out, " tokens/s together, the last on ");
        json_array_foreach(json_object_get(r, "nodes"), k, name)
            str_addf(out, "%s%s", k ? ", " : "", json_string_value(name));
        str_addc(out, '\n');
    }
}

static void add_what_if(const json_t *plan, struct str *out) {
    const json_t *now = json_object_get(plan, "chosen");
    size_t i;
    json_t *w;
    json_array_foreach(json_object_get(plan, "with"), i, w) {
        const json_t *c = json_object_get(w, "chosen");
        str_addf(out, "\nWith %s as well: ", text(w, "name"));
        if (!c) {
            str_addf(out, "%s\n", text(w, "reason"));
            continue;
        }
        str_addf(out, "%s over %u, ", text(c, "sharding"), whole(c, "n_nodes"));
        add_rate(out, decode_rate(c));
        str_addz(out, " tokens/s");
        if (now) {
            str_addz(out, " instead of ");
            add_rate(out, decode_rate(now));
        }
        str_addc(out, '\n');
        add_ranks(c, "    ", out);
    }
}

static bool is_same(const json_t *c, const json_t *chosen) {
    return chosen && json_equal(json_object_get(c, "ranks"), json_object_get(chosen, "ranks"));
}

void plan_table(const json_t *plan, struct str *out) {
    char need[32], name[COLUMN_CAP];
    size_t i;
    json_t *x;
    const json_t *chosen = json_object_get(plan, "chosen");
    str_addf(out, "%s %s: %u layers, %s with a context of %u tokens on one node; best %s\n\n",
             *text(plan, "title") ? text(plan, "title") : text(plan, "model"),
             text(plan, "quantization"), whole(plan, "n_layers"),
             size_text((u64)num(plan, "need_bytes"), need), whole(plan, "n_ctx"),
             text(plan, "goal"));
    json_array_foreach(json_object_get(plan, "nodes"), i, x)
        str_addf(out, "  %s %10s free, %6.1f GB/s, %7.1f Gop/s\n",
                 column_text(text(x, "name"), 20, UINT32_MAX, name),
                 size_text((u64)num(x, "free_bytes"), need), num(x, "read_bytes_s") / 1e9,
                 num(x, "ops_s") / 1e9);
    str_addz(out, "\nCandidates (* would be taken; rates in tokens/s, predicted):\n");
    bool listed = false;
    json_array_foreach(json_object_get(plan, "candidates"), i, x) listed |= is_same(x, chosen);
    if (chosen && !listed) add_candidate(chosen, true, out); /* by hand */
    json_array_foreach(json_object_get(plan, "candidates"), i, x)
        add_candidate(x, is_same(x, chosen), out);
    if (!chosen) str_addf(out, "  none: %s\n", text(plan, "reason"));
    json_array_foreach(json_object_get(plan, "impossible"), i, x)
        str_addf(out, "  %s: not possible: %s\n", text(x, "sharding"), text(x, "reason"));
    add_copies(plan, out);
    add_what_if(plan, out);
}
