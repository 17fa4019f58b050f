// Limits to gradients, between Backward and a step:
//
//   loss.Backward();
//   ClipGradNorm({w, b}, 1);
//   adam.Step();
#pragma once

#include "absl/types/span.h"
#include "graph/tensor.h"

namespace tessera {

// Makes all gradients smaller by one factor where their p-norm, of all their elements together, is
// above `most`. Gives that norm as it was, on the device of the first, where they may lie on
// several. p is above 0 or infinite. What has no gradient does not count; of none it is 0.
Tensor ClipGradNorm(absl::Span<const Tensor> parameters, double most, double p = 2,
                    CallSite at = CallSite::Here());

// Makes each element of the gradients no less than -most and no more than most.
void ClipGradValue(absl::Span<const Tensor> parameters, double most,
                   CallSite at = CallSite::Here());

}  // namespace tessera
