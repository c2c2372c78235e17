/* id.h - random names. Any thread. */
#pragma once

#include "base/base.h"

/* UUID version 4 (RFC 9562), lower case. */
void id_uuid(char out[37]);
