// Two products in one kernel, the first of which is, row by row, within an operand of the second:
// softmax(Q K^T) V. What lies between them reduces whole rows of the first.
#pragma once

#include <optional>
#include <vector>

#include "graph/kernel_form.h"
#include "graph/target.h"

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

// How a block of a GPU's threads takes rows of a chain through all of it: so many rows and columns
// of the result, so many keys (what the second product sums over) at a time, and all steps of the
// first product's sum.
struct ChainTile {
  static constexpr int64_t kThreads = 256;
  int64_t rows = 0, keys = 0, columns = 0, steps = 0;
  UOp queries, key;  // the operands of the first product, by what they vary over: rows, and keys
};

// Nothing where that does not fit into the target's blocks, or is no work for them.
std::optional<ChainTile> ChainTileFor(const ProductChain& chain, const RangeSets& sets,
                                      const Target& target);

}  // namespace tessera
