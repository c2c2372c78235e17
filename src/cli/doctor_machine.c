/* doctor_machine.c - findings about this machine: memory, disk, limits, power, accelerators. */
#include <stdio.h>
#include <string.h>

#include "cli/doctor.h"

static const u64 GIB = 1ull << 30;

static void judge_memory(const struct doctor_machine *m, struct doctor_report *r) {
    char avail[32], total[32], ram[32];
    size_text(m->mem_available_bytes, avail);
    size_text(m->mem_total_bytes, total);
    size_text(m->ram_bytes, ram);
    if (!m->mem_total_bytes) return;
    u64 swap_used = m->swap_total_bytes - MIN(m->swap_total_bytes, m->swap_free_bytes);
    if (m->mem_available_bytes < m->mem_total_bytes / 10 || m->mem_available_bytes < GIB / 2)
        doctor_add(r, DOCTOR_WARNING, "memory",
                   "A model that does not fit is not loaded, or ends when memory runs out.",
                   "close other programs; a smaller quantization (skein models); more nodes",
                   "only %s of %s are free", avail, total);
    else
        doctor_add(r, DOCTOR_FINE, "memory", NULL, NULL, "%s of %s are free", avail, total);
    if (m->ram_bytes && m->mem_total_bytes < m->ram_bytes - m->ram_bytes / 50)
        doctor_add(r, DOCTOR_NOTE, "memory", "A container or a service limits this process.",
                   "docker run --memory, or MemoryMax= in the systemd unit",
                   "%s of this machine's %s may be used here", total, ram);
    if (swap_used > m->ram_bytes / 8 && swap_used > GIB / 2)
        doctor_add(r, DOCTOR_WARNING, "swap",
                   "Memory was short: weights that are swapped out make every token wait for the "
                   "disk.",
                   "close other programs, then sudo swapoff -a && sudo swapon -a (Linux)",
                   "%s are swapped out", size_text(swap_used, avail));
}

static void judge_disk(const struct doctor_machine *m, struct doctor_report *r) {
    char space[32], fix[DOCTOR_TEXT];
    snprintf(fix, sizeof fix,
             "ls -ld '%.150s'; sudo chown \"$USER\" '%.150s'; or another folder: "
             "SKEIN_MODELS_DIR",
             m->models_dir, m->models_dir);
    if (*m->models_error)
        doctor_add(r, DOCTOR_BROKEN, "models", "Models can't be fetched.", fix, "%s",
                   m->models_error);
    if (*m->state_error)
        doctor_add(r, DOCTOR_BROKEN, "state", "The node can't keep its id and what it is to serve.",
                   "make the folder writable, or use another: --data-dir", "%s", m->state_error);
    if (*m->models_error || !*m->models_dir) return;
    size_text(m->disk_free_bytes, space);
    if (m->disk_free_bytes < 10 * GIB)
        doctor_add(r, m->disk_free_bytes < GIB ? DOCTOR_BROKEN : DOCTOR_WARNING, "disk",
                   "A model of 8 billion weights takes 5 GB, one of 70 billion 40 GB.",
                   "skein models, skein rm MODEL; or another disk: SKEIN_MODELS_DIR",
                   "%s are left for models in %s", space, m->models_dir);
    else
        doctor_add(r, DOCTOR_FINE, "disk", NULL, NULL, "%s are free for models in %s", space,
                   m->models_dir);
}

static void judge_limits(const struct doctor_machine *m, struct doctor_report *r) {
    if (m->n_files_max && m->n_files_max < 1024)
        doctor_add(r, DOCTOR_WARNING, "files",
                   "Each client and each node takes some: beyond it connections are refused.",
                   "ulimit -n 4096, or LimitNOFILE=4096 in the systemd unit",
                   "a process may open %llu files only", (unsigned long long)m->n_files_max);
    if (m->clock_unsynced)
        doctor_add(r, DOCTOR_NOTE, "clock",
                   "Nothing in the cluster waits for it, but logs can't be compared.",
                   "sudo timedatectl set-ntp true", "the clock is not kept in time by a server");
}

static void judge_power(const struct doctor_machine *m, struct doctor_report *r) {
    if (m->speed_pct && m->speed_pct < 100)
        doctor_add(r, DOCTOR_WARNING, "thermal", "It is too hot, or short of power.",
                   "let air to it, put it on its charger, lift the limit of its power profile",
                   "the processor is held at %u %% of its speed", m->speed_pct);
    else if (m->n_throttles)
        doctor_add(r, DOCTOR_NOTE, "thermal", "It is too hot under load.", "clean it, cool it",
                   "the processor has slowed itself down %llu times since the start",
                   (unsigned long long)m->n_throttles);
    if (strcmp(m->governor, "powersave") == 0 || strcmp(m->governor, "conservative") == 0)
        doctor_add(r, DOCTOR_NOTE, "governor",
                   "Clocks rise late: short steps of decoding may run slowly. (With intel_pstate "
                   "or amd_pstate this name is normal and the energy preference decides.)",
                   "sudo cpupower frequency-set -g performance, or powerprofilesctl set "
                   "performance",
                   "the processor's governor is %s", m->governor);
    if (m->on_battery)
        doctor_add(r, DOCTOR_WARNING, "power", "Most machines slow down, and it will be empty.",
                   "put it on its charger", "this machine runs from its battery");
    if (m->low_power)
        doctor_add(r, DOCTOR_WARNING, "power", "The processor is held below its speed.",
                   "sudo pmset -a lowpowermode 0", "low power mode is on");
}

static void judge_gpus(const struct doctor_machine *m, struct doctor_report *r) {
    for (u32 i = 0; i < m->n_gpus; i++) {
        const struct doctor_gpu *g = &m->gpus[i];
        if (g->is_unusable)
            doctor_add(r, DOCTOR_WARNING, "gpu",
                       "Its memory and temperature can't be read, and nothing can compute on it.",
                       strcmp(g->driver, "nouveau") == 0
                           ? "install NVIDIA's driver in the place of nouveau, then restart"
                           : "install the vendor's driver; after an update of the kernel or of "
                             "the driver: restart",
                       "%s is there, but %s%s", g->name,
                       *g->driver ? "its library does not work with the driver "
                                  : "it has no driver",
                       g->driver);
        else
            doctor_add(r, DOCTOR_NOTE, "gpu", NULL, NULL,
                       "%s is there; this build computes on the processor", g->name);
    }
}

void doctor_judge_machine(const struct doctor_facts *f, struct doctor_report *r) {
    judge_memory(&f->machine, r);
    judge_disk(&f->machine, r);
    judge_limits(&f->machine, r);
    judge_power(&f->machine, r);
    judge_gpus(&f->machine, r);
}
