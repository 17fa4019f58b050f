// Running a compiled plan: buffers bound, steps in order.
#include <chrono>
#include <optional>
#include <string>

#include "absl/algorithm/container.h"
#include "absl/cleanup/cleanup.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "graph/callsite.h"
#include "graph/evaluate.h"
#include "graph/flags.h"
#include "graph/infer.h"
#include "graph/status.h"
#include "runtime/check_nan.h"
#include "runtime/core_pool.h"
#include "runtime/counters.h"
#include "runtime/debug.h"
#include "runtime/execute.h"
#include "runtime/mesh.h"

namespace tessera {

absl::StatusOr<int64_t> ExtentValue(const Extent& e, const Bindings& bindings) {
  if (e.is_int()) return e.value();
  EvaluateOptions options;
  options.vars.insert(bindings.begin(), bindings.end());
  const UOp expr = e.expr();
  ASSIGN_OR_RETURN(auto values, Evaluate({&expr, 1}, options));
  return values[0].At(0).AsInt();
}

absl::Status CheckBinding(const std::string& name, int64_t min, int64_t max, const int64_t* value) {
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
            const Bindings& bindings, bool* made_nan)
      : compiled_(compiled),
        plan_(compiled.plan),
        leaves_(leaves),
        bindings_(bindings),
        made_nan_(made_nan) {}

  absl::StatusOr<std::vector<std::shared_ptr<Storage>>> Run() {
    RETURN_IF_ERROR(BindBuffers());
    if (IntFlag(Flag::kDebug) >= 2) table_.emplace(plan_);
    {
      PlanScope scope;
      const absl::Status ran = RunSteps(0, plan_.steps.size());
      if (!ran.ok()) {
        LoseWritten(ran);
        return ran;
      }
    }
    std::vector<std::shared_ptr<Storage>> out;
    for (int b : plan_.roots) out.push_back(storage_[b]);
    return out;
  }

 private:
  absl::Status RunSteps(size_t begin, size_t end) {
    for (size_t s = begin; s < end; ++s) {
      reached_ = std::max(reached_, s);
      if (plan_.steps[s].kind == PlanStep::kLoop) {
        const size_t last = EndOfLoop(plan_, s);
        ForgetNans(plan_.steps[s]);
        RETURN_IF_ERROR(RunLoop(plan_.steps[s], s + 1, last));
        s = last;
      } else {
        RETURN_IF_ERROR(RunStep(plan_.steps[s]));
      }
    }
    return absl::OkStatus();
  }

  // A loop whose steps are those from `begin` below `end`.
  absl::Status RunLoop(const PlanStep& step, size_t begin, size_t end) {
    const PlanLoop& loop = plan_.loops[step.loop];
    ASSIGN_OR_RETURN(const int64_t turns, ExtentValue(loop.turns, bindings_));
    turns_.push_back({&step, 0});
    if (table_) table_->BeginLoop();
    const absl::Cleanup ends = [this] {
      turns_.pop_back();
      if (table_) table_->EndLoop();
    };
    for (int64_t t = 0; t < turns; ++t) {
      bindings_[loop.variable] = turns_.back().at = loop.At(t, turns);
      for (const PlanLoop::Carried& c : loop.carried) {
        data_[c.taken] = data_[c.buffers[PlanLoop::TakenBy(t, turns)]];
        data_[c.given] = data_[c.buffers[PlanLoop::GivenBy(t, turns)]];
      }
      RETURN_IF_ERROR(RunSteps(begin, end));
    }
    if (turns > 0) return absl::OkStatus();
    for (const PlanLoop::Carried& c : loop.carried) {
      RETURN_IF_ERROR(Copy(c.result(), c.first()));
    }
    return absl::OkStatus();
  }

  absl::Status Copy(int to, int from) {
    return CopyPlanBuffer(plan_.buffers[to], data_[to][0], plan_.buffers[from], data_[from][0]);
  }

  // Up to a step that failed, what was there before is written to or about to be.
  void LoseWritten(const absl::Status& why) {
    const auto message = std::make_shared<const std::string>(why.message());
    for (const PlanStep& step : plan_.steps) {
      for (int b : WrittenBy(plan_, step)) {
        if (plan_.buffers[b].kind == PlanBuffer::kInput) storage_[b]->lost = message;
      }
      if (&step == &plan_.steps[reached_]) return;
    }
  }

