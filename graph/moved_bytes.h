// What a tensor graph moves between places, by the boxes of its parts: quick, for choosing between
// two ways to write one thing.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "graph/uop.h"

namespace tessera {

// Over all nodes that are not realised yet; the same number as LeastBytes (graph/least_bytes.h)
// counts, in a time that does not grow with the extents. Symbolic ones count with their highest
// values. INT64_MAX where the number does not fit.
int64_t MovedBytes(absl::Span<const UOp> roots);

// Elements that an ALLREDUCE (2 (P - 1) n of n over P places) or PASS moves.
int64_t CollectiveElements(const UOp& u);

}  // namespace tessera
