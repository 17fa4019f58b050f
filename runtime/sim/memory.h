// Memory of a simulated GPU: each allocation by itself between unmapped pages, alive in stream
// order.
#pragma once

#include <cstdint>
#include <deque>
#include <map>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tessera::sim {

// Not thread-safe. Addresses are the host's, so that kernels reach them; outside of the time
// between Enter and Leave they are unmapped, and are given to no other allocation for long after.
class Memory {
 public:
  explicit Memory(int64_t capacity) : capacity_(capacity) {}
  ~Memory();
  Memory(const Memory&) = delete;

  // An address range of its own, ending at an unmapped page; not yet to be touched.
  absl::StatusOr<uint64_t> Reserve(int64_t bytes);
  // From now on it is readable and writable, and all NaNs. DataLoss: not a reserved address.
  absl::Status Enter(uint64_t address);
  absl::Status Leave(uint64_t address);
  // Whether all of the range lies in one allocation that is alive.
  bool Holds(uint64_t address, int64_t bytes) const;

  int64_t used() const { return used_; }
  int64_t reserved() const { return reserved_; }  // with what was freed and not given back
  int64_t capacity() const { return capacity_; }
  void set_capacity(int64_t bytes) { capacity_ = bytes; }
  void Trim() { reserved_ = used_; }

 private:
  struct Block {
    char* base;
    size_t mapped;
    int64_t bytes;
    bool alive = false, left = false;
  };
  std::map<uint64_t, Block> blocks_;  // by first address
  std::deque<uint64_t> left_;         // unmapped for good when it grows long
  int64_t capacity_;
  int64_t used_ = 0, reserved_ = 0;
};

}  // namespace tessera::sim
