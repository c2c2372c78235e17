/* Written from Apple's headers and man pages; not yet run on a Mac (README says so). */
#include <mach-o/dyld.h>
#include <mach/mach.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/sysctl.h>
#include <unistd.h>
#include <uuid/uuid.h>

#include "base/err.h"
#include "base/paths.h"
#include "base/str.h"
#include "base/sysinfo.h"

static u64 number(const char *name) {
    u64 v = 0;
    size_t n = sizeof v;
    return sysctlbyname(name, &v, &n, NULL, 0) == 0 ? v : 0;
}

static bool text(const char *name, char *out, size_t cap) {
    size_t n = cap;
    return sysctlbyname(name, out, &n, NULL, 0) == 0 && n > 0;
}

void sysinfo_mem(struct sysinfo_mem *m) {
    m->total_bytes = number("hw.memsize");
    m->available_bytes = m->total_bytes;
    vm_statistics64_data_t vm;
    mach_msg_type_number_t n = HOST_VM_INFO64_COUNT;
    if (host_statistics64(mach_host_self(), HOST_VM_INFO64, (host_info64_t)&vm, &n) != KERN_SUCCESS)
        return;
    u64 pages = (u64)vm.free_count + vm.inactive_count + vm.purgeable_count;
    m->available_bytes = MIN(pages * (u64)vm_page_size, m->total_bytes);
}

u64 sysinfo_rss_bytes(void) {
    mach_task_basic_info_data_t info;
    mach_msg_type_number_t n = MACH_TASK_BASIC_INFO_COUNT;
    if (task_info(mach_task_self(), MACH_TASK_BASIC_INFO, (task_info_t)&info, &n) != KERN_SUCCESS)
        return 0;
    return info.resident_size;
}

u64 sysinfo_peak_rss_bytes(void) {
    struct rusage u;
    return getrusage(RUSAGE_SELF, &u) == 0 ? (u64)u.ru_maxrss : 0; /* bytes here, not KiB */
}

void sysinfo_peak_rss_reset(void) {}

u32 sysinfo_cpu_quota(void) {
    return UINT32_MAX;
}

u32 sysinfo_n_cpus(void) {
    i32 v = 0;
    size_t n = sizeof v;
    return sysctlbyname("hw.logicalcpu", &v, &n, NULL, 0) == 0 && v > 0 ? (u32)v : 1;
}

void sysinfo_cpu_name(char *out, size_t cap) {
    if (!text("machdep.cpu.brand_string", out, cap)) str_copy(out, cap, "Apple processor");
}

void sysinfo_os(char *out, size_t cap) {
    char version[64] = "", build[64] = "";
    text("kern.osproductversion", version, sizeof version);
    text("kern.osversion", build, sizeof build);
    snprintf(out, cap, "macOS %s (%s)", version, build);
}

void sysinfo_machine(char *out, size_t cap) {
    uuid_t id;
    struct timespec wait = {.tv_sec = 1};
    uuid_string_t shown = "";
    if (gethostuuid(id, &wait) == 0) uuid_unparse_lower(id, shown);
    str_copy(out, cap, shown);
}

void sysinfo_hostname(char *out, size_t cap) {
    if (gethostname(out, cap) != 0 || !out[0]) str_copy(out, cap, "localhost");
    out[cap - 1] = 0;
}

bool paths_self(char *out, size_t cap, struct err *e) {
    u32 n = (u32)cap;
    if (_NSGetExecutablePath(out, &n) != 0)
        return err_set(e, ERR_LIMIT, "the program's path is too long");
    return true;
}
