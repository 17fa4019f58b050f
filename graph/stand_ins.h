// Results in their own derivatives.
#pragma once

#include "absl/types/span.h"
#include "graph/rewrite.h"

namespace tessera {

// Of the nodes of a graph: Detach of what something stands in for, in the place of which gradients
// have that something. A derivative written with the result, which is a constant while it is taken,
// so has the result's own derivative when it is differentiated in turn.
Substitution ResultsInDerivatives(absl::Span<const UOp> nodes);

}  // namespace tessera
