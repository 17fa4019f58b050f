// The process's runtime counters.
#pragma once

#include "runtime/runtime.h"

namespace tessera {

void Count(int64_t RuntimeStats::*counter, int64_t by = 1);

}  // namespace tessera
