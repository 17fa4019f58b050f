// Steps that need not run again.
#include "absl/algorithm/container.h"
#include "schedule/lasting.h"
#include "schedule/passes.h"

namespace tessera {
namespace {

// A step, or a loop with those that it repeats.
struct Unit {
  size_t begin, end;
  absl::Span<const int> written, read;  // of a loop, of what others have
};

std::vector<Unit> UnitsOf(const Plan& plan) {
  std::vector<Unit> out;
  for (size_t s = 0; s < plan.steps.size();) {
    const PlanStep& step = plan.steps[s];
    const size_t end = step.kind == PlanStep::kLoop ? EndOfLoop(plan, s) + 1 : s + 1;
    const absl::Span<const int> written = WrittenBy(plan, step);
    out.push_back({s, end, written, absl::MakeSpan(step.buffers).subspan(written.size())});
    s = end;
  }
  return out;
}

// Whether a step that reads nothing but what lasts gives the same each time: all its variables are
// such as each place knows for good, or count the turns of one of the loops around it.
bool Repeats(const Plan& plan, const PlanStep& step, absl::Span<const std::string> turns) {
  const auto is_static = [&](int b) { return plan.buffers[b].shape.is_static(); };
  if (step.kind != PlanStep::kKernel) return absl::c_all_of(step.buffers, is_static);
  const PlanKernel& kernel = plan.kernels[step.kernel];
  return absl::c_all_of(kernel.variables, [&](const std::string& name) {
    return absl::c_linear_search(turns, NameIn(step, name)) ||
           absl::c_any_of(plan.place_variables, [&](const PlaceVariable& v) {
             return v.name == name && v.mesh == kernel.device && !v.is_symbolic();
           });
  });
}

bool Repeats(const Plan& plan, const Unit& unit) {
  std::vector<std::string> turns;
  for (size_t s = unit.begin; s < unit.end; ++s) {
    const PlanStep& step = plan.steps[s];
    if (step.kind == PlanStep::kLoop) {
      if (!plan.loops[step.loop].turns.is_int()) return false;
      turns.push_back(plan.loops[step.loop].variable);
    }
    if (!Repeats(plan, step, turns)) return false;
  }
  return true;
}

}  // namespace

std::vector<bool> LastingBuffers(const Plan& plan, const std::vector<bool>& slots) {
  const std::vector<Unit> units = UnitsOf(plan);
  std::vector<int> writers(plan.buffers.size(), 0);
  for (const Unit& unit : units) {
    for (int b : unit.written) ++writers[b];
  }
  std::vector<bool> lasts(plan.buffers.size(), false);
  for (size_t b = 0; b < lasts.size(); ++b) {
    const PlanBuffer& buffer = plan.buffers[b];
    lasts[b] = buffer.kind == PlanBuffer::kInput && writers[b] == 0 &&
               static_cast<size_t>(buffer.slot) < slots.size() && slots[buffer.slot];
  }
  const auto is_own = [&](int b) {
    return plan.buffers[b].kind == PlanBuffer::kTemp && writers[b] == 1;
  };
  for (const Unit& unit : units) {
    const bool repeats = absl::c_all_of(unit.read, [&](int b) { return lasts[b]; }) &&
                         absl::c_all_of(unit.written, is_own) && Repeats(plan, unit);
    for (int b : unit.written) lasts[b] = lasts[b] || repeats;
  }
  return lasts;
}

int64_t KeepLasting(Plan& plan, const Lasting& lasting) {
  int64_t left = lasting.most_bytes;
  if (left <= 0) return 0;
  const std::vector<bool> lasts = LastingBuffers(plan, lasting.slots);
  const std::vector<Unit> units = UnitsOf(plan);
  // From the last step back: what a step that runs each time reads must be kept, and pays for it;
  // what only kept things are made of is free.
  std::vector<bool> read_once(plan.buffers.size(), false), read_often(plan.buffers.size(), false);
  for (auto unit = units.rbegin(); unit != units.rend(); ++unit) {
    int64_t bytes = 0;
    bool wanted = false;
    for (int b : unit->written) {
      wanted |= read_once[b] || read_often[b];
      if (read_often[b]) bytes += plan.buffers[b].bytes;
    }
    const bool once = wanted && lasts[unit->written[0]] && bytes <= left;
    for (size_t s = unit->begin; s < unit->end; ++s) plan.steps[s].once = once;
    if (once) left -= bytes;
    for (int b : unit->written) {
      if (once) plan.buffers[b].kept = true;
    }
    for (int b : unit->read) (once ? read_once : read_often)[b] = true;
  }
  return left;
}

}  // namespace tessera
