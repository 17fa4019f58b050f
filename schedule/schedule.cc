// The scheduler's list of passes.
#include "schedule/schedule.h"

#include "graph/pass.h"
#include "graph/status.h"
#include "schedule/passes.h"

namespace tessera {
namespace {

// A root that is a constant, a counter or a variable has a buffer all the same.
std::vector<UOp> WithBuffers(absl::Span<const UOp> roots) {
  std::vector<UOp> out(roots.begin(), roots.end());
  for (UOp& r : out) {
    if (r.size() == 0 && !r.is(Op::kParam) && !r.is(Op::kBuffer)) {
      r = UOp::Make(Op::kContiguous, {r});
    }
  }
  return out;
}

}  // namespace

absl::StatusOr<Plan> Schedule(absl::Span<const UOp> roots, const Target& target,
                              Device default_device) {
  PassRunner passes("schedule", SpecStage::kTensor, target);
  PassRunner::Roots values = WithBuffers(roots);
  // Before fusion: it decides on assignments and reductions as they stand.
  RETURN_IF_ERROR(passes.RunOptional("sink_reshapes", values,
                                     [](const PassRunner::Roots& r) { return SinkReshapes(r); }));
  RETURN_IF_ERROR(passes.RunOptional("split_reductions", values, [&](const PassRunner::Roots& r) {
    return SplitReductions(r, target);
  }));
  ASSIGN_OR_RETURN(Fusion fusion, Fuse(values, target));
  // After fusion: joining needs to know which values have buffers.
  JoinGroups(fusion);
  if (!OrderGroups(fusion).ok()) {
    // A reader of an old version needs the new one too: it gets a copy of the old.
    values = CopyOverwritten(values);
    ASSIGN_OR_RETURN(fusion, Fuse(values, target));
    JoinGroups(fusion);
    RETURN_IF_ERROR(OrderGroups(fusion));
  }
  ASSIGN_OR_RETURN(Plan plan, MakeKernels(values, fusion, target, default_device));
  // Last: lifetimes are those of the final order.
  PlanMemory(plan);
  return plan;
}

}  // namespace tessera