  absl::Status BindBuffers() {
    storage_.resize(plan_.buffers.size());
    data_.resize(plan_.buffers.size());
    for (int slot : WrittenLeaves(plan_)) WillWrite(*leaves_[slot]);
    for (const auto& [device, bytes] : plan_.arenas) {
      for (const Place& place : device.places()) {
        ASSIGN_OR_RETURN(DeviceRuntime * runtime, GetDevice(place));
        arenas_.emplace_back(device, nullptr);
        ASSIGN_OR_RETURN(arenas_.back().second, runtime->Allocate(bytes));
      }
    }
    for (size_t i = 0; i < plan_.buffers.size(); ++i) {
      const PlanBuffer& b = plan_.buffers[i];
      switch (b.kind) {
        case PlanBuffer::kInput:
          storage_[i] = leaves_[b.slot];
          break;
        case PlanBuffer::kOutput: {
          ASSIGN_OR_RETURN(storage_[i], AllocateBuffer(plan_, b));
          break;
        }
        case PlanBuffer::kOfTurn:
          break;
        case PlanBuffer::kTemp:
          if (b.kept) {
            ASSIGN_OR_RETURN(storage_[i], AllocateBuffer(plan_, b));
            break;
          }
          if (b.offset < 0) break;  // of no step
          for (const auto& [device, arena] : arenas_) {
            if (device == b.device) {
              // By number, as there may be no memory behind it (NULL).
              data_[i].push_back(
                  reinterpret_cast<void*>(reinterpret_cast<intptr_t>(arena->data) + b.offset));
            }
          }
          break;
      }
      if (storage_[i] != nullptr && storage_[i]->parts.empty()) data_[i] = {storage_[i]->data};
      if (storage_[i] == nullptr) continue;
      for (const auto& part : storage_[i]->parts) data_[i].push_back(part->data);
    }
    return absl::OkStatus();
  }

  absl::Status RunStep(const PlanStep& step) {
    if (!table_) return Launch(step);
    const auto start = std::chrono::steady_clock::now();
    RETURN_IF_ERROR(Launch(step));
    if (step.kind == PlanStep::kKernel) RETURN_IF_ERROR(compiled_.devices[step.kernel]->Wait());
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    int64_t bytes = 2 * plan_.buffers[step.buffers[0]].bytes, flops = 0;
    bool computes = true;
    if (step.kind == PlanStep::kKernel) {
      const PlanKernel& kernel = plan_.kernels[step.kernel];
      if (plan_.has_meshes()) {
        table_->Add(step, took.count(), static_cast<double>(kernel.bytes.max()),
                    static_cast<double>(kernel.flops.max()), true);
        return absl::OkStatus();
      }
      ASSIGN_OR_RETURN(bytes, ExtentValue(kernel.bytes, bindings_));
      ASSIGN_OR_RETURN(flops, ExtentValue(kernel.flops, bindings_));
      computes = compiled_.devices[step.kernel]->Computes();
    }
    table_->Add(step, took.count(), static_cast<double>(bytes), static_cast<double>(flops),
                computes);
    return absl::OkStatus();
  }

  absl::Status Launch(const PlanStep& step) {
    if (step.kind == PlanStep::kCopy) {
      return Copy(step.buffers[0], step.buffers[1]);
    }
    if (step.kind != PlanStep::kKernel) return LaunchTransfer(step);
    if (made_nan_ == nullptr || !compiled_.devices[step.kernel]->Computes()) return RunKernel(step);
    ASSIGN_OR_RETURN(const bool before, ReadsNan(step));
    RETURN_IF_ERROR(RunKernel(step));
    ForgetNans(step);
    if (before) return absl::OkStatus();
    ASSIGN_OR_RETURN(const auto made, WrittenNan(step));
    if (!made) return absl::OkStatus();
    *made_nan_ = true;
    return absl::InvalidArgumentError(absl::StrCat(
        "realize: CHECK_NAN: kernel ", plan_.kernels[step.kernel].name,
        step.site != nullptr ? absl::StrCat(" of ", step.site->ToString()) : "", " made a NaN at ",
        *made, turns_.empty() ? "" : absl::StrCat(", in turn ", turns_.back().at, " of a loop"),
        " and read none"));
  }

