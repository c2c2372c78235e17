#include "kernels/neon/vec.h"

#define PEAK_SET PEAK_DOTPROD
#include "kernels/peak.inc"
