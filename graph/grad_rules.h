// The derivatives of elementwise ops.
#pragma once

#include "graph/tensor.h"

namespace tessera {

// The cotangent of source i of an elementwise node, given the node's; empty where it is 0.
Tensor ElementwiseCotangent(const UOp& u, int i, const Tensor& g);

}  // namespace tessera