  absl::StatusOr<int64_t> ValueFor(const PlanStep& step, const std::string& variable) const {
    const auto own = step.numbers.find(variable);
    if (own != step.numbers.end()) return own->second;
    const auto it = bindings_.find(NameIn(step, variable));
    if (it != bindings_.end()) return it->second;
    return absl::FailedPreconditionError(
        absl::StrCat("realize: the variable '", variable, "' has no value; give it one"));
  }

  absl::Status RunKernel(const PlanStep& step) {
    const PlanKernel& kernel = plan_.kernels[step.kernel];
    const Device on = plan_.buffers[step.buffers[0]].device;
    if (on.is_sharding()) return LaunchOnMesh(step, kernel, on);
    absl::InlinedVector<void*, 16> buffers;
    for (int b : step.buffers) buffers.push_back(data_[b][0]);
    absl::InlinedVector<int64_t, 4> variables;
    for (const std::string& name : kernel.variables) {
      ASSIGN_OR_RETURN(variables.emplace_back(), ValueFor(step, name));
    }
    Count(&RuntimeStats::kernels_run);
    DeviceRuntime& device = *compiled_.devices[step.kernel];
    const Executable& executable = *compiled_.executables[step.kernel][0];
    return device.Run(executable, tessera::Launch{buffers, variables, kernel.parts()});
  }

  absl::Status LaunchTransfer(const PlanStep& step) {
    std::vector<const void*> source;
    for (size_t i = 1; i < step.buffers.size(); ++i) {
      for (void* p : data_[step.buffers[i]]) source.push_back(p);
    }
    const auto step_index = static_cast<size_t>(&step - plan_.steps.data());
    return compiled_.transfers[step_index]->Run(
        data_[step.buffers[0]], source,
        [this](const Extent& e) { return ExtentValue(e, bindings_); });
  }

  // One kernel on all places, side by side.
  absl::Status LaunchOnMesh(const PlanStep& step, const PlanKernel& kernel, Device mesh) {
    const std::vector<DeviceRuntime*>& places = compiled_.meshes.at(mesh);
    std::vector<const PlaceVariable*> own(kernel.variables.size(), nullptr);
    std::vector<int64_t> common(kernel.variables.size(), 0);
    for (size_t v = 0; v < own.size(); ++v) {
      const std::string& name = kernel.variables[v];
      for (const PlaceVariable& p : plan_.place_variables) {
        if (p.name == name && p.mesh == mesh) own[v] = &p;
      }
      if (own[v] != nullptr) {
        if (!own[v]->is_symbolic()) continue;
        ASSIGN_OR_RETURN(common[v], ExtentValue(own[v]->within, bindings_));
        continue;
      }
      ASSIGN_OR_RETURN(common[v], ValueFor(step, name));
    }
    Count(&RuntimeStats::kernels_run, static_cast<int64_t>(places.size()));
    return ForEachPlace(static_cast<int>(places.size()), [&](int i) {
      absl::InlinedVector<void*, 16> buffers;
      for (int b : step.buffers) buffers.push_back(data_[b][i]);
      absl::InlinedVector<int64_t, 8> variables(common.begin(), common.end());
      for (size_t v = 0; v < own.size(); ++v) {
        if (own[v] != nullptr) variables[v] = own[v]->At(i, common[v]);
      }
      return places[i]->Run(*compiled_.executables[step.kernel][i],
                            tessera::Launch{buffers, variables, kernel.parts()});
    });
  }

  // Whether what a step reads holds a NaN, as far as something was there before the plan began.
  absl::StatusOr<bool> ReadsNan(const PlanStep& step) {
    for (size_t i = 0; i < step.buffers.size(); ++i) {
      const int b = step.buffers[i];
      const PlanBuffer& buffer = plan_.buffers[b];
      const bool written = i < WrittenBy(plan_, step).size();
      if (written && buffer.kind != PlanBuffer::kInput) continue;
      const auto known = holds_nan_.find(b);
      if (known == holds_nan_.end()) {
        ASSIGN_OR_RETURN(const auto found, NanIn(b));
        // What a turn takes is another buffer in the next one.
        if (buffer.kind != PlanBuffer::kOfTurn) holds_nan_.emplace(b, found.has_value());
        if (found) return true;
      } else if (known->second) {
        return true;
      }
    }
    return false;
  }

