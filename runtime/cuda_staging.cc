// The ring of pinned chunks.
#include "runtime/cuda_staging.h"

#include <algorithm>
#include <cstring>

#include "graph/status.h"

namespace tessera::cuda {

absl::StatusOr<bool> Staging::Prepare() {
  const DriverTable& d = device_.driver();
  for (Chunk& c : chunks_) {
    if (c.data != nullptr || refused_) continue;
    if (c.free == nullptr) {
      RETURN_IF_ERROR(
          device_.Check(d.cuEventCreate(&c.free, kEventDisableTiming), "making an event"));
    }
    void* p = nullptr;
    const CUresult r = d.cuMemHostAlloc(&p, kChunkBytes, 0);
    if (r == kOutOfMemory) {
      refused_ = true;
      break;
    }
    RETURN_IF_ERROR(device_.Check(r, "allocating pinned memory"));
    c.data = static_cast<char*>(p);
  }
  return !refused_;
}

absl::Status Staging::CopyIn(CUdeviceptr to, const char* host, int64_t bytes) {
  std::lock_guard lock(mutex_);
  const DriverTable& d = device_.driver();
  ASSIGN_OR_RETURN(const bool pinned, Prepare());
  // Not before the memory is the tensor's, and before any kernel reads it.
  RETURN_IF_ERROR(device_.Follow(device_.copy(), device_.compute()));
  if (!pinned) {
    RETURN_IF_ERROR(
        device_.Check(d.cuMemcpyHtoDAsync(to, host, static_cast<size_t>(bytes), device_.copy()),
                      "copying to the device"));
    return device_.Follow(device_.compute(), device_.copy());
  }
  for (int64_t at = 0, i = 0; at < bytes; at += kChunkBytes, ++i) {
    const Chunk& c = chunks_[i % chunks_.size()];
    const auto n = static_cast<size_t>(std::min(kChunkBytes, bytes - at));
    RETURN_IF_ERROR(device_.Check(d.cuEventSynchronize(c.free), "waiting for a copy"));
    std::memcpy(c.data, host + at, n);
    RETURN_IF_ERROR(device_.Check(
        d.cuMemcpyHtoDAsync(to + static_cast<CUdeviceptr>(at), c.data, n, device_.copy()),
        "copying to the device"));
    RETURN_IF_ERROR(device_.Check(d.cuEventRecord(c.free, device_.copy()), "recording an event"));
  }
  return device_.Follow(device_.compute(), device_.copy());
}

absl::Status Staging::CopyOut(char* host, CUdeviceptr from, int64_t bytes) {
  std::lock_guard lock(mutex_);
  const DriverTable& d = device_.driver();
  ASSIGN_OR_RETURN(const bool pinned, Prepare());
  RETURN_IF_ERROR(device_.Follow(device_.copy(), device_.compute()));
  if (!pinned) {
    RETURN_IF_ERROR(
        device_.Check(d.cuMemcpyDtoHAsync(host, from, static_cast<size_t>(bytes), device_.copy()),
                      "copying from the device"));
    return device_.Check(d.cuStreamSynchronize(device_.copy()), "copying from the device");
  }
  const int64_t count = (bytes + kChunkBytes - 1) / kChunkBytes;
  const auto ring = static_cast<int64_t>(chunks_.size());
  const auto size = [&](int64_t i) {
    return static_cast<size_t>(std::min(kChunkBytes, bytes - i * kChunkBytes));
  };
  // A ring ahead of the host.
  for (int64_t i = 0; i < count + ring; ++i) {
    const Chunk& c = chunks_[i % ring];
    RETURN_IF_ERROR(device_.Check(d.cuEventSynchronize(c.free), "copying from the device"));
    if (const int64_t full = i - ring; full >= 0) {
      std::memcpy(host + full * kChunkBytes, c.data, size(full));
    }
    if (i >= count) continue;
    RETURN_IF_ERROR(
        device_.Check(d.cuMemcpyDtoHAsync(c.data, from + static_cast<CUdeviceptr>(i * kChunkBytes),
                                          size(i), device_.copy()),
                      "copying from the device"));
    RETURN_IF_ERROR(device_.Check(d.cuEventRecord(c.free, device_.copy()), "recording an event"));
  }
  return absl::OkStatus();
}

}  // namespace tessera::cuda
