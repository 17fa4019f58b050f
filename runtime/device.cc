// The devices of the process, by place.
#include "runtime/device.h"

#include <map>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "graph/status.h"

namespace tessera {
namespace {

struct Registry {
  std::mutex mutex;
  std::map<std::string, std::unique_ptr<DeviceRuntime>> devices;
};

Registry& Devices() {
  static Registry& registry = *new Registry;
  return registry;
}

constexpr int kMaxIndex = 4096;

}  // namespace

// Where nothing belongs to one place alone, all run the same.
absl::StatusOr<std::vector<std::vector<std::shared_ptr<Executable>>>> DeviceRuntime::CompileOver(
    absl::Span<const PlacedProgram> programs) {
  std::vector<Program> batch;
  for (const PlacedProgram& p : programs) batch.push_back(*p.program);
  ASSIGN_OR_RETURN(const auto executables, Compile(batch));
  std::vector<std::vector<std::shared_ptr<Executable>>> out;
  for (size_t i = 0; i < programs.size(); ++i) {
    out.emplace_back(programs[i].places.size(), executables[i]);
  }
  return out;
}

absl::StatusOr<DeviceRuntime*> GetDevice(const Place& place) {
  if (place.index() >= kMaxIndex) {
    return absl::InvalidArgumentError(
        absl::StrCat("device: ", place.ToString(), " is past ", place.kind(), ":", kMaxIndex - 1));
  }
  Registry& registry = Devices();
  std::lock_guard<std::mutex> lock(registry.mutex);
  std::unique_ptr<DeviceRuntime>& device = registry.devices[place.ToString()];
  if (device == nullptr) {
    if (place.kind() == "CPU") device = MakeCpuDevice(place.index());
    if (place.kind() == "NULL") device = MakeNullDevice();
    if (place.kind() == "CUDA" || place.kind() == "SIM") {
      auto made =
          place.kind() == "SIM" ? MakeSimDevice(place.index()) : MakeCudaDevice(place.index());
      if (made.ok()) {
        device = *std::move(made);
      } else {
        registry.devices.erase(place.ToString());
        return made.status();
      }
    }
    if (device == nullptr) {
      registry.devices.erase(place.ToString());
      return absl::UnavailableError(
          absl::StrCat("device: this build has no ", place.kind(), " devices; use CPU"));
    }
  }
  return device.get();
}

std::string MemoryReport() {
  Registry& registry = Devices();
  std::lock_guard<std::mutex> lock(registry.mutex);
  std::string out = absl::StrFormat("%-10s %14s %14s %14s %8s\n", "device", "live bytes",
                                    "peak bytes", "cached bytes", "allocs");
  for (const auto& [name, device] : registry.devices) {
    const MemoryStats m = device->Memory();
    absl::StrAppend(&out, absl::StrFormat("%-10s %14d %14d %14d %8d\n", name, m.live_bytes,
                                          m.peak_bytes, m.cached_bytes, m.allocations));
  }
  return out;
}

}  // namespace tessera
