#include "base/version.h"

#ifndef SKEIN_BUILD
#define SKEIN_BUILD "unknown"
#endif

const char *version_text(void) {
    return SKEIN_VERSION " (build " SKEIN_BUILD ")";
}
const char *version_build(void) {
    return SKEIN_BUILD;
}
