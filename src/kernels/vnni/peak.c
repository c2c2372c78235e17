#include "kernels/avx512/dot.h"

#define PEAK_SET PEAK_VNNI
#include "kernels/peak.inc"
