// What the simulated driver's functions share: handles, the lock, lost devices.
#pragma once

#include "runtime/sim/machine.h"

namespace tessera::sim {

using Lock = std::lock_guard<std::recursive_mutex>;
inline Machine& M() { return Machine::Get(); }
inline Stream* Of(cuda::CUstream s) { return reinterpret_cast<Stream*>(s); }
inline Event* Of(cuda::CUevent e) { return reinterpret_cast<Event*>(e); }
inline Function* Of(cuda::CUfunction f) { return reinterpret_cast<Function*>(f); }
inline Device* Of(cuda::CUcontext c) { return reinterpret_cast<Device*>(c); }

inline cuda::CUresult StateOf(const Stream* s) {
  return s == nullptr ? cuda::kInvalidValue : s->device->lost;
}

#define RETURN_IF_LOST(stream) \
  if (const cuda::CUresult state = StateOf(stream); state != cuda::kSuccess) return state

// The functions that launch kernels and graphs of kernels.
void FillLaunches(cuda::DriverTable& t);

}  // namespace tessera::sim
