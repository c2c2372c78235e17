/* version.h - what this build calls itself. */
#pragma once

#include "base/base.h"

/* Version of the messages between processes (wire/). Peers with another one are refused. */
enum { SKEIN_PROTOCOL = 1 };

#define SKEIN_VERSION "0.1.0"

/* "0.1.0 (build <git describe>)" and the git part alone. */
const char *version_text(void);
const char *version_build(void);
