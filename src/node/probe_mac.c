/* The output of two programs on macOS. `powermetrics` comes with the system and needs root:
 * "key: value unit" lines, one set a sample, values with their unit behind them. `macmon pipe`
 * (Homebrew) needs no rights and prints one JSON object a sample. Pure, so that they are tested
 * elsewhere. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "node/probe.h"

/* The number behind `key` at the beginning of a line, of the first line that has it. */
static bool line_number(const char *text, const char *key, double *out) {
    size_t n = strlen(key);
    for (const char *at = text; at; at = strchr(at, '\n')) {
        at += *at == '\n';
        if (strncmp(at, key, n) != 0) continue;
        const char *v = at + n + strspn(at + n, " \t");
        char *end;
        double x = strtod(v, &end);
        if (end == v || !(x >= 0 && x < 1e6)) continue;
        end += strspn(end, " ");
        *out = *end == 'W' ? x * 1000 : x; /* older ones print watts */
        return true;
    }
    return false;
}

/* The mean over "E-Cluster ...", "E0-Cluster ...", "E1-Cluster ..." of a letter. */
static bool cluster_load(const char *text, char letter, u32 *pct) {
    static const char *const NAMES[] = {"-Cluster", "0-Cluster", "1-Cluster", "2-Cluster",
                                        "3-Cluster"};
    double sum = 0, v;
    u32 n = 0;
    for (size_t i = 0; i < ARRAY_LEN(NAMES); i++) {
        char key[64] = {letter};
        str_copy(key + 1, sizeof key - 1, NAMES[i]);
        size_t k = strlen(key);
        str_copy(key + k, sizeof key - k, " HW active residency:");
        if (!line_number(text, key, &v)) continue;
        sum += MIN(v, 100.0);
        n++;
    }
    if (n) *pct = (u32)(sum / n + 0.5);
    return n > 0;
}

/* All cores, by the cores of each kind. */
static void mean_load(struct probe *p, u32 n_cores) {
    u32 n = MAX(n_cores, 1), big = MIN(p->n_cores_big, n);
    p->load_pct = (p->load_big_pct * big + p->load_small_pct * (n - big)) / n;
}

static struct probe_gpu *the_gpu(struct probe *p) {
    if (!p->n_gpus) {
        p->gpus[0] = (struct probe_gpu){.name = "Apple GPU", .driver = "metal"};
        p->n_gpus = 1;
    }
    return &p->gpus[0];
}

bool probe_powermetrics(const char *text, u32 n_cores, struct probe *p) {
    double v, cpu = 0, gpu = 0, ane = 0, sum = 0;
    bool has_power = line_number(text, "CPU Power:", &cpu);
    bool has_gpu = line_number(text, "GPU Power:", &gpu);
    line_number(text, "ANE Power:", &ane);
    if (has_power) sum = cpu + gpu + ane;
    has_power = line_number(text, "Combined Power (CPU + GPU + ANE):", &sum) || has_power;
    if (has_power) {
        p->power_mw = (u32)sum;
        str_copy(p->power_source, sizeof p->power_source, "powermetrics");
    }
    if (has_gpu) the_gpu(p)->power_mw = (u32)gpu;
    if (line_number(text, "GPU HW active residency:", &v))
        the_gpu(p)->load_pct = (u32)(MIN(v, 100.0) + 0.5);
    bool has_load = cluster_load(text, 'P', &p->load_big_pct);
    has_load = cluster_load(text, 'E', &p->load_small_pct) || has_load;
    if (has_load) mean_load(p, n_cores);
    if (line_number(text, "CPU die temperature:", &v)) p->temperature_c = (u32)(v + 0.5);
    const char *level = strstr(text, "Current pressure level:");
    if (level) {
        level += strlen("Current pressure level:");
        level += strspn(level, " \t");
        str_copy(p->throttle, sizeof p->throttle,
                 strncmp(level, "Nominal", 7) == 0 ? "" : "temperature");
    }
    return has_power || has_gpu || has_load || level;
}

static double number(const json_t *o, const char *key) {
    double v = json_number_value(json_object_get(o, key));
    return v > 0 && v < 1e15 ? v : 0;
}

/* [MHz, share of 1]. */
static u32 usage_pct(const json_t *o, const char *key) {
    double v = json_number_value(json_array_get(json_object_get(o, key), 1));
    return v > 0 ? (u32)(MIN(v, 1.0) * 100 + 0.5) : 0;
}

bool probe_macmon(const char *text, u32 n_cores, struct probe *p) {
    json_t *j = json_parse((struct view){text, strcspn(text, "\n")}, NULL);
    const json_t *temp = json_object_get(j, "temp"), *mem = json_object_get(j, "memory");
    bool ok = json_is_object(j) && (temp || json_object_get(j, "all_power"));
    if (ok) {
        double sys = number(j, "sys_power"), all = number(j, "all_power");
        p->power_mw = (u32)(MIN(sys > 0 ? sys : all, 1e6) * 1000); /* the whole machine's first */
        str_copy(p->power_source, sizeof p->power_source, "macmon");
        p->temperature_c = (u32)(MIN(number(temp, "cpu_temp_avg"), 1000.0) + 0.5);
        p->load_big_pct = usage_pct(j, "pcpu_usage");
        p->load_small_pct = usage_pct(j, "ecpu_usage");
        mean_load(p, n_cores);
        struct probe_gpu *g = the_gpu(p);
        g->load_pct = usage_pct(j, "gpu_usage");
        g->power_mw = (u32)(MIN(number(j, "gpu_power"), 1e6) * 1000);
        g->temperature_c = (u32)(MIN(number(temp, "gpu_temp_avg"), 1000.0) + 0.5);
        double swap = number(mem, "swap_total"), used = number(mem, "swap_usage");
        p->swap_total_bytes = (u64)swap;
        p->swap_available_bytes = (u64)(swap > used ? swap - used : 0);
    }
    json_decref(j);
    return ok;
}
