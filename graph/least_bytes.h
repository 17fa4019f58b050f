// The least that a tensor graph must move between places, counted element by element.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/types/span.h"
#include "graph/uop.h"

namespace tessera {

// Over all nodes that are not realised yet: what places need for their parts of the result and do
// not have of the sources; of an ALLREDUCE of n bytes over P places 2 (P - 1) n. Shapes are static.
// None where that takes more than `most` positions to be looked at.
std::optional<int64_t> LeastBytes(absl::Span<const UOp> roots, int64_t most = INT64_MAX);

}  // namespace tessera
