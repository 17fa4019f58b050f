// Compositions that look along a whole axis, such as sorting: where that axis is sharded, where
// they are best done.
#pragma once

#include <functional>
#include <vector>

#include "graph/tensor.h"

namespace tessera::internal {

// f(sources), for an f that looks along an axis of the first one. Where that axis is sharded the
// first source stays, or goes where the axis is whole, each place with some of another axis or with
// all of it: f is built of stand-ins in each way, and the way counts that moves the fewest bytes,
// ties to the one named first. f is a function of its arguments alone, and draws no random numbers.
using TensorFn = std::function<std::vector<Tensor>(const std::vector<Tensor>&)>;
std::vector<Tensor> AlongAxis(const std::vector<Tensor>& sources, int axis, const TensorFn& f);

// A result of x's rank cut as x is; pieces of an axis that became longer or shorter are Balanced.
Tensor CutAs(const Tensor& result, const Tensor& x);

}  // namespace tessera::internal
