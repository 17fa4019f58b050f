// Loops written out.
#pragma once

#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/uop.h"

namespace tessera {

// The roots as graphs without LOOPs, or without those of which `which` holds, of the same values:
// each turn is a copy of the body. An error where the number of turns is an expression. With
// `stop_at_realized` what was computed is not looked into.
absl::StatusOr<std::vector<UOp>> WithoutLoops(
    absl::Span<const UOp> roots, bool stop_at_realized,
    const std::function<bool(const UOp& loop)>& which = [](const UOp&) { return true; });

}  // namespace tessera
