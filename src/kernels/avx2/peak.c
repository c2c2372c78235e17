#include "kernels/avx2/vec.h"

#define PEAK_SET PEAK_AVX2
#include "kernels/peak.inc"
