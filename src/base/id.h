/* id.h - random names. Any thread. */
#pragma once

#include "base/base.h"

enum { ID_UUID_CAP = 37 };

/* UUID version 7 (RFC 9562), lower case: 74 random bits behind the wall time in milliseconds. */
void id_uuid(char out[ID_UUID_CAP]);
