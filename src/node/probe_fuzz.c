/* Fuzz target: what helper programs and the kernel print. */
#include <stdlib.h>
#include <string.h>

#include "node/probe.h"

int LLVMFuzzerTestOneInput(const u8 *data, size_t n);
int LLVMFuzzerTestOneInput(const u8 *data, size_t n) {
    struct probe p = {.n_cores_big = 4};
    struct probe_memory m = {0};
    char *text = malloc(n + 1);
    if (!text) return 0;
    memcpy(text, data, n);
    text[n] = 0;
    probe_powermetrics(text, 8, &p);
    probe_macmon(text, 8, &p);
    probe_proc_load(text, &p, &m);
    probe_proc_load(text, &p, &m);
    probe_proc_swap(text, &p);
    if (p.load_pct > 100 || p.n_gpus > 1) abort();
    free(text);
    return 0;
}
