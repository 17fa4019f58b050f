// Loops written out.
#pragma once

#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/uop.h"

namespace tessera {

// The roots as graphs without LOOPs, of the same values: each turn is a copy of the body. Where
// the number of turns is an expression, `turns_of` says how many it is; without it that is an
// error. With `stop_at_realized` what was computed is not looked into.
using TurnsOf = std::function<absl::StatusOr<int64_t>(const UOp& turns)>;
absl::StatusOr<std::vector<UOp>> WithoutLoops(absl::Span<const UOp> roots, bool stop_at_realized,
                                              const TurnsOf& turns_of = nullptr);

}  // namespace tessera
