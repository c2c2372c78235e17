/* doctor_look.c - facts about this machine that are had alike on every system. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/file.h"
#include "base/paths.h"
#include "base/sysinfo.h"
#include "cli/doctor.h"
#include "node/store.h"

bool doctor_run(const char *command, char *out, size_t cap) {
    char quiet[512];
    snprintf(quiet, sizeof quiet, "%s 2>/dev/null </dev/null", command);
    *out = 0;
    FILE *f = popen(quiet, "r");
    if (!f) return false;
    size_t n = fread(out, 1, cap - 1, f);
    char rest[4096];
    out[n] = 0;
    while (fread(rest, 1, sizeof rest, f) > 0) continue; /* so that it ends by itself */
    return pclose(f) == 0 && n > 0;
}

/* By doing it: permissions alone don't tell of read-only disks and full ones. */
static void try_folder(const char *dir, char error[DOCTOR_TEXT]) {
    char path[1100];
    struct err e = {0};
    snprintf(path, sizeof path, "%s/.doctor.%d", dir, (int)getpid());
    if (!file_make_dirs(dir, &e) || !file_write(path, "x", 1, 0600, &e))
        str_copy(error, DOCTOR_TEXT, e.msg);
    unlink(path);
}

static void look_at_folders(struct doctor_machine *m) {
    struct paths p;
    struct err e = {0};
    struct statvfs fs;
    if (!paths_init(&p, NULL, &e)) {
        str_copy(m->state_error, sizeof m->state_error, e.msg);
        return;
    }
    struct store_cfg cfg = store_cfg_env();
    const char *data = paths_env("DATA_DIR");
    str_copy(m->models_dir, sizeof m->models_dir, cfg.models_dir ? cfg.models_dir : p.models);
    str_copy(m->state_dir, sizeof m->state_dir, data ? data : p.state);
    try_folder(m->models_dir, m->models_error);
    try_folder(m->state_dir, m->state_error);
    if (statvfs(m->models_dir, &fs) == 0) m->disk_free_bytes = (u64)fs.f_bavail * fs.f_frsize;
}

static void look_at_limits(struct doctor_machine *m) {
    struct rlimit l;
    if (getrlimit(RLIMIT_NOFILE, &l) == 0) m->n_files_max = l.rlim_cur;
#ifdef RLIMIT_MEMLOCK
    if (getrlimit(RLIMIT_MEMLOCK, &l) == 0) m->memlock_bytes = l.rlim_cur;
#endif
}

void doctor_look(struct doctor_facts *f) {
    struct netif *v = calloc(NETIF_MAX, sizeof *v);
    struct sysinfo_mem mem;
    if (v) f->n_ifaces = netif_list(v, NETIF_MAX);
    for (u32 i = 0; i < f->n_ifaces; i++) f->ifaces[i].net = v[i];
    free(v);
    sysinfo_mem(&mem);
    f->machine.mem_total_bytes = mem.total_bytes;
    f->machine.mem_available_bytes = mem.available_bytes;
    f->machine.ram_bytes = (u64)sysconf(_SC_PHYS_PAGES) * (u64)sysconf(_SC_PAGESIZE);
    sysinfo_os(f->machine.os, sizeof f->machine.os);
    look_at_folders(&f->machine);
    look_at_limits(&f->machine);
    doctor_look_system(&f->machine, f->bus_port);
}
