// What ordering and selecting are made of.
#pragma once

#include "graph/tensor.h"

namespace tessera::internal {

// Unsigned numbers in the elements' order: -0 is 0, and NaN above all. Of u32 or u64.
Tensor OrderOf(const Tensor& x, bool descending);

// Whether it takes so few comparisons to compare every element with all others of its axis that
// other ways of sorting take longer to start: fixed extents only.
bool IsFewComparisons(const Tensor& x, int a);

// Positions along an axis in order, equal ones as they come; the axis is moved to the last one.
Tensor SortedIndex(const Tensor& x, int a, bool descending);

// What comes of one tensor, looked at along an axis where that is best done.
using OfOne = std::function<std::vector<Tensor>(const Tensor&)>;
ValuesAndIndices PairAlong(const Tensor& x, int axis, const OfOne& f);

}  // namespace tessera::internal
