// The Target of the machine that we run on, read from the CPU itself and never from LLVM.
#pragma once

#include "graph/target.h"

namespace tessera {

// The host as a Target, computed once: instruction set level and every feature in Clang's spelling
// (only names that Clang 14 knows already), vector width and registers, cache sizes from sysfs,
// cores from CountCores; the CPU_FEATURES flag may change features. AMX is listed only where the
// kernel granted this process its tile state, which the first call asks for: call it before the
// threads that run kernels start.
const Target& HostTarget();

// How many cores we may use: the scheduler's mask and the container's CPU quota, cut by the CORES
// flag where that is positive; at least one.
int CountCores();

}  // namespace tessera
