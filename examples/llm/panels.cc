// Which matrices get panels, and whether there is memory for them.
#include "examples/llm/panels.h"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "graph/error.h"

namespace tessera::llm {
namespace {

// What the system, or the control group that we are in, would give us.
std::optional<uint64_t> AvailableMemory() {
  std::optional<uint64_t> out;
  std::ifstream system("/proc/meminfo"), group("/sys/fs/cgroup/memory.max");
  uint64_t number = 0;
  for (std::string word; system >> word;) {
    if (word == "MemAvailable:" && system >> number) out = number << 10;
  }
  if (group >> number) out = std::min(out.value_or(number), number);
  return out;
}

bool IsOnCpu(const Tensor& t) {
  const Device& device = t.device();
  return !device.is_sharding() && device.places()[0].kind() == "CPU";
}

std::vector<Matrix*> MatricesForPanels(Model* model) {
  std::vector<Matrix*> out;
  const auto add = [&](Matrix* m) {
    if (*m && IsOnCpu(m->stored) && HasPanels(m->stored, m->format)) out.push_back(m);
  };
  for (LayerWeights& w : model->layers) {
    for (const auto& [name, member] : kMatrices) add(&(w.*member));
  }
  add(&model->output);
  return out;
}

}  // namespace

bool LeavesRoomForPanels(const Model& model) {
  const std::optional<uint64_t> available = AvailableMemory();
  return available && *available / 2 >= model.bytes_stored;
}

absl::Status CopyIntoPanels(Model* model, const LoadProgress& progress) {
  const std::vector<Matrix*> matrices = MatricesForPanels(model);
  const auto bytes = [](const Matrix* m) { return static_cast<uint64_t>(m->stored.elements()); };
  uint64_t done = 0, all = 0;
  for (const Matrix* m : matrices) all += bytes(m);
  try {
    for (Matrix* m : matrices) {
      m->panels = std::make_shared<const Blocks>(InPanels(m->stored, m->format));
      done += bytes(m);
      if (progress && !progress(done, all)) {
        return absl::CancelledError("interrupted while the weights were laid out");
      }
    }
  } catch (const Error& e) {
    return e.status();
  }
  return absl::OkStatus();
}

}  // namespace tessera::llm
