#include "kernels/neon/dot.h"

#define PEAK_SET   PEAK_DOTPROD
#define PEAK_FUSED 1
#include "kernels/peak.inc"
