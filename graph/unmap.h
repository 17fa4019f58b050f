// Per-place programs written out: what the reference evaluates in their stead.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "graph/uop.h"

namespace tessera {

// The roots as graphs without LOCAL, GLOBAL and PASS, of the same values: what each place has as
// its own is a node for each coordinate along the mesh dims that are Manual, all on one place.
// Other nodes stay themselves. With `stop_at_realized` what was computed is not looked into. An
// error where a root is itself each place's own.
absl::StatusOr<std::vector<UOp>> WithoutPrograms(absl::Span<const UOp> roots,
                                                 bool stop_at_realized);

}  // namespace tessera
