// Steps that need not run again.
#include <algorithm>

#include "schedule/lasting.h"
#include "schedule/passes.h"

namespace tessera {
namespace {

// Whether all variables of a kernel are such as each place knows for good.
bool HasNoVariables(const Plan& plan, const PlanKernel& kernel) {
  return std::all_of(
      kernel.variables.begin(), kernel.variables.end(), [&](const std::string& name) {
        return std::any_of(plan.place_variables.begin(), plan.place_variables.end(),
                           [&](const PlaceVariable& v) {
                             return v.name == name && v.mesh == kernel.device && !v.is_symbolic();
                           });
      });
}

absl::Span<const int> ReadBy(const Plan& plan, const PlanStep& step) {
  return absl::MakeSpan(step.buffers).subspan(WrittenBy(plan, step).size());
}

// Whether a step that reads nothing but what lasts gives the same each time.
bool Repeats(const Plan& plan, const PlanStep& step) {
  if (step.loop >= 0) return false;  // its own steps write
  if (step.kind == PlanStep::kKernel) return HasNoVariables(plan, plan.kernels[step.kernel]);
  return std::all_of(step.buffers.begin(), step.buffers.end(),
                     [&](int b) { return plan.buffers[b].shape.is_static(); });
}

}  // namespace

std::vector<bool> LastingBuffers(const Plan& plan, const std::vector<bool>& slots) {
  std::vector<int> writers(plan.buffers.size(), 0);
  for (const PlanStep& step : plan.steps) {
    for (int b : WrittenBy(plan, step)) ++writers[b];
  }
  std::vector<bool> lasts(plan.buffers.size(), false);
  for (size_t b = 0; b < lasts.size(); ++b) {
    const PlanBuffer& buffer = plan.buffers[b];
    lasts[b] = buffer.kind == PlanBuffer::kInput && writers[b] == 0 &&
               static_cast<size_t>(buffer.slot) < slots.size() && slots[buffer.slot];
  }
  for (const PlanStep& step : plan.steps) {
    const absl::Span<const int> written = WrittenBy(plan, step), read = ReadBy(plan, step);
    const bool repeats =
        std::all_of(read.begin(), read.end(), [&](int b) { return lasts[b]; }) &&
        std::all_of(
            written.begin(), written.end(),
            [&](int b) { return plan.buffers[b].kind == PlanBuffer::kTemp && writers[b] == 1; }) &&
        Repeats(plan, step);
    for (int b : written) lasts[b] = lasts[b] || repeats;
  }
  return lasts;
}

int64_t KeepLasting(Plan& plan, const Lasting& lasting) {
  int64_t left = lasting.most_bytes;
  if (left <= 0) return 0;
  const std::vector<bool> lasts = LastingBuffers(plan, lasting.slots);
  // From the last step back: what a step that runs each time reads must be kept, and pays for it;
  // what only kept things are made of is free.
  std::vector<bool> read_once(plan.buffers.size(), false), read_often(plan.buffers.size(), false);
  for (size_t s = plan.steps.size(); s-- > 0;) {
    PlanStep& step = plan.steps[s];
    const absl::Span<const int> written = WrittenBy(plan, step);
    int64_t bytes = 0;
    bool wanted = false;
    for (int b : written) {
      wanted |= read_once[b] || read_often[b];
      if (read_often[b]) bytes += plan.buffers[b].bytes;
    }
    step.once = wanted && lasts[written[0]] && bytes <= left;
    if (step.once) left -= bytes;
    for (int b : written) {
      if (step.once) plan.buffers[b].kept = true;
    }
    for (int b : ReadBy(plan, step)) (step.once ? read_once : read_often)[b] = true;
  }
  return left;
}

}  // namespace tessera
