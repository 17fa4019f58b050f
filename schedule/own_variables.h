// The variables of per-place programs that are each place's own.
#pragma once

#include <vector>

#include "schedule/localise.h"

namespace tessera {

// The extents below these nodes that OwnSizesOf knows, for each per-place mesh that has their
// dimensions.
std::vector<PlaceVariable> OwnVariables(absl::Span<const UOp> roots);

}  // namespace tessera
