// The scheduler's list of passes.
#include "schedule/schedule.h"

#include <algorithm>

#include "graph/pass.h"
#include "graph/status.h"
#include "graph/unroll.h"
#include "graph/walk.h"
#include "schedule/localise.h"
#include "schedule/passes.h"
#include "schedule/share_kernels.h"

namespace tessera {

namespace {

// What localise found to be the very bytes of an argument, or of another root, is a tensor of its
// own all the same: what is assigned to one later is not seen in the other.
void GiveOwnBytes(absl::Span<const UOp> roots, PassRunner::Roots& values) {
  for (size_t i = 0; i < roots.size(); ++i) {
    const bool held = values[i].is(Op::kParam) || values[i].is(Op::kAssign);
    bool shares = held && !roots[i].is(values[i].op());
    for (size_t j = 0; j < i; ++j) shares |= values[j] == values[i] && !(roots[j] == roots[i]);
    if (shares) values[i] = UOp::Make(Op::kContiguous, {values[i]});
  }
}

// Whether something that a loop takes, or a turn has, is on several places at once.
bool IsInParts(const UOp& loop) {
  const auto in_parts = [](const UOp& u) { return u.device() && u.device().is_sharding(); };
  return std::any_of(loop.srcs().begin(), loop.srcs().end(), in_parts) ||
         FindBelow({&loop.src(0), 1}, in_parts) != nullptr;
}

}  // namespace

absl::StatusOr<Plan> ScheduleKernels(absl::Span<const UOp> roots, const Targets& targets,
                                     Device default_device, bool on_meshes,
                                     const std::vector<bool>& lasting, IndexForms& forms) {
  PassRunner passes("schedule", SpecStage::kTensor, targets.home());
  PassRunner::Roots values(roots.begin(), roots.end());
  std::vector<PlaceVariable> place_variables;
  if (on_meshes) {
    // Loops of several places are written out: what one of them computes is no loop of the same
    // places.
    ASSIGN_OR_RETURN(values, WithoutLoops(values, /*stop_at_realized=*/false, IsInParts));
    // First: everything below sees what one place computes.
    ASSIGN_OR_RETURN(Localised local, Localise(values));
    place_variables = std::move(local.variables);
    RETURN_IF_ERROR(
        passes.Run("localise", values, [&](const PassRunner::Roots&) { return local.roots; }));
    GiveOwnBytes(roots, values);
    RETURN_IF_ERROR(passes.RunOptional("merge_collectives", values, [](const PassRunner::Roots& r) {
      return MergeCollectives(r);
    }));
    // After merging: what is added up first is scattered once.
    RETURN_IF_ERROR(passes.RunOptional(
        "scatter_reductions", values,
        [&](const PassRunner::Roots& r) { return ScatterReductions(r, place_variables); }));
    // After scattering: what is left is wanted whole.
    RETURN_IF_ERROR(
        passes.RunOptional("bucket_collectives", values,
                           [](const PassRunner::Roots& r) { return BucketCollectives(r); }));
  }
  // First on one place: nothing below looks into a loop, whose body is scheduled by itself.
  std::vector<OutlinedLoop> loops;
  RETURN_IF_ERROR(passes.Run("outline_loops", values, [&](const PassRunner::Roots& r) {
    Outlined out = OutlineLoops(r, default_device);
    loops = std::move(out.loops);
    return std::move(out.roots);
  }));
  // Before fusion: it decides on assignments and reductions as they stand.
  RETURN_IF_ERROR(passes.RunOptional("sink_reshapes", values,
                                     [](const PassRunner::Roots& r) { return SinkReshapes(r); }));
  // Now that it is known which views are assigned what.
  RETURN_IF_ERROR(passes.Run("give_buffers", values,
                             [](const PassRunner::Roots& r) { return GiveBuffers(r); }));
  // Before what looks for products.
  RETURN_IF_ERROR(passes.RunOptional("part_products", values,
                                     [](const PassRunner::Roots& r) { return PartProducts(r); }));
  RETURN_IF_ERROR(passes.RunOptional("lay_out_products", values, [&](const PassRunner::Roots& r) {
    return LayOutProducts(r, targets);
  }));
  // After it: what was many products of an image each is one, whose sum may be long.
  RETURN_IF_ERROR(passes.RunOptional("split_reductions", values, [&](const PassRunner::Roots& r) {
    return SplitReductions(r, targets);
  }));
  ASSIGN_OR_RETURN(Fusion fusion, Fuse(values, targets));
  // Before joining: a group with two results is no link of a chain.
  ChainProducts(fusion, values, targets, forms);
  // After fusion: joining needs to know which values have buffers.
  JoinGroups(fusion, values, targets, lasting);
  if (!OrderGroups(fusion).ok()) {
    // A reader of an old version needs the new one too: it gets a copy of the old.
    RETURN_IF_ERROR(passes.Run("copy_overwritten", values,
                               [](const PassRunner::Roots& r) { return CopyOverwritten(r); }));
    ASSIGN_OR_RETURN(fusion, Fuse(values, targets));
    ChainProducts(fusion, values, targets, forms);
    JoinGroups(fusion, values, targets, lasting);
    RETURN_IF_ERROR(OrderGroups(fusion));
  }
  ASSIGN_OR_RETURN(Plan plan, MakeKernels(values, fusion, loops, targets, default_device, forms));
  plan.place_variables = std::move(place_variables);
  return plan;
}

absl::Status FinishPlan(Plan& plan, const Targets& targets, const Lasting& lasting) {
  // On finished kernels: what they read decides. Before work division, which goes by their loops.
  PackPanels(plan, targets, lasting.slots, KeepLasting(plan, lasting));
  // After packing, which looks for whole operands; before work division, which is then done once.
  ShareKernels(plan);
  for (PlanKernel& k : plan.kernels) {
    RETURN_IF_ERROR(DivideWork(k, targets.Of(k.device)));
    k.identity = UOp();
  }
  // Last: lifetimes are those of the final order.
  PlanMemory(plan);
  return absl::OkStatus();
}

absl::StatusOr<Plan> Schedule(absl::Span<const UOp> roots, const Targets& targets,
                              Device default_device, bool on_meshes, const Lasting& lasting) {
  IndexForms forms;
  ASSIGN_OR_RETURN(
      Plan plan, ScheduleKernels(roots, targets, default_device, on_meshes, lasting.slots, forms));
  RETURN_IF_ERROR(FinishPlan(plan, targets, lasting));
  return plan;
}

}  // namespace tessera
