// Realising with values for Variables.
#pragma once

#include <vector>

#include "graph/tensor.h"
#include "runtime/runtime.h"

namespace tessera {

// Computes the tensors with these values of the Variables in them. The results have numbers for
// extents; the tensors themselves stay the expressions that they are, to be computed with other
// values, except that assignments in them are done once, now.
std::vector<Tensor> Realize(const std::vector<Tensor>& tensors, const Bindings& values,
                            CallSite at = CallSite::Here());

}  // namespace tessera
