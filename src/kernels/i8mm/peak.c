#include "kernels/i8mm/pairs.h"

#define PEAK_SET   PEAK_I8MM
#define PEAK_FUSED 1
#define PEAK_PAIRS 1
#include "kernels/peak.inc"
