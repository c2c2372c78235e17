/* NVIDIA's management library, without its header: it is there where the driver is, and a machine
 * without one is the normal case. Prototypes as in its documentation ("NVML API Reference Guide");
 * the structs and the _v2 names are a stable ABI. Its calls block for as long as a sleeping GPU
 * takes to wake up, hence the prober's own thread. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/arena.h"
#include "base/str.h"
#include "node/probe.h"

typedef struct nvml_device *nvml_handle;
struct nvml_memory {
    unsigned long long total, free, used;
};
struct nvml_utilization {
    unsigned gpu, memory;
};
enum {
    NVML_TEMPERATURE_GPU = 0,
    NVML_CLOCKS_THERMAL = 0x20 | 0x40,
    NVML_CLOCKS_POWER = 0x04 | 0x80
};

struct nvml {
    void *lib;
    int (*init)(void);
    int (*shutdown)(void);
    int (*count)(unsigned *n);
    int (*handle)(unsigned i, nvml_handle *out);
    int (*name)(nvml_handle h, char *out, unsigned cap);
    int (*memory)(nvml_handle h, struct nvml_memory *out);
    int (*temperature)(nvml_handle h, int sensor, unsigned *out);
    int (*power)(nvml_handle h, unsigned *milliwatts);
    int (*utilization)(nvml_handle h, struct nvml_utilization *out);
    int (*throttle)(nvml_handle h, unsigned long long *reasons);
};

/* Data and function pointers are the same to POSIX, not to C: hence the copy. */
static bool load(struct nvml *n, const char *name, void *fn) {
    void *sym = dlsym(n->lib, name);
    __builtin_memcpy(fn, &sym, sizeof sym);
    return sym != NULL;
}

void *probe_nvml_open(const char *path) {
    static const char *const NAMES[] = {"libnvidia-ml.so.1", "libnvidia-ml.so"};
    struct nvml *n = xcalloc(1, sizeof *n);
    if (path) n->lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; !path && !n->lib && i < ARRAY_LEN(NAMES); i++)
        n->lib = dlopen(NAMES[i], RTLD_NOW | RTLD_LOCAL);
    bool ok = n->lib && load(n, "nvmlInit_v2", &n->init) && load(n, "nvmlShutdown", &n->shutdown) &&
              load(n, "nvmlDeviceGetCount_v2", &n->count) &&
              load(n, "nvmlDeviceGetHandleByIndex_v2", &n->handle) &&
              load(n, "nvmlDeviceGetName", &n->name) &&
              load(n, "nvmlDeviceGetMemoryInfo", &n->memory) && n->init() == 0;
    if (!ok) {
        if (n->lib) dlclose(n->lib);
        free(n);
        return NULL;
    }
    load(n, "nvmlDeviceGetTemperature", &n->temperature); /* not every board answers these */
    load(n, "nvmlDeviceGetPowerUsage", &n->power);
    load(n, "nvmlDeviceGetUtilizationRates", &n->utilization);
    load(n, "nvmlDeviceGetCurrentClocksThrottleReasons", &n->throttle);
    return n;
}

void probe_nvml_close(void *nvml) {
    struct nvml *n = nvml;
    if (!n) return;
    n->shutdown();
    dlclose(n->lib);
    free(n);
}

static void look_at(struct nvml *n, nvml_handle h, struct probe *p, struct probe_gpu *g) {
    struct nvml_memory mem = {0};
    struct nvml_utilization use = {0};
    unsigned v = 0;
    unsigned long long why = 0;
    if (n->name(h, g->name, sizeof g->name) != 0) str_copy(g->name, sizeof g->name, "NVIDIA GPU");
    g->name[sizeof g->name - 1] = 0;
    str_copy(g->driver, sizeof g->driver, "nvidia");
    if (n->memory(h, &mem) == 0) { /* refused where GPU and CPU share it (DGX Spark) */
        g->mem_total_bytes = mem.total;
        g->mem_available_bytes = mem.free;
    }
    if (n->temperature && n->temperature(h, NVML_TEMPERATURE_GPU, &v) == 0) g->temperature_c = v;
    if (n->power && n->power(h, &v) == 0) g->power_mw = v;
    if (n->utilization && n->utilization(h, &use) == 0) g->load_pct = MIN(use.gpu, 100u);
    if (!n->throttle || n->throttle(h, &why) != 0 || *p->throttle) return;
    if (why & NVML_CLOCKS_THERMAL)
        str_copy(p->throttle, sizeof p->throttle, "temperature");
    else if (why & NVML_CLOCKS_POWER && g->load_pct > 0)
        str_copy(p->throttle, sizeof p->throttle, "power");
}

void probe_nvml_look(void *nvml, struct probe *p) {
    struct nvml *n = nvml;
    unsigned count = 0;
    u64 power = 0;
    if (!n || n->count(&count) != 0) return;
    for (unsigned i = 0; i < count && p->n_gpus < PROBE_GPUS_MAX; i++) {
        nvml_handle h;
        if (n->handle(i, &h) != 0) continue;
        struct probe_gpu *g = &p->gpus[p->n_gpus];
        *g = (struct probe_gpu){0};
        look_at(n, h, p, g);
        power += g->power_mw;
        p->n_gpus++;
    }
    if (*p->power_source || !power) return;
    p->power_mw = (u32)power;
    str_copy(p->power_source, sizeof p->power_source, "nvml");
}
