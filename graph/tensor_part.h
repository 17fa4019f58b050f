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

// The first n elements of an axis, or all of it and zeros; along a symbolic one n are known to be
// there.
inline Tensor FittedTo(const Tensor& t, int axis, const Extent& n) {
  const Extent& have = t.shape()[axis];
  if (have == n) return t;
  if (!have.is_int() || !n.is_int()) return KnownPart(t, axis, 0, n);
  if (have.value() > n.value()) return t.SliceAxis(axis, {0, n});
  Pairs after(t.rank(), {0, 0});
  after[axis] = {0, n - have};
  return t.Pad(after);
}

// The elements of a SHRINK at their places in its source, among zeros: how many come before and
// after may be no expressions whose bounds show that they are not negative, as Pad asks.
Tensor BeforeShrink(const UOp& shrink, const Tensor& part);

// A position along an axis, which may count from the end, as one that counts from the beginning.
Extent NormalPosition(const Tensor& t, int axis, const Extent& position);

}  // namespace tessera::internal
