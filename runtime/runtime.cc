// The runtime's list of stages: key, schedule, generate, compile; plans kept by key.
#include "runtime/runtime.h"

#include <list>
#include <mutex>

#include "absl/container/flat_hash_map.h"
#include "codegen/codegen.h"
#include "graph/flags.h"
#include "graph/spec.h"
#include "graph/status.h"
#include "graph/tensor_internal.h"
#include "runtime/counters.h"
#include "runtime/debug.h"
#include "runtime/host_target.h"
#include "runtime/mesh.h"
#include "runtime/numbers.h"
#include "runtime/over_threads.h"
#include "runtime/segments.h"
#include "schedule/schedule.h"
#include "schedule/work_division.h"

namespace tessera {
namespace {

constexpr size_t kMaxPlans = 1024;
constexpr size_t kMaxPlanKernels = 8192;  // of all plans but the newest; each holds mappings

// Plans by key; the oldest go first.
struct PlanCache {
  std::mutex mutex;
  absl::flat_hash_map<std::vector<uint64_t>, CompiledPlanPtr> plans;
  std::list<std::vector<uint64_t>> age;
  size_t kernels = 0;  // of all plans
};
PlanCache& Plans() {
  static PlanCache& cache = *new PlanCache;
  return cache;
}

// Of each kind of place that the nodes are on.
absl::StatusOr<Targets> TargetsOf(absl::Span<const UOp> nodes, Device home) {
  ASSIGN_OR_RETURN(DeviceRuntime * first, GetDevice(home.place()));
  Targets out(home, first->target());
  Device last = home;  // most are on one
  for (const UOp& u : nodes) {
    if (u.device() == last || out.Knows(u.device())) continue;
    last = u.device();
    ASSIGN_OR_RETURN(DeviceRuntime * device, GetDevice(last.places()[0]));
    out.Add(last, device->target());
  }
  return out;
}

// Of a GPU's kernel: how many multiprocessors its blocks keep busy, and for how much of the time.
void DescribeGrid(const Program& program, const Target& target, PlanKernel& kernel) {
  const int64_t blocks = target.dialect == Dialect::kCuda ? program.grid.vmax() : 0;
  if (blocks < 1) return;
  kernel.workers = static_cast<int>(std::min<int64_t>(blocks, target.cores));
  kernel.utilisation = Utilisation(blocks, kernel.workers, target.cores);
}

// By segments where some are equal, else as a whole.
absl::StatusOr<Plan> PlanKernels(absl::Span<const UOp> roots, const PlanKey& key,
                                 const Targets& targets, Device home) {
  if (const std::vector<Segment> segments = FindSegments(key); !segments.empty()) {
    absl::StatusOr<Plan> plan = ScheduleSegments(key, segments, targets, home);
    if (!absl::IsUnimplemented(plan.status())) return plan;
  }
  const std::vector<UOp> values = WithParams(roots, key);
  RETURN_IF_ERROR(Verify(values, SpecStage::kTensor, SpecLevel(), "front", targets.home()));
  IndexForms forms;
  return ScheduleKernels(values, targets, home, key.on_meshes, key.lasting.slots, forms);
}

// One where passes are counted or their texts numbered: in the same order each time.
int64_t ThreadsOfCodegen() {
  const bool in_order =
      IntFlag(Flag::kBisect) >= 0 || !TextFlag(Flag::kDump).empty() || IntFlag(Flag::kDebug) >= 7;
  return in_order ? 1 : HostTarget().cores;
}

// All kernels of a device at once, so that they compile in parallel; for each of their places, as
// what a GPU has loaded is no other's.
absl::Status CompileKernels(CompiledPlan& out) {
  const size_t n = out.plan.kernels.size();
  std::vector<std::vector<DeviceRuntime*>> places(n);
  for (size_t k = 0; k < n; ++k) {
    ASSIGN_OR_RETURN(places[k], DevicesOf(out.plan.kernels[k].device));
  }
  out.executables.resize(n);
  for (size_t k = 0; k < n; ++k) {
    if (!out.executables[k].empty()) continue;
    std::vector<PlacedProgram> batch;
    std::vector<size_t> members;
    for (size_t j = k; j < n; ++j) {
      if (out.devices[j] != out.devices[k]) continue;
      members.push_back(j);
      batch.push_back({&out.programs[j], places[j]});
    }
    ASSIGN_OR_RETURN(auto executables, out.devices[k]->CompileOver(batch));
    for (size_t j = 0; j < members.size(); ++j) {
      out.executables[members[j]] = std::move(executables[j]);
    }
  }
  return absl::OkStatus();
}

// How many kernels it has loaded, each of which holds mappings.
size_t Loaded(const CompiledPlan& plan) {
  size_t out = 0;
  for (const auto& places : plan.executables) {
    out += places.front() == places.back() ? 1 : places.size();
  }
  return out;
}

absl::StatusOr<CompiledPlanPtr> MakePlan(absl::Span<const UOp> roots, const PlanKey& key) {
  auto out = std::make_shared<CompiledPlan>();
  ASSIGN_OR_RETURN(out->plan, PlanOnly(roots, key));
  DebugPlan(out->plan);

  const size_t n = out->plan.kernels.size();
  out->devices.assign(n, nullptr);
  for (size_t k = 0; k < n; ++k) {
    // All places of a mesh are of one kind, and run the program of the first.
    ASSIGN_OR_RETURN(out->devices[k], GetDevice(out->plan.kernels[k].device.places()[0]));
  }
  std::vector<absl::StatusOr<Program>> programs(n, Program());
  OverThreads(n, ThreadsOfCodegen(), [&](int64_t k) {
    const PlanKernel& kernel = out->plan.kernels[k];
    programs[k] = Codegen(kernel.graph, kernel.name, kernel.variables, out->devices[k]->target());
  });
  for (size_t k = 0; k < n; ++k) {
    PlanKernel& kernel = out->plan.kernels[k];
    ASSIGN_OR_RETURN(Program program, std::move(programs[k]));
    DescribeGrid(program, out->devices[k]->target(), kernel);
    DebugProgram(kernel, program);
    out->programs.push_back(std::move(program));
  }
  for (const PlanBuffer& b : out->plan.buffers) {
    if (!b.device.is_sharding() || out->meshes.contains(b.device)) continue;
    ASSIGN_OR_RETURN(out->meshes[b.device], DevicesOf(b.device));
  }
  for (const PlanStep& step : out->plan.steps) {
    out->transfers.emplace_back();
    if (step.kind == PlanStep::kKernel || step.kind == PlanStep::kCopy || step.loop >= 0) continue;
    ASSIGN_OR_RETURN(out->transfers.back(), Transfer::Make(out->plan, step));
  }
  RETURN_IF_ERROR(CompileKernels(*out));
  return CompiledPlanPtr(std::move(out));
}

CompiledPlanPtr FindPlan(const PlanKey& key) {
  PlanCache& cache = Plans();
  std::lock_guard lock(cache.mutex);
  const auto it = cache.plans.find(key.words);
  if (it == cache.plans.end()) return nullptr;
  Count(&RuntimeStats::plans_reused);
  return it->second;
}

absl::StatusOr<CompiledPlanPtr> MakeAndKeep(absl::Span<const UOp> roots, const PlanKey& key) {
  ASSIGN_OR_RETURN(CompiledPlanPtr plan, MakePlan(roots, key));
  Count(&RuntimeStats::plans_made);
  PlanCache& cache = Plans();
  std::lock_guard lock(cache.mutex);
  if (!cache.plans.emplace(key.words, plan).second) return plan;
  cache.age.push_back(key.words);
  cache.kernels += Loaded(*plan);
  while (cache.age.size() > 1 &&
         (cache.age.size() > kMaxPlans || cache.kernels > kMaxPlanKernels)) {
    const auto oldest = cache.plans.find(cache.age.front());
    cache.kernels -= Loaded(*oldest->second);
    cache.plans.erase(oldest);
    cache.age.pop_front();
  }
  return plan;
}

}  // namespace

absl::StatusOr<Plan> PlanOnly(absl::Span<const UOp> roots, const PlanKey& key, const Target* chip) {
  Device home;
  for (const UOp& r : roots) {
    if (!home) home = r.device();
  }
  if (!home) home = internal::DefaultDevice();
  home = Device(home.places()[0]);
  Targets targets{Target()};
  if (chip != nullptr) {
    targets = Targets(home, *chip);
  } else {
    ASSIGN_OR_RETURN(targets, TargetsOf(key.order, home));
  }
  ASSIGN_OR_RETURN(Plan plan, PlanKernels(roots, key, targets, home));
  RETURN_IF_ERROR(FinishPlan(plan, targets, key.lasting));
  for (const PlanKernel& k : plan.kernels) {
    RETURN_IF_ERROR(
        Verify({&k.graph, 1}, SpecStage::kKernel, SpecLevel(), "schedule", targets.Of(k.device)));
  }
  return plan;
}

absl::StatusOr<Plan> PlanWithGrids(absl::Span<const UOp> roots, const PlanKey& key) {
  ASSIGN_OR_RETURN(Plan plan, PlanOnly(roots, key));
  for (PlanKernel& k : plan.kernels) {
    ASSIGN_OR_RETURN(DeviceRuntime * device, GetDevice(k.device.places()[0]));
    if (device->target().dialect != Dialect::kCuda) continue;
    ASSIGN_OR_RETURN(const Program program,
                     Codegen(k.graph, k.name, k.variables, device->target()));
    DescribeGrid(program, device->target(), k);
  }
  return plan;
}

absl::StatusOr<CompiledPlanPtr> PreparePlan(absl::Span<const UOp> roots, const PlanKey& key) {
  if (CompiledPlanPtr found = FindPlan(key)) return found;
  return MakeAndKeep(roots, key);
}

absl::StatusOr<CompiledPlanPtr> PrepareVarying(absl::Span<const UOp> roots, PlanKey& key) {
  CompiledPlanPtr found = FindPlan(key);
  if (found == nullptr && LetNumbersVary(key)) found = FindPlan(key);
  if (found != nullptr) return found;
  return MakeAndKeep(roots, key);
}

void ClearPlans() {
  ForgetNumbers();
  PlanCache& cache = Plans();
  std::lock_guard lock(cache.mutex);
  cache.plans.clear();
  cache.age.clear();
  cache.kernels = 0;
}

}  // namespace tessera
