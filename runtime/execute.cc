// Running a compiled plan: buffers bound, steps in order.
#include <chrono>

#include "absl/strings/str_cat.h"
#include "graph/evaluate.h"
#include "graph/flags.h"
#include "graph/status.h"
#include "runtime/core_pool.h"
#include "runtime/counters.h"
#include "runtime/debug.h"
#include "runtime/execute.h"

namespace tessera {

absl::StatusOr<int64_t> ExtentValue(const Extent& e, const Bindings& bindings) {
  if (e.is_int()) return e.value();
  EvaluateOptions options;
  options.vars.insert(bindings.begin(), bindings.end());
  const UOp expr = e.expr();
  ASSIGN_OR_RETURN(auto values, Evaluate({&expr, 1}, options));
  return values[0].At(0).AsInt();
}

absl::Status CheckBinding(const std::string& name, int64_t min, int64_t max,
                          const int64_t* value) {
  if (value == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("realize: the variable '", name, "' has no value; give it one between ", min,
                     " and ", max, ", as in {{\"", name, "\", ", min, "}}"));
  }
  if (*value < min || *value > max) {
    return absl::OutOfRangeError(absl::StrCat("realize: the variable '", name, "' is ", *value,
                                              ", outside its bounds ", min, " to ", max));
  }
  return absl::OkStatus();
}

namespace {

class Execution {
 public:
  Execution(const CompiledPlan& compiled, absl::Span<const std::shared_ptr<Storage>> leaves,
            const Bindings& bindings)
      : compiled_(compiled), plan_(compiled.plan), leaves_(leaves), bindings_(bindings) {}

  absl::StatusOr<std::vector<std::shared_ptr<Storage>>> Run() {
    RETURN_IF_ERROR(BindBuffers());
    {
      PlanScope scope;
      for (const PlanStep& step : plan_.steps) RETURN_IF_ERROR(RunStep(step));
    }
    std::vector<std::shared_ptr<Storage>> out;
    for (int b : plan_.roots) out.push_back(storage_[b]);
    return out;
  }

 private:
  absl::Status BindBuffers() {
    storage_.resize(plan_.buffers.size());
    data_.resize(plan_.buffers.size(), nullptr);
    for (const auto& [device, bytes] : plan_.arenas) {
      ASSIGN_OR_RETURN(DeviceRuntime * runtime, GetDevice(device.place()));
      ASSIGN_OR_RETURN(std::shared_ptr<Storage> arena, runtime->Allocate(bytes));
      arenas_.emplace_back(device, std::move(arena));
    }
    for (size_t i = 0; i < plan_.buffers.size(); ++i) {
      const PlanBuffer& b = plan_.buffers[i];
      switch (b.kind) {
        case PlanBuffer::kInput:
          storage_[i] = leaves_[b.slot];
          break;
        case PlanBuffer::kOutput: {
          ASSIGN_OR_RETURN(DeviceRuntime * runtime, GetDevice(b.device.place()));
          ASSIGN_OR_RETURN(storage_[i], runtime->Allocate(b.bytes));
          break;
        }
        case PlanBuffer::kTemp:
          if (b.offset < 0) break;  // of no step
          for (const auto& [device, arena] : arenas_) {
            if (device == b.device) data_[i] = static_cast<char*>(arena->data) + b.offset;
          }
          break;
      }
      if (storage_[i] != nullptr) data_[i] = storage_[i]->data;
    }
    return absl::OkStatus();
  }

  absl::Status RunStep(const PlanStep& step) {
    if (step.kind == PlanStep::kCopy) {
      return RunCopyStep(plan_, step, data_[step.buffers[0]], data_[step.buffers[1]]);
    }
    const PlanKernel& kernel = plan_.kernels[step.kernel];
    absl::InlinedVector<void*, 16> buffers;
    for (int b : step.buffers) buffers.push_back(data_[b]);
    absl::InlinedVector<int64_t, 4> variables;
    for (const std::string& name : kernel.variables) {
      auto it = bindings_.find(name);
      if (it == bindings_.end()) {
        return absl::FailedPreconditionError(
            absl::StrCat("realize: the variable '", name, "' has no value; give it one"));
      }
      variables.push_back(it->second);
    }
    Launch launch{buffers, variables, kernel.workers};
    Count(&RuntimeStats::kernels_run);
    DeviceRuntime& device = *compiled_.devices[step.kernel];
    if (IntFlag(Flag::kDebug) < 2) return device.Run(*compiled_.executables[step.kernel], launch);
    const auto start = std::chrono::steady_clock::now();
    RETURN_IF_ERROR(device.Run(*compiled_.executables[step.kernel], launch));
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    ASSIGN_OR_RETURN(const int64_t bytes, ExtentValue(kernel.bytes, bindings_));
    ASSIGN_OR_RETURN(const int64_t flops, ExtentValue(kernel.flops, bindings_));
    DebugLaunch(kernel, step, took.count(), static_cast<double>(bytes), static_cast<double>(flops));
    return absl::OkStatus();
  }

  const CompiledPlan& compiled_;
  const Plan& plan_;
  absl::Span<const std::shared_ptr<Storage>> leaves_;
  const Bindings& bindings_;
  std::vector<std::pair<Device, std::shared_ptr<Storage>>> arenas_;
  std::vector<std::shared_ptr<Storage>> storage_;
  std::vector<void*> data_;
};

}  // namespace

absl::Status RunCopyStep(const Plan& plan, const PlanStep& step, void* target,
                         const void* source) {
  const PlanBuffer &to = plan.buffers[step.buffers[0]], &from = plan.buffers[step.buffers[1]];
  ASSIGN_OR_RETURN(DeviceRuntime * to_device, GetDevice(to.device.place()));
  ASSIGN_OR_RETURN(DeviceRuntime * from_device, GetDevice(from.device.place()));
  if (!to_device->Computes() || !from_device->Computes()) return absl::OkStatus();
  if (from_device->IsHost()) return to_device->CopyIn(target, source, to.bytes);
  if (to_device->IsHost()) return from_device->CopyOut(target, source, to.bytes);
  std::vector<char> staging(to.bytes);
  RETURN_IF_ERROR(from_device->CopyOut(staging.data(), source, to.bytes));
  return to_device->CopyIn(target, staging.data(), to.bytes);
}

absl::StatusOr<std::vector<std::shared_ptr<Storage>>> ExecutePlan(
    const CompiledPlan& plan, absl::Span<const std::shared_ptr<Storage>> leaves,
    const Bindings& bindings) {
  return Execution(plan, leaves, bindings).Run();
}

}  // namespace tessera
