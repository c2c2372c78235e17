#include "kernels/avx512/dot.h"

#define PEAK_SET PEAK_AVX512
#include "kernels/peak.inc"
