// NULL places: everything is scheduled and generated, memory is counted, nothing runs.
#include <algorithm>
#include <mutex>

#include "runtime/device.h"
#include "runtime/host_target.h"

namespace tessera {
namespace {

class NullDevice : public DeviceRuntime {
 public:
  const Target& target() const override { return HostTarget(); }
  absl::StatusOr<std::shared_ptr<Storage>> DoAllocate(int64_t bytes, Written) override {
    auto storage = std::make_shared<Storage>();
    storage->bytes = bytes;
    {
      std::lock_guard<std::mutex> lock(counts_->mutex);
      MemoryStats& s = counts_->stats;
      s.live_bytes += bytes;
      s.peak_bytes = std::max(s.peak_bytes, s.live_bytes);
      ++s.allocations;
    }
    storage->deleter = [counts = counts_](Storage& s) {
      std::lock_guard<std::mutex> lock(counts->mutex);
      counts->stats.live_bytes -= s.bytes;
    };
    return storage;
  }
  absl::StatusOr<std::vector<std::shared_ptr<Executable>>> Compile(
      absl::Span<const Program> programs) override {
    return std::vector<std::shared_ptr<Executable>>(programs.size(),
                                                    std::make_shared<Executable>());
  }
  absl::Status Run(const Executable&, const Launch&) override { return absl::OkStatus(); }
  absl::Status CopyIn(void*, const void*, int64_t) override { return absl::OkStatus(); }
  absl::Status CopyOut(void*, const void*, int64_t) override {
    return absl::FailedPreconditionError(
        "read: a tensor on NULL has no values, since nothing runs there; use a CPU device");
  }
  absl::Status CopyWithin(void*, const void*, int64_t) override { return absl::OkStatus(); }
  bool IsHost() const override { return false; }
  bool Computes() const override { return false; }
  MemoryStats Memory() const override {
    std::lock_guard<std::mutex> lock(counts_->mutex);
    return counts_->stats;
  }

 private:
  struct Counts {
    std::mutex mutex;
    MemoryStats stats;
  };
  std::shared_ptr<Counts> counts_ = std::make_shared<Counts>();
};

}  // namespace

std::unique_ptr<DeviceRuntime> MakeNullDevice() { return std::make_unique<NullDevice>(); }

}  // namespace tessera
