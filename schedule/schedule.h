// The scheduler: tensors to realise in, a Plan out.
#pragma once

#include "absl/status/statusor.h"
#include "graph/target.h"
#include "schedule/plan.h"

namespace tessera {

// Schedules the roots. Their leaves are PARAMs, one slot a buffer; a root that is an ASSIGN is
// computed into the buffer of its base. What has no device gets the default one.
// `on_meshes`: whether any node of the graph may be on a Sharding.
absl::StatusOr<Plan> Schedule(absl::Span<const UOp> roots, const Target& target,
                              Device default_device, bool on_meshes);

}  // namespace tessera
