// Prepared launches of a plan.
#include "runtime/replay.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "graph/fault.h"
#include "graph/status.h"
#include "runtime/capture.h"
#include "runtime/core_pool.h"
#include "runtime/counters.h"
#include "runtime/execute.h"

namespace tessera {

// What one run writes into: the arguments of all launches side by side.
struct Replay::Frame {
  std::vector<void*> arguments;
  std::vector<int64_t> variables;
  std::vector<std::shared_ptr<Storage>> arenas;
};

Replay::Replay(CompiledPlanPtr plan, std::vector<std::string> variables) : plan_(std::move(plan)) {
  const Plan& p = plan_->plan;
  if (p.has_meshes()) return;  // runs by ExecutePlan, place by place
  std::vector<int> result_of(p.buffers.size(), -1);
  for (size_t r = 0; r < p.roots.size(); ++r) {
    const int b = p.roots[r];
    if (p.buffers[b].kind == PlanBuffer::kInput) continue;
    if (result_of[b] >= 0) {
      same_results_.emplace_back(static_cast<int>(r), result_of[b]);
      continue;
    }
    result_of[b] = static_cast<int>(r);
    DeviceRuntime* device = ValueOrThrow(GetDevice(p.buffers[b].device.place()));
    results_.push_back({static_cast<int>(r), b, device, p.buffers[b].bytes});
  }
  for (const PlanStep& step : p.steps) {
    Launchable l;
    l.step = &step;
    l.first_buffer = static_cast<int>(buffer_of_argument_.size());
    l.num_buffers = static_cast<int>(step.buffers.size());
    for (int b : step.buffers) {
      const int at = static_cast<int>(buffer_of_argument_.size());
      buffer_of_argument_.push_back(b);
      if (p.buffers[b].kind == PlanBuffer::kInput) leaf_patches_.push_back({at, p.buffers[b].slot});
      if (result_of[b] >= 0) result_patches_.push_back({at, result_of[b]});
    }
    if (step.kind == PlanStep::kKernel) {
      const PlanKernel& kernel = p.kernels[step.kernel];
      l.device = plan_->devices[step.kernel];
      l.executable = plan_->executables[step.kernel].get();
      l.workers = kernel.workers;
      l.first_variable = static_cast<int>(num_variables_);
      l.num_variables = static_cast<int>(kernel.variables.size());
      for (const std::string& name : kernel.variables) {
        const auto it = std::find(variables.begin(), variables.end(), name);
        CHECK(it != variables.end(), "a plan has the variable ", name, " that its graph has not");
        variable_patches_.push_back(
            {static_cast<int>(num_variables_++), static_cast<int>(it - variables.begin())});
      }
      ++kernels_;
    }
    launches_.push_back(l);
  }
}

Replay::~Replay() = default;

absl::StatusOr<std::unique_ptr<Replay::Frame>> Replay::MakeFrame() const {
  const Plan& p = plan_->plan;
  auto frame = std::make_unique<Frame>();
  frame->arguments.resize(buffer_of_argument_.size(), nullptr);
  frame->variables.resize(num_variables_);
  for (const auto& [device, bytes] : p.arenas) {
    ASSIGN_OR_RETURN(DeviceRuntime * runtime, GetDevice(device.place()));
    ASSIGN_OR_RETURN(std::shared_ptr<Storage> arena, runtime->Allocate(bytes));
    for (size_t i = 0; i < buffer_of_argument_.size(); ++i) {
      const PlanBuffer& b = p.buffers[buffer_of_argument_[i]];
      if (b.kind != PlanBuffer::kTemp || !(b.device == device)) continue;
      // Integers, as there may be no memory behind it (NULL).
      frame->arguments[i] =
          reinterpret_cast<void*>(reinterpret_cast<intptr_t>(arena->data) + b.offset);
    }
    frame->arenas.push_back(std::move(arena));
  }
  return frame;
}

absl::Status Replay::Run(absl::Span<Storage* const> leaves, absl::Span<const int64_t> values,
                         absl::Span<std::shared_ptr<Storage>> results) {
  CHECK(!plan_->plan.has_meshes());
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
    ASSIGN_OR_RETURN(results[r.root], r.device->Allocate(r.bytes));
  }
  for (const auto& [root, same] : same_results_) results[root] = results[same];
  for (const Patch& p : leaf_patches_) {
    if (frame->arguments[p.at] != nullptr && FaultPlanted(Fault::kReplayOldInputs)) continue;
    frame->arguments[p.at] = leaves[p.from]->data;
  }
  for (const Patch& p : result_patches_) frame->arguments[p.at] = results[p.from]->data;
  for (const Patch& p : variable_patches_) {
    if (frame->variables[p.at] != 0 && FaultPlanted(Fault::kReplayOldVariables)) continue;
    frame->variables[p.at] = values[p.from];
  }
  {
    PlanScope scope;
    for (const Launchable& l : launches_) {
      void* const* arguments = frame->arguments.data() + l.first_buffer;
      if (l.device == nullptr) {
        RETURN_IF_ERROR(RunCopyStep(plan_->plan, *l.step, arguments[0], arguments[1]));
        continue;
      }
      const Launch launch{
          {arguments, static_cast<size_t>(l.num_buffers)},
          {frame->variables.data() + l.first_variable, static_cast<size_t>(l.num_variables)},
          l.workers};
      RETURN_IF_ERROR(l.device->Run(*l.executable, launch));
    }
  }
  Count(&RuntimeStats::kernels_run, kernels_);
  std::lock_guard lock(mutex_);
  idle_.push_back(std::move(frame));
  return absl::OkStatus();
}

absl::StatusOr<double> MeasureReplay(const Place& place, int kernels, int rounds) {
  if (kernels < 1 || rounds < 1) return absl::InvalidArgumentError("replay: nothing to run");
  try {
    Jit step([kernels](const Tensor& x) {
      Tensor y = x;
      for (int i = 0; i < kernels; ++i) y = (y + 1).Contiguous();
      return y;
    });
    const Tensor x = Tensor::Zeros({8}, kFloat32).To(place).Contiguous();
    step({x});
    double least = 1e30;
    const int64_t before = GetRuntimeStats().kernels_run;
    for (int i = 0; i < rounds; ++i) {
      const auto start = std::chrono::steady_clock::now();
      step({x});
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
      least = std::min(least, took.count());
    }
    const int64_t ran = GetRuntimeStats().kernels_run - before;
    if (ran != int64_t{kernels} * rounds) {
      return absl::InternalError(absl::StrCat("replay: ", kernels * rounds,
                                              " kernels were meant to run, and ", ran, " did"));
    }
    return least / kernels;
  } catch (const Error& e) {
    return e.status();
  }
}

}  // namespace tessera
