// What depends on nothing that may change from one run of a plan to the next.
#pragma once

#include <vector>

#include "schedule/plan.h"

namespace tessera {

// By buffer: lasting leaves that no step writes, and temps that one step, or one loop, computes
// from nothing else.
std::vector<bool> LastingBuffers(const Plan& plan, const std::vector<bool>& slots);

}  // namespace tessera
