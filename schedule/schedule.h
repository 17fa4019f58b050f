// The scheduler: tensors to realise in, a Plan out.
#pragma once

#include "absl/status/statusor.h"
#include "schedule/plan.h"
#include "schedule/rangeify.h"
#include "schedule/targets.h"

namespace tessera {

// Schedules the roots. Their leaves are PARAMs, one slot a buffer; a root that is an ASSIGN is
// computed into the buffer of its base. What has no device gets the default one. Each kernel is
// made for the target of its own device.
// `on_meshes`: whether any node of the graph may be on a Sharding. `lasting`: what does not change
// from one run of the plan to the next. The runtime calls its two halves, below; this is for a
// graph that is scheduled whole and not run.
absl::StatusOr<Plan> Schedule(absl::Span<const UOp> roots, const Targets& targets,
                              Device default_device, bool on_meshes, const Lasting& lasting = {});

// Its two halves, for plans that are made of parts: kernels and steps, their work not yet divided
// and their temps without memory; and what is decided on the whole of them. `lasting`: as Lasting's
// slots; `forms`: kernels of the other parts.
absl::StatusOr<Plan> ScheduleKernels(absl::Span<const UOp> roots, const Targets& targets,
                                     Device default_device, bool on_meshes,
                                     const std::vector<bool>& lasting, IndexForms& forms);
absl::Status FinishPlan(Plan& plan, const Targets& targets, const Lasting& lasting);

}  // namespace tessera
