// Parts of tensors for compositions that know where they lie.
#pragma once

#include "graph/tensor.h"

namespace tessera::internal {

// Elements begin .. end of an axis, which are known to lie in it: Slice would cut symbolic bounds
// that are not proved to.
inline Tensor KnownPart(const Tensor& t, int axis, const Extent& begin, const Extent& end) {
  Pairs pairs;
  for (int i = 0; i < t.rank(); ++i) {
    if (i == axis) {
      pairs.emplace_back(begin, end);
    } else {
      pairs.emplace_back(Extent(0), t.shape()[i]);
    }
  }
  return t.Shrink(pairs);
}

}  // namespace tessera::internal
