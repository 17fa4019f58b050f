// Prepared launches of a plan.
#include "runtime/replay.h"

#include <algorithm>
#include <atomic>

#include "absl/strings/str_cat.h"
#include "graph/error.h"
#include "graph/fault.h"
#include "graph/status.h"
#include "runtime/core_pool.h"
#include "runtime/counters.h"
#include "runtime/execute.h"
#include "runtime/mesh.h"

namespace tessera {

// What one run writes into: the arguments of all launches side by side.
struct Replay::Frame {
  std::vector<void*> arguments;
  std::vector<int64_t> variables;
  std::vector<std::shared_ptr<Storage>> arenas;
  std::shared_ptr<const Kept> kept;
  std::vector<RecordedLaunch> recorded;  // over the arrays above
  std::unique_ptr<Recording> recording;
};

Replay::Replay(CompiledPlanPtr plan, std::vector<std::string> variables)
    : plan_(std::move(plan)), names_(std::move(variables)) {
  const Plan& p = plan_->plan;
  std::vector<int> result_of(p.buffers.size(), -1);
  for (size_t r = 0; r < p.roots.size(); ++r) {
    const PlanBuffer& b = p.buffers[p.roots[r]];
    if (b.kind == PlanBuffer::kInput) continue;
    int& first = result_of[p.roots[r]];
    if (first >= 0) {
      same_results_.emplace_back(static_cast<int>(r), first);
      continue;
    }
    first = static_cast<int>(r);
    Result result{first, ValueOrThrow(DevicesOf(b.device)), {}, b.device.is_sharding()};
    for (size_t i = 0; i < result.places.size(); ++i) {
      result.bytes.push_back(BytesAt(p, b, static_cast<int>(i)));
    }
    results_.push_back(std::move(result));
  }
  written_ = WrittenLeaves(p);
  FindKept();
  loops_.resize(p.loops.size());
  for (size_t l = 0; l < p.loops.size(); ++l) {
    for (size_t c = 0; c < p.loops[l].carried.size(); ++c) {
      const PlanLoop::Carried& carried = p.loops[l].carried[c];
      of_turns_[carried.taken] = {static_cast<int>(l), static_cast<int>(c), false};
      of_turns_[carried.given] = {static_cast<int>(l), static_cast<int>(c), true};
    }
  }
  std::vector<int> open;  // the loops around a step
  for (const PlanStep& step : p.steps) {
    std::vector<Launchable>& launches = step.once ? once_ : launches_;
    if (step.kind == PlanStep::kEndLoop) {
      TurnPatches& ended = loops_[open.back()];
      ended.launches = launches.size() - ended.launches;
      open.pop_back();
      continue;
    }
    if (step.kind == PlanStep::kKernel) {
      AddKernel(step, names_, open, result_of);
      continue;
    }
    if (step.kind == PlanStep::kLoop) {
      open.push_back(step.loop);
      loops_[step.loop].launches = launches.size() + 1;  // until it ends: those before its own
    }
    Launchable l;
    l.step = &step;
    l.transfer = plan_->transfers[&step - p.steps.data()].get();
    l.first_buffer = static_cast<int>(arguments_.size());
    for (int b : step.buffers) {
      const auto parts = static_cast<int>(p.buffers[b].device.places().size());
      for (int i = 0; i < parts; ++i) AddArgument(b, i, result_of);
      if (l.num_targets == 0) l.num_targets = parts;
    }
    l.num_buffers = static_cast<int>(arguments_.size()) - l.first_buffer;
    launches.push_back(std::move(l));
  }
  // Of one variable together: its extent is worked out once.
  std::stable_sort(
      place_patches_.begin(), place_patches_.end(),
      [](const PlacePatch& a, const PlacePatch& b) { return a.variable < b.variable; });
  for (const Launchable& l : launches_) {
    if (l.places.size() != 1 || l.places[0].device != launches_[0].places[0].device) return;
  }
  if (launches_.size() > 1) only_device_ = launches_[0].places[0].device;
}

namespace {

std::atomic<int64_t> all_kept_bytes{0};

}  // namespace

int64_t Replay::KeptBytes() { return all_kept_bytes; }

Replay::~Replay() { all_kept_bytes -= kept_bytes_; }

void Replay::FindKept() {
  const Plan& p = plan_->plan;
  std::vector<bool> often(p.buffers.size(), false);
  for (const PlanStep& step : p.steps) {
    for (int b : step.buffers) {
      if (!step.once) often[b] = true;
      if (step.once && p.buffers[b].kind == PlanBuffer::kInput) {
        watched_.push_back(p.buffers[b].slot);
      }
    }
  }
  std::sort(watched_.begin(), watched_.end());
  watched_.erase(std::unique(watched_.begin(), watched_.end()), watched_.end());
  for (size_t b = 0; b < p.buffers.size(); ++b) {
    if (!p.buffers[b].kept) continue;
    kept_buffers_.push_back(static_cast<int>(b));
    kept_wanted_.push_back(often[b]);
    if (often[b]) kept_bytes_ += p.buffers[b].bytes;
  }
  all_kept_bytes += kept_bytes_;
}

void Replay::AddArgument(int buffer, int place, const std::vector<int>& result_of) {
  const PlanBuffer& b = plan_->plan.buffers[buffer];
  const auto at = static_cast<int>(arguments_.size());
  const int part = b.device.is_sharding() ? place : -1;
  arguments_.push_back({buffer, place});
  if (b.kind == PlanBuffer::kInput) leaf_patches_.push_back({at, b.slot, part});
  if (b.kind == PlanBuffer::kOfTurn) {
    const OfTurn& of = of_turns_.at(buffer);
    loops_[of.loop].arguments.push_back({at, of.carried, of.given});
  }
  if (b.kept) {
    const auto kept = std::lower_bound(kept_buffers_.begin(), kept_buffers_.end(), buffer);
    kept_patches_.push_back({at, static_cast<int>(kept - kept_buffers_.begin()), part});
  }
  if (result_of[buffer] >= 0) result_patches_.push_back({at, result_of[buffer], part});
}

void Replay::AddKernel(const PlanStep& step, absl::Span<const std::string> variables,
                       const std::vector<int>& loops, const std::vector<int>& result_of) {
  const Plan& p = plan_->plan;
  const PlanKernel& kernel = p.kernels[step.kernel];
  const Device on = p.buffers[step.buffers[0]].device;
  Launchable l;
  l.step = &step;
  const auto& executables = plan_->executables[step.kernel];
  if (on.is_sharding()) {
    const std::vector<DeviceRuntime*>& places = plan_->meshes.at(on);
    for (size_t i = 0; i < places.size(); ++i)
      l.places.push_back({places[i], executables[i].get()});
  } else {
    l.places.push_back({plan_->devices[step.kernel], executables[0].get()});
  }
  l.workers = kernel.parts();
  l.first_buffer = static_cast<int>(arguments_.size());
  l.num_buffers = static_cast<int>(step.buffers.size());
  l.first_variable = static_cast<int>(num_variables_);
  l.num_variables = static_cast<int>(kernel.variables.size());
  for (size_t i = 0; i < l.places.size(); ++i) {
    for (int b : step.buffers) AddArgument(b, static_cast<int>(i), result_of);
    for (const std::string& name : kernel.variables) {
      const auto at = static_cast<int>(num_variables_++);
      if (const auto n = step.numbers.find(name); n != step.numbers.end()) {
        fixed_values_.emplace_back(at, n->second);
        continue;
      }
      const auto own =
          std::find_if(p.place_variables.begin(), p.place_variables.end(),
                       [&](const PlaceVariable& v) { return v.name == name && v.mesh == on; });
      if (own != p.place_variables.end() && own->is_symbolic()) {
        place_patches_.push_back({at, &*own, static_cast<int>(i)});
        continue;
      }
      if (own != p.place_variables.end()) {
        fixed_values_.emplace_back(at, own->values[i]);
        continue;
      }
      const auto turns = std::find_if(loops.begin(), loops.end(), [&](int l) {
        return p.loops[l].variable == NameIn(step, name);
      });
      if (turns != loops.end()) {
        loops_[*turns].variables.push_back(at);
        continue;
      }
      const auto it = std::find(variables.begin(), variables.end(), NameIn(step, name));
      CHECK(it != variables.end(), "a plan has the variable ", name, " that its graph has not");
      variable_patches_.push_back({at, static_cast<int>(it - variables.begin())});
    }
    ++(!loops.empty() ? loops_[loops.back()].kernels : step.once ? kernels_once_ : kernels_);
  }
  (step.once ? once_ : launches_).push_back(std::move(l));
}

absl::StatusOr<std::unique_ptr<Replay::Frame>> Replay::MakeFrame() const {
  const Plan& p = plan_->plan;
  auto frame = std::make_unique<Frame>();
  frame->arguments.resize(arguments_.size(), nullptr);
  frame->variables.resize(num_variables_);
  for (const auto& [at, value] : fixed_values_) frame->variables[at] = value;
  for (const auto& [device, bytes] : p.arenas) {
    ASSIGN_OR_RETURN(const std::vector<DeviceRuntime*> places, DevicesOf(device));
    for (size_t place = 0; place < places.size(); ++place) {
      ASSIGN_OR_RETURN(std::shared_ptr<Storage> arena, places[place]->Allocate(bytes));
      for (size_t i = 0; i < arguments_.size(); ++i) {
        const PlanBuffer& b = p.buffers[arguments_[i].buffer];
        if (b.kind != PlanBuffer::kTemp || b.kept || !(b.device == device)) continue;
        if (arguments_[i].place != static_cast<int>(place)) continue;
        // Integers, as there may be no memory behind it (NULL).
        frame->arguments[i] =
            reinterpret_cast<void*>(reinterpret_cast<intptr_t>(arena->data) + b.offset);
      }
      frame->arenas.push_back(std::move(arena));
    }
  }
  for (const Launchable& l : launches_) {
    if (only_device_ == nullptr) break;
    frame->recorded.push_back(
        {l.places[0].executable,
         {{frame->arguments.data() + l.first_buffer, static_cast<size_t>(l.num_buffers)},
          {frame->variables.data() + l.first_variable, static_cast<size_t>(l.num_variables)},
          l.workers}});
  }
  return frame;
}

absl::Status Replay::RunKernel(const Launchable& l, const Frame& frame) const {
  return ForEachPlace(static_cast<int>(l.places.size()), [&](int i) {
    const Launch launch{{frame.arguments.data() + l.first_buffer + int64_t{i} * l.num_buffers,
                         static_cast<size_t>(l.num_buffers)},
                        {frame.variables.data() + l.first_variable + int64_t{i} * l.num_variables,
                         static_cast<size_t>(l.num_variables)},
                        l.workers};
    return l.places[i].device->Run(*l.places[i].executable, launch);
  });
}

absl::StatusOr<int64_t> Replay::ValueOf(const Extent& e, absl::Span<const int64_t> values) const {
  Bindings bindings;
  for (size_t v = 0; v < names_.size(); ++v) bindings[names_[v]] = values[v];
  return ExtentValue(e, bindings);
}

absl::Status Replay::PatchPlaces(absl::Span<const int64_t> values, Frame& frame) const {
  const PlaceVariable* last = nullptr;
  int64_t number = 0;
  for (const PlacePatch& p : place_patches_) {
    if (p.variable != last) {
      ASSIGN_OR_RETURN(number, ValueOf(p.variable->within, values));
      last = p.variable;
    }
    frame.variables[p.at] = p.variable->At(p.place, number);
  }
  return absl::OkStatus();
}

absl::Status Replay::RunLaunches(Frame& frame, absl::Span<const int64_t> values) const {
  PlanScope scope;
  if (only_device_ != nullptr) {
    if (frame.recording == nullptr) {
      ASSIGN_OR_RETURN(frame.recording, only_device_->Record(frame.recorded));
    }
    if (frame.recording != nullptr) {
      return only_device_->RunRecording(*frame.recording, frame.recorded);
    }
  }
  return RunLaunches(launches_, frame, values);
}

absl::Status Replay::RunLaunches(absl::Span<const Launchable> launches, Frame& frame,
                                 absl::Span<const int64_t> values) const {
  for (size_t i = 0; i < launches.size(); ++i) {
    const Launchable& l = launches[i];
    if (l.step->kind != PlanStep::kLoop) {
      RETURN_IF_ERROR(RunLaunch(l, frame, values));
      continue;
    }
    const size_t count = loops_[l.step->loop].launches;
    RETURN_IF_ERROR(RunLoop(l, launches.subspan(i + 1, count), frame, values));
    i += count;
  }
  return absl::OkStatus();
}

absl::Status Replay::RunLoop(const Launchable& l, absl::Span<const Launchable> body, Frame& frame,
                             absl::Span<const int64_t> values) const {
  const Plan& p = plan_->plan;
  const PlanLoop& loop = p.loops[l.step->loop];
  const TurnPatches& patches = loops_[l.step->loop];
  ASSIGN_OR_RETURN(const int64_t turns, ValueOf(loop.turns, values));
  // Where its buffers lie in this run: the step lists them as it does those of its plan, each with
  // one part.
  std::vector<std::array<void*, 3>> carried;
  void* const* const listed = frame.arguments.data() + l.first_buffer;
  for (size_t c = 0; c < loop.carried.size(); ++c) {
    carried.push_back({listed[2 * c], listed[2 * c + 1], listed[loop.num_written + c]});
  }
  for (int64_t t = 0; t < turns; ++t) {
    for (int v : patches.variables) frame.variables[v] = loop.At(t, turns);
    for (const auto& [argument, c, given] : patches.arguments) {
      const int which = given ? PlanLoop::GivenBy(t, turns) : PlanLoop::TakenBy(t, turns);
      frame.arguments[argument] = carried[c][which];
    }
    RETURN_IF_ERROR(RunLaunches(body, frame, values));
  }
  Count(&RuntimeStats::kernels_run, turns * patches.kernels);
  for (size_t c = 0; turns == 0 && c < carried.size(); ++c) {
    const PlanLoop::Carried& of = loop.carried[c];
    RETURN_IF_ERROR(CopyPlanBuffer(p.buffers[of.result()], carried[c][0], p.buffers[of.first()],
                                   carried[c][2]));
  }
  return absl::OkStatus();
}

absl::Status Replay::RunLaunch(const Launchable& l, const Frame& frame,
                               absl::Span<const int64_t> values) const {
  if (!l.places.empty()) return RunKernel(l, frame);
  void* const* arguments = frame.arguments.data() + l.first_buffer;
  if (l.transfer == nullptr) {
    const std::vector<PlanBuffer>& buffers = plan_->plan.buffers;
    return CopyPlanBuffer(buffers[l.step->buffers[0]], arguments[0], buffers[l.step->buffers[1]],
                          arguments[1]);
  }
  const auto targets = static_cast<size_t>(l.num_targets);
  return l.transfer->Run({arguments, targets},
                         {arguments + targets, static_cast<size_t>(l.num_buffers) - targets},
                         [&](const Extent& e) { return ValueOf(e, values); });
}

absl::StatusOr<std::shared_ptr<Storage>> Replay::Allocate(const Result& result) {
  if (!result.in_parts) return result.places[0]->Allocate(result.bytes[0]);
  return AllocateParts(result.places, result.bytes);
}

namespace {

void* DataOf(const Storage& s, int part) { return part < 0 ? s.data : s.parts[part]->data; }

}  // namespace

void Replay::PatchKept(const Kept& kept, Frame& frame) const {
  for (const Patch& p : kept_patches_) {
    if (kept.storage[p.from] == nullptr) continue;
    frame.arguments[p.at] = DataOf(*kept.storage[p.from], p.part);
  }
}

// What is kept of these leaves; computed now, into a frame whose leaves are patched, where it is
// not.
absl::StatusOr<std::shared_ptr<const Replay::Kept>> Replay::KeptFor(
    absl::Span<Storage* const> leaves, absl::Span<const int64_t> values, Frame& frame) {
  Kept next;
  bool unseen = false;
  for (int slot : watched_) {
    next.from.push_back(ContentsOf(*leaves[slot]));
    unseen |= MayChangeUnseen(*leaves[slot]);
  }
  std::lock_guard lock(kept_mutex_);
  if (kept_ != nullptr && kept_->from == next.from && !unseen) return kept_;
  kept_ = nullptr;  // before there is memory for another
  for (int b : kept_buffers_) {
    ASSIGN_OR_RETURN(next.storage.emplace_back(),
                     AllocateBuffer(plan_->plan, plan_->plan.buffers[b]));
  }
  PatchKept(next, frame);
  PlanScope scope;
  RETURN_IF_ERROR(RunLaunches(once_, frame, values));
  Count(&RuntimeStats::kernels_run, kernels_once_);
  for (size_t i = 0; i < next.storage.size(); ++i) {
    if (!kept_wanted_[i]) next.storage[i] = nullptr;
  }
  kept_ = std::make_shared<const Kept>(std::move(next));
  return kept_;
}

absl::Status Replay::Run(absl::Span<Storage* const> leaves, absl::Span<const int64_t> values,
                         absl::Span<std::shared_ptr<Storage>> results) {
  std::unique_ptr<Frame> frame;
  {
    std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      frame = std::move(idle_.back());
      idle_.pop_back();
    }
  }
  if (frame == nullptr) {
    ASSIGN_OR_RETURN(frame, MakeFrame());
  }
  for (const Result& r : results_) {
    ASSIGN_OR_RETURN(results[r.root], Allocate(r));
  }
  for (const auto& [root, same] : same_results_) results[root] = results[same];
  for (const Patch& p : leaf_patches_) {
    if (frame->arguments[p.at] != nullptr && FaultPlanted(Fault::kReplayOldInputs)) continue;
    frame->arguments[p.at] = DataOf(*leaves[p.from], p.part);
  }
  for (const Patch& p : result_patches_) {
    frame->arguments[p.at] = DataOf(*results[p.from], p.part);
  }
  for (const Patch& p : variable_patches_) {
    if (frame->variables[p.at] != 0 && FaultPlanted(Fault::kReplayOldVariables)) continue;
    frame->variables[p.at] = values[p.from];
  }
  RETURN_IF_ERROR(PatchPlaces(values, *frame));
  if (!once_.empty()) {
    ASSIGN_OR_RETURN(frame->kept, KeptFor(leaves, values, *frame));
    PatchKept(*frame->kept, *frame);
  }
  for (int slot : written_) WillWrite(*leaves[slot]);
  if (const absl::Status ran = RunLaunches(*frame, values); !ran.ok()) {
    const auto message = std::make_shared<const std::string>(ran.message());
    for (int slot : written_) leaves[slot]->lost = message;
    return ran;
  }
  frame->kept = nullptr;
  Count(&RuntimeStats::kernels_run, kernels_);
  std::lock_guard lock(mutex_);
  idle_.push_back(std::move(frame));
  return absl::OkStatus();
}

}  // namespace tessera
