// The runtime: from tensor graphs to computed buffers.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "codegen/codegen.h"
#include "graph/uop.h"
#include "runtime/device.h"
#include "runtime/plan_key.h"
#include "runtime/transfer.h"
#include "schedule/plan.h"

namespace tessera {

using Bindings = std::map<std::string, int64_t>;  // values of VARs by name

// A Plan with its kernels compiled: runs any number of times on any buffers of its shapes.
struct CompiledPlan {
  Plan plan;
  std::vector<Program> programs;                                      // by kernel
  std::vector<DeviceRuntime*> devices;                                // by kernel: the first
  std::vector<std::vector<std::shared_ptr<Executable>>> executables;  // by kernel, by place
  absl::flat_hash_map<Device, std::vector<DeviceRuntime*>> meshes;    // the places of each
  std::vector<std::unique_ptr<const Transfer>> transfers;             // by step; of others null
};
using CompiledPlanPtr = std::shared_ptr<const CompiledPlan>;

// The plan of the roots, whose key this is: scheduled and compiled, or found in memory.
absl::StatusOr<CompiledPlanPtr> PreparePlan(absl::Span<const UOp> roots, const PlanKey& key);
// The same; if graphs have come that differ in numbers alone, a plan that serves all of them, in
// which those are VARs (runtime/numbers.h): then the key becomes that plan's.
absl::StatusOr<CompiledPlanPtr> PrepareVarying(absl::Span<const UOp> roots, PlanKey& key);

// The plan of the roots as it was scheduled; nothing is generated, compiled or kept. Where a chip
// is given, all is planned for that instead of for what this machine has.
absl::StatusOr<Plan> PlanOnly(absl::Span<const UOp> roots, const PlanKey& key,
                              const Target* chip = nullptr);
// The same, with kernels of GPUs generated, for how many multiprocessors get blocks.
absl::StatusOr<Plan> PlanWithGrids(absl::Span<const UOp> roots, const PlanKey& key);

// Runs a plan on the storage of its leaves, by slot. Gives the storage of each root. Where
// `made_nan` is given, a kernel that makes a NaN though it reads none is an error, and sets it.
absl::StatusOr<std::vector<std::shared_ptr<Storage>>> ExecutePlan(
    const CompiledPlan& plan, absl::Span<const std::shared_ptr<Storage>> leaves,
    const Bindings& bindings, bool* made_nan = nullptr);

// Computes the roots. Each result is a BUFFER that holds the root's value; nodes remember what they
// were computed into. An expression elsewhere that still needs what an ASSIGN overwrites keeps it.
// With check_nan (else as the flag CHECK_NAN says) the op that makes the first NaN is an error.
//
// After an error before the first step (memory, compiling, a variable's value) everything is as it
// was, and may be tried again. After one in mid-plan no root is computed. Tensors that were being
// assigned up to there hold no values any more, nor do those whose assignments need them: reading
// one is an error that quotes the first, assigning to all of it gives it new values, and no
// assignment of theirs runs again. All other tensors are as they were, and what is to be assigned
// to them still is. With check_nan nothing was assigned.
absl::StatusOr<std::vector<UOp>> RealizeNodes(absl::Span<const UOp> roots,
                                              const Bindings& bindings);
absl::StatusOr<std::vector<UOp>> RealizeNodes(absl::Span<const UOp> roots, const Bindings& bindings,
                                              bool check_nan);

// Counters of this process, for tests and tools.
struct RuntimeStats {
  int64_t plans_made = 0;
  int64_t plans_reused = 0;
  int64_t kernels_run = 0;
  int64_t transfers_run = 0;  // exchanges and reductions between places
  int64_t bytes_moved = 0;    // by them: the least that each needs
  int64_t bytes_sent = 0;     // by the way that each was done
};
RuntimeStats GetRuntimeStats();

// Forgets all plans.
void ClearPlans();

}  // namespace tessera
