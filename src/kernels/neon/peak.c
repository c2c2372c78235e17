#include "kernels/neon/dot.h"

#define PEAK_SET PEAK_NEON
#include "kernels/peak.inc"
