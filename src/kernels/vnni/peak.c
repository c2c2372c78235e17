#include "kernels/avx512/dot.h"

#define PEAK_SET   PEAK_VNNI
#define PEAK_FUSED 1
#include "kernels/peak.inc"
