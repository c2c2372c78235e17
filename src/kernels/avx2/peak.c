#include "kernels/avx2/dot.h"

#define PEAK_SET PEAK_AVX2
#include "kernels/peak.inc"
