#include "kernels/neon/vec.h"

#define PEAK_SET PEAK_NEON
#include "kernels/peak.inc"
