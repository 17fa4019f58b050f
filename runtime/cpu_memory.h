// Host memory for CPU places: aligned, reused by size, on guard pages in a test mode.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "graph/buffer.h"
#include "runtime/device.h"

namespace tessera {

inline constexpr int64_t kLargePage = 2 << 20;

// The memory of one place. What it gives out may outlive it.
class CpuMemory {
 public:
  // Blocks that are given back are kept for others of their size, up to this many bytes; the least
  // recently used make room.
  explicit CpuMemory(int64_t most_cached = int64_t{4} << 30);
  // Aligned to 64 bytes, large blocks to 2 MiB. Large blocks that are written whole have large
  // pages. Those written in parts have none, as the system clears a large page when any of it is
  // touched: 512 KB spread over the heads of a 128 MB cache had all of that cleared.
  // With GUARD_PAGES=1 the block ends at an unmapped page, and fresh bytes are 0xFF: NaN to every
  // float.
  absl::StatusOr<std::shared_ptr<Storage>> Allocate(int64_t bytes, Written written);
  MemoryStats Stats() const;
  void Trim();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace tessera
