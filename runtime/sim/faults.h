// Planted faults of the simulated driver: whether one meets the call at hand.
#pragma once

#include "runtime/sim/sim.h"

namespace tessera::sim {

bool Strikes(Fault fault);

}  // namespace tessera::sim
