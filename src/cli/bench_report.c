/* The figures as a table for people and as JSON for programs. */
#include <string.h>

#include "base/json.h"
#include "base/sysinfo.h"
#include "base/version.h"
#include "cli/bench.h"

static double share(double tps, const struct ops_cost *cost, const struct peak *p, u64 n_tok) {
    double roof = bench_roof_tps(cost, p, n_tok);
    return roof > 0 ? tps / roof : 0;
}

/* "  83.1 /   94.2 /  107.4  63 %", or dashes of the same width. */
static void add_rates(struct str *out, const double *v, u32 n, u32 n_tok,
                      const struct ops_cost *cost, const struct bench_machine *m, u32 batch) {
    struct bench_stats s = bench_stats(v, n);
    if (!n_tok) {
        str_addf(out, "  %29s  %4s", "-", "-");
        return;
    }
    double of_roof = share(s.median, cost, &m->peak, (u64)n_tok * batch);
    str_addf(out, "  %8.1f / %7.1f / %7.1f  %3.0f%%", s.min, s.median, s.max, of_roof * 100);
}

void bench_table(const struct bench_machine *m, const struct bench_row *rows, u32 n,
                 struct str *out) {
    char cpu[128], a[32], b[32];
    sysinfo_cpu_name(cpu, sizeof cpu);
    str_addf(out, "%s, %s, %.1f million parameters, weights %s, loaded in %.2f s\n", m->params.name,
             m->params.quant, (double)m->params.n_params / 1e6, size_text(m->weights_bytes, a),
             m->load_s);
    str_addf(out,
             "%s, kernels %s, KV %s, activations of %u bits, %u thread%s: reads %.1f GB/s, int8 "
             "%.0f Gop/s, bf16 %.0f Gop/s, f32 %.0f Gop/s\n\n",
             cpu, m->isa, kv_type_name(m->kv_type), m->act_bits, rows[0].c.threads,
             rows[0].c.threads == 1 ? "" : "s", m->peak.read_bytes_s / 1e9,
             m->peak.int8_ops_s / 1e9, m->peak.bf16_ops_s / 1e9, m->peak.f32_ops_s / 1e9);
    str_addf(out, "%7s %5s %6s %5s %5s  %29s  %4s  %29s  %4s  %9s\n", "threads", "batch", "depth",
             "pp", "tg", "prefill t/s, min/median/max", "roof", "generation, min/median/max",
             "roof", "memory");
    for (u32 i = 0; i < n; i++) {
        const struct bench_case *c = &rows[i].c;
        str_addf(out, "%7u %5u %6u %5u %5u", c->threads, c->batch, c->depth, c->pp, c->tg);
        add_rates(out, rows[i].prompt_tps, rows[i].n, c->pp, &rows[i].prompt, m, c->batch);
        add_rates(out, rows[i].generation_tps, rows[i].n, c->tg, &rows[i].generation, m, c->batch);
        str_addf(out, "  %9s\n", size_text(rows[i].peak_memory, b));
    }
    str_addc(out, '\n');
}

/* PREFIX_tps and so on; the figure without a suffix is the median. */
static void put_rates(struct str *out, const char *prefix, const double *v, u32 n, u64 n_tok,
                      const struct ops_cost *cost, const struct peak *p) {
    struct bench_stats s = bench_stats(v, n);
    double roof = bench_roof_tps(cost, p, n_tok);
    const struct {
        const char *suffix;
        double value;
    } figures[] = {{"tps", s.median},
                   {"tps_min", s.min},
                   {"tps_max", s.max},
                   {"roof_tps", roof},
                   {"of_roof", share(s.median, cost, p, n_tok)}};
    char key[64];
    for (u32 i = 0; i < ARRAY_LEN(figures); i++) {
        snprintf(key, sizeof key, "%s_%s", prefix, figures[i].suffix);
        if (n_tok)
            json_put_num(out, key, figures[i].value);
        else
            json_put_null(out, key);
    }
    snprintf(key, sizeof key, "%s_tps_all", prefix);
    json_key(out, key);
    str_addc(out, '[');
    for (u32 i = 0; n_tok && i < n; i++) {
        json_comma(out);
        str_addf(out, "%.9g", v[i]);
    }
    str_addc(out, ']');
}

static void put_machine(struct str *out, const struct bench_machine *m) {
    char text[256];
    json_put_str(out, "model", m->params.name);
    json_put_str(out, "path", m->path);
    json_put_str(out, "quantization", m->params.quant);
    json_put_u64(out, "parameters", m->params.n_params);
    json_put_u64(out, "file_bytes", m->file_bytes);
    json_put_u64(out, "weights_bytes", m->weights_bytes);
    json_put_num(out, "load_s", m->load_s);
    json_put_u64(out, "load_peak_memory", m->load_peak_memory);
    json_put_str(out, "version", version_text());
    sysinfo_cpu_name(text, sizeof text);
    json_put_str(out, "cpu", text);
    sysinfo_os(text, sizeof text);
    json_put_str(out, "os", text);
    json_put_str(out, "isa", m->isa);
    json_put_str(out, "kv_type", kv_type_name(m->kv_type));
    json_put_u64(out, "activation_bits", m->act_bits);
    json_put_num(out, "read_bytes_per_s", m->peak.read_bytes_s);
    json_put_num(out, "int8_ops_per_s", m->peak.int8_ops_s);
    json_put_num(out, "bf16_ops_per_s", m->peak.bf16_ops_s);
    json_put_num(out, "f32_ops_per_s", m->peak.f32_ops_s);
}

void bench_json(const struct bench_machine *m, const struct bench_row *rows, u32 n,
                struct str *out) {
    for (u32 i = 0; i < n; i++) {
        const struct bench_row *r = &rows[i];
        json_comma(out);
        str_addz(out, "\n{");
        put_machine(out, m);
        json_put_u64(out, "num_nodes", 1);
        json_put_str(out, "sharding", "pipeline");
        json_put_u64(out, "threads", r->c.threads);
        json_put_u64(out, "batch", r->c.batch);
        json_put_u64(out, "depth", r->c.depth);
        json_put_u64(out, "pp_tokens", r->c.pp);
        json_put_u64(out, "tg_tokens", r->c.tg);
        json_put_u64(out, "repeat", r->n);
        put_rates(out, "prompt", r->prompt_tps, r->n, (u64)r->c.pp * r->c.batch, &r->prompt,
                  &m->peak);
        put_rates(out, "generation", r->generation_tps, r->n, (u64)r->c.tg * r->c.batch,
                  &r->generation, &m->peak);
        json_put_u64(out, "peak_memory", r->peak_memory);
        str_addc(out, '}');
    }
}
