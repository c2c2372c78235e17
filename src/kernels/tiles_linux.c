#include "kernels/sets.h"

#if defined(__x86_64__)
#include <sys/syscall.h>
#include <unistd.h>

/* Threads have what their process was allowed (Linux, Documentation/arch/x86/xstate.rst). */
bool amx_allowed(void) {
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}
#endif
