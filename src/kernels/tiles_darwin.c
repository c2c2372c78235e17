#include "kernels/sets.h"

#if defined(__x86_64__)
bool amx_allowed(void) { /* no Mac has them */
    return false;
}
#endif
