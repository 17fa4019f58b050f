// Copies between host and device through pinned memory, on the device's copy stream.
#pragma once

#include <array>
#include <mutex>

#include "absl/status/status.h"
#include "runtime/cuda_driver.h"

namespace tessera::cuda {

// A ring of pinned chunks: the host fills or empties one while the copy engine moves others.
class Staging {
 public:
  explicit Staging(DriverDevice& device) : device_(device) {}
  Staging(const Staging&) = delete;

  // Returns when the host's memory is free again; the device goes on by itself.
  absl::Status CopyIn(CUdeviceptr to, const char* host, int64_t bytes);
  // Returns when all bytes are there.
  absl::Status CopyOut(char* host, CUdeviceptr from, int64_t bytes);

 private:
  static constexpr int64_t kChunkBytes = int64_t{4} << 20;
  struct Chunk {
    char* data = nullptr;
    CUevent free = nullptr;  // when the copy engine is done with it
  };
  // False: there is no pinned memory, and copies go without.
  absl::StatusOr<bool> Prepare();

  DriverDevice& device_;
  std::mutex mutex_;
  bool refused_ = false;
  std::array<Chunk, 4> chunks_;
};

}  // namespace tessera::cuda
