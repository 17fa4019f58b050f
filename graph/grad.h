// Gradients: the adjoint of a graph, one rule a primitive.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "graph/tensor.h"

namespace tessera {

// The derivative of a loss, a float scalar, by each parameter, on the parameter's device and of its
// shape; zeros for one that the loss does not depend on. A cotangent keeps the placement in which
// it arises on the way. An Error where the path to a parameter holds an assignment; a parameter
// that was itself assigned begins with that. A parameter may depend on another.
//
// What was realised, read or printed before the loss was written stands for its values alone,
// unless it was computed from a tensor that was marked with RequireGrad: its history is kept. An
// Error where a gradient is seen to be lost by that.
//
// Ties of Max and Min share alike, and so do those of what is made of them, as Clip at its limits.
// Of other functions with a kink the derivative is that of one side, of rounding and of comparisons
// it is 0.
std::vector<Tensor> Grad(const Tensor& loss, absl::Span<const Tensor> parameters,
                         CallSite at = CallSite::Here());

}  // namespace tessera
