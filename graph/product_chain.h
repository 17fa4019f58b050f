// Two products in one kernel, the first of which is, row by row, within an operand of the second:
// softmax(Q K^T) V. What lies between them reduces whole rows of the first.
#pragma once

#include <optional>
#include <vector>

#include "graph/kernel_form.h"

namespace tessera {

struct ProductChain {
  UOp first, second;    // REDUCEs
  UOp weights, values;  // the operands of the second; the first is below the weights
  // The loops of the kernel's store: those that only the weights depend on, only the values, and
  // all others.
  std::vector<UOp> rows, columns, batch;
  std::vector<UOp> inner;  // what the second sums over
};

// The chain of a kernel with one store in index form, or nothing.
std::optional<ProductChain> FindProductChain(const RangeSets& sets);

}  // namespace tessera