  absl::StatusOr<std::optional<std::string>> WrittenNan(const PlanStep& step) {
    for (int b : WrittenBy(plan_, step)) {
      ASSIGN_OR_RETURN(auto found, NanIn(b));
      if (found) return found;
    }
    return std::optional<std::string>();
  }

  void ForgetNans(const PlanStep& step) {
    for (int b : WrittenBy(plan_, step)) holds_nan_.erase(b);
  }

  // Where a buffer holds a NaN. Of the stack of a loop under way, of which one element is written
  // in each turn, only that is looked at.
  absl::StatusOr<std::optional<std::string>> NanIn(int buffer) {
    const PlanBuffer& b = plan_.buffers[buffer];
    const int64_t row = ElementOfTurn(buffer);
    for (size_t place = 0; place < data_[buffer].size(); ++place) {
      std::vector<int64_t> shape;
      int64_t elements = 1;
      for (const Extent& e : b.shape) {
        const Extent own =
            b.device.is_sharding() ? ExtentOn(plan_, e, b.device, static_cast<int>(place)) : e;
        ASSIGN_OR_RETURN(const int64_t extent, ExtentValue(own, bindings_));
        shape.push_back(extent);
        elements *= extent;
      }
      if (row >= 0) elements /= shape[0];
      const int64_t first = row < 0 ? 0 : row * elements;
      const char* data = static_cast<const char*>(data_[buffer][place]) + first * b.dtype.bytes();
      ASSIGN_OR_RETURN(DeviceRuntime * device, GetDevice(b.device.places()[place]));
      std::vector<char> read;
      if (!device->IsHost()) {
        if (!b.dtype.IsFloat()) continue;
        read.resize(elements * b.dtype.bytes());
        RETURN_IF_ERROR(device->CopyOut(read.data(), data, static_cast<int64_t>(read.size())));
        data = read.data();
      }
      const int64_t at = FindNan(data, b.dtype, elements);
      if (at < 0) continue;
      return std::optional<std::string>(absl::StrCat(
          ShowPosition(first + at, shape), " of ", Describe(b.dtype, b.shape, b.device),
          b.device.is_sharding() ? absl::StrCat(", on ", b.device.places()[place].ToString())
                                 : ""));
    }
    return std::optional<std::string>();
  }

  // Of a stack which element the turn under way writes; -1 of other buffers.
  int64_t ElementOfTurn(int buffer) const {
    for (const Turn& turn : turns_) {
      const size_t carried = 2 * plan_.loops[turn.loop->loop].carried.size();
      if (absl::c_linear_search(WrittenBy(plan_, *turn.loop).subspan(carried), buffer)) {
        return turn.at;
      }
    }
    return -1;
  }

  struct Turn {
    const PlanStep* loop;
    int64_t at;  // along its stacks
  };
  const CompiledPlan& compiled_;
  const Plan& plan_;
  absl::Span<const std::shared_ptr<Storage>> leaves_;
  Bindings bindings_;  // of the turns under way, too
  bool* const made_nan_;
  std::vector<Turn> turns_;  // under way, of loops within one another
  absl::flat_hash_map<int, bool>
      holds_nan_;       // of buffers that were looked at since they were written
  size_t reached_ = 0;  // the last step that was begun
  std::optional<LaunchTable> table_;
  std::vector<std::pair<Device, std::shared_ptr<Storage>>> arenas_;
  std::vector<std::shared_ptr<Storage>> storage_;
  std::vector<absl::InlinedVector<void*, 1>> data_;  // by place
};

}  // namespace

absl::Status CopyPlanBuffer(const PlanBuffer& to, void* target, const PlanBuffer& from,
                            const void* source) {
  ASSIGN_OR_RETURN(DeviceRuntime * to_device, GetDevice(to.device.place()));
  ASSIGN_OR_RETURN(DeviceRuntime * from_device, GetDevice(from.device.place()));
  if (!to_device->Computes()) return absl::OkStatus();
  if (!from_device->Computes()) return from_device->CopyOut(target, source, to.bytes);  // its error
  return CopyBytes(*to_device, target, *from_device, source, to.bytes);
}

absl::StatusOr<std::vector<std::shared_ptr<Storage>>> ExecutePlan(
    const CompiledPlan& plan, absl::Span<const std::shared_ptr<Storage>> leaves,
    const Bindings& bindings, bool* made_nan) {
  return Execution(plan, leaves, bindings, made_nan).Run();
}

}  // namespace tessera
