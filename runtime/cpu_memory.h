// Host memory for CPU places: aligned, reused by size, on guard pages in a test mode.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "graph/buffer.h"
#include "runtime/device.h"

namespace tessera {

// The memory of one place. What it gives out may outlive it.
class CpuMemory {
 public:
  CpuMemory();
  // Aligned to 64 bytes, large blocks to 2 MiB. With GUARD_PAGES=1 the block ends at an unmapped
  // page, and fresh bytes are 0xFF: NaN to every float.
  absl::StatusOr<std::shared_ptr<Storage>> Allocate(int64_t bytes);
  MemoryStats Stats() const;
  void Trim();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace tessera
