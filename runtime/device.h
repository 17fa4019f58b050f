// The one virtual interface of the project: a device that stores, compiles and runs.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "codegen/codegen.h"
#include "graph/buffer.h"
#include "graph/target.h"

namespace tessera {

class DeviceRuntime;

// A compiled kernel of one device; of a host, of all that are hosts.
class Executable {
 public:
  virtual ~Executable() = default;
};

// A program, and the places of one kind that are to run it.
struct PlacedProgram {
  const Program* program = nullptr;
  absl::Span<DeviceRuntime* const> places;
};

// One launch: buffers by slot, variables by slot, over how many workers.
struct Launch {
  absl::Span<void* const> buffers;
  absl::Span<const int64_t> variables;
  int workers = 1;
};

struct MemoryStats {
  int64_t live_bytes = 0;  // held by tensors and plans
  int64_t peak_bytes = 0;
  int64_t cached_bytes = 0;  // kept for reuse
  int64_t allocations = 0;   // from the system
};

// Launches in order, made once and run many times; each with its arguments as they then are.
struct RecordedLaunch {
  const Executable* executable = nullptr;
  Launch launch;
};
class Recording {
 public:
  virtual ~Recording() = default;
};

// How memory will be filled: whole, by one kernel; or a part at a time, as caches are, whose rest
// should cost neither memory nor time until then.
enum class Written { kWhole, kInParts };

class DeviceRuntime {
 public:
  virtual ~DeviceRuntime() = default;
  virtual const Target& target() const = 0;
  // Bytes of undefined content. ResourceExhausted where there are none.
  absl::StatusOr<std::shared_ptr<Storage>> Allocate(int64_t bytes,
                                                    Written written = Written::kWhole) {
    return DoAllocate(bytes, written);
  }
  // Each program, compiled; those not yet known in parallel.
  virtual absl::StatusOr<std::vector<std::shared_ptr<Executable>>> Compile(
      absl::Span<const Program> programs) = 0;
  // The same of programs that run on several places each, of which this device is the first: what
  // each place is to run, in their order.
  virtual absl::StatusOr<std::vector<std::vector<std::shared_ptr<Executable>>>> CompileOver(
      absl::Span<const PlacedProgram> programs);
  virtual absl::Status Run(const Executable& executable, const Launch& launch) = 0;
  // Null where launches can only be run one by one.
  virtual absl::StatusOr<std::unique_ptr<Recording>> Record(absl::Span<const RecordedLaunch>) {
    return std::unique_ptr<Recording>();
  }
  // The same launches, in the same order, with any arguments.
  virtual absl::Status RunRecording(Recording&, absl::Span<const RecordedLaunch>) {
    return absl::UnimplementedError("device: it makes no recordings");
  }
  virtual absl::Status CopyIn(void* to, const void* host, int64_t bytes) = 0;
  virtual absl::Status CopyOut(void* host, const void* from, int64_t bytes) = 0;
  // Within the device, in the order of its launches.
  virtual absl::Status CopyWithin(void* to, const void* from, int64_t bytes) = 0;
  // From another device that this one can reach by itself; false where it cannot.
  virtual absl::StatusOr<bool> CopyFrom(DeviceRuntime& other, void* to, const void* from,
                                        int64_t bytes) {
    return false;
  }
  // Waits for all that was launched; an error is that of a launch.
  virtual absl::Status Wait() { return absl::OkStatus(); }
  // Whether host code may read and write its storage.
  virtual bool IsHost() const = 0;
  // Whether anything is computed at all (not on NULL).
  virtual bool Computes() const { return true; }
  virtual MemoryStats Memory() const = 0;
  virtual void Trim() {}  // gives cached bytes back

 private:
  virtual absl::StatusOr<std::shared_ptr<Storage>> DoAllocate(int64_t bytes, Written written) = 0;
};

// The device at a place, made at its first use; never destroyed.
absl::StatusOr<DeviceRuntime*> GetDevice(const Place& place);

// Memory of every device used so far, as a table.
std::string MemoryReport();

std::unique_ptr<DeviceRuntime> MakeCpuDevice(int index);
std::unique_ptr<DeviceRuntime> MakeNullDevice();
absl::StatusOr<std::unique_ptr<DeviceRuntime>> MakeCudaDevice(int index);
absl::StatusOr<std::unique_ptr<DeviceRuntime>> MakeSimDevice(int index);

}  // namespace tessera
