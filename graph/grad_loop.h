// The adjoint of a LOOP: a loop that goes back, and computes each turn again.
#pragma once

#include <functional>
#include <map>
#include <vector>

#include "graph/grad_data.h"

namespace tessera {

// Of the inputs, leaves of the outputs' graphs, given cotangents of the outputs; empty where
// nothing flows.
using Pullback = std::function<std::vector<Tensor>(absl::Span<const UOp> outputs,
                                                   absl::Span<const Tensor> cotangents,
                                                   absl::Span<const UOp> inputs)>;

// What flows to a node.
struct Flow {
  UOp to;
  Tensor cotangent;
};

// What flows to the sources of the loop for which `needs` holds, given cotangents of its results by
// number; to what they are another view of, unless that `ends`: is asked for itself.
std::vector<Flow> LoopCotangents(const UOp& loop, const std::map<int, Tensor>& of_results,
                                 const std::function<bool(const UOp&)>& needs,
                                 const std::function<bool(const UOp&)>& ends,
                                 const Pullback& pullback);

}  // namespace tessera
